"""What the GPU did while it was measured: clocks, heat, power, throttling, other users.

NVML through ctypes, in the judge, in a thread: the runner can neither see nor change it. Nothing is
set, only read. Without NVML all readings are None and `Summary.source` says why; a reading that
the card does not support is None; any other error of NVML is kept in `Summary.errors`.
Device layer.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import threading
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import torch

_NOT_SUPPORTED = 3
_CLOCK_SM, _CLOCK_MEMORY, _TEMPERATURE_GPU = 1, 2, 0

#: nvml.h, nvmlClocksEventReasons (CUDA 12 and 13): bit to word
REASONS = {
    0x1: "gpu_idle",
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}
#: reasons that mean that the card was slower than it can be, while it had work
THROTTLES = frozenset(REASONS.values()) - {"gpu_idle", "applications_clocks_setting"}


@dataclass(frozen=True)
class Reading:
    """One look at the card. None: not supported by it."""

    at_ns: int  #: `time.perf_counter_ns` of the judge
    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    temperature_c: int | None = None
    power_w: float | None = None
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True)
class Summary:
    """What a span of time looked like; plain values, stored with the verdict."""

    source: str  #: "nvml", or why there is none
    sku: str | None = None
    driver: str | None = None
    device: str | None = None  #: hash of the card's UUID: tells cards apart, reveals none
    readings: tuple[Reading, ...] = ()
    throttle_reasons: tuple[str, ...] = ()  #: in `THROTTLES`, seen in any reading
    other_processes: int | None = None  #: most compute processes seen that are not ours
    errors: tuple[str, ...] = ()

    @property
    def sm_clock_mhz(self) -> tuple[int, ...]:
        """The SM clock of each reading that has one."""
        return tuple(r.sm_clock_mhz for r in self.readings if r.sm_clock_mhz is not None)


def card_uuid(device: torch.device) -> str | None:
    """ "GPU-..." of the CUDA device that is current here; None for other devices.

    By it NVML finds the same card: it counts cards in an order of its own, hidden ones too.
    """
    if device.type != "cuda" or torch.version.cuda is None:
        return None
    return f"GPU-{torch.cuda.get_device_properties(device).uuid}"


class Nvml:
    """The few calls of NVML that are needed, for one card. Raises OSError where it is missing."""

    def __init__(self, uuid: str | None = None) -> None:
        """The card called `uuid` (`card_uuid`); None: the first."""
        self._lib = ctypes.CDLL("libnvidia-ml.so.1")
        self._lib.nvmlErrorString.restype = ctypes.c_char_p
        self.errors: set[str] = set()
        if self._lib.nvmlInit_v2():
            raise OSError("nvmlInit failed: no driver is loaded")
        self._card = ctypes.c_void_p()
        if uuid is not None:
            code = self._lib.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(self._card))
        else:
            code = self._lib.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self._card))
        if code:
            raise OSError(f"NVML does not find card {uuid or 0}: {self._error(code)}")

    def close(self) -> None:
        """Ends the session with the driver."""
        self._lib.nvmlShutdown()

    def name(self) -> str | None:
        """Marketing name, e.g. "NVIDIA H200"."""
        return self._text("nvmlDeviceGetName", self._card)

    def driver(self) -> str | None:
        """Driver version."""
        return self._text("nvmlSystemGetDriverVersion")

    def device_hash(self) -> str | None:
        """16 hex digits that tell this card from others."""
        uuid = self._text("nvmlDeviceGetUUID", self._card)
        return None if uuid is None else hashlib.sha256(uuid.encode()).hexdigest()[:16]

    def read(self) -> Reading:
        """Clocks, temperature, power and throttle reasons now."""
        power = self._number("nvmlDeviceGetPowerUsage")
        return Reading(
            at_ns=time.perf_counter_ns(),
            sm_clock_mhz=self._number("nvmlDeviceGetClockInfo", _CLOCK_SM),
            memory_clock_mhz=self._number("nvmlDeviceGetClockInfo", _CLOCK_MEMORY),
            temperature_c=self._number("nvmlDeviceGetTemperature", _TEMPERATURE_GPU),
            power_w=None if power is None else power / 1e3,
            reasons=decode(self._number("nvmlDeviceGetCurrentClocksThrottleReasons") or 0),
        )

    def processes(self) -> tuple[int, ...] | None:
        """Ids of the processes with a compute context on the card, as NVML sees them."""

        class Info(ctypes.Structure):  # nvmlProcessInfo_v2_t, used by the call's version 3
            _fields_ = (
                ("pid", ctypes.c_uint),
                ("used_memory", ctypes.c_ulonglong),
                ("gpu_instance", ctypes.c_uint),
                ("compute_instance", ctypes.c_uint),
            )

        count = ctypes.c_uint(256)
        infos = (Info * count.value)()
        call = "nvmlDeviceGetComputeRunningProcesses_v3"
        if not self._done(call, self._card, ctypes.byref(count), infos):
            return None
        return tuple(info.pid for info in infos[: count.value])

    def _number(self, call: str, *which: int) -> int | None:
        value = ctypes.c_ulonglong(0)  # wide enough for both sizes that NVML writes, little-endian
        done = self._done(call, self._card, *which, ctypes.byref(value))
        return int(value.value) if done else None

    def _text(self, call: str, *handle: Any) -> str | None:
        text = ctypes.create_string_buffer(96)
        done = self._done(call, *handle, text, ctypes.c_uint(96))
        return text.value.decode(errors="replace") if done else None

    def _done(self, call: str, *arguments: Any) -> bool:
        code = getattr(self._lib, call)(*arguments)
        if code not in (0, _NOT_SUPPORTED):
            self.errors.add(f"{call}: {self._error(code)}")
        return code == 0

    def _error(self, code: int) -> str:
        text: bytes = self._lib.nvmlErrorString(code)
        return text.decode(errors="replace")


def decode(bits: int) -> tuple[str, ...]:
    """Words for NVML's bit mask of throttle reasons; unknown bits as hexadecimal numbers."""
    return tuple(REASONS.get(1 << i, hex(1 << i)) for i in range(64) if bits >> i & 1)


