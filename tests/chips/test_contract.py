"""The contract that every accelerator's adapter keeps, against a simulated torch.

What nobody here can run is tested like this: a torch whose device module counts calls, answers as
that vendor's does, and fails on demand. `test_broken_adapters_fail` breaks an adapter in each
respect and sees the suite go red.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import replace
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from kernelmark.evaluators.chips import accelerator
from kernelmark.evaluators.chips.accelerator import Accelerator
from kernelmark.evaluators.chips.base import Detection, Health, Memory, Peaks
from kernelmark.evaluators.chips.registry import all_chips
from kernelmark.evaluators.grading import timing

ACCELERATORS = [c for c in all_chips().values() if isinstance(c, Accelerator)]

#: vendor -> (device name, torch version, torch.version.hip, a SKU whose peaks are known)
MACHINES: dict[str, tuple[str, str, str | None, str]] = {
    "nvidia": ("NVIDIA H200", "2.11.0+cu128", None, "NVIDIA H200"),
    "amd": ("AMD Instinct MI300X", "2.9.0+rocm6.4", "6.4.1", "AMD Instinct MI300X"),
    "intel": (
        "Intel(R) Data Center GPU Max 1550",
        "2.9.0+xpu",
        None,
        "Intel(R) Data Center GPU Max 1550",
    ),
    "ascend": ("Ascend910B3", "2.8.0", None, ""),
    "musa": ("MTT S4000", "2.8.0", None, "MTT S4000"),
    "hygon": ("K100_AI", "2.8.0+das.opt1.dtk2504", "6.3", ""),
    "iluvatar": ("Iluvatar BI-V150", "2.8.0+corex.4.4.0", None, ""),
    "metax": ("MetaX C500", "2.8.0+metax3.2", None, "MetaX C500"),
}


class FakeDevice:
    """A torch device module with two accelerators."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.present = True
        self.sick = ""
        self.synchronized = 0

    def is_available(self) -> bool:
        return self.present

    def device_count(self) -> int:
        return 2 if self.present else 0

    def get_device_name(self, index: int = 0) -> str:
        return self.name

    def synchronize(self) -> None:
        self.synchronized += 1
        if self.sick == "raises":
            raise RuntimeError("device-side assert")

    def mem_get_info(self, index: int = 0) -> tuple[int, int]:
        return 3 << 30, 4 << 30


class FakeTensor:
    def __init__(self, value: float) -> None:
        self.value = value

    def __matmul__(self, other: FakeTensor) -> FakeTensor:
        return self

    def sum(self) -> FakeTensor:
        return self

    def item(self) -> float:
        return self.value


class Machine:
    """A machine of one vendor: its torch, its plug-in, its triton."""

    def __init__(self, vendor: str, monkeypatch: pytest.MonkeyPatch) -> None:
        name, version, hip, _ = MACHINES[vendor]
        self.monkeypatch = monkeypatch
        chip = all_chips()[vendor]
        self.device = FakeDevice(name)
        self.missing: set[str] = set()
        self.imported: list[str] = []
        self.made_on: list[str] = []
        self.torch = SimpleNamespace(
            __version__=version, version=SimpleNamespace(hip=hip, cuda=None), full=self._full
        )
        setattr(self.torch, chip.device, self.device)
        modules = SimpleNamespace(import_module=self._import, util=importlib.util)
        monkeypatch.setattr(accelerator, "importlib", modules)
        monkeypatch.setattr(importlib.util, "find_spec", self._find)

    def _full(self, shape: tuple[int, ...], value: float, device: str) -> FakeTensor:
        self.made_on.append(device)
        right = 64.0**3 * 4
        return FakeTensor(right + 1 if self.device.sick == "wrong" else right)

    def _import(self, name: str) -> Any:
        self.imported.append(name)
        return self.torch if name == "torch" else ModuleType(name)

    def _find(self, name: str) -> object | None:
        return None if name in self.missing else object()


Contract = Callable[[Accelerator, Machine], None]


def detects_its_hardware(chip: Accelerator, machine: Machine) -> None:
    found = chip.detect()
    assert found.usable, found.why
    assert (found.sku, found.count) == (machine.device.name, 2)


def says_what_is_missing(chip: Accelerator, machine: Machine) -> None:
    for module in ("torch", "triton", *([chip.plugin] if chip.plugin else [])):
        machine.missing = {module}
        found = chip.detect()
        assert not found.usable
        assert module in found.why
    machine.missing = set()
    machine.device.present = False
    found = chip.detect()
    assert not found.usable
    assert chip.device in found.why
    machine.device.present = True


def detection_never_raises(chip: Accelerator, machine: Machine) -> None:
    def broken(index: int = 0) -> str:
        raise OSError("driver/library mismatch")

    machine.device.get_device_name = broken  # type: ignore[method-assign]
    found = chip.detect()
    assert not found.usable
    assert "driver/library mismatch" in found.why


