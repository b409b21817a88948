"""NVIDIA GPUs, compute capability 8.0 and newer.

Peaks are the vendor's published figures as noted in 2026-11 and not yet checked again against the
source named; `Peaks.source` says so (`unchecked`).
"""

from __future__ import annotations

from kernelmark.evaluators.chips.accelerator import MIB, Accelerator, peaks, version_in
from kernelmark.evaluators.chips.base import COMMON_DTYPES

_SHEET = "NVIDIA {} data sheet, dense (half of the figures with sparsity); noted 2026-11, unchecked"
_PAPER = (
    "NVIDIA {} architecture white paper, appendix, dense, boost clock; noted 2026-11, unchecked"
)
_HOPPER = {
    "float64": 67,
    "float32": 67,
    "tf32": 494.7,
    "float16": 989.4,
    "float8": 1978.9,
    "int8": 1978.9,
}
_HOPPER_NVL = {
    "float64": 60,
    "float32": 60,
    "tf32": 417.5,
    "float16": 835.5,
    "float8": 1670.5,
    "int8": 1670.5,
}
_AMPERE = {"float64": 19.5, "float32": 19.5, "tf32": 156, "float16": 312, "int8": 624}
_A100 = _SHEET.format("A100")
_ADA = {"float64": 1.29, "float32": 82.6, "tf32": 82.6, "float16": 330.3, "bfloat16": 165.2}
_PRO = {"float64": 1.97, "float32": 126, "tf32": 252, "float16": 504, "float8": 1008, "int8": 1008}
_PRO_PAPER = _PAPER.format("RTX Blackwell PRO")
_B200 = {"float64": 40, "float32": 80, "tf32": 1125, "float16": 2250, "float8": 4500, "int8": 4500}


def _preload() -> None:
    from kernelmark.evaluators.chips import _drivers  # imports triton

    _drivers.preload_cuda()


#: after "NVIDIA UNIX x86_64 Kernel Module" or "NVIDIA UNIX Open Kernel Module for x86_64"
DRIVER_LINE = r"Kernel Module\b.*?\s(\d+(?:\.\d+)+)"


def _driver_version() -> str:
    """Of the kernel module; where a container hides its file, as NVML tells it."""
    from kernelmark.evaluators.grading.telemetry import Nvml

    version = version_in("/proc/driver/nvidia/version", DRIVER_LINE)()
    if version:
        return version
    try:
        nvml = Nvml()
        try:
            return nvml.driver() or ""
        finally:
            nvml.close()
    except (OSError, AttributeError):
        return ""


CHIP = Accelerator(
    name="nvidia",
    vendor="nvidia",
    device="cuda",
    verified_on="NVIDIA H200, torch 2.11, triton 3.6, 2026-11-30",
    visible_variable="CUDA_VISIBLE_DEVICES",
    environment={"CUDA_DEVICE_ORDER": "PCI_BUS_ID"},  # torch's numbers are those of nvidia-smi
    profiler="cupti",
    dtypes=COMMON_DTYPES | {"float8_e5m2", "float8_e4m3fn"},
    preload_driver=_preload,
    driver_version=_driver_version,
    last_level_cache_bytes=128 * MIB,
    notes="""\
NVIDIA GPU, CUDA. Warps of 32 threads. tl.dot on float32 uses tf32 unless input_precision="ieee".
float8_e4m3fn needs compute capability 8.9. Shared memory per block: 163 KB (A100), 227 KB (H100,
H200, B200), 99 KB (GeForce and RTX PRO).
""",
    skus=(
        (r"H200 NVL", peaks(_SHEET.format("H200 NVL"), 4800, 60, **_HOPPER_NVL)),
        (r"H200", peaks(_SHEET.format("H200"), 4800, 60, **_HOPPER)),
        (r"H100 NVL", peaks(_SHEET.format("H100 NVL"), 3900, 60, **_HOPPER_NVL)),
        (
            r"H100 PCIe",
            peaks(
                _SHEET.format("H100 PCIe"),
                2000,
                50,
                float64=51,
                float32=51,
                tf32=378,
                float16=756,
                float8=1513,
                int8=1513,
            ),
        ),
        (r"H100", peaks(_SHEET.format("H100 SXM"), 3350, 50, **_HOPPER)),
        (r"A100.*PCIe.*80GB|A100 80GB PCIe", peaks(_A100, 1935, 40, **_AMPERE)),
        (r"A100.*80GB", peaks(_A100, 2039, 40, **_AMPERE)),
        (r"A100", peaks(_A100, 1555, 40, **_AMPERE)),
        (
            r"L40S",
            peaks(
                _SHEET.format("L40S"),
                864,
                96,
                float64=1.43,
                float32=91.6,
                tf32=183,
                float16=362,
                float8=733,
                int8=733,
            ),
        ),
        (
            r"\bL4\b",
            peaks(
                _SHEET.format("L4"),
                300,
                48,
                float64=0.49,
                float32=30.3,
                tf32=60,
                float16=121,
                float8=242.5,
                int8=242.5,
            ),
        ),
        (r"RTX 4090", peaks(_PAPER.format("Ada GPU"), 1008, 72, **_ADA, float8=660.6, int8=660.6)),
        (
            r"RTX 5090",
            peaks(
                _PAPER.format("RTX Blackwell GPU"),
                1792,
                96,
                float64=1.64,
                float32=104.8,
                tf32=104.8,
                float16=419,
                bfloat16=209.5,
                float8=838,
                int8=838,
            ),
        ),
        (r"RTX PRO 6000.*Server", peaks(_PRO_PAPER, 1597, 128, **_PRO)),
        (r"RTX PRO 6000", peaks(_PRO_PAPER, 1792, 128, **_PRO)),
        (r"B200", peaks(_SHEET.format("HGX B200"), 8000, 126, **_B200)),
    ),
)
