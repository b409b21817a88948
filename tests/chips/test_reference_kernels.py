"""Every kernel of the method `reference` compiles for every target that has its dtypes, and is
right on the interpreter. Minutes; for the last state of a change to a kernel or to a target."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelmark.evaluators.chips.portability import Compiler
from kernelmark.evaluators.chips.registry import compile_targets, get_chip
from kernelmark.evaluators.grading.judge import Settings, grade
from kernelmark.evaluators.grading.records import Candidate
from kernelmark.evaluators.methods.reference import KERNELS
from kernelmark.operators.registry import get_operator

pytestmark = pytest.mark.slow
FILES = [
    pytest.param(path, id=f"{path.parent.name}-{path.stem}")
    for path in sorted(KERNELS.glob("*/*.py"))
]


def candidate_of(path: Path) -> Candidate:
    return Candidate(f"{path.parent.name}::{path.stem}", path.read_text())


@pytest.fixture(scope="module")
def compiler() -> Iterator[Compiler]:
    with Compiler(limit_s=120) as compiler:
        yield compiler


@pytest.mark.timeout(900)  # above what the helper may take: it names the target that is slow
@pytest.mark.parametrize("path", FILES)
def test_it_compiles_for_every_target(path: Path, compiler: Compiler) -> None:
    candidate = candidate_of(path)
    operator = get_operator(candidate.operator)
    rows = compiler.portability(candidate, operator, list(compile_targets()))
    assert len(rows) == len(compile_targets())
    if "@triton.jit" not in candidate.source:
        assert operator.kind == "metadata"
        return
    bad = {row.target: row.error for row in rows if row.status not in ("passed", "unsupported")}
    assert not bad
    assert sum(row.status == "passed" for row in rows) >= 5


@pytest.mark.parametrize("path", FILES)
def test_it_is_right_on_the_interpreter(path: Path) -> None:
    candidate = candidate_of(path)
    settings = Settings(tier="small", timing=False, draws=2)
    operator = get_operator(candidate.operator)
    verdict = grade(candidate, operator, get_chip("interpreter"), settings)
    assert verdict.status == "passed", verdict.message


def test_float8_widened_by_hand_is_right() -> None:
    """What `cutlass_scaled_mm` does for gfx11, done on the interpreter."""
    candidate = candidate_of(KERNELS / "vllm/cutlass_scaled_mm.py")
    there = ' and str(getattr(target, "arch", ""))[:5] == "gfx11"'
    assert there in candidate.source
    everywhere = Candidate(candidate.operator, candidate.source.replace(there, ""))
    settings = Settings(tier="small", timing=False, draws=2)
    operator = get_operator(candidate.operator)
    verdict = grade(everywhere, operator, get_chip("interpreter"), settings)
    assert verdict.status == "passed", verdict.message
