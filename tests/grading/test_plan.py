"""How the correctness gate shares draws and repeats out among cases."""

from __future__ import annotations

import random
from typing import Any, cast

import pytest
import torch
from judging import TWICE

from kernelmark.evaluators.grading.correctness import FULL_DRAWS, Correctness
from kernelmark.operators.records import Case, TensorSpec
from kernelmark.operators.registry import get_operator

ALL = ("base", "small", "large", "structured", "specials")


def gate(seed: int) -> Correctness:
    nobody = cast(Any, None)  # plans are made before anybody is asked
    return Correctness(TWICE, nobody, torch.device("cpu"), random.Random(seed), 1.0)


def small(number: int, draws: tuple[str, ...] = ALL) -> Case:
    return Case(f"case-{number}", (TensorSpec((8,)),), draws=draws)


@pytest.mark.parametrize("count", [1, 2, 17])
def test_small_cases_together_meet_every_variation(count: int) -> None:
    cases = [small(i) for i in range(count)]
    plan = gate(count)._plan(cases, None)
    assert {v for chosen in plan.values() for v in chosen} == set(ALL)
    assert all(len(chosen) >= 2 for chosen in plan.values())
    if count > 4:
        assert all(len(chosen) <= 3 for chosen in plan.values())


def test_a_variation_of_one_case_alone_is_met_there() -> None:
    cases = [*(small(i, ("base",)) for i in range(9)), small(9, ("base", "specials"))]
    assert "specials" in gate(1)._plan(cases, None)["case-9"]


def test_timed_cases_get_all_their_draws_and_a_repeat() -> None:
    cases = [case for case in get_operator("aten::softmax").cases() if case.tier == "full"]
    cases.append(Case("once", (TensorSpec((8,)),), tier="full", origin="test", draws=("base",)))
    made = gate(3)
    plan = made._plan(cases, None)
    assert all(len(plan[case.name]) >= FULL_DRAWS for case in cases)
    assert all(set(case.draws) <= set(plan[case.name]) for case in cases)
    assert made._repeated(cases) == {case.name for case in cases}


def test_nobody_can_foresee_which_cases_are_repeated() -> None:
    cases = [small(i) for i in range(40)]
    chosen = [frozenset(gate(seed)._repeated(cases)) for seed in range(8)]
    assert all(len(names) == 10 for names in chosen)
    assert len(set(chosen)) == 8


def test_at_most_so_many_draws_where_they_are_asked_for() -> None:
    plan = gate(5)._plan([small(i) for i in range(3)], 1)
    assert all(len(chosen) == 1 for chosen in plan.values())
