"""The correctness gate: secret inputs, in an order and number that nobody can foresee.

Each case is drawn several times: those that are timed at least `FULL_DRAWS` times, small ones two
or three times, so that together they meet every variation that they declare. The data of one draw
comes in fresh memory, that of the next in the very same tensors (same objects, addresses and
versions), so that an answer kept by identity, address or call count is a wrong one. In some cases,
chosen in secret, the same data comes twice in different memory, which shows run-to-run differences.
A wrong value is asked for again before it is called that: where it comes out right another time,
the candidate is `nondeterministic`. Device layer.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch

from kernelmark.evaluators.grading.records import Comparison
from kernelmark.evaluators.grading.results import Question, same_bits
from kernelmark.evaluators.grading.session import Outcome, Session
from kernelmark.operators import calling
from kernelmark.operators.draws import draw
from kernelmark.operators.records import Case, Operator

#: runs of the same question before a wrong value is put down to the candidate's steadiness
RETRIES = 3
#: draws of a full-tier case, at least
FULL_DRAWS = 5
#: of the small cases, at least so many, and this share, have one call repeated
_REPEATED, _REPEATED_SHARE = 4, 0.25


class Failed(Exception):
    """A result that fails the gate."""

    def __init__(self, comparison: Comparison) -> None:
        super().__init__(comparison.detail)
        self.comparison = comparison


@dataclass
class Report:
    """What the gate found. `calls` counts calls of the candidate."""

    comparisons: list[Comparison] = field(default_factory=list)
    calls: int = 0
    repeats: int = 0
    repeats_differing: int = 0  #: same inputs, other bits, both within tolerance


@dataclass(frozen=True)
class Step:
    """One call to make. `same_memory`: new data where the previous call's inputs are."""

    variation: str
    same_memory: bool


