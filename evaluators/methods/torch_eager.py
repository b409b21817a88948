"""What a user calls today, handed in as a candidate: ATen, or vLLM's own kernel.

That is what speedups are measured against, so these are the row at 1 that all others are read
against. Where it strays from 1 the measurement is off: it is also a standing check of the timing.
cuBLAS is called through a C interface that candidates may not use.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import ClassVar

from kernelmark.evaluators.campaigns.records import MethodKind, Selection
from kernelmark.evaluators.methods._library import Call, Package, propose_call
from kernelmark.evaluators.methods.base import Proposal, Task, Workspace
from kernelmark.operators.records import Operator
from kernelmark.operators.vllm.baselines import CustomOp

VLLM = Package("vllm", "0.13.0", "vllm")


@dataclass(frozen=True)
class TorchEager:
    """`torch`, `vllm`: the versions where the candidates will be graded; else the torch that is
    here, and the vLLM that the baselines are of. An empty `vllm`: there is none there.
    """

    torch: str = ""
    vllm: str = VLLM.version

    kind: ClassVar[MethodKind] = "library"
    language: ClassVar[str] = "library"
    selection: ClassVar[Selection] = "last"
    uses_model: ClassVar[bool] = False
    summary: ClassVar[str] = "what a user calls today, ATen or vLLM's kernel: speedup 1"

    def check(self) -> None:
        """Nothing can be wrong."""

    def propose(self, task: Task, workspace: Workspace) -> Iterator[Proposal]:
        """One line that makes the call."""
        operator = task.operator
        if operator.source == "vllm" and not self.vllm:
            yield Proposal(failure="no_candidate", note="there is no vLLM where this is graded")
            return
        call = _call(operator)
        vllm = replace(VLLM, version=self.vllm)
        package = vllm if operator.source == "vllm" else torch_package(self.torch)
        yield propose_call(task, package, {} if call is None else {operator.id: call})


def torch_package(declared: str = "") -> Package:
    """torch, in the version `declared`, or else in the one that is installed here."""
    return Package("torch", (declared or version("torch")).partition("+")[0], "torch")


def _call(operator: Operator) -> Call | None:
    """How the operator is called; None where no package's function is called like it."""
    if operator.source == "aten":
        return Call("*args, **kwargs", f"torch.ops.aten.{operator.name}(*args, **kwargs)")
    baseline = operator.baseline
    if isinstance(baseline, CustomOp) and baseline.name and baseline.adapt is None:
        imports = ("from vllm import _custom_ops",)
        return Call("*args, **kwargs", f"_custom_ops.{baseline.name}(*args, **kwargs)", (), imports)
    return None


METHOD = TorchEager
