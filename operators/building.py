"""Small parts that family files are made of: expectations, costs, shapes. No registry, no state."""

from __future__ import annotations

import math
from typing import Any

import torch

from kernelmark.operators.records import Case, Cost, Expected, TensorSpec

FLOATS = (torch.float32, torch.float16, torch.bfloat16)


def wide(tensor: torch.Tensor) -> torch.Tensor:
    """The same values in the oracle's precision: float64, complex128, or int64 (bool stays)."""
    if tensor.is_complex():
        return tensor.to(torch.complex128)
    if tensor.is_floating_point():
        return tensor.to(torch.float64)
    return tensor if tensor.dtype == torch.bool else tensor.to(torch.int64)


def expect(
    value: torch.Tensor,
    dtype: torch.dtype | None = None,
    scale: torch.Tensor | None = None,
    mask: torch.Tensor | None = None,
) -> Expected:
    """An expected result; the dtype defaults to `value`'s own."""
    return Expected(value, dtype or value.dtype, scale, mask)


def traffic(case: Case, written: int, flops: int, read: int | None = None) -> Cost:
    """Cost with every declared tensor read once (or `read` bytes) and `written` bytes written."""
    inputs = sum(spec.nbytes for spec in case.tensors) if read is None else read
    return Cost(flops=flops, nbytes=inputs + written)


def dtype_name(dtype: torch.dtype) -> str:
    """``float16`` for torch.float16."""
    return str(dtype).removeprefix("torch.")


def spec(shape: tuple[int, ...], dtype: torch.dtype = torch.float32, **more: Any) -> TensorSpec:
    """Shorthand for a `TensorSpec`."""
    return TensorSpec(shape, dtype, **more)


def small(
    name: str,
    *args: Any,
    overload: int = 0,
    draws: tuple[str, ...] = Case.draws,
    **kwargs: Any,
) -> Case:
    """A small-tier case: `args` and `kwargs` are the operator's own."""
    return Case(name, args, kwargs, overload=overload, draws=draws)


def full(
    name: str,
    origin: str,
    *args: Any,
    overload: int = 0,
    draws: tuple[str, ...] = Case.draws,
    **kwargs: Any,
) -> Case:
    """A full-tier case; `origin` names the model that its shapes come from."""
    return Case(name, args, kwargs, "full", overload, origin, draws)


def growth(terms: int) -> float:
    """Factor on S for float32 sums of `terms` terms: 1 + sqrt(terms)/4.

    Rounding errors of a sequential sum of positive terms have a standard deviation of about
    0.12 sqrt(terms) eps S; a limit of 2 then lies 4 deviations out, and trees pass with ease.
    """
    return 1 + math.sqrt(max(terms, 1)) / 4