class Correctness:
    """Walks one runner through cases. `dice` is secret and decides everything that varies."""

    def __init__(
        self,
        operator: Operator,
        session: Session,
        device: torch.device,
        dice: random.Random,
        patience_s: float,
    ) -> None:
        self.operator = operator
        self.session = session
        self.device = device
        self.dice = dice
        self.patience_s = patience_s  #: a case whose calls take longer than this gets fewer
        self.report = Report()
        self._slot = 0

    def check(
        self, cases: Sequence[Case], draws: int | None, progress: Callable[[Case], None]
    ) -> Report:
        """All of `cases` in a random order. Raises `Failed` at the first result that is wrong."""
        order = list(cases)
        self.dice.shuffle(order)
        plan = self._plan(order, draws)
        repeated = self._repeated(order)
        for case in order:
            progress(case)
            self._case(case, plan[case.name], case.name in repeated)
        self.session.release(self._slot, thoroughly=False)
        return self.report

    def _plan(self, cases: Sequence[Case], draws: int | None) -> dict[str, list[str]]:
        """The variations that each case is drawn in, by name, in a secret order."""
        used: Counter[str] = Counter()
        plan: dict[str, list[str]] = {}
        for case in cases:
            chosen = self._full(case) if case.tier == "full" else self._small(case, used)
            plan[case.name] = chosen[:draws]
            used.update(plan[case.name])
        if draws is None:  # where the small cases are too few to meet all variations in turn
            for case in cases:
                missing = [v for v in dict.fromkeys(case.draws) if not used[v]]
                plan[case.name] += missing
                used.update(missing)
        for variations in plan.values():
            self.dice.shuffle(variations)
        return plan

    def _full(self, case: Case) -> list[str]:
        """All of a case's draws, and no fixed number of calls."""
        missing = max(0, FULL_DRAWS - len(case.draws))
        return [*case.draws, *["base"] * (missing + self.dice.randrange(2))]

    def _small(self, case: Case, used: Counter[str]) -> list[str]:
        """Two or three of a case's draws, those that were met least often so far."""
        rest = list(case.draws)
        self.dice.shuffle(rest)
        rest.sort(key=lambda variation: used[variation])
        chosen = rest[: self.dice.choice((2, 3))]
        return chosen if len(chosen) > 1 else chosen * 2

    def _repeated(self, cases: Sequence[Case]) -> set[str]:
        """Names of the cases in which one call is repeated: full ones, and some of the others."""
        small = [case.name for case in cases if case.tier != "full"]
        count = max(_REPEATED, math.ceil(_REPEATED_SHARE * len(small)))
        everyone = self.operator.kind == "random"  # what differs between calls is what is judged
        chosen = small if everyone else self.dice.sample(small, min(count, len(small)))
        return {*chosen, *(case.name for case in cases if case.tier == "full")}

    def question(self, case: Case, variation: str) -> Question:
        """A fresh secret draw of `case`, with its answer."""
        call = draw(self.operator, case, variation, self.dice.getrandbits(63), self.device)
        return Question(self.operator, case, variation, call)

    def _case(self, case: Case, variations: Sequence[str], repeated: bool) -> None:
        spent = 0.0
        for number, step in enumerate(self._steps(variations)):
            if number >= 2 and spent > self.patience_s:
                break
            spent += self._draw(case, step, repeated and number == 0)
        if case.tier == "full":
            self.session.release(self._slot, thoroughly=True)

    def _draw(self, case: Case, step: Step, repeated: bool) -> float:
        """One draw, asked and judged; seconds of the call. Nothing of it is kept: of a large case
        there is room for one draw's copies, not for two."""
        question = self.question(case, step.variation)
        outcome = self._ask(question, step.same_memory)
        if repeated:
            self._repeat(question, outcome)
        return outcome.seconds

    def _steps(self, variations: Sequence[str]) -> Iterator[Step]:
        for number, variation in enumerate(variations):
            # The second call is always in the memory of the first; later ones by chance.
            yield Step(variation, number == 1 or (number > 1 and self.dice.random() < 0.5))

    def _ask(self, question: Question, same_memory: bool) -> Outcome:
        outcome = self._run(question, same_memory)
        comparisons = question.judge(outcome)
        self.report.comparisons += comparisons
        bad = next((c for c in comparisons if c.status != "passed"), None)
        if bad is not None:
            raise Failed(self._steady(question, bad))
        return outcome

    def _run(self, question: Question, same_memory: bool) -> Outcome:
        if not same_memory:
            self._slot += 1  # the old slot lives on until the new one stands: other addresses
        before = [] if same_memory else [self._slot - 1]
        self.session.stage(self._slot, question.call, reuse=same_memory, drop=before)
        outcome = self.session.run(self._slot, question.expected)
        self.report.calls += 1
        return outcome

    def _repeat(self, question: Question, first: Outcome) -> None:
        """The same data in other memory must give the same answer, if not the same bits."""
        second = self._ask(question, same_memory=False)
        self.report.repeats += 1
        if question.must_differ() and same_bits(first, second):
            text = "two calls gave the same random numbers"
            raise Failed(
                Comparison(question.case.name, question.draw, 0, "wrong_values", detail=text)
            )
        same = same_bits(first, second)
        self.report.repeats_differing += not same
        if same and self.operator.kind == "random" and calling.must_differ(question.expected):
            text = "the same random numbers in two calls"
            case, variation = question.case.name, question.draw
            raise Failed(Comparison(case, variation, 0, "wrong_values", detail=text))

    def _steady(self, question: Question, bad: Comparison) -> Comparison:
        """`bad`, or why the same question gets right answers too: chance, or what was kept."""
        if bad.status != "wrong_values" or self.operator.kind == "random":
            return bad
        # In the same memory: who goes by identity or address answers wrongly again.
        if any(self._right(question, same_memory=True) for _ in range(RETRIES)):
            text = f"right on some runs, wrong on others ({describe(bad)})"
            return replace(bad, status="nondeterministic", detail=text)
        if self._right(question, same_memory=False):
            return replace(bad, detail="right in fresh memory: an answer kept from another call")
        return bad

    def _right(self, question: Question, same_memory: bool) -> bool:
        comparisons = question.judge(self._run(question, same_memory))
        return all(c.status == "passed" for c in comparisons)


def describe(comparison: Comparison) -> str:
    """One line for a person: case, draw, what is wrong and where."""
    c = comparison
    where = f"case {c.case!r}, draw {c.draw!r}"
    if c.status == "wrong_values" and c.max_error is not None and c.limit is not None:
        return (
            f"{where}: result {c.result} at {list(c.worst_index)} is {c.got}, expected "
            f"{c.expected}; error {c.max_error:.3g} over limit {c.limit:g}, "
            f"{c.bad} of {c.total} elements wrong" + (f" ({c.detail})" if c.detail else "")
        )
    return f"{where}: result {c.result}: {c.detail}"
