"""The baseline handed in as a candidate: the row at speedup 1 that all others are read against.

Where it strays from 1.0 the measurement is off, so it is also a standing check of the timing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from typing import ClassVar

from kernelmark.evaluators.campaigns.records import MethodKind, Selection
from kernelmark.evaluators.grading.records import Candidate
from kernelmark.evaluators.methods.base import Proposal, Task, Workspace

_SOURCE = '''# package: kernelmark=={version}
# module: kernelmark
"""Calls the baseline of {id}: {baseline}."""

from kernelmark.operators.registry import get_operator

_baseline = get_operator("{id}").baseline


def {name}(*args, **kwargs):
    return _baseline(*args, **kwargs)
'''


@dataclass(frozen=True)
class TorchEager:
    """Takes no option."""

    kind: ClassVar[MethodKind] = "library"
    language: ClassVar[str] = "library"
    selection: ClassVar[Selection] = "last"
    uses_model: ClassVar[bool] = False
    summary: ClassVar[str] = "each operator's own baseline (ATen, vLLM, cuBLAS): speedup 1"

    def check(self) -> None:
        """Nothing can be wrong."""

    def propose(self, task: Task, workspace: Workspace) -> Iterator[Proposal]:
        """A few lines that call the baseline."""
        operator = task.operator
        source = _SOURCE.format(
            version=version("kernelmark"),
            id=operator.id,
            baseline=operator.baseline_name,
            name=operator.name,
        )
        yield Proposal(Candidate(operator.id, source, self.language))


METHOD = TorchEager
