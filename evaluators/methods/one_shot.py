"""One request, one candidate: what a model knows without being told how it did."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from kernelmark.evaluators.campaigns.records import MethodKind, Selection
from kernelmark.evaluators.methods._asking import Sampling, propose_reply, question
from kernelmark.evaluators.methods.base import Proposal, Task, Workspace


@dataclass(frozen=True)
class OneShot(Sampling):
    """Options are those of `Sampling`; temperature 0."""

    kind: ClassVar[MethodKind] = "model"
    language: ClassVar[str] = "triton"
    selection: ClassVar[Selection] = "last"
    uses_model: ClassVar[bool] = True
    summary: ClassVar[str] = "one request to a model (--model), no feedback"

    def propose(self, task: Task, workspace: Workspace) -> Iterator[Proposal]:
        """Asks once."""
        yield propose_reply(task, self.ask(workspace, question(task)))


METHOD = OneShot
