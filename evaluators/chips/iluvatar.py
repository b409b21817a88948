"""Iluvatar CoreX GPUs. Torch calls the device ``cuda``."""

from __future__ import annotations

from kernelmark.evaluators.chips.accelerator import MIB, Accelerator
from kernelmark.evaluators.chips.base import COMMON_DTYPES

CHIP = Accelerator(
    name="iluvatar",
    vendor="iluvatar",
    device="cuda",
    visible_variable="CUDA_VISIBLE_DEVICES",
    dtypes=COMMON_DTYPES - {"float64", "complex128"},
    last_level_cache_bytes=64 * MIB,
    notes="""\
Iluvatar GPU, CoreX; torch's device is called cuda. Its Triton is an older one (3.1 with CoreX 4.4):
no tensor descriptors. tl.dot takes no tf32: allow_tf32=False. Blocks of 512 to 1024 work best.
No float64.
""",
)
