"""The judge's side of the latch and of telemetry, with a thread and a library as partners."""

from __future__ import annotations

import ctypes
import mmap
import threading
import time
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch

from kernelmark.evaluators.grading import latch as module
from kernelmark.evaluators.grading import telemetry
from kernelmark.evaluators.grading.latch import Latch, LatchError
from kernelmark.evaluators.grading.stopwatch import Stopwatch


def device(fd: int, ticket: int, copy_s: float, work_s: float) -> None:
    """What the GPU does: waits for one word, copies, writes another, works, writes the third."""
    page = mmap.mmap(fd, 4096)
    go = ctypes.c_uint32.from_buffer(page, module._GO)
    begun = ctypes.c_uint32.from_buffer(page, module._BEGUN)
    done = ctypes.c_uint32.from_buffer(page, module._DONE)
    while go.value < ticket:
        time.sleep(0)
    time.sleep(copy_s)
    begun.value = ticket
    time.sleep(work_s)
    done.value = ticket


def test_the_judge_sees_how_long_the_calls_took_and_not_the_copies() -> None:
    latch = Latch()
    for work_s in (0.05, 0.1):
        ticket = latch.next_ticket()
        partner = threading.Thread(target=device, args=(latch.fd, ticket, 0.5, work_s))
        partner.start()
        latch.release(ticket)
        elapsed_s = latch.span_us(ticket, 5) / 1e6
        partner.join()
        assert 0.9 * work_s <= elapsed_s < work_s + 0.3
    latch.close()


def test_a_device_that_never_finishes_is_an_error_in_time() -> None:
    latch = Latch()
    ticket = latch.next_ticket()
    latch.release(ticket)
    with pytest.raises(LatchError, match="not done"):
        latch.span_us(ticket, 0.05)


def test_a_kernel_precedes_the_timed_calls_also_where_nothing_is_copied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    happened: list[object] = []

    class Spy:
        def queue(self, copies: Any, calls: Any, ticket: int, stream: int) -> None:
            for each in copies:
                each()
            happened.append("begun")
            for each in calls:
                each()

    stream = SimpleNamespace(cuda_stream=0)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: stream)
    monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: happened.append("kernel"))
    watch = Stopwatch(None, lambda n: None, happened.append, lambda: None)  # type: ignore[arg-type]
    watch.latch = Spy()  # type: ignore[assignment]
    watch.use(range(2))
    watch.queue(2, ticket=1)
    assert happened == ["kernel", "begun", 0, 1]


def test_an_answer_to_an_earlier_ticket_does_not_count() -> None:
    latch = Latch()
    first = latch.next_ticket()
    latch.release(first)
    device(latch.fd, first, 0, 0)
    latch.span_us(first, 1)
    second = latch.next_ticket()
    latch.release(second)
    with pytest.raises(LatchError):
        latch.span_us(second, 0.05)


@pytest.mark.parametrize(
    ("bits", "words"),
    [
        (0, ()),
        (0x4, ("sw_power_cap",)),
        (0x48, ("hw_slowdown", "hw_thermal_slowdown")),
        (0x1000, ("0x1000",)),
    ],
)
def test_throttle_reasons_have_words(bits: int, words: tuple[str, ...]) -> None:
    assert telemetry.decode(bits) == words


def test_strangers_are_others_than_us() -> None:
    import os

    assert telemetry.strangers([os.getpid(), 7, 8], ours=[7]) == 1


def test_a_missing_nvml_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(telemetry.ctypes, "CDLL", missing)
    with telemetry.Telemetry() as found:
        pass
    assert "cannot open" in found.summary.source
    assert found.summary.other_processes is None
    assert found.summary.sm_clock_mhz == ()


class FakeNvml:
    """A library that answers as NVML does; `codes` makes a call fail."""

    def __init__(self, codes: dict[str, int]) -> None:
        self._codes = codes

    def __getattr__(self, name: str) -> Any:
        answer = FakeCall(name, self._codes.get(name, 0))
        setattr(self, name, answer)
        return answer


class FakeCall:
    numbers: ClassVar[dict[str, int]] = {
        "nvmlDeviceGetClockInfo": 1980,
        "nvmlDeviceGetTemperature": 36,
        "nvmlDeviceGetPowerUsage": 128_649,
        "nvmlDeviceGetCurrentClocksThrottleReasons": 0x24,
    }

    def __init__(self, name: str, code: int) -> None:
        self.name, self.code, self.restype = name, code, None

    def __call__(self, *arguments: Any) -> Any:
        if self.name == "nvmlErrorString":
            return b"a reason"
        if self.code == 0 and self.name in self.numbers:
            arguments[-1]._obj.value = self.numbers[self.name]
        if self.code == 0 and self.name == "nvmlDeviceGetName":
            arguments[1].value = b"NVIDIA H200"
        if self.code == 0 and self.name == "nvmlDeviceGetComputeRunningProcesses_v3":
            arguments[2][0].pid, arguments[2][1].pid = 11, 12
            arguments[1]._obj.value = 2
        return self.code


def sampled(monkeypatch: pytest.MonkeyPatch, codes: dict[str, int]) -> telemetry.Summary:
    monkeypatch.setattr(telemetry.ctypes, "CDLL", lambda name: FakeNvml(codes))
    with telemetry.Telemetry(interval_s=0.005, ours=[11]) as found:
        time.sleep(0.5)
    return found.summary


def test_a_card_is_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    summary = sampled(monkeypatch, {})
    assert summary.source == "nvml"
    assert summary.sku == "NVIDIA H200"
    assert len(summary.readings) >= 4
    assert set(summary.sm_clock_mhz) == {1980}
    assert summary.readings[0].power_w == pytest.approx(128.649)
    assert summary.throttle_reasons == ("sw_power_cap", "sw_thermal_slowdown")
    assert summary.other_processes == 1
    assert summary.errors == ()


def test_unsupported_is_none_and_errors_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    codes = {"nvmlDeviceGetPowerUsage": 3, "nvmlDeviceGetTemperature": 15}
    summary = sampled(monkeypatch, codes)
    assert summary.readings[0].power_w is None
    assert summary.readings[0].temperature_c is None
    assert summary.errors == ("nvmlDeviceGetTemperature: a reason",)
