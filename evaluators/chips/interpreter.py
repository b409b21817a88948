"""Triton's interpreter: kernels run on any CPU, element for element, and are never timed.

It attests `interpreted`: that the algorithm is right, not that it compiles or is fast.
"""

from __future__ import annotations

import importlib.util
import os
from dataclasses import dataclass
from typing import Any

from kernelmark.evaluators.chips.base import (
    COMMON_DTYPES,
    Detection,
    Health,
    Memory,
    Peaks,
    missing_dtypes,
)
from kernelmark.evaluators.grading.records import Attestation

NOTES = """\
Kernels are interpreted by Triton's interpreter: tensors live on the CPU and nothing is compiled.
- Autotuned kernels run their first configuration (after pruning); nothing is benchmarked.
- Not available: inline assembly, tl.dot_scaled, warp specialisation, device-side libraries other
  than libdevice. Float-to-integer conversions out of range do not saturate.
- Questions about the device (torch.cuda.get_device_properties) are answered for a small GPU.
- Programs of a grid run one after another: a race between programs is not seen, and a program that
  waits for another one hangs. tl.dot on float32 keeps full precision, where a GPU may use tf32.
- Kernels whose block is read past its end without a mask read foreign memory here as on a GPU.
"""

#: what Triton's own device query answers; a small GPU, so that grids sized by it stay short
PROPERTIES = {
    "max_shared_mem": 232448,
    "max_num_regs": 65536,
    "multiprocessor_count": 4,
    "warpSize": 32,
    "sm_clock_rate": 1000000,
    "mem_clock_rate": 1000000,
    "mem_bus_width": 1024,
}


@dataclass(eq=False)
class Interpreter:
    """The chip `interpreter`."""

    name: str = "interpreter"
    vendor: str = "any"
    device: str = "cpu"
    attests: Attestation = "interpreted"
    verified_on: str = "x86-64 CPU, triton 3.4.0, 3.5.1, 3.6.0 and 3.7.1"
    notes: str = NOTES
    dtypes: frozenset[str] = COMMON_DTYPES | {
        "float8_e4m3fn",
        "float8_e5m2",
        "float8_e4m3fnuz",
        "float8_e5m2fnuz",
    }
    plugin: str = ""
    visible_variable: str = ""
    profiler: str = ""

    def detect(self) -> Detection:
        """Usable wherever torch and triton are installed."""
        for module in ("torch", "triton"):
            if importlib.util.find_spec(module) is None:
                return Detection(False, f"{module} is not installed")
        return Detection(True, "Triton's interpreter on this CPU", sku="CPU", count=1)

    def prepare(self, environment: dict[str, str], index: int) -> None:
        """Triton decides at import whether to interpret, so the variable comes first."""
        environment["TRITON_INTERPRET"] = "1"

    def preload(self) -> None:
        """`activate` needs no device: once is enough for all runners."""
        self.activate()

    def activate(self) -> None:
        """Gives Triton a driver and mends the interpreter's arithmetic.

        Raises `RuntimeError` where `prepare` was not applied to this process.
        """
        if os.environ.get("TRITON_INTERPRET") != "1":
            raise RuntimeError("TRITON_INTERPRET=1 must be set before the process starts")
        from triton.backends.compiler import GPUTarget

        from kernelmark.evaluators.chips import _drivers, _interpreter_numerics, _pretend

        target = GPUTarget("interpreter", 0, 32)
        _drivers.use(_drivers.HostDriver(target, PROPERTIES, _drivers.first_config))
        _interpreter_numerics.install()
        _pretend.pretend_queries("interpreter", (8, 0), PROPERTIES)

    def synchronize(self) -> None:
        """Interpreted kernels have ended when their launch returns."""

    def peaks(self, sku: str) -> Peaks | None:
        """None: an interpreter's speed says nothing."""
        return None

    def flush_bytes(self, sku: str) -> int:
        """0: nothing is timed."""
        return 0

    def memory(self, index: int = 0) -> Memory | None:
        """The machine's memory, from the kernel's own count (Linux)."""
        page = os.sysconf("SC_PAGE_SIZE")
        return Memory(os.sysconf("SC_AVPHYS_PAGES") * page, os.sysconf("SC_PHYS_PAGES") * page)

    def health(self, index: int = 0) -> Health:
        """Healthy where it is usable."""
        found = self.detect()
        return Health(found.usable, found.why)

    def unsupported(self, dtypes: tuple[str, ...]) -> str:
        """Why these dtypes cannot be interpreted; empty where they can."""
        return missing_dtypes(self.name, self.dtypes, dtypes)

    def timer(self) -> Any | None:
        """None: never timed."""
        return None


CHIP = Interpreter()
