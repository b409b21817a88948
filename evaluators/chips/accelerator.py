"""An accelerator that torch drives through a device module: all that back ends have in common.

A vendor's file is one `Accelerator` of facts. Torch is imported by the methods, not here, and
nothing is probed before `detect`. Out-of-tree back ends may use this class too.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernelmark.evaluators.chips.base import (
    COMMON_DTYPES,
    NEVER,
    Detection,
    Health,
    Memory,
    Peaks,
    missing_dtypes,
)
from kernelmark.evaluators.grading.records import Attestation

#: torch's 8-bit float formats that Triton knows
FLOAT8 = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")
T = 1e12
GB = 1e9
MIB = 1 << 20

#: names of devices behind torch's `cuda`, by the vendor that gives them; first match
_CUDA_NAMES = (
    ("iluvatar", re.compile(r"iluvatar|\bbi-?v\d|\bmr-?v\d", re.IGNORECASE)),
    ("metax", re.compile(r"metax|\bmxc\d", re.IGNORECASE)),
    ("hygon", re.compile(r"hygon|\bdcu\b|\bk100|\bz100|\bbw\d+", re.IGNORECASE)),
    ("amd", re.compile(r"\bamd\b|instinct|radeon|\bgfx\d|\bmi\d{3}", re.IGNORECASE)),
    ("nvidia", re.compile(r"nvidia|tesla|geforce|quadro|\btitan\b", re.IGNORECASE)),
)
#: marks that vendors leave in the version of their torch (``2.4.1+das.opt2.dtk2504``)
_CUDA_VERSIONS = (
    ("iluvatar", re.compile(r"corex")),
    ("metax", re.compile(r"metax|maca")),
    ("hygon", re.compile(r"dtk|\bdas\b")),
)


def cuda_vendor(torch: Any, name: str) -> str:
    """Whose device this is, where torch calls it ``cuda``; empty where that can't be told.

    By what the vendor's torch says of itself, then by the device's name; a torch built for HIP is
    AMD's or Hygon's whatever the name.
    """
    if hasattr(torch, "corex"):
        return "iluvatar"
    version = str(torch.__version__).lower()
    for vendor, mark in _CUDA_VERSIONS:
        if mark.search(version):
            return vendor
    hip = getattr(torch.version, "hip", None)
    for vendor, known in _CUDA_NAMES:
        if known.search(name):
            return vendor if not hip or vendor in ("amd", "hygon") else ""
    return "amd" if hip else ""


def no_version() -> str:
    """Where a driver tells no version."""
    return ""


def no_driver() -> None:
    """Where Triton's driver needs nothing before the forks."""


def version_in(path: str, pattern: str) -> Callable[[], str]:
    """Reads a driver's version from a file of the system; empty where there is none."""

    def read() -> str:
        try:
            found = re.search(pattern, Path(path).read_text())
        except OSError:
            return ""
        return found[1] if found else ""

    return read


