"""Recorded replies in place of a model: any method that calls one, with no key and no network.

The requests go through the gateway to a provider on loopback (`campaigns.scripted`), so ledger,
budgets and verdicts are the real ones. ``--model scripted`` does the same for the method named by
``--method``, with the replies that ship for the suite demo.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from kernelmark.benchmark.errors import UserError
from kernelmark.evaluators.campaigns.records import MethodKind, Selection
from kernelmark.evaluators.campaigns.scripted import load_script
from kernelmark.evaluators.methods.base import Method, Proposal, Task, Workspace
from kernelmark.evaluators.methods.registry import make_method


@dataclass(frozen=True)
class Scripted:
    """`replies`: a set that ships, a folder, a .jsonl file, or a run; `method`: who asks."""

    replies: str = "demo"
    method: str = "refine"
    kind: ClassVar[MethodKind] = "model"
    language: ClassVar[str] = "triton"
    selection: ClassVar[Selection] = "best"
    uses_model: ClassVar[bool] = True
    summary: ClassVar[str] = "recorded replies in place of a model, with no key"

    def check(self) -> None:
        """There must be replies, and a method that asks for them."""
        load_script(self.replies)
        if self.method == "scripted" or not self._asker().uses_model:
            raise UserError(f"option method: {self.method} calls no model")

    def propose(self, task: Task, workspace: Workspace) -> Iterator[Proposal]:
        """What the method proposes."""
        return self._asker().propose(task, workspace)

    def _asker(self) -> Method:
        return make_method(self.method, {})


METHOD = Scripted
