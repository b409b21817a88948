"""Liger: Triton kernels for training large language models, where they meet one of the operators.

Liger's functions work on the last dimension; along another one it is moved there and back, as a
user would.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from kernelmark.evaluators.campaigns.records import MethodKind, Selection
from kernelmark.evaluators.methods._library import Call, Package, propose_call
from kernelmark.evaluators.methods.base import Proposal, Task, Workspace

PACKAGE = Package("liger-kernel", "0.8.5", "liger_kernel")

_SOFTMAX = "from liger_kernel.ops import LigerSoftmaxFunction"

CALLS: dict[str, Call] = {
    "aten::_softmax": Call(
        "self, dim, half_to_float, *, out=None",
        "LigerSoftmaxFunction.apply(x.movedim(dim, -1)).movedim(-1, dim)",
        before=("x = self.float() if half_to_float else self",),
        imports=(_SOFTMAX,),
    ),
    "aten::embedding": Call(
        "weight, indices, padding_idx=-1, scale_grad_by_freq=False, sparse=False, *, out=None",
        "LigerEmbeddingFunction.apply(weight, indices)",
        imports=("from liger_kernel.ops import LigerEmbeddingFunction",),
    ),
    "aten::softmax": Call(
        "self, dim, dtype=None, *, out=None",
        "LigerSoftmaxFunction.apply(x.movedim(dim, -1)).movedim(-1, dim)",
        before=("x = self if dtype is None else self.to(dtype)",),
        imports=(_SOFTMAX,),
    ),
    "vllm::fused_add_rms_norm": Call(
        "input, residual, weight, epsilon",
        "residual.copy_(added)",
        before=(
            "normed, added = LigerFusedAddRMSNormFunction.apply("
            "input, residual, weight, epsilon, 0.0, 'llama', False)",
            "input.copy_(normed)",
        ),
        imports=("from liger_kernel.ops import LigerFusedAddRMSNormFunction",),
        silent=True,
    ),
    "vllm::rms_norm": Call(
        "out, input, weight, epsilon",
        "out.copy_(LigerRMSNormFunction.apply(input, weight, epsilon, 0.0, 'llama', False))",
        imports=("from liger_kernel.ops import LigerRMSNormFunction",),
        silent=True,
    ),
}


@dataclass(frozen=True)
class Liger:
    """Takes no option."""

    kind: ClassVar[MethodKind] = "library"
    language: ClassVar[str] = "library"
    selection: ClassVar[Selection] = "last"
    uses_model: ClassVar[bool] = False
    summary: ClassVar[str] = f"Liger {PACKAGE.version}: its Triton kernel, where it has one"

    def check(self) -> None:
        """Nothing can be wrong: the package is needed where candidates are graded."""

    def propose(self, task: Task, workspace: Workspace) -> Iterator[Proposal]:
        """The library's kernel for the operator."""
        yield propose_call(task, PACKAGE, CALLS)


METHOD = Liger
