"""One request, one candidate: what a model knows without being told how it did."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from kernelmark.benchmark.errors import UserError
from kernelmark.benchmark.replies import ReplyError, extract_python
from kernelmark.evaluators.campaigns.records import MethodKind, Selection
from kernelmark.evaluators.grading.records import Candidate
from kernelmark.evaluators.methods.base import Proposal, Reply, Task, Workspace

#: what providers call an answer that ran into its output limit
_CUT = ("length", "max_tokens")


@dataclass(frozen=True)
class OneShot:
    """`temperature` as the provider takes it; `max_output_tokens` includes reasoning."""

    temperature: float = 0.0
    max_output_tokens: int = 16_384
    kind: ClassVar[MethodKind] = "model"
    language: ClassVar[str] = "triton"
    selection: ClassVar[Selection] = "last"
    uses_model: ClassVar[bool] = True
    summary: ClassVar[str] = "one request to a model (--model), no feedback"

    def check(self) -> None:
        """Limits that no provider takes."""
        if self.max_output_tokens < 1:
            raise UserError("option max_output_tokens: must be at least 1")

    def propose(self, task: Task, workspace: Workspace) -> Iterator[Proposal]:
        """Asks once."""
        reply = workspace.complete(
            [{"role": "user", "content": task.prompt}],
            temperature=self.temperature,
            max_tokens=self.max_output_tokens,
        )
        yield propose_reply(task, reply)


def propose_reply(task: Task, reply: Reply) -> Proposal:
    """The candidate in a model's reply, or `no_candidate` with the reason."""
    cut = reply.finish_reason in _CUT
    try:
        source = extract_python(reply.text, task.operator.name, cut=cut)
    except ReplyError as error:
        return Proposal(failure="no_candidate", note=str(error))
    return Proposal(Candidate(task.operator.id, source.text, task.language), note=source.note)


METHOD = OneShot