@dataclass
class Telemetry:
    """Samples a card while the body of the `with` statement runs; then `summary` is there.

        with Telemetry(ours={runner_pid}) as telemetry:
            ...measure...
        telemetry.summary.throttle_reasons

    `ours`: processes that may hold a context on the card beside this one (the runners). In a
    container NVML may report process ids of the host's: then count, don't match (`strangers`).
    """

    uuid: str | None = None
    interval_s: float = 0.02
    ours: Collection[int] = ()
    summary: Summary = field(default_factory=lambda: Summary("not started"))

    def __enter__(self) -> Telemetry:
        self._readings: list[Reading] = []
        self._others: list[int] = []
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        try:
            self._nvml = Nvml(self.uuid)
        except (OSError, AttributeError) as error:
            self.summary = Summary(source=f"no NVML: {error}")
            return self
        self._look()
        self._thread = threading.Thread(target=self._run, name="telemetry", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._thread is None:
            return
        self._stop.set()
        self._thread.join()
        self._look()
        nvml = self._nvml
        self.summary = Summary(
            source="nvml",
            sku=nvml.name(),
            driver=nvml.driver(),
            device=nvml.device_hash(),
            readings=tuple(self._readings),
            throttle_reasons=_throttles(self._readings),
            other_processes=max(self._others) if self._others else None,
            errors=tuple(sorted(nvml.errors)),
        )
        nvml.close()

    def _run(self) -> None:
        while not self._stop.wait(self.interval_s):
            self._readings.append(self._nvml.read())

    def _look(self) -> None:
        """A reading, and a count of strangers, which costs more and changes less."""
        self._readings.append(self._nvml.read())
        processes = self._nvml.processes()
        if processes is not None:
            self._others.append(strangers(processes, self.ours))


def strangers(processes: Collection[int], ours: Collection[int]) -> int:
    """How many of `processes` are not among `ours` (this process always is, when listed)."""
    return len(set(processes) - set(ours) - {os.getpid()})


def _throttles(readings: Collection[Reading]) -> tuple[str, ...]:
    seen = {reason for reading in readings for reason in reading.reasons}
    return tuple(sorted(reason for reason in seen if reason in THROTTLES or reason[:2] == "0x"))
