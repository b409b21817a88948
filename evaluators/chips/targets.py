"""Compile targets: chips that need no hardware and attest `compiled`.

The candidate's own host code runs on CPU tensors under a Triton driver that launches nothing, while
every kernel is compiled for the target (`portability`).
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import math
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

KB = 1024


@dataclass(frozen=True)
class Multiprocessor:
    """What one multiprocessor (SM; CU of CDNA; WGP of RDNA) holds at once.

    It has `partitions` register files. `registers` counts 32-bit registers of one lane in one of
    them, `granule` the step in which they are given out; `waves` the warps that one can hold.
    """

    waves: int
    registers: int
    granule: int
    blocks: int
    shared_bytes: int
    shared_bytes_per_block: int
    shared_granule: int
    shared_reserved: int = 0  #: bytes that the system takes from every block
    partitions: int = 4

    def occupancy(self, registers: int, shared_bytes: int, num_warps: int) -> float:
        """Warps resident over warps possible, 0 to 1; what limits is registers, shared memory
        or the number of blocks. 0: not even one block fits."""
        rounded = max(math.ceil(registers / self.granule), 1) * self.granule
        warps = self.partitions * min(self.waves, self.registers // rounded)
        shared = math.ceil(shared_bytes / self.shared_granule) * self.shared_granule
        shared += self.shared_reserved
        limits = [warps // num_warps, self.blocks]
        if shared:
            limits.append(self.shared_bytes // shared)
        if shared_bytes > self.shared_bytes_per_block:
            limits.append(0)
        return min(1.0, min(limits) * num_warps / (self.partitions * self.waves))


def _sm(waves: int, blocks: int, shared_kb: int) -> Multiprocessor:
    """NVIDIA. Source: CUDA C++ Programming Guide, technical specifications per compute
    capability; register allocation per warp in units of 256 (CUDA occupancy
    calculator)."""
    return Multiprocessor(
        waves=waves,
        registers=512,
        granule=8,
        blocks=blocks,
        shared_bytes=shared_kb * KB,
        shared_bytes_per_block=(shared_kb - 1) * KB,
        shared_granule=128,
        shared_reserved=KB,
    )


def _cdna(lds_kb: int, lds_granule: int) -> Multiprocessor:
    """AMD CDNA 2 to 4. Source: CDNA 3 and 4 ISA guides; LLVM AMDGPU usage, "VGPR allocation
    granularity" and LDS granularity (LLVM 21)."""
    return Multiprocessor(8, 512, 8, 32, lds_kb * KB, lds_kb * KB, lds_granule)


def _rdna() -> Multiprocessor:
    """AMD RDNA 3 and 4 with 1.5 times the registers, wave32. Source: RDNA 3 and 4 ISA guides;
    LLVM AMDGPU (gfx1100, gfx1201)."""
    return Multiprocessor(16, 1536, 24, 32, 128 * KB, 64 * KB, 1024)


def _can_link() -> bool:
    """Whether AMD code objects can be linked: by Triton itself (3.5 on), or by ROCm's linker."""
    major, minor = importlib.metadata.version("triton").split(".")[:2]
    if (int(major), int(minor)) >= (3, 5):
        return True
    linker = os.environ.get("TRITON_HIP_LLD_PATH", "/opt/rocm/llvm/bin/ld.lld")
    return os.path.exists(linker)


