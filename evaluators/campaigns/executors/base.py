"""Where a run's grades and compilations are made: on this machine, or in a Ray cluster."""

from __future__ import annotations

from typing import Protocol

from kernelmark.evaluators.grading.records import Candidate, Portability, Verdict
from kernelmark.evaluators.grading.settings import Settings


class Executor(Protocol):
    """Grades and compiles for a campaign. What an executor's own machines fail is done again, and
    in the end `infrastructure_error`; never a candidate's fault."""

    slots: int  #: grades made at once: one an accelerator
    compilers: int  #: candidates compiled at once

    def grade(self, candidate: Candidate, settings: Settings) -> Verdict:
        """A verdict; waits for an accelerator. From up to `slots` threads."""
        ...

    def compile(self, candidate: Candidate, targets: tuple[str, ...]) -> tuple[Portability, ...]:
        """A row a target, in their order. From up to `compilers` threads."""
        ...

    def close(self) -> None:
        """Ends what is in progress, and every process that was started."""
        ...
