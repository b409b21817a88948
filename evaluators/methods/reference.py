"""Honest Triton kernels of the project's own (``reference_kernels/<source>/<name>.py``).

They show newcomers what a candidate looks like, and put a first line on the board of every chip.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from kernelmark.evaluators.campaigns.records import MethodKind, Selection
from kernelmark.evaluators.methods.base import Proposal, Task, Workspace
from kernelmark.evaluators.methods.folder import propose_file

KERNELS = Path(__file__).parent / "reference_kernels"


@dataclass(frozen=True)
class Reference:
    """Takes no option."""

    kind: ClassVar[MethodKind] = "human"
    language: ClassVar[str] = "triton"
    selection: ClassVar[Selection] = "last"
    uses_model: ClassVar[bool] = False
    summary: ClassVar[str] = "the project's own Triton kernels"

    def check(self) -> None:
        """Nothing can be wrong."""

    def propose(self, task: Task, workspace: Workspace) -> Iterator[Proposal]:
        """The kernel of this operator, if it has been written."""
        yield propose_file(KERNELS, task)


METHOD = Reference
