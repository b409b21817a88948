"""Inductor's Triton: what `torch.compile` makes of an operator's statement in torch.

That statement is the baseline where it is ATen's, and the formulation of vLLM's operators. Matrix
products are Triton's too. Where Inductor would call ATen instead of compiling, there is no
candidate; where it may do so for a part, the note names the part. cuBLAS routines are not stated in
torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from typing import ClassVar

from kernelmark.evaluators.campaigns.records import MethodKind, Selection
from kernelmark.evaluators.grading.records import Candidate
from kernelmark.evaluators.methods._inductor import Untraceable, traced
from kernelmark.evaluators.methods.base import Proposal, Task, Workspace

_SOURCE = '''# package: torch=={version}
# module: kernelmark
"""What Inductor compiles of {id}, stated in torch."""

from kernelmark.operators.registry import get_operator
from kernelmark.operators.vllm.baselines import compiled

_compiled = compiled(get_operator("{id}").baseline{attribute}, triton_gemm=True)


def {name}(*args, **kwargs):
    return _compiled(*args, **kwargs)
'''


@dataclass(frozen=True)
class TorchCompile:
    """Takes no option."""

    kind: ClassVar[MethodKind] = "compiler"
    language: ClassVar[str] = "library"
    selection: ClassVar[Selection] = "last"
    uses_model: ClassVar[bool] = False
    summary: ClassVar[str] = "torch.compile: Inductor's Triton for the operator stated in torch"

    def check(self) -> None:
        """Nothing can be wrong."""

    def propose(self, task: Task, workspace: Workspace) -> Iterator[Proposal]:
        """A few lines that compile the operator's statement in torch."""
        operator = task.operator
        if operator.source == "cublas":
            note = "cuBLAS routines are not stated in torch"
            yield Proposal(failure="no_candidate", note=note)
            return
        try:
            calls = traced(operator)
        except Untraceable as error:
            yield Proposal(failure="no_candidate", note=f"cannot be traced: {error}")
            return
        if calls.external:
            note = f"Inductor does not compile {', '.join(calls.external)}: it calls ATen"
            yield Proposal(failure="no_candidate", note=note)
            return
        source = _SOURCE.format(
            version=version("torch").partition("+")[0],
            id=operator.id,
            name=operator.name,
            attribute=".formulation" if hasattr(operator.baseline, "formulation") else "",
        )
        parts = ", ".join(calls.sometimes)
        note = f"Inductor calls ATen for some cases of {parts}" if parts else ""
        yield Proposal(Candidate(operator.id, source, self.language), note=note)


METHOD = TorchCompile
