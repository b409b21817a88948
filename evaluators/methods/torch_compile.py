"""Inductor's Triton: what `torch.compile` makes of an operator's statement in torch.

That statement is ATen's own function, or the formulation of one of vLLM's operators, carried into
the candidate whole. Matrix products are Triton's too. Where Inductor would call ATen instead of
compiling, there is no candidate; where it may do so for a part, the note names the part. cuBLAS
routines are not stated in torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from kernelmark.evaluators.campaigns.records import MethodKind, Selection
from kernelmark.evaluators.grading.records import Candidate
from kernelmark.evaluators.languages.library import MAX_LINES
from kernelmark.evaluators.methods._inductor import Untraceable, traced
from kernelmark.evaluators.methods._inline import NotInlined, inlined
from kernelmark.evaluators.methods.base import Proposal, Task, Workspace
from kernelmark.evaluators.methods.torch_eager import torch_package
from kernelmark.operators.records import Operator
from kernelmark.operators.vllm.baselines import CustomOp

_SOURCE = '''# package: torch=={version}
# module: torch
"""What Inductor compiles of {id}."""

import torch
{statement}

# Static shapes: each call's is compiled, in this process. Matrix products are Triton's, not the
# vendor's. Roundings that are stated are kept: the pattern matcher drops pairs of casts.
_compiled = torch.compile(
    {function},
    dynamic=False,
    options={{
        "compile_threads": 1,
        "emulate_precision_casts": True,
        "max_autotune_gemm": True,
        "max_autotune_gemm_backends": "TRITON",
        "pattern_matcher": False,
    }},
)
_limits = torch._dynamo.config.patch(recompile_limit=1024, accumulated_recompile_limit=65536)
{name} = _limits(_compiled)
'''

_ATEN = """

def _statement(*args, **kwargs):
    return torch.ops.aten.{name}(*args, **kwargs)
"""

#: no tensors without memory can be had of what these write into `out`, so nothing is compiled of it
_NO_OUT = ("new_ones", "ones_like", "zeros_like")
_ATEN_COPIED = """

def _statement(*args, out=None, **kwargs):
    result = torch.ops.aten.{name}(*args, **kwargs)
    return result if out is None else out.copy_(result)
"""

#: Inductor's lowerings take alpha by name alone, whatever the overload
_ATEN_ALPHA = """

def _statement(self, other, *alpha, **kwargs):
    return torch.ops.aten.{name}(self, other, **dict(zip(("alpha",), alpha)), **kwargs)
"""


@dataclass(frozen=True)
class TorchCompile:
    """`torch`: the version where the candidates will be graded; else the one here."""

    torch: str = ""

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
        try:
            statement, function = _statement(operator)
            calls = traced(operator, _defined(statement, function))
        except (NotInlined, Untraceable) as error:
            yield Proposal(failure="no_candidate", note=str(error))
            return
        if calls.external:
            note = f"Inductor does not compile {', '.join(calls.external)}: it calls ATen"
            yield Proposal(failure="no_candidate", note=note)
            return
        source = _SOURCE.format(
            version=torch_package(self.torch).version,
            id=operator.id,
            name=operator.name,
            statement=statement,
            function=function,
        )
        if len(source.splitlines()) > MAX_LINES:
            note = f"its statement in torch is longer than the {MAX_LINES} lines of a library call"
            yield Proposal(failure="no_candidate", note=note)
            return
        parts = ", ".join(calls.sometimes)
        note = f"Inductor calls ATen for some cases of {parts}" if parts else ""
        yield Proposal(Candidate(operator.id, source, self.language), note=note)


def _defined(statement: str, function: str) -> Callable[..., Any]:
    """The function that a statement defines, with globals of its own."""
    module: dict[str, Any] = {}
    exec(f"import torch\n{statement}", module)
    defined: Callable[..., Any] = module[function]
    return defined


def _aten(operator: Operator) -> str:
    """The statement of an ATen operator, its name left open."""
    if operator.name in _NO_OUT:
        return _ATEN_COPIED
    return _ATEN_ALPHA if any("alpha:" in s for s in operator.signatures) else _ATEN


def _statement(operator: Operator) -> tuple[str, str]:
    """The operator's statement in torch, and the name of its function."""
    if operator.source == "aten":
        return _aten(operator).format(name=operator.name), "_statement"
    if isinstance(operator.baseline, CustomOp):
        formulation = operator.baseline.formulation
        text = inlined(formulation)
        return text.removeprefix("import torch\n"), formulation.__name__
    raise NotInlined(f"{operator.id} is not stated in torch")


METHOD = TorchCompile
