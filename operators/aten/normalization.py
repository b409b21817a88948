"""ATen softmax and its kin: exponentials over a dimension, normalised.

Oracle: torch in float64 from the same inputs. Second statement: NumPy, with the maximum taken out.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from kernelmark.operators.building import (
    FLOATS,
    dtype_name,
    expect,
    full,
    small,
    spec,
    traffic,
    wide,
)
from kernelmark.operators.records import Case, Cost, Expected, Mutant, Operator, Tolerance


@functools.cache
def _softmax_cases() -> Sequence[Case]:
    short = [Case(f"rows-{dtype_name(t)}", (spec((5, 77), t), -1)) for t in FLOATS] + [
        Case("inner-dim", (spec((3, 17, 5)), 1)),
        Case("first-dim", (spec((9, 33)), 0)),
        Case("transposed", (spec((7, 33), strides=(1, 7)), -1)),
        Case("misaligned", (spec((4, 65), torch.float16, offset=1), 1)),
        Case("one-column", (spec((6, 1)), -1)),
        Case("vector", (spec((1000,)), 0)),
        Case("scalar", (spec(()), 0)),
        Case("empty", (spec((0, 8)), -1)),
        Case("cast-up", (spec((4, 50), torch.float16), -1, torch.float32)),
        Case("with-infinities", (spec((8, 40)), -1), draws=("specials", "base")),
        Case("wide-range", (spec((4, 200), fill="wide"), -1), draws=("base", "small")),
        small("long-row", spec((2, 9001), torch.bfloat16), -1, draws=("base", "large")),
        small("out", spec((6, 30)), 1, overload=1, out=spec((6, 30), strides=(1, 6))),
        small(
            "out-cast-up",
            spec((6, 30), torch.float16),
            0,
            torch.float32,
            overload=1,
            out=spec((6, 30)),
        ),
    ]
    long = [
        Case(
            "gpt2-attention",
            (spec((16, 12, 1024, 1024), torch.float16), -1),
            tier="full",
            origin="GPT-2 small attention scores, batch 16",
        ),
        Case(
            "llama-3-logits",
            (spec((64, 128256), torch.bfloat16), -1),
            tier="full",
            origin="Llama 3 vocabulary, 64 tokens",
        ),
        Case(
            "llama-3-logits-float32",
            (spec((64, 128256)), -1),
            tier="full",
            origin="Llama 3 vocabulary, 64 tokens",
        ),
        Case(
            "square-4096",
            (spec((4096, 4096), torch.float16), -1),
            tier="full",
            origin="attention scores of one head at 4096 tokens",
        ),
        Case(
            "vit-attention",
            (spec((64, 12, 197, 197), torch.float16), -1),
            tier="full",
            origin="ViT-B/16 attention scores, batch 64",
        ),
        Case(
            "channels",
            (spec((32, 512, 32, 32)), 1),
            tier="full",
            origin="segmentation head over 512 channels (inner dimension)",
        ),
    ]
    return (*short, *long)


def _softmax_oracle(
    self: torch.Tensor,
    dim: int,
    dtype: torch.dtype | None = None,
    *,
    out: torch.Tensor | None = None,
) -> list[Expected]:
    value = torch.empty(self.shape, dtype=torch.float64, device=self.device)
    scale = torch.empty_like(value)
    for x, v, s in zip(*(_in_parts(t, dim) for t in (self, value, scale)), strict=True):
        v.copy_(torch.softmax(wide(x), dim))
        s.copy_(_softmax_scale(wide(x), v, dim))
    return [expect(value, dtype or self.dtype, scale=scale)]


def _softmax_scale(x: torch.Tensor, value: torch.Tensor, dim: int) -> torch.Tensor:
    """What the result `value` can lose: exp(x - max) magnifies the rounding of its argument by
    |x - max|; a running sum of k positive terms is rounded k times near its final size: about
    sqrt(k) / 2 roundings, seldom twice that."""
    distance = x - x.amax(dim, keepdim=True) if x.numel() else x
    walk = 0.25 * (x.shape[dim] if x.dim() else 1) ** 0.5
    return (value * (1 + walk + distance.abs())).nan_to_num(0.0)


def _in_parts(x: torch.Tensor, dim: int) -> Sequence[torch.Tensor]:
    """Views that cut `x` along another dimension than `dim`, about a gigabyte of float64 each."""
    others = [axis for axis in range(x.dim()) if axis != dim % x.dim()]
    if not others or not x.numel():
        return [x]
    axis = max(others, key=lambda axis: x.shape[axis])
    return torch.ops.aten.split(x, max(1, (x.shape[axis] << 27) // x.numel()), axis)


def _softmax_second(
    self: torch.Tensor, dim: int, dtype: torch.dtype | None = None, **more: Any
) -> list[np.ndarray]:
    x = self.double().numpy()
    if x.ndim == 0:
        return [np.where(np.isfinite(x), 1.0, np.nan)]
    with np.errstate(invalid="ignore"):
        e = np.exp(x - x.max(axis=dim, keepdims=True)) if x.size else x
        return [e / e.sum(axis=dim, keepdims=True)]


def _softmax(
    self: torch.Tensor,
    dim: int,
    dtype: torch.dtype | None = None,
    *,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    if out is None:
        return torch.ops.aten.softmax.int(self, dim, dtype)
    return torch.ops.aten.softmax.int_out(self, dim, dtype, out=out)


def _softmax_cost(case: Case) -> Cost:
    x = case.tensors[0]
    item = (case.args[2] if len(case.args) > 2 else x.dtype).itemsize
    return traffic(case, written=x.numel * item, flops=5 * x.numel, read=x.nbytes)


def _mutant(wrong: Callable[[torch.Tensor, int], torch.Tensor]) -> Callable[..., torch.Tensor]:
    """`wrong(x, dim)` with the arguments, dtypes and `out` of either operator."""

    def mutant(
        self: torch.Tensor,
        dim: int,
        dtype: torch.dtype | bool | None = None,
        *,
        out: torch.Tensor | None = None,
    ) -> torch.Tensor:
        target = torch.float32 if dtype is True else (dtype or self.dtype)
        x = self.to(target)
        result = wrong(x, dim) if x.dim() and x.numel() else torch.full_like(x, 0.5)
        return result if out is None else out.copy_(result)

    return mutant


def _exponentials(x: torch.Tensor, dim: int) -> torch.Tensor:
    return torch.exp(x - x.amax(dim, keepdim=True))


def _half_reduction(x: torch.Tensor, dim: int) -> torch.Tensor:
    e = _exponentials(x, dim)
    return e / e.narrow(dim, 0, (x.shape[dim] + 1) // 2).sum(dim, keepdim=True)


def _no_maximum(x: torch.Tensor, dim: int) -> torch.Tensor:
    e = torch.exp(x)
    return e / e.sum(dim, keepdim=True)


_MUTANTS = (
    Mutant("denominator dropped", _mutant(_exponentials)),
    Mutant("half the reduction", _mutant(_half_reduction)),
    Mutant("maximum not taken out", _mutant(_no_maximum)),
)
_TOLERANCE = Tolerance(
    limit=4.0,
    accumulator=torch.float32,
    why="expf 2 ulp, division 1 ulp; the sum of K terms one after another sqrt(K)/2 ulp, of which "
    "S holds sqrt(K)/4 and the limit four times that",
)


@functools.cache
def _inner_cases() -> Sequence[Case]:
    """Cases of `_softmax`: those of softmax without a dtype, and half to float."""
    same = [
        Case(c.name, (*c.args, False), c.kwargs, c.tier, c.overload, c.origin, c.draws)
        for c in _softmax_cases()
        if len(c.args) == 2 and not c.kwargs
    ]
    return (
        *same,
        small("half-to-float", spec((4, 50), torch.float16), -1, True),
        small("out", spec((6, 30)), 1, False, overload=1, out=spec((6, 30))),
        small("half-to-float-first", spec((33, 9), torch.float16), 0, True),
        full(
            "half-to-float-scores",
            "GPT-2 small attention scores kept in float32, batch 8",
            spec((8, 12, 1024, 1024), torch.float16),
            -1,
            True,
        ),
    )


def _inner_oracle(
    self: torch.Tensor, dim: int, half_to_float: bool, *, out: torch.Tensor | None = None
) -> list[Expected]:
    return _softmax_oracle(self, dim, torch.float32 if half_to_float else None)


def _inner_second(
    self: torch.Tensor, dim: int, half_to_float: bool, **more: Any
) -> list[np.ndarray]:
    return _softmax_second(self, dim)


def _inner_softmax(
    self: torch.Tensor, dim: int, half_to_float: bool, *, out: torch.Tensor | None = None
) -> torch.Tensor:
    if half_to_float and self.device.type == "cpu":  # ATen has it on accelerators only
        self, half_to_float = self.float(), False
    if out is None:
        return torch.ops.aten._softmax.default(self, dim, half_to_float)
    return torch.ops.aten._softmax.out(self, dim, half_to_float, out=out)


def _inner_cost(case: Case) -> Cost:
    x = case.tensors[0]
    item = 4 if case.args[2] else x.dtype.itemsize
    return traffic(case, written=x.numel * item, flops=5 * x.numel, read=x.nbytes)


OPERATORS = (
    Operator(
        id="aten::softmax",
        family="norm/softmax",
        signatures=(
            "softmax(self: Tensor, dim: int, dtype: ScalarType?=None) -> Tensor",
            "softmax.int_out(self: Tensor, dim: int, dtype: ScalarType?=None, *, out: Tensor!) "
            "-> Tensor!",
        ),
        description=(
            "Exponentials of `self` along `dim`, divided by their sum: "
            "out = exp(self - max(self)) / sum(exp(self - max(self))). `dim` may be negative. "
            "With `dtype`, `self` is cast to it first and the result has that dtype; otherwise the "
            "result has the dtype of `self` and float16 or bfloat16 accumulates in float32. A row "
            "that holds NaN or +inf, or only -inf, is NaN throughout. The result has the shape of "
            "`self`; a 0-d tensor gives 1. `softmax.int_out` writes into `out`, of the result's "
            "shape and dtype and any strides, and returns it."
        ),
        sources=("PyTorch 2.13, torch.ops.aten.softmax.int", "aten/src/ATen/native/SoftMax.cpp"),
        cases=_softmax_cases,
        oracle=_softmax_oracle,
        second=_softmax_second,
        baseline=_softmax,
        baseline_name="aten",
        cost=_softmax_cost,
        tolerance=_TOLERANCE,
        mutants=_MUTANTS,
    ),
    Operator(
        id="aten::_softmax",
        family="norm/softmax",
        signatures=(
            "_softmax(self: Tensor, dim: int, half_to_float: bool) -> Tensor",
            "_softmax.out(self: Tensor, dim: int, half_to_float: bool, *, out: Tensor!) -> Tensor!",
        ),
        description=(
            "Exponentials of `self` along `dim`, divided by their sum: "
            "out = exp(self - max(self)) / sum(exp(self - max(self))); what softmax calls. `dim` "
            "may be negative. float16 and bfloat16 accumulate in float32. With `half_to_float`, "
            "`self` is float16 and the result float32, not rounded to float16 in between; "
            "otherwise the result has the dtype of `self`. A row that holds NaN or +inf, or only "
            "-inf, is NaN throughout. The result has the shape of `self`; a 0-d tensor gives 1. "
            "`_softmax.out` writes into `out`, contiguous and of the result's shape and dtype, and "
            "returns it."
        ),
        sources=("PyTorch 2.13, torch.ops.aten._softmax", "aten/src/ATen/native/SoftMax.cpp"),
        cases=_inner_cases,
        oracle=_inner_oracle,
        second=_inner_second,
        baseline=_inner_softmax,
        baseline_name="aten",
        cost=_inner_cost,
        tolerance=_TOLERANCE,
        mutants=_MUTANTS,
    ),
)
