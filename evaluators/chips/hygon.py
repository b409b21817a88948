"""Hygon DCUs under DTK, which is built on ROCm. Torch calls the device ``cuda``."""

from __future__ import annotations

from kernelmark.evaluators.chips.accelerator import MIB, Accelerator
from kernelmark.evaluators.chips.base import COMMON_DTYPES

CHIP = Accelerator(
    name="hygon",
    vendor="hygon",
    device="cuda",
    visible_variable="HIP_VISIBLE_DEVICES",
    dtypes=COMMON_DTYPES,
    last_level_cache_bytes=64 * MIB,
    notes="""\
Hygon DCU, DTK (built on ROCm); torch's device is called cuda. Wavefronts of 64 threads, 64 KB of
shared memory per block. tl.dot takes no tf32: allow_tf32=False. Blocks of 256 to 512 work best.
""",
)
