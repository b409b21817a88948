"""AMD GPUs under ROCm: Instinct and Radeon. Torch calls the device ``cuda``.

Peaks are the vendor's published figures as noted in 2026-11 and not yet checked again against the
source named; `Peaks.source` says so (`unchecked`).
"""

from __future__ import annotations

from kernelmark.evaluators.chips.accelerator import FLOAT8, MIB, Accelerator, peaks, version_in
from kernelmark.evaluators.chips.base import COMMON_DTYPES

_SHEET = "AMD {} data sheet, dense matrix figures; noted 2026-11, unchecked"
_CDNA3 = {"float64": 163.4, "float32": 163.4, "tf32": 653.7, "float16": 1307.4, "int8": 2614.9}
_CDNA4 = {"float64": 78.6, "float32": 157.3, "float16": 2516.6, "float8": 5033.2, "int8": 5033.2}
_MI350X = {"float64": 72.1, "float32": 144.2, "float16": 2306.9, "float8": 4613.7, "int8": 4613.7}

CHIP = Accelerator(
    name="amd",
    vendor="amd",
    device="cuda",
    visible_variable="HIP_VISIBLE_DEVICES",
    dtypes=COMMON_DTYPES | set(FLOAT8),
    driver_version=version_in("/sys/module/amdgpu/version", r"(\S+)"),
    last_level_cache_bytes=256 * MIB,
    notes="""\
AMD GPU, ROCm; torch's device is called cuda. Wavefronts of 64 threads on Instinct, 32 on Radeon.
64 KB of shared memory per block (160 KB on MI350). 8-bit floats in hardware: the fnuz formats on
MI300, e4m3fn and e5m2 on MI350 and RDNA 4; others are converted in software. tl.dot on float32 is
exact. num_stages=2 is usually best.
""",
    skus=(
        (r"MI355X", peaks(_SHEET.format("Instinct MI355X"), 8000, 256, **_CDNA4)),
        (r"MI350X", peaks(_SHEET.format("Instinct MI350X"), 8000, 256, **_MI350X)),
        (r"MI325X", peaks(_SHEET.format("Instinct MI325X"), 6000, 256, **_CDNA3, float8=2614.9)),
        (r"MI300X", peaks(_SHEET.format("Instinct MI300X"), 5300, 256, **_CDNA3, float8=2614.9)),
        (
            r"MI210",
            peaks(
                _SHEET.format("Instinct MI210"),
                1638.4,
                8,
                float64=45.3,
                float32=45.3,
                float16=181,
                int8=181,
            ),
        ),
        (
            r"7900 XTX",
            peaks(
                _SHEET.format("Radeon RX 7900 XTX"),
                960,
                96,
                float32=61.4,
                float16=122.8,
                int8=122.8,
            ),
        ),
        (
            r"9070 XT",
            peaks(
                _SHEET.format("Radeon RX 9070 XT"),
                640,
                64,
                float32=48.7,
                float16=195,
                float8=389,
                int8=389,
            ),
        ),
    ),
)