@dataclass(eq=False)
class Accelerator:
    """A `Chip` that executes. `skus` are (pattern of the device name, peaks), first match."""

    name: str
    vendor: str
    device: str
    visible_variable: str
    notes: str
    skus: tuple[tuple[str, Peaks], ...] = ()
    last_level_cache_bytes: int = 64 * MIB  #: of a SKU that is not in `skus`
    dtypes: frozenset[str] = COMMON_DTYPES
    plugin: str = ""
    profiler: str = ""
    environment: dict[str, str] = field(default_factory=dict)  #: for runners, unless already set
    driver_version: Callable[[], str] = no_version
    preload_driver: Callable[[], None] = no_driver  #: before the forks; makes no device context
    verified_on: str = NEVER
    attests: Attestation = "executed"

    def detect(self) -> Detection:
        """Looks for torch, the plug-in, the device, its vendor, and triton, in this order."""
        try:
            return self._detect()
        except Exception as error:  # a broken driver or plug-in may raise anything
            return Detection(False, f"asking torch failed: {type(error).__name__}: {error}")

    def _detect(self) -> Detection:
        for module in ("torch", *([self.plugin] if self.plugin else [])):
            if importlib.util.find_spec(module) is None:
                return Detection(False, f"{module} is not installed")
        torch = self._torch()
        device = getattr(torch, self.device, None)
        if device is None:
            return Detection(False, f"this torch has no {self.device} device")
        if not device.is_available() or not device.device_count():
            return Detection(False, f"torch {torch.__version__} sees no {self.device} device")
        sku = str(device.get_device_name(0))
        whose = cuda_vendor(torch, sku) if self.device == "cuda" else self.vendor
        if whose != self.vendor:
            return Detection(False, f"the cuda device here is {sku} ({whose or 'unknown vendor'})")
        if importlib.util.find_spec("triton") is None:
            return Detection(False, f"{sku} is here, but triton is not installed")
        count = int(device.device_count())
        return Detection(True, f"{count} × {sku}", sku, count, self.driver_version())

    def prepare(self, environment: dict[str, str], index: int) -> None:
        """Shows a runner one accelerator: number `index` of those visible here.

        Raises `ValueError` where fewer are visible.
        """
        visible = environment.get(self.visible_variable) or os.environ.get(self.visible_variable)
        numbers = [part.strip() for part in visible.split(",")] if visible else None
        if numbers is not None and index >= len(numbers):
            raise ValueError(f"{self.visible_variable}={visible} shows no accelerator {index}")
        environment[self.visible_variable] = numbers[index] if numbers else str(index)
        environment.pop("TRITON_INTERPRET", None)
        for name, value in self.environment.items():
            environment.setdefault(name, value)

    def preload(self) -> None:
        """Names Triton by its version, and lets the vendor's file prepare its driver."""
        from kernelmark.evaluators.chips import _compiling

        _compiling.never_hash_triton()
        self.preload_driver()

    def activate(self) -> None:
        """Imports the plug-in, which registers the device with torch."""
        self._torch()

    def synchronize(self) -> None:
        """Waits for all streams of the current accelerator."""
        self._module().synchronize()

    def peaks(self, sku: str) -> Peaks | None:
        """Ceilings of a SKU; None where they are not known."""
        return next((peaks for known, peaks in self.skus if re.search(known, sku)), None)

    def flush_bytes(self, sku: str) -> int:
        """Twice the last-level cache."""
        return 2 * self._cache_bytes(sku)

    def memory(self, index: int = 0) -> Memory | None:
        """Free and total bytes of accelerator `index`, as its runtime tells them."""
        ask = getattr(self._module(), "mem_get_info", None)
        if ask is None:
            return None
        free, total = ask(index)
        return Memory(int(free), int(total))

    def health(self, index: int = 0) -> Health:
        """Adds and multiplies 64 by 64 twos there: the sum must be 64³ · 4."""
        try:
            torch = self._torch()
            twos = torch.full((64, 64), 2.0, device=f"{self.device}:{index}")
            total = float((twos @ twos).sum().item())
            self.synchronize()
        except Exception as error:  # whatever a sick device raises
            return Health(False, f"{type(error).__name__}: {error}")
        expected = float(64**3 * 4)
        return Health(total == expected, f"a known sum came out as {total:g} of {expected:g}")

    def unsupported(self, dtypes: tuple[str, ...]) -> str:
        """Why a case of these dtypes cannot run here; empty where it can."""
        return missing_dtypes(self.name, self.dtypes, dtypes)

    def timer(self) -> Any | None:
        """The device trace where there is one, else events; flushes this SKU's cache."""
        from kernelmark.evaluators.grading import timing

        clock = "trace" if self.profiler else "events"
        sku = str(self._module().get_device_name(0))
        return timing.timer_for(self.device, self._cache_bytes(sku), clock=clock)

    def _cache_bytes(self, sku: str) -> int:
        peaks = self.peaks(sku)
        return peaks.last_level_cache_bytes if peaks else self.last_level_cache_bytes

    def _torch(self) -> Any:
        torch = importlib.import_module("torch")
        if self.plugin:
            importlib.import_module(self.plugin)
        return torch

    def _module(self) -> Any:
        return getattr(self._torch(), self.device)


def peaks(source: str, gb_per_s: float, cache_mib: int, **tflops: float) -> Peaks:
    """`Peaks` in the units of data sheets: GB/s, MiB, dense TFLOP/s (or TOP/s) by dtype.

    ``float16`` stands for ``bfloat16`` too, and ``float8`` for all 8-bit formats, unless given.
    """
    flops = {name: value * T for name, value in tflops.items()}
    if "float16" in flops:
        flops.setdefault("bfloat16", flops["float16"])
    if (eight := flops.pop("float8", None)) is not None:
        flops |= dict.fromkeys(FLOAT8, eight)
    return Peaks(gb_per_s * GB, flops, cache_mib * MIB, source)
