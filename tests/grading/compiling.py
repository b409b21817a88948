"""A chip that compiles for sm_90 and runs nothing, and passes for one that executes."""

from __future__ import annotations

from dataclasses import replace

from kernelmark.evaluators.chips.registry import get_chip
from kernelmark.evaluators.chips.targets import CompileTarget

_SM_90 = get_chip("sm_90")
assert isinstance(_SM_90, CompileTarget)
CHIP = replace(_SM_90, attests="executed")
