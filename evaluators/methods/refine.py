"""A search: the model is told what the judge said of a candidate, and writes a better one.

In the first round `width` candidates are written from the task alone. In every later round `width`
more are written, each from one of the `frontier` best so far: the model sees the task, that
candidate, the verdict on it, and in a line each how the others fared. Right ones are ranked by
speedup, wrong ones by the gate that they reached. It ends after `rounds` rounds, or as soon as a
candidate passes where nothing is timed, or with ``stop=passed``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from kernelmark.benchmark.errors import UserError
from kernelmark.evaluators.campaigns.feedback import feedback
from kernelmark.evaluators.campaigns.records import MethodKind, Selection
from kernelmark.evaluators.grading.records import Verdict
from kernelmark.evaluators.methods._asking import Sampling, propose_reply, question
from kernelmark.evaluators.methods._standing import speedup, standing
from kernelmark.evaluators.methods.base import Message, Proposal, Reply, Task, Workspace


@dataclass(frozen=True)
class _Node:
    """A candidate that was judged, or a reply without one."""

    number: int  #: of the attempt
    reply: Reply
    proposal: Proposal
    verdict: Verdict | None

    @property
    def status(self) -> str:
        """The verdict's status, with the speedup where there is one."""
        if self.verdict is None:
            return self.proposal.failure or "no_candidate"
        mean = speedup(self.verdict)
        return self.verdict.status + (f", {mean:.3g} times as fast" if mean else "")


@dataclass(frozen=True)
class Refine(Sampling):
    """`rounds`, `width`, `frontier`: see the module. `stop`: after the first that passes, or not
    before the last round."""

    temperature: float | None = 0.6
    rounds: int = 4
    width: int = 1
    frontier: int = 2
    stop: Literal["passed", "rounds"] = "rounds"
    kind: ClassVar[MethodKind] = "model"
    language: ClassVar[str] = "triton"
    selection: ClassVar[Selection] = "best"
    uses_model: ClassVar[bool] = True
    summary: ClassVar[str] = "a search: verdicts are fed back to a model (--model)"

    def check(self) -> None:
        """At least one of each."""
        super().check()
        for name in ("rounds", "width", "frontier"):
            if getattr(self, name) < 1:
                raise UserError(f"option {name}: must be at least 1")

    def propose(self, task: Task, workspace: Workspace) -> Iterator[Proposal]:
        """One proposal a candidate, round by round."""
        nodes: list[_Node] = []
        for _ in range(self.rounds):
            best = sorted(nodes, key=lambda node: standing(node.verdict), reverse=True)
            parents = best[: self.frontier]
            for place in range(self.width):
                parent = parents[place % len(parents)] if parents else None
                reply = self.ask(workspace, _messages(task, parent, nodes))
                proposal = propose_reply(task, reply)
                yield proposal
                verdict = workspace.verify(proposal.candidate) if proposal.candidate else None
                nodes.append(_Node(len(nodes) + 1, reply, proposal, verdict))
                if self._enough(verdict):
                    return

    def _enough(self, verdict: Verdict | None) -> bool:
        """Whether there is nothing more to learn."""
        if verdict is None or verdict.status != "passed":
            return False
        return self.stop == "passed" or not verdict.timings


def _messages(task: Task, parent: _Node | None, nodes: Sequence[_Node]) -> list[Message]:
    """The task; with a parent also its file, and what became of it."""
    messages = question(task)
    if parent is None:
        return messages
    candidate = parent.proposal.candidate
    answer = f"```python\n{candidate.source}```" if candidate else parent.reply.text
    return [
        *messages,
        {"role": "assistant", "content": answer or "(nothing)"},
        {"role": "user", "content": _told(task, parent, nodes)},
    ]


def _told(task: Task, parent: _Node, nodes: Sequence[_Node]) -> str:
    if parent.verdict is None:
        said = f"No file could be taken from this reply: {parent.proposal.note}."
        wish = "Reply with one fenced code block that holds the whole file."
    else:
        said = feedback(parent.verdict, task.operator)
        goal = "Make it faster" if parent.verdict.status == "passed" else "Put it right"
        wish = f"{goal}. Reply with one fenced code block that holds the whole file."
    others = [f"- {node.status}" for node in nodes if node is not parent]
    fared = ["Other attempts so far:", *others] if others else []
    return "\n".join([said, *fared, "", wish])


METHOD = Refine