def shows_a_runner_one_device(chip: Accelerator, machine: Machine) -> None:
    environment = {"TRITON_INTERPRET": "1"}
    chip.prepare(environment, 1)
    assert environment[chip.visible_variable] == "1"
    assert "TRITON_INTERPRET" not in environment
    narrowed = {chip.visible_variable: "4,6"}
    chip.prepare(narrowed, 1)
    assert narrowed[chip.visible_variable] == "6"
    with pytest.raises(ValueError, match="shows no accelerator 2"):
        chip.prepare({chip.visible_variable: "4,6"}, 2)
    with pytest.MonkeyPatch.context() as patch:  # what the user hid stays hidden
        patch.setenv(chip.visible_variable, "3,5")
        environment = {}
        chip.prepare(environment, 1)
        assert environment[chip.visible_variable] == "5"


def imports_its_plugin_and_no_more(chip: Accelerator, machine: Machine) -> None:
    machine.imported.clear()
    chip.activate()
    assert machine.imported == ["torch", *([chip.plugin] if chip.plugin else [])]


def waits_for_its_device(chip: Accelerator, machine: Machine) -> None:
    before = machine.device.synchronized
    chip.synchronize()
    assert machine.device.synchronized == before + 1


def knows_peaks_with_source(chip: Accelerator, machine: Machine) -> None:
    known = MACHINES[chip.name][3]
    if known:
        peaks = chip.peaks(known)
        assert isinstance(peaks, Peaks)
        assert "20" in peaks.source
        assert 1e11 < peaks.bytes_per_s < 1e13
        assert all(1e11 < f < 1e16 for f in peaks.flops_per_s.values())
    assert chip.peaks("no such thing") is None


def flushes_twice_its_cache(chip: Accelerator, machine: Machine) -> None:
    for sku in (machine.device.name, "no such thing"):
        peaks = chip.peaks(sku)
        cache = peaks.last_level_cache_bytes if peaks else chip.last_level_cache_bytes
        assert chip.flush_bytes(sku) >= 2 * cache > 0


def tells_memory(chip: Accelerator, machine: Machine) -> None:
    assert chip.memory(1) == Memory(3 << 30, 4 << 30)
    del FakeDevice.mem_get_info
    try:
        assert chip.memory(1) is None
    finally:
        FakeDevice.mem_get_info = _mem_get_info


def finds_sick_devices(chip: Accelerator, machine: Machine) -> None:
    machine.made_on.clear()
    assert chip.health(1).ok
    assert machine.made_on == [f"{chip.device}:1"]
    machine.device.sick = "wrong"
    assert not chip.health(1).ok
    machine.device.sick = "raises"
    sick = chip.health(1)
    assert not sick.ok
    assert "device-side assert" in sick.why
    machine.device.sick = ""


def refuses_dtypes_it_lacks(chip: Accelerator, machine: Machine) -> None:
    assert chip.unsupported(("float32", "float16", "int32")) == ""
    assert "float8_made_up" in chip.unsupported(("float32", "float8_made_up"))


def says_who_it_is(chip: Accelerator, machine: Machine) -> None:
    assert chip.attests == "executed"
    assert chip.verified_on
    assert chip.notes.strip()
    assert {"float32", "float16", "int64"} <= chip.dtypes


def leaves_other_vendors_devices_alone(chip: Accelerator, machine: Machine) -> None:
    if chip.device != "cuda":
        assert chip.device not in {c.device for c in ACCELERATORS if c.name != chip.name}
        return
    foreign = "nvidia" if chip.name != "nvidia" else "amd"
    name, version, hip, _ = MACHINES[foreign]
    machine.device.name = name
    machine.torch.__version__ = version
    machine.torch.version = SimpleNamespace(hip=hip, cuda=None)
    found = chip.detect()
    assert not found.usable
    assert name in found.why
    assert foreign in found.why


def tells_its_driver(chip: Accelerator, machine: Machine) -> None:
    kept, chip.driver_version = chip.driver_version, lambda: "1.2.3"
    try:
        assert chip.detect().driver == "1.2.3"
    finally:
        chip.driver_version = kept


def preloads_without_touching_a_device(chip: Accelerator, machine: Machine) -> None:
    machine.made_on.clear()
    synchronized = machine.device.synchronized
    chip.preload()
    assert not machine.made_on
    assert machine.device.synchronized == synchronized


def times_by_its_own_clock_and_cache(chip: Accelerator, machine: Machine) -> None:
    asked: list[tuple[str, int, str]] = []

    def timer_for(device: str, cache: int, *, clock: str) -> str:
        asked.append((device, cache, clock))
        return "a timer"

    machine.monkeypatch.setattr(timing, "timer_for", timer_for)
    assert chip.timer() == "a timer"
    ((device, cache, clock),) = asked
    assert device == chip.device
    assert 2 * cache == chip.flush_bytes(machine.device.name)
    assert clock == ("trace" if chip.profiler else "events")


