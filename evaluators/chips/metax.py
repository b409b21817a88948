"""MetaX GPUs under MACA. Torch calls the device ``cuda``.

Peaks are the vendor's published figures as noted in 2026-11 and not yet checked again against the
source named; `Peaks.source` says so (`unchecked`).
"""

from __future__ import annotations

from kernelmark.evaluators.chips.accelerator import MIB, Accelerator, peaks
from kernelmark.evaluators.chips.base import COMMON_DTYPES

CHIP = Accelerator(
    name="metax",
    vendor="metax",
    device="cuda",
    visible_variable="MACA_VISIBLE_DEVICES",
    dtypes=COMMON_DTYPES,
    last_level_cache_bytes=64 * MIB,
    notes="""\
MetaX GPU, MACA; torch's device is called cuda. Warps of 64 threads, 64 KB of shared memory per
block. Offsets beyond 32 bits from a pointer are not reliable; bfloat16 is slower than float16.
""",
    skus=(
        (
            r"C500",
            peaks(
                "MetaX C500 product page; noted 2026-11, unchecked",
                1800,
                64,
                float32=36,
                tf32=120,
                float16=240,
                int8=480,
            ),
        ),
    ),
)
