"""What becomes of a grade when a measurement is disturbed: measured again, left out, or void."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import stepping
from test_timing_gate import HONEST, NEGATIVE

from kernelmark.evaluators.grading import speed
from kernelmark.evaluators.grading.alternate import Measured
from kernelmark.evaluators.grading.judge import Settings, grade
from kernelmark.evaluators.grading.records import Candidate, Verdict
from kernelmark.evaluators.grading.speed import Disturbed, Timekeeper
from kernelmark.evaluators.grading.statistics import agreement
from kernelmark.evaluators.grading.workers import Fault, Infrastructure
from kernelmark.operators.records import Case, TensorSpec

NAMES = ("first", "second", "third")
CASES = (
    NEGATIVE.tier("small")[0],
    *(Case(n, (TensorSpec((40, 50)),), tier="full", origin="test") for n in NAMES),
)
THREE = dataclasses.replace(NEGATIVE, cases=lambda: CASES)


def graded(monkeypatch: pytest.MonkeyPatch, disturbed: dict[str, int]) -> tuple[Verdict, list[Any]]:
    """The verdict where each case is disturbed as many times as `disturbed` says; the tries."""
    left = dict(disturbed)
    tries: list[Any] = []
    honest = Timekeeper.time

    def time(self: Timekeeper, case: Case, *, last: bool) -> speed.Speed:
        tries.append((case.name, last, self.baseline.worker.number))
        if left.get(case.name, 0):
            left[case.name] -= 1
            raise Disturbed("somebody else was here")
        return honest(self, case, last=last)

    monkeypatch.setattr(Timekeeper, "time", time)
    settings = Settings(tier="full", timeout_s=20)
    return grade(Candidate("aten::neg", HONEST), THREE, stepping.CHIP, settings), tries


@pytest.mark.slow
def test_a_disturbed_case_is_measured_again_after_the_others(monkeypatch) -> None:
    verdict, tries = graded(monkeypatch, {"first": 1})
    assert verdict.status == "passed", verdict.message
    assert {timing.case for timing in verdict.timings} == set(NAMES)
    assert [(name, last) for name, last, _ in tries] == [
        ("first", False),
        ("second", False),
        ("third", False),
        ("first", True),
    ]
    baselines = [number for _, _, number in tries]
    assert baselines[0] != baselines[1] == baselines[2] == baselines[3]
    assert "untimed" not in verdict.evidence


def test_one_bad_case_of_three_is_named_and_left_out(monkeypatch) -> None:
    verdict, _ = graded(monkeypatch, {"second": 2})
    assert verdict.status == "passed", verdict.message
    assert [timing.case for timing in verdict.timings] == ["first", "third"]
    assert verdict.evidence["untimed"] == {"second": "somebody else was here"}
    assert "over 2 of 3 cases" in verdict.message
    assert "'second' not timed: somebody else" in verdict.message


@pytest.mark.slow
def test_most_cases_bad_is_our_failure(monkeypatch) -> None:
    verdict, _ = graded(monkeypatch, {"first": 4, "second": 4})
    assert verdict.status == "infrastructure_error"
    assert "2 of 3 cases could not be timed" in verdict.message


class FailingBaseline:
    """A session whose runner breaks down."""

    class Worker:
        def ask(self, *args: Any, **fields: Any) -> Any:
            raise Fault("out_of_memory", "no memory left")

    worker = Worker()
    timeout_s = 1.0


@pytest.mark.parametrize(("role", "error"), [("baseline", Disturbed), ("candidate", Fault)])
def test_the_baselines_faults_are_not_the_candidates(role: Any, error: type[Exception]) -> None:
    failing = object.__new__(speed.TimedSide)
    failing.session, failing.role = FailingBaseline(), role  # type: ignore[assignment]
    with pytest.raises(error, match="no memory left"):
        failing.close()


def side(role: Any, claimed: float, wall: float) -> Measured:
    return Measured((), agreement(claimed, wall), (), role)


@pytest.mark.parametrize(
    ("candidate", "baseline", "last", "error"),
    [
        ((100, 100), (100, 94), False, None),
        ((80, 100), (100, 100), True, None),  # settled by the longer figure
        ((50, 100), (100, 100), False, Disturbed),
        ((50, 100), (100, 100), True, Fault),
        ((200, 100), (100, 100), True, None),
        ((100, 100), (50, 100), True, Disturbed),
        ((100, 100), (200, 100), True, Disturbed),
    ],
)
def test_who_is_accused_and_when(
    candidate: Any, baseline: Any, last: bool, error: type[Exception] | None
) -> None:
    keeper = object.__new__(Timekeeper)
    sides = side("candidate", *candidate), side("baseline", *baseline)
    if error is None:
        keeper._plausible(*sides, last=last)
        return
    with pytest.raises(error) as caught:
        keeper._plausible(*sides, last=last)
    if error is Fault:
        assert caught.value.status == "tampered"  # type: ignore[attr-defined]


@pytest.mark.parametrize(("candidate", "baseline"), [((50, 100), (100, 100)), ((9, 9), (50, 100))])
def test_nobody_is_accused_where_others_use_the_accelerator(candidate: Any, baseline: Any) -> None:
    """Seen on an H200: with a second program on the card an honest kernel's clocks differed."""
    keeper = object.__new__(Timekeeper)
    sides = side("candidate", *candidate), side("baseline", *baseline)
    with pytest.raises(Infrastructure, match="8 other processes"):
        keeper._plausible(*sides, last=True, others=8)
    with pytest.raises(Disturbed):
        keeper._plausible(*sides, last=False, others=8)
