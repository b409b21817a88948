"""Asks Inductor what it would compile, without compiling: a trace on tensors without memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kernelmark.operators.draws import map_tensors
from kernelmark.operators.records import Case, OnDevice, Operator, Pointers, TensorSpec


class Untraceable(Exception):
    """The operator's statement depends on values, or uses what has no trace."""


@dataclass(frozen=True)
class Traced:
    """ATen functions of the trace that Inductor leaves to ATen: `external` always, `sometimes` for
    some shapes or devices."""

    external: tuple[str, ...]
    sometimes: tuple[str, ...]


def traced(operator: Operator, statement: Callable[..., Any]) -> Traced:
    """What Inductor makes of `statement` for the operator's first timed case (its first, where none
    is timed). Raises `Untraceable`.

    The statement must not be shared with anything that computes: what it remembers would be tensors
    without memory from then on.
    """
    from torch._inductor.lowering import fallbacks, lowerings

    case = (operator.tier("full") or operator.tier("small"))[0]
    targets = sorted(_targets(statement, case), key=str)
    external = [t for t in targets if t not in lowerings or _is_fallback(lowerings[t])]
    sometimes = [t for t in targets if t in fallbacks and t not in external]
    return Traced(tuple(map(str, external)), tuple(map(str, sometimes)))


def _is_fallback(lowering: Any) -> bool:
    """Whether a lowering only calls ATen (`torch._inductor.lowering.fallback_handler`)."""
    function = getattr(lowering, "__wrapped__", lowering)
    return "fallback_handler" in getattr(function, "__qualname__", "")


def _targets(statement: Callable[..., Any], case: Case) -> set[Any]:
    """The ATen functions that `statement` comes down to."""
    from torch._inductor.decomposition import select_decomp_table
    from torch._subclasses import fake_tensor
    from torch.fx.experimental.proxy_tensor import make_fx

    def run(*tensors: torch.Tensor) -> Any:
        given = iter(tensors)
        placed = map_tensors([args, kwargs], lambda _: next(given))
        return statement(*placed[0], **placed[1])

    with fake_tensor.FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
        args = [_argument(value) for value in case.args]
        kwargs = {name: _argument(value) for name, value in case.kwargs.items()}
        tensors: list[torch.Tensor] = []
        map_tensors([args, kwargs], tensors.append)
        try:
            trace = make_fx(run, select_decomp_table(), tracing_mode="fake")(*tensors)
        except (
            fake_tensor.DataDependentOutputException,
            fake_tensor.DynamicOutputShapeException,
            fake_tensor.UnsupportedOperatorException,
        ) as error:
            raise Untraceable(f"cannot be traced: {error}") from error
    called = (node.target for node in trace.graph.nodes if node.op == "call_function")
    return {target for target in called if isinstance(target, torch._ops.OpOverload)}


def _argument(value: Any) -> Any:
    """A declared argument, made without memory."""
    if isinstance(value, TensorSpec):
        if value.strides is None:
            return torch.empty(value.shape, dtype=value.dtype)
        return torch.empty_strided(value.shape, value.strides, dtype=value.dtype)
    if isinstance(value, OnDevice):
        return torch.device("cpu")
    if isinstance(value, Pointers):
        return torch.empty(value.count, dtype=torch.int64)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return type(value)(map(_argument, value))  # type: ignore[call-arg]
    return value
