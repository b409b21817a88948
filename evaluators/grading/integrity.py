"""The integrity gate: the candidate's own kernels, and nothing else, gave the answer.

A fresh runner loads the candidate with every launch of its kernels turned into nothing. Whatever
it still gets right was not computed by them. Only results that say something are asked for: not
empty, not constant, not the values of an input (`Question.silence`).

An operator that has no such results (it fills, or copies) cannot be replayed, and the gate says
so. One that computes and yet shows none is a fault of its definition: the gate fails closed.
Device layer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kernelmark.evaluators.grading.results import Question
from kernelmark.evaluators.grading.session import Session
from kernelmark.evaluators.grading.workers import Fault
from kernelmark.operators.records import Case

#: cases that are replayed
CASES = 4
#: draws of a case whose answer is a single number, until one is not 0, 1 or the like
DRAWS = 4
#: answers that host code may give by itself: filled and copied memory. They are an excuse; the
#: others are none, but may come along with them
_FILLED_OR_COPIED = frozenset({"constant", "a copy of an input"})
_BESIDE = frozenset({"empty", "a plain number"})


@dataclass(frozen=True)
class Replay:
    """What the replay showed. `right_without`: names of cases answered without any kernel.

    `silent`: of cases that say nothing, what their results are; by name.
    """

    replayed: tuple[str, ...]
    right_without: tuple[str, ...]
    silent: dict[str, tuple[str, ...]]

    @property
    def excuse(self) -> str:
        """Why nothing was replayed, where that is in the operator's nature; else empty."""
        reasons = {reason for found in self.silent.values() for reason in found}
        excuses = reasons & _FILLED_OR_COPIED
        if self.replayed or not excuses or reasons - excuses - _BESIDE:
            return ""
        return " or ".join(sorted(excuses))


def replay(
    open_session: Callable[[], Session],
    cases: Sequence[Case],
    question: Callable[[Case], Question],
) -> Replay:
    """Replays up to `CASES` of `cases` with the kernels disabled.

    A runner that fails, crashes or hangs without its kernels did not get the answer: that is what
    an honest one may do, and the next case gets a fresh runner.
    """
    replayed: list[str] = []
    right: list[str] = []
    silent: dict[str, tuple[str, ...]] = {}
    session: Session | None = None
    try:
        for case in cases:
            if len(replayed) == CASES:
                break
            asked = _telling(case, question)
            informative = asked.informative()
            if not informative:
                silent[case.name] = tuple(asked.silence().values())
                continue
            replayed.append(case.name)
            try:
                session = session or open_session()
                session.stage(1, asked.call)
                outcome = session.run(1, asked.expected)
            except Fault:
                if session is not None:
                    session.worker.end()
                session = None
                continue
            comparisons = asked.judge(outcome)
            if len(comparisons) == len(asked.expected) and any(
                comparisons[number].status == "passed" for number in informative
            ):
                right.append(case.name)
    finally:
        if session is not None:
            session.worker.end()
    return Replay(tuple(replayed), tuple(right), silent)


def _telling(case: Case, question: Callable[[Case], Question]) -> Question:
    """A draw of `case`; another one where the answer is a number that could be had by chance."""
    asked = question(case)
    for _ in range(DRAWS - 1):
        if "a plain number" not in asked.silence().values():
            break
        asked = question(case)
    return asked
