"""Moore Threads GPUs, through torch_musa.

Peaks are the vendor's published figures as noted in 2026-11 and not yet checked again against the
source named; `Peaks.source` says so (`unchecked`).
"""

from __future__ import annotations

from kernelmark.evaluators.chips.accelerator import Accelerator, peaks
from kernelmark.evaluators.chips.base import COMMON_DTYPES

CHIP = Accelerator(
    name="musa",
    vendor="musa",
    device="musa",
    plugin="torch_musa",
    visible_variable="MUSA_VISIBLE_DEVICES",
    dtypes=COMMON_DTYPES,
    notes="""\
Moore Threads GPU, torch's device is musa (torch_musa). Warps of 128 threads on S4000, 32 on S5000.
""",
    skus=(
        (
            r"S4000",
            peaks(
                "Moore Threads MTT S4000 product page; noted 2026-11, unchecked",
                768,
                48,
                float32=25,
                tf32=50,
                float16=100,
                int8=200,
            ),
        ),
    ),
)
