"""Kernels that are already written: a folder of files, one an operator.

An operator's file is ``<source>/<name>.py`` (``aten/softmax.py``), else ``<source>.<name>.py``,
else ``<name>.py``; a name that two of them give is the user's mistake and said.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from kernelmark.benchmark.errors import UserError
from kernelmark.evaluators.campaigns.records import MethodKind, Selection
from kernelmark.evaluators.grading.records import Candidate
from kernelmark.evaluators.methods.base import Proposal, Task, Workspace
from kernelmark.operators.records import Operator


@dataclass(frozen=True)
class Folder:
    """`path`: the folder with the kernels."""

    path: Path
    kind: ClassVar[MethodKind] = "human"
    language: ClassVar[str] = "triton"
    selection: ClassVar[Selection] = "last"
    uses_model: ClassVar[bool] = False
    summary: ClassVar[str] = "kernels already written, one file an operator (-o path=DIR)"

    def check(self) -> None:
        """The folder must exist and hold Python files."""
        if not self.path.is_dir():
            raise UserError(f"{self.path}: no such folder")
        if not any(self.path.rglob("*.py")):
            raise UserError(f"{self.path} holds no .py file")

    def propose(self, task: Task, workspace: Workspace) -> Iterator[Proposal]:
        """The operator's file, if there is one."""
        yield propose_file(self.path, task)


def propose_file(root: Path, task: Task) -> Proposal:
    """The candidate that the operator's file under `root` holds, or `no_candidate`."""
    found = operator_files(root, task.operator)
    if not found:
        return Proposal(failure="no_candidate", note=f"no file for {task.operator.id}")
    if len(found) > 1:
        names = ", ".join(str(path.relative_to(root)) for path in found)
        raise UserError(f"{root}: more than one file for {task.operator.id}: {names}")
    try:
        source = found[0].read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        return Proposal(failure="no_candidate", note=f"{found[0].name} is not UTF-8: {error}")
    return Proposal(Candidate(task.operator.id, source, task.language))


def operator_files(root: Path, operator: Operator) -> list[Path]:
    """Files under `root` that are named for `operator`."""
    names = (
        f"{operator.source}/{operator.name}.py",
        f"{operator.source}.{operator.name}.py",
        f"{operator.name}.py",
    )
    return [root / name for name in names if (root / name).is_file()]


METHOD = Folder
