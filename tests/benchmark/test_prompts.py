"""Prompts: what is told, what is not, and that what they teach is true."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import pytest

from kernelmark.benchmark.prompts import (
    Setting,
    build_prompt,
    describe_case,
    told_cases,
)
from kernelmark.benchmark.replies import extract_python
from kernelmark.evaluators.chips.registry import get_chip
from kernelmark.evaluators.grading.judge import Settings, grade
from kernelmark.evaluators.grading.records import Candidate
from kernelmark.evaluators.languages.registry import get_language
from kernelmark.operators.records import Operator
from kernelmark.operators.registry import all_operators, get_operator

SETTING = Setting("nvidia", "Chip notes.", "triton", "Language rules.")


@pytest.mark.parametrize("operator", all_operators().values(), ids=lambda op: op.id)
def test_every_overload_is_told_and_the_rest_of_the_small_cases_is_not(operator: Operator) -> None:
    told = told_cases(operator)
    assert {case.overload for case in told} == {case.overload for case in operator.cases()}
    assert [case for case in told if case.tier == "full"] == operator.tier("full")
    hidden = [case for case in operator.cases() if case not in told]
    shown = {describe_case(operator, case) for case in told}
    prompt = build_prompt(operator, SETTING)
    for case in hidden:
        text = describe_case(operator, case)
        assert text in shown or f"- {text}\n" not in prompt
    assert len(told) - len(operator.tier("full")) >= min(12, len(operator.tier("small")))


@pytest.mark.parametrize("operator", all_operators().values(), ids=lambda op: op.id)
def test_the_definition_told_takes_every_call(operator: Operator) -> None:
    prompt = build_prompt(operator, SETTING)
    (line,) = [line for line in prompt.splitlines() if line.startswith(f"    def {operator.name}(")]
    function: dict[str, object] = {}
    source = line.strip().split("  #")[0] + "\n    pass\n"
    ast.parse(source)
    exec(source, {}, function)
    for case in operator.cases():
        function[operator.name](*case.args, **case.kwargs)  # type: ignore[operator]


def test_an_agent_is_not_asked_for_a_reply() -> None:
    operator = get_operator("aten::softmax")
    assert "fenced code block" in build_prompt(operator, SETTING)
    assert "fenced code block" not in build_prompt(operator, replace(SETTING, track="agent"))


def test_the_example_passes_the_judge(tmp_path: Path) -> None:
    source = extract_python(get_language("triton").template, "shift").text
    silu = get_operator("aten::silu")
    shift = replace(
        silu,
        id="aten::shift",
        signatures=(
            "shift(self: Tensor, amount: float) -> Tensor",
            "shift.out(self: Tensor, amount: float, *, out: Tensor!) -> Tensor!",
        ),
        cases=lambda: [replace(c, args=(*c.args, 0.5)) for c in silu.tier("small")],
        oracle=lambda self, amount, out=None: [_result(silu, self, amount)],
        baseline=lambda self, amount, out=None: self + amount,
    )
    verdict = grade(Candidate(shift.id, source), shift, get_chip("interpreter"), Settings())
    assert verdict.status == "passed", verdict.message


def _result(silu: Operator, self: object, amount: float) -> object:
    (result,) = silu.oracle(self)
    return replace(result, value=self.double() + amount, scale=None)  # type: ignore
