"""Bad definitions can't hide: each planted fault is named by the lint."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from kernelmark.evaluators.grading import lint as lint_module
from kernelmark.evaluators.grading.lint import lint
from kernelmark.operators.building import expect, wide
from kernelmark.operators.draws import Call
from kernelmark.operators.records import EXACT, Case, Expected, Mutant, Operator, TensorSpec
from kernelmark.operators.registry import get_operator


@pytest.fixture
def softmax() -> Operator:
    return get_operator("aten::softmax")


def only(problems: list[str], text: str) -> None:
    assert problems, "nothing was named"
    assert all(text in problem for problem in problems), problems


def test_a_wrong_oracle_is_named(softmax: Operator) -> None:
    def wrong(self: torch.Tensor, dim: int, dtype: Any = None, **more: Any) -> list[Expected]:
        return [expect(torch.softmax(wide(self) * 1.01, dim), dtype or self.dtype)]

    problems = lint(dataclasses.replace(softmax, oracle=wrong))
    assert any("oracle and second statement differ" in p for p in problems)
    assert any("the baseline does not pass" in p for p in problems)


def test_a_dominated_term_is_named(softmax: Operator) -> None:
    """A sub-operation whose loss nobody could see: a factor of 1 + 1e-12."""

    def without_term(self: torch.Tensor, dim: int, dtype: Any = None, **more: Any) -> torch.Tensor:
        return softmax.baseline(self, dim, dtype, **more)

    mutant = Mutant("factor dropped", without_term)
    changed = dataclasses.replace(softmax, mutants=(*softmax.mutants, mutant))
    only(lint(changed), "mutant 'factor dropped' cannot be told apart")


def test_an_unreachable_tolerance_is_named(softmax: Operator) -> None:
    tight = dataclasses.replace(softmax.tolerance, limit=1e-3)
    problems = lint(dataclasses.replace(softmax, tolerance=tight))
    assert any("unreachable tolerance" in p for p in problems)


def test_a_loose_tolerance_is_named(softmax: Operator) -> None:
    loose = dataclasses.replace(softmax.tolerance, limit=1e9)
    problems = lint(dataclasses.replace(softmax, tolerance=loose))
    assert any("'one precision lower' cannot be told apart" in p for p in problems)


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("description", "", "description is empty"),
        ("sources", (), "no source is named"),
        ("cases", lambda: (), "no small case"),
        ("tolerance", dataclasses.replace(EXACT, why=""), "how it was calibrated"),
    ],
)
def test_a_missing_part_is_named(softmax: Operator, field: str, value: Any, said: str) -> None:
    problems = lint(dataclasses.replace(softmax, **{field: value}))
    assert any(said in problem for problem in problems)


def test_a_case_that_does_not_fit_its_signature_is_named(softmax: Operator) -> None:
    cases = (*softmax.cases(), Case("short", (TensorSpec((3, 4)),)))
    only(lint(dataclasses.replace(softmax, cases=lambda: cases)), "'dim' is missing")


def test_an_oracle_that_touches_the_judges_inputs_is_named(softmax: Operator) -> None:
    def greedy(self: torch.Tensor, dim: int, dtype: Any = None, **more: Any) -> list[Expected]:
        return softmax.oracle(self.mul_(1), dim, dtype)  # a private copy: allowed

    assert lint(dataclasses.replace(softmax, oracle=greedy)) == []


def test_copies_for_second_statements_keep_the_memory_around_a_view() -> None:
    view = torch.arange(40.0)[3:35].as_strided((4, 4), (1, 4))
    copy = lint_module._on_cpu(Call((view, torch.device("cuda")), {"device": torch.device("cuda")}))
    assert torch.equal(copy.args[0].as_strided((40,), (1,), 0), torch.arange(40.0))
    assert copy.args[0].storage_offset() == view.storage_offset()
    assert copy.args[1] == copy.kwargs["device"] == torch.device("cpu")


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.bool, torch.complex64, torch.int16])
def test_results_of_every_dtype_are_rolled(dtype: torch.dtype) -> None:
    given = torch.tensor([[1.0, 0.0, 0.0], [1.0, 1.0, 0.0]]).to(dtype)
    rolled = lint_module._rolled(given.t())
    assert rolled.shape == (3, 2)
    assert rolled.to(torch.complex64).flatten().tolist() == [0, 1, 1, 0, 1, 0]
