"""One very large case, softmax over 4096 x 393216 float32: prepared, checked and timed.

`PYTHONPATH=.typing python tests/gpu/large_case.py` on an NVIDIA GPU with 80 GB or more.
Prints the seconds of each gate; exits 1 if the grade does not pass. The target is 5 s after the
processes are up; a well-known evaluator takes 61 to 69 s for the same case.
"""

from __future__ import annotations

import dataclasses
import sys
import time
from pathlib import Path

import torch

from kernelmark.evaluators.chips.registry import get_chip
from kernelmark.evaluators.grading.judge import Settings, grade
from kernelmark.evaluators.grading.records import Candidate
from kernelmark.operators.records import Case, TensorSpec
from kernelmark.operators.registry import get_operator

KERNEL = Path(__file__).parents[2] / "evaluators/methods/reference_kernels/aten/softmax.py"


def main() -> int:
    """Grades twice: the second grade has the processes and the compiled kernels' machine warm."""
    tensor = TensorSpec((4096, 393216), torch.float32)
    case = Case("4096x393216", (tensor, -1), tier="full", origin="the case of the comparison")
    operator = dataclasses.replace(get_operator("aten::softmax"), cases=lambda: (case,))
    candidate = Candidate(operator.id, KERNEL.read_text())
    status = ""
    for attempt in ("cold", "warm"):
        begin = time.perf_counter()
        verdict = grade(candidate, operator, get_chip("nvidia"), Settings(tier="full"))
        seconds = time.perf_counter() - begin
        status = verdict.status
        print(f"{attempt}: {status} in {seconds:.2f} s; {verdict.message}")
        for gate in verdict.gates:
            print(f"  {gate.name} {gate.seconds:.2f} s {gate.detail}")
        for timing in verdict.timings:
            print(f"  {timing.device_us:.1f} us, baseline {timing.baseline_us:.1f} us")
    return 0 if status == "passed" else 1


if __name__ == "__main__":
    sys.exit(main())
