"""What methods that call a model share: how a request is made, and how a file comes of a reply."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kernelmark.benchmark.errors import UserError
from kernelmark.benchmark.replies import ReplyError, extract_python
from kernelmark.evaluators.grading.records import Candidate
from kernelmark.evaluators.methods.base import Message, Proposal, Reply, Task, Workspace

#: what providers call an answer that ran into its output limit
_CUT = ("length", "max_tokens")


@dataclass(frozen=True)
class Sampling:
    """Options of every method that calls a model.

    `temperature` as the provider takes it, ``none`` to leave it out (reasoning models refuse it);
    `max_output_tokens` includes reasoning; `reasoning_effort` is left out where it is empty.
    """

    temperature: float | None = 0.0
    max_output_tokens: int = 16_384
    reasoning_effort: str = ""

    def check(self) -> None:
        """Limits that no provider takes."""
        if self.max_output_tokens < 1:
            raise UserError("option max_output_tokens: must be at least 1")
        if self.temperature is not None and not 0 <= self.temperature <= 2:
            raise UserError("option temperature: must be none, or from 0 to 2")

    def ask(self, workspace: Workspace, messages: Sequence[Message]) -> Reply:
        """One request with these options."""
        parameters: dict[str, Any] = {"max_tokens": self.max_output_tokens}
        if self.temperature is not None:
            parameters["temperature"] = self.temperature
        if self.reasoning_effort:
            parameters["reasoning_effort"] = self.reasoning_effort
        return workspace.complete(messages, **parameters)


def question(task: Task) -> list[Message]:
    """The first message: the task."""
    return [{"role": "user", "content": task.prompt}]


def propose_reply(task: Task, reply: Reply) -> Proposal:
    """The candidate in a model's reply, or `no_candidate` with the reason.

    The note says which part of the reply was taken.
    """
    cut = reply.finish_reason in _CUT
    try:
        source = extract_python(reply.text, task.operator.name, cut=cut)
    except ReplyError as error:
        return Proposal(failure="no_candidate", note=str(error))
    return Proposal(Candidate(task.operator.id, source.text, task.language), note=source.note)