_mem_get_info = FakeDevice.mem_get_info
CONTRACTS: list[Contract] = [
    detects_its_hardware,
    says_what_is_missing,
    detection_never_raises,
    shows_a_runner_one_device,
    imports_its_plugin_and_no_more,
    waits_for_its_device,
    knows_peaks_with_source,
    flushes_twice_its_cache,
    tells_memory,
    finds_sick_devices,
    refuses_dtypes_it_lacks,
    says_who_it_is,
    leaves_other_vendors_devices_alone,
    tells_its_driver,
    preloads_without_touching_a_device,
    times_by_its_own_clock_and_cache,
]


def test_every_vendor_has_a_machine() -> None:
    assert {chip.name for chip in ACCELERATORS} == set(MACHINES)


@pytest.mark.parametrize("contract", CONTRACTS, ids=lambda c: c.__name__)
@pytest.mark.parametrize("chip", ACCELERATORS, ids=lambda c: c.name)
def test_contract(chip: Accelerator, contract: Contract, monkeypatch: pytest.MonkeyPatch) -> None:
    contract(chip, Machine(chip.name, monkeypatch))


@pytest.mark.parametrize("machine", [c for c in ACCELERATORS if c.device == "cuda"])
def test_one_vendor_only_claims_a_cuda_device(
    machine: Accelerator, monkeypatch: pytest.MonkeyPatch
) -> None:
    Machine(machine.name, monkeypatch)
    claims = [c.name for c in ACCELERATORS if c.device == "cuda" and c.detect().usable]
    assert claims == [machine.name]


def test_nobody_claims_an_unknown_cuda_device(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine("nvidia", monkeypatch)
    machine.device.name = "Frobnicator 9000"
    found = [c.detect() for c in ACCELERATORS if c.device == "cuda"]
    assert not any(f.usable for f in found)
    assert all("unknown vendor" in f.why for f in found)


class Broken(Accelerator):
    """An adapter that does wrong in the respect called `respect`."""

    respect = ""

    def detect(self) -> Detection:
        if self.respect == "detects_its_hardware":
            return Detection(False, "not found")
        if self.respect == "says_what_is_missing":
            return Detection(True, "surely here", "some", 2)
        if self.respect == "detection_never_raises":
            return self._detect()
        if self.respect == "leaves_other_vendors_devices_alone":
            return Detection(True, "mine, surely", "some", 2)
        if self.respect == "tells_its_driver":
            return replace(super().detect(), driver="")
        return super().detect()

    def preload(self) -> None:
        super().preload()
        if self.respect == "preloads_without_touching_a_device":
            self._torch().full((1,), 0.0, device=f"{self.device}:0")

    def timer(self) -> Any | None:
        if self.respect == "times_by_its_own_clock_and_cache":
            return timing.timer_for(self.device, 1 << 20, clock="events")
        return super().timer()

    def prepare(self, environment: dict[str, str], index: int) -> None:
        if self.respect == "shows_a_runner_one_device":
            environment[self.visible_variable] = "0"
        else:
            super().prepare(environment, index)

    def activate(self) -> None:
        if self.respect != "imports_its_plugin_and_no_more":
            super().activate()

    def synchronize(self) -> None:
        if self.respect != "waits_for_its_device":
            super().synchronize()

    def peaks(self, sku: str) -> Peaks | None:
        if self.respect == "knows_peaks_with_source":
            return Peaks(1e12, {}, 1 << 20, "")
        return super().peaks(sku)

    def flush_bytes(self, sku: str) -> int:
        return 1 << 20 if self.respect == "flushes_twice_its_cache" else super().flush_bytes(sku)

    def memory(self, index: int = 0) -> Memory | None:
        return Memory(0, 0) if self.respect == "tells_memory" else super().memory(index)

    def health(self, index: int = 0) -> Health:
        if self.respect == "finds_sick_devices":
            return Health(True, "fine, surely")
        return super().health(index)

    def unsupported(self, dtypes: tuple[str, ...]) -> str:
        return "" if self.respect == "refuses_dtypes_it_lacks" else super().unsupported(dtypes)


@pytest.mark.parametrize("contract", CONTRACTS, ids=lambda c: c.__name__)
def test_broken_adapters_fail(contract: Contract, monkeypatch: pytest.MonkeyPatch) -> None:
    right = next(c for c in ACCELERATORS if c.name == "nvidia")
    values = {name: getattr(right, name) for name in right.__dataclass_fields__}
    broken = Broken(**values)
    contract(broken, Machine("nvidia", monkeypatch))  # unbroken yet: it passes
    broken.respect = contract.__name__
    if contract is says_who_it_is:
        broken = replace(broken, verified_on="")
    with pytest.raises((AssertionError, OSError, pytest.fail.Exception)):
        contract(broken, Machine("nvidia", monkeypatch))
