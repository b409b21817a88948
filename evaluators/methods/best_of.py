"""Several independent samples of one question: what luck buys.

The rule by which one of them counts is declared by `select` and stored with the run's options:

- ``first``: samples are taken until one passes the judge; that one counts;
- ``fastest``: all are taken; of those that pass, the one with the highest speedup counts.

Either way every sample is an attempt with its own verdict and its own tokens. No sample is told
what the judge said of another.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

from kernelmark.benchmark.errors import UserError
from kernelmark.evaluators.campaigns.records import MethodKind, Selection
from kernelmark.evaluators.methods._asking import Sampling, propose_reply, question
from kernelmark.evaluators.methods.base import Proposal, Task, Workspace


@dataclass(frozen=True)
class BestOf(Sampling):
    """`samples` at the most; `select` is the rule (see the module)."""

    temperature: float | None = 0.8
    samples: int = 4
    select: Literal["first", "fastest"] = "first"
    kind: ClassVar[MethodKind] = "model"
    language: ClassVar[str] = "triton"
    selection: ClassVar[Selection] = "best"
    uses_model: ClassVar[bool] = True
    summary: ClassVar[str] = "several samples of a model (--model); the first right or the fastest"

    def check(self) -> None:
        """At least one sample; at temperature 0 a second one would be the same."""
        super().check()
        if self.samples < 1:
            raise UserError("option samples: must be at least 1")
        if self.samples > 1 and self.temperature == 0:
            raise UserError("option temperature: samples at temperature 0 are all the same")

    def propose(self, task: Task, workspace: Workspace) -> Iterator[Proposal]:
        """One proposal a sample."""
        for _ in range(self.samples):
            proposal = propose_reply(task, self.ask(workspace, question(task)))
            yield proposal
            if self.select == "fastest" or proposal.candidate is None:
                continue
            if workspace.verify(proposal.candidate).status == "passed":
                return


METHOD = BestOf
