"""One grade at a time on a chip whose times count: the intakes of a machine take turns."""

from __future__ import annotations

import fcntl
from collections.abc import Callable
from typing import cast

from kernelmark.evaluators.chips.base import Chip
from kernelmark.evaluators.grading.records import Candidate, Verdict
from kernelmark.operators.records import Tier
from kernelmark.operators.registry import get_operator
from kernelmark.submissions.home import Home
from kernelmark.submissions.regrading import Grade


def grader(home: Home, chip: Chip) -> Grade:
    """Grades a candidate at a tier on `chip`, alone on it among this home's processes."""
    from kernelmark.evaluators.grading.judge import Settings, grade

    def graded(candidate: Candidate, tier: str) -> Verdict:
        operator = get_operator(candidate.operator)
        return grade(candidate, operator, chip, Settings(tier=cast(Tier, tier)))

    return alone(home, chip.name, graded) if chip.attests == "executed" else graded


def alone(home: Home, chip: str, grade: Callable[[Candidate, str], Verdict]) -> Grade:
    """`grade`, held back while another process grades on the same chip."""

    def in_turn(candidate: Candidate, tier: str) -> Verdict:
        home.claims.mkdir(parents=True, exist_ok=True)
        with (home.claims / f".{chip}.lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            return grade(candidate, tier)

    return in_turn
