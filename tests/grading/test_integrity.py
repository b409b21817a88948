"""Which answers say something when the kernels are disabled, and what happens where none does."""

from __future__ import annotations

import pytest
import torch
from judging import HONEST, KERNEL, judged, operator

from kernelmark.evaluators.grading.integrity import Replay
from kernelmark.evaluators.grading.results import Question
from kernelmark.evaluators.languages.triton import TritonLanguage
from kernelmark.operators.draws import Call
from kernelmark.operators.records import Case, Expected, TensorSpec


def silence(values: list[float], given: list[float], *scalars: float) -> str:
    """Of one result with `values`, of a call with one tensor `given` and some scalars."""
    call = Call((torch.tensor(given), *scalars), {})
    want = Expected(torch.tensor(values, dtype=torch.float64), torch.float32)
    case = Case("case", (TensorSpec((len(given),)), *scalars))
    op = operator("f", "f(self: Tensor, a: float=0) -> Tensor", lambda *args: [want], (case,))
    return Question(op, case, "base", call).silence()[0]


@pytest.mark.parametrize(
    ("values", "given", "scalars", "why"),
    [
        ([37.5], [1.0, 36.5], (), ""),  # a dot product or a sum: one number, and a telling one
        ([0.0], [1.0, -1.0], (), "a plain number"),
        ([3.0], [1.0, 1.0, 1.0], (), "a plain number"),  # as many as there are elements
        ([2.5], [1.0, 36.5], (2.5,), "constant"),
        ([36.5], [36.5], (), "a copy of an input"),
        ([], [], (), "empty"),
        ([7.0, 7.0], [1.0, 2.0], (), "constant"),
        ([1.0, 2.0], [1.0, 2.0], (), "a copy of an input"),
        ([2.0, 4.0], [1.0, 2.0], (), ""),
        ([float("nan")], [1.0], (), "undefined"),
    ],
)
def test_what_says_something(values, given, scalars, why) -> None:
    assert silence(values, given, *scalars) == why


@pytest.mark.parametrize(
    ("silent", "excuse"),
    [
        ({"a": ("constant",), "b": ("empty",)}, "constant"),
        ({"a": ("constant",), "b": ("a copy of an input",)}, "a copy of an input or constant"),
        ({"a": ("constant",), "b": ("a plain number",)}, "constant"),
        ({"a": ("a plain number",)}, ""),
        ({"a": ("empty",)}, ""),
        ({"a": ("undefined",), "b": ("constant",)}, ""),
        ({}, ""),
    ],
)
def test_what_excuses(silent, excuse) -> None:
    assert Replay((), (), silent).excuse == excuse


TOTAL_KERNEL = (
    KERNEL
    + """
@triton.jit
def add_up(x, y, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(y, tl.sum(tl.load(x + i, mask=i < n, other=0.0), 0))

def total(self):
    y = self.new_empty(())
    add_up[(1,)](self, y, self.numel(), B=128)
    return y
"""
)
TOTAL = operator(
    "total",
    "total(self: Tensor) -> Tensor",
    lambda self: [Expected(self.double().sum(), self.dtype, self.double().abs().sum())],
    (Case("vector", (TensorSpec((70,)),)), Case("short", (TensorSpec((9,)),))),
)


@pytest.fixture
def no_scan(monkeypatch):
    monkeypatch.setattr(TritonLanguage, "scan", lambda *args: [])


def gate(verdict):
    return next(gate for gate in verdict.gates if gate.name == "integrity")


def test_a_single_number_is_replayed(no_scan) -> None:
    verdict = judged(TOTAL_KERNEL, TOTAL)
    assert verdict.status == "passed", verdict.message
    assert set(verdict.evidence["replayed_without_kernels"]) == {"vector", "short"}
    verdict = judged(KERNEL + "def total(self): return self.sum()", TOTAL)
    assert verdict.status == "tampered"


def zeros(self: torch.Tensor) -> list[Expected]:
    return [Expected(torch.zeros(self.shape).double(), self.dtype)]


FILL = KERNEL + "def {name}(self): return launch(torch.zeros_like(self), torch.empty_like(self))"


def test_an_operator_that_fills_is_excused(no_scan) -> None:
    op = operator(
        "blank", "blank(self: Tensor) -> Tensor", zeros, (Case("v", (TensorSpec((7,)),)),)
    )
    verdict = judged(FILL.format(name="blank"), op)
    assert verdict.status == "passed", verdict.message
    assert "every answer is constant" in gate(verdict).detail


def test_an_operator_that_shows_nothing_fails_closed(no_scan) -> None:
    op = operator("mute", "mute(self: Tensor) -> Tensor", zeros, (Case("v", (TensorSpec((1,)),)),))
    verdict = judged(FILL.format(name="mute"), op)
    assert verdict.status == "infrastructure_error"
    assert "can show that kernels gave the answer" in verdict.message
    assert verdict.evidence["silent_cases"] == {"v": ["a plain number"]}


def test_cases_that_were_not_asked_for_are_replayed_where_the_others_say_nothing() -> None:
    from dataclasses import replace

    from judging import QUICK, TWICE

    verdict = judged(HONEST, TWICE, replace(QUICK, cases=("empty",)))
    assert verdict.status == "passed", verdict.message
    assert verdict.evidence["replayed_without_kernels"]
