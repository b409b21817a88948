"""Intel GPUs (Data Center GPU Max, Arc) through torch's own ``xpu`` device.

Peaks are the vendor's published figures as noted in 2026-11 and not yet checked again against the
source named; `Peaks.source` says so (`unchecked`).
"""

from __future__ import annotations

from kernelmark.evaluators.chips.accelerator import MIB, Accelerator, peaks, version_in
from kernelmark.evaluators.chips.base import COMMON_DTYPES

_SHEET = "Intel {} specification, XMX figures, dense; noted 2026-11, unchecked"

CHIP = Accelerator(
    name="intel",
    vendor="intel",
    device="xpu",
    visible_variable="ZE_AFFINITY_MASK",
    dtypes=COMMON_DTYPES | {"float8_e5m2", "float8_e4m3fn"},
    driver_version=version_in("/sys/module/xe/version", r"(\S+)"),
    last_level_cache_bytes=408 * MIB,
    notes="""\
Intel GPU, torch's device is xpu; Triton is Intel's build (triton-xpu). Sub-groups of 16 or 32
threads stand for warps. float64 is emulated on Arc. 128 KB of shared memory per block on Max.
""",
    skus=(
        (
            r"Max 1550",
            peaks(
                _SHEET.format("Data Center GPU Max 1550"),
                3276.8,
                408,
                float64=52.4,
                float32=52.4,
                tf32=419,
                float16=839,
                int8=1678,
            ),
        ),
        (
            r"B580",
            peaks(_SHEET.format("Arc B580"), 456, 18, float32=14.6, float16=116.5, int8=233),
        ),
    ),
)
