"""Calls behind pointer tables of dozens of tensors: judged together while all is right, one by one
where something is not."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from judging import QUICK

import kernelmark.evaluators.methods.reference as reference
from kernelmark.evaluators.chips.registry import get_chip
from kernelmark.evaluators.grading import arena
from kernelmark.evaluators.grading.judge import grade
from kernelmark.evaluators.grading.records import Candidate, Verdict
from kernelmark.evaluators.grading.speed import Draws
from kernelmark.operators.records import Case, Operator, Pointers
from kernelmark.operators.registry import get_operator

COUNT = 40
SOURCE = (Path(reference.KERNELS) / "cublas/cublasDgemvBatched.py").read_text()


def operator() -> Operator:
    """Batched gemv in float64 with one case, of `COUNT` matrices and vectors."""
    plain = get_operator("cublas::cublasDgemvBatched")
    small = next(case for case in plain.tier("small") if case.name == "tall-n")
    args = [
        Pointers((arg.tensors * COUNT)[:COUNT]) if isinstance(arg, Pointers) else arg
        for arg in small.args[:-1]
    ]
    case = Case("many", (*args, COUNT))
    return replace(plain, cases=lambda: (case,))


def graded(source: str) -> Verdict:
    made = operator()
    return grade(Candidate(made.id, source), made, get_chip("interpreter"), QUICK)


def test_right_results_share_a_comparison() -> None:
    verdict = graded(SOURCE)
    assert verdict.status == "passed", verdict.message
    assert {c.detail for c in verdict.comparisons} == {f"and {COUNT - 1} more"}


@pytest.mark.parametrize("left_out", [1, 17])
def test_a_wrong_one_is_named(left_out: int) -> None:
    begin = "    plain = trans == 0\n"
    assert begin in SOURCE
    verdict = graded(SOURCE.replace(begin, f"    batchCount -= {left_out}\n{begin}"))
    assert verdict.status == "wrong_values", verdict.message
    wrong = [c for c in verdict.comparisons if c.status == "wrong_values"]
    assert {c.result for c in wrong} == set(range(COUNT - left_out, COUNT))


def test_timed_inputs_change_in_a_secret_choice_of_tensors() -> None:
    made = operator()
    (case,) = made.cases()
    draws = Draws(made, case, torch.device("cpu"), random.Random(1))
    changed: set[int] = set()
    for _ in range(20):
        inputs = draws.fresh()
        flats = [arena.storage_bytes(t).clone() for t in draws.base(inputs).tensors()]
        before = [flat.clone() for flat in flats]
        draws.exchange(inputs, flats)
        now = {i for i, (a, b) in enumerate(zip(before, flats, strict=True)) if not a.equal(b)}
        assert 0 < len(now) <= arena.FEW
        changed |= now
    assert len(changed) == len(case.tensors)
