"""Huawei Ascend NPUs, through torch_npu and triton-ascend."""

from __future__ import annotations

from kernelmark.evaluators.chips.accelerator import MIB, Accelerator, version_in
from kernelmark.evaluators.chips.base import COMMON_DTYPES

_VERSION = "/usr/local/Ascend/driver/version.info"

CHIP = Accelerator(
    name="ascend",
    vendor="ascend",
    device="npu",
    plugin="torch_npu",
    visible_variable="ASCEND_RT_VISIBLE_DEVICES",
    dtypes=COMMON_DTYPES - {"float64", "complex128", "uint16", "uint32", "uint64"},
    driver_version=version_in(_VERSION, r"Version=(\S+)"),
    last_level_cache_bytes=192 * MIB,
    notes="""\
Huawei Ascend NPU, torch's device is npu (torch_npu), Triton is triton-ascend. There are no warps:
num_warps and num_stages are ignored; a program runs on one AI core, so launch about as many
programs as there are cores (20 to 48) and loop inside. Blocks live in a unified buffer of 192 KB:
on "ub overflow" make them smaller. tl.dot takes no allow_tf32. No float64.
""",
)
