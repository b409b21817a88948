"""The integrity gate: the candidate's own kernels, and nothing else, gave the answer.

A fresh runner loads the candidate with every launch of its kernels turned into nothing. Whatever
it still gets right was not computed by them. Only results that say something are asked for: not
empty, not constant, not the values of an input. Device layer.
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


@dataclass(frozen=True)
class Replay:
    """What the replay showed. `right_without`: names of cases answered without any kernel."""

    replayed: tuple[str, ...]
    right_without: tuple[str, ...]
    launches_skipped: int


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
    launches = 0
    session: Session | None = None
    try:
        for case in cases:
            if len(replayed) == CASES:
                break
            asked = question(case)
            informative = asked.informative()
            if not informative:
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
            launches = max(launches, outcome.launches_skipped)
            comparisons = asked.judge(outcome)
            if len(comparisons) == len(asked.expected) and any(
                comparisons[number].status == "passed" for number in informative
            ):
                right.append(case.name)
    finally:
        if session is not None:
            session.worker.end()
    return Replay(tuple(replayed), tuple(right), launches)