@dataclass(eq=False)
class CompileTarget:
    """A `Chip` that only compiles. `backend` and `arch` are Triton's names of it."""

    name: str
    vendor: str
    product: str
    backend: str
    arch: int | str
    warp_size: int
    multiprocessor: Multiprocessor
    multiprocessors: int
    dtypes: frozenset[str]
    capability: tuple[int, int]
    notes: str = ""
    device: str = "cpu"
    attests: Attestation = "compiled"
    verified_on: str = "needs no hardware"
    plugin: str = ""
    visible_variable: str = ""
    profiler: str = ""

    def detect(self) -> Detection:
        """Usable wherever Triton has the back end's compiler."""
        for module in ("torch", "triton"):
            if importlib.util.find_spec(module) is None:
                return Detection(False, f"{module} is not installed")
        package = {"cuda": "nvidia", "hip": "amd"}[self.backend]
        if importlib.util.find_spec(f"triton.backends.{package}") is None:
            return Detection(False, f"this Triton has no {package} back end")
        if self.backend == "hip" and not _can_link():
            return Detection(
                False, "Triton 3.4 links AMD code with ROCm's ld.lld, which is not here"
            )
        return Detection(True, f"compiles for {self.product}, no hardware needed", sku=self.product)

    def prepare(self, environment: dict[str, str], index: int) -> None:
        """Kernels are compiled, not interpreted, whatever the caller's environment says."""
        environment.pop("TRITON_INTERPRET", None)

    def preload(self) -> None:
        """`activate` needs no device: once is enough for all that are forked."""
        from kernelmark.evaluators.chips import _compiling

        _compiling.never_hash_triton()
        self.activate()

    def activate(self) -> None:
        """Gives Triton a driver that compiles for this target and launches nothing."""
        from triton.backends.compiler import GPUTarget

        from kernelmark.evaluators.chips import _drivers

        target = GPUTarget(self.backend, self.arch, self.warp_size)
        _drivers.use(_drivers.HostDriver(target, self.properties(), _drivers.every_config))

    def properties(self) -> dict[str, int]:
        """What Triton's ``get_device_properties`` answers on this hardware."""
        return {
            "max_shared_mem": self.multiprocessor.shared_bytes_per_block,
            "max_num_regs": 65536,
            "multiprocessor_count": self.multiprocessors,
            "warpSize": self.warp_size,
            "sm_clock_rate": 1_500_000,
            "mem_clock_rate": 1_500_000,
            "mem_bus_width": 4096,
        }

    def synchronize(self) -> None:
        """Nothing runs."""

    def peaks(self, sku: str) -> Peaks | None:
        """None: nothing runs."""
        return None

    def flush_bytes(self, sku: str) -> int:
        """0: nothing is timed."""
        return 0

    def memory(self, index: int = 0) -> Memory | None:
        """None: there is no device."""
        return None

    def health(self, index: int = 0) -> Health:
        """Healthy where its compiler is there."""
        found = self.detect()
        return Health(found.usable, found.why)

    def unsupported(self, dtypes: tuple[str, ...]) -> str:
        """Why kernels over these dtypes cannot be compiled; empty where they can."""
        return missing_dtypes(self.name, self.dtypes, dtypes)

    def timer(self) -> Any | None:
        """None: nothing is timed."""
        return None


_E5M2, _E4M3 = "float8_e5m2", "float8_e4m3fn"
_FNUZ = frozenset({"float8_e4m3fnuz", "float8_e5m2fnuz"})
_NVIDIA_FP8 = COMMON_DTYPES | {_E5M2, _E4M3}
_AMD_FP8 = _NVIDIA_FP8 | _FNUZ


def _nvidia(
    arch: int, product: str, multiprocessor: Multiprocessor, count: int, dtypes: frozenset[str]
) -> CompileTarget:
    capability = divmod(arch, 10)
    name = f"sm_{arch}"
    return CompileTarget(
        name, "nvidia", product, "cuda", arch, 32, multiprocessor, count, dtypes, capability
    )


def _amd(
    arch: str, product: str, multiprocessor: Multiprocessor, count: int, native_fp8: str
) -> CompileTarget:
    warp = 64 if arch.startswith("gfx9") else 32
    capability = (int(arch[3:-2]), int(arch[-2], 16))
    notes = f"8-bit floats in hardware: {native_fp8}; others are converted in software."
    return CompileTarget(
        arch, "amd", product, "hip", arch, warp, multiprocessor, count, _AMD_FP8, capability, notes
    )


CHIPS = (
    _nvidia(80, "A100", _sm(16, 32, 164), 108, COMMON_DTYPES | {_E5M2}),
    _nvidia(90, "H100, H200", _sm(16, 32, 228), 132, _NVIDIA_FP8),
    _nvidia(100, "B200", _sm(16, 32, 228), 148, _NVIDIA_FP8),
    _nvidia(120, "RTX 5090, RTX PRO 6000", _sm(12, 24, 100), 170, _NVIDIA_FP8),
    _amd("gfx90a", "MI200", _cdna(64, 512), 104, "none"),
    _amd("gfx942", "MI300X, MI325X", _cdna(64, 512), 304, "e4m3fnuz, e5m2fnuz"),
    _amd("gfx950", "MI350X, MI355X", _cdna(160, 1280), 256, "e4m3fn, e5m2"),
    _amd("gfx1100", "RX 7900 XTX", _rdna(), 48, "none"),
    _amd("gfx1201", "RX 9070 XT", _rdna(), 32, "e4m3fn, e5m2"),
)
