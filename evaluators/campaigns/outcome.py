"""Which attempt at an operator counts, by the run's selection: the last, or the best by verdict."""

from __future__ import annotations

from dataclasses import dataclass

from kernelmark.evaluators.campaigns.folder import RunFolder
from kernelmark.evaluators.campaigns.records import Attempt
from kernelmark.evaluators.grading.records import Verdict
from kernelmark.evaluators.methods._standing import standing


@dataclass(frozen=True)
class Outcome:
    """One operator of a run. `attempt` None: not begun; `verdict` None: no candidate, or not
    graded."""

    operator: str
    attempts: int
    attempt: Attempt | None = None
    verdict: Verdict | None = None

    @property
    def status(self) -> str:
        """The verdict's, the attempt's failure, or that there is neither."""
        if self.verdict is not None:
            return self.verdict.status
        if self.attempt is None:
            return "not begun"
        return self.attempt.failure or "not graded"

    @property
    def solved(self) -> bool:
        """Whether the attempt that counts passed."""
        return self.status == "passed"


def outcome(folder: RunFolder, operator: str) -> Outcome:
    """What the run has established of `operator`.

    A budget that ran out, or our own infrastructure's failure, does not take away what an earlier
    attempt achieved where the best one counts.
    """
    attempts = folder.production(operator).attempts
    judged = [(attempt, _verdict(folder, attempt)) for attempt in attempts]
    if not judged:
        return Outcome(operator, 0)
    if folder.run.selection == "best" and any(verdict for _, verdict in judged):
        chosen = max(judged, key=lambda pair: standing(pair[1]))
    else:
        chosen = judged[-1]
    return Outcome(operator, len(attempts), *chosen)


def _verdict(folder: RunFolder, attempt: Attempt) -> Verdict | None:
    return folder.verdict(attempt.operator, attempt.candidate) if attempt.candidate else None
