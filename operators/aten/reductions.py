"""ATen sums and means over all dimensions or a list of them.

Oracle: torch in float64, or int64 for integers. Second statement: NumPy.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from kernelmark.operators.building import (
    FLOATS,
    dtype_name,
    expect,
    full,
    growth,
    small,
    spec,
    traffic,
    wide,
)
from kernelmark.operators.records import (
    Case,
    Cost,
    Expected,
    Mutant,
    Operator,
    TensorSpec,
    Tolerance,
)

Dims = int | Sequence[int] | None
_SOURCE = "aten/src/ATen/native/ReduceOps.cpp"
_F16, _BF16 = torch.float16, torch.bfloat16
ONCE = ("base", "base")


def axes_of(dim: Dims, rank: int) -> tuple[int, ...]:
    """Non-negative dimensions to reduce; None and [] mean all."""
    dims = [dim] if isinstance(dim, int) else list(dim or range(rank))
    return tuple(sorted(d % max(rank, 1) for d in dims))


def numpy_of(tensor: torch.Tensor) -> np.ndarray:
    return wide(tensor).numpy()


def result_numel(case: Case) -> int:
    """Elements of the result of a reduction ``(self, dim=None, ...)``."""
    x = case.tensors[0]
    axes = axes_of(case.args[1] if len(case.args) > 1 else None, len(x.shape))
    return math.prod(n for i, n in enumerate(x.shape) if i not in axes)


def reduction_cost(case: Case) -> Cost:
    x = case.tensors[0]
    out = case.kwargs.get("out")
    dtype = out.dtype if isinstance(out, TensorSpec) else case.kwargs.get("dtype") or x.dtype
    written = result_numel(case) * dtype.itemsize
    return traffic(case, written, flops=x.numel, read=x.nbytes)


def large_reductions() -> list[Case]:
    """Large reductions of real models, over the shapes of activations and gradients."""
    return [
        full(
            "all-gradients",
            "Llama 3 8B, gradient of one MLP matrix, summed for a norm",
            spec((14336, 4096), _BF16),
        ),
        full("all-logits", "GPT-2 logits of 1024 tokens", spec((1024, 50257))),
        full(
            "bias-gradient",
            "BERT-large MLP bias gradient, 16384 tokens (first dimension)",
            spec((16384, 4096), _F16),
            [0],
            overload=1,
        ),
        full(
            "token-rows",
            "Llama 3 70B hidden states, 16384 tokens (last dimension)",
            spec((16384, 8192), _BF16),
            [-1],
            True,
            overload=1,
        ),
        full(
            "channels",
            "ResNet-50 stage 1, batch 64: per-channel sums (dimensions 0, 2, 3)",
            spec((64, 256, 56, 56), _F16),
            [0, 2, 3],
            overload=1,
        ),
        full(
            "average-pool",
            "ResNet-50 stage 2 squeeze, batch 128: over pixels",
            spec((128, 512, 28, 28)),
            [2, 3],
            overload=1,
        ),
        full(
            "vit-tokens",
            "ViT-L/16 tokens, batch 256: over the 197 tokens",
            spec((256, 197, 1024), _F16),
            [1],
            overload=1,
        ),
        full(
            "read-through-transpose",
            "Llama 3 8B MLP matrix read through its transpose",
            spec((4096, 14336), strides=(1, 4096)),
            [-1],
            overload=1,
        ),
    ]


# --- sum and mean -------------------------------------------------------------------------------


def _float_cases() -> list[Case]:
    """Small cases that sum and mean share; overloads: all, dims, dims out, all out."""
    return [
        *(small(f"rows-{dtype_name(t)}", spec((5, 77), t), [1], overload=1) for t in FLOATS),
        *(small(f"all-{dtype_name(t)}", spec((3, 335), t)) for t in FLOATS),
        small("first-dim", spec((33, 40)), [0], True, overload=1),
        small("two-dims", spec((5, 6, 7, 8), _F16), [0, -2], overload=1),
        small("dim-none", spec((4, 9, 5)), None, True, overload=1),
        small("dims-empty-list", spec((4, 9, 5)), [], overload=1),
        small("transposed", spec((7, 130), strides=(1, 7)), [-1], overload=1),
        small(
            "strided-misaligned", spec((6, 50), _F16, strides=(101, 2), offset=1), [1], overload=1
        ),
        small("expanded", spec((12, 30), strides=(0, 1)), [0], overload=1),
        small("one-element", spec((1, 1)), [1], overload=1),
        small("scalar", spec((), _BF16)),
        small("cast-up", spec((4, 300), _F16), [1], overload=1, dtype=torch.float32),
        small("cast-down", spec((4, 300)), [1], overload=1, dtype=_F16),
        small("no-rows", spec((0, 8)), [1], overload=1),
        small("specials", spec((24, 16)), [1], overload=1, draws=("specials", "base")),
        small("wide-range", spec((4, 400), fill="wide"), [1], overload=1),
        small("out", spec((6, 90)), [1], overload=2, out=spec((6,))),
        small(
            "out-strided",
            spec((6, 9, 20)),
            [2],
            True,
            overload=2,
            out=spec((6, 9, 1), strides=(1, 6, 9)),
        ),
        small("out-all", spec((700,), _F16), overload=3, out=spec((), _F16)),
    ]


@functools.cache
def _sum_cases() -> Sequence[Case]:
    def integers(t: torch.dtype, low: int, high: int) -> TensorSpec:
        return spec((7, 90), t, fill="integers", low=low, high=high)

    return (
        *_float_cases(),
        small("int8", integers(torch.int8, -128, 128), [1], overload=1, draws=ONCE),
        small("uint8", integers(torch.uint8, 0, 256), draws=ONCE),
        small("int16", integers(torch.int16, -(2**15), 2**15), [0], overload=1, draws=ONCE),
        small("int32", integers(torch.int32, 2**30, 2**31), [1], overload=1, draws=ONCE),
        small("int64", integers(torch.int64, -(2**62), 2**62), draws=ONCE),
        small("bool", spec((5, 200), torch.bool, fill="bool"), [-1], overload=1, draws=ONCE),
        small(
            "int32-stays",
            integers(torch.int32, -99, 99),
            overload=0,
            draws=ONCE,
            dtype=torch.int32,
        ),
        small("empty-sum", spec((3, 0), _F16), [1], overload=1),
        *large_reductions(),
        full(
            "mask-count",
            "GPT-2 attention mask, batch 16: entries kept",
            spec((16, 8, 1024, 1024), torch.bool, fill="bool"),
            [-1],
            overload=1,
            draws=ONCE,
        ),
    )


@functools.cache
def _mean_cases() -> Sequence[Case]:
    return (
        # ATen sums a narrower dtype before the cast on CPU, after it on CUDA: left out.
        *(case for case in _float_cases() if case.name != "cast-down"),
        small("empty-mean", spec((3, 0)), [1], overload=1, draws=("base",)),
        small(
            "bool-to-float",
            spec((5, 200), torch.bool, fill="bool"),
            [-1],
            overload=1,
            draws=ONCE,
            dtype=torch.float32,
        ),
        *large_reductions(),
    )


def _add_oracle(
    self: torch.Tensor,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
    out: torch.Tensor | None = None,
) -> list[Expected]:
    whole = not (self.is_floating_point() or self.is_complex())
    target = out.dtype if out is not None else dtype or (torch.int64 if whole else self.dtype)
    x = wide(self.to(target))
    axes = axes_of(dim, x.dim())
    if not target.is_floating_point:
        total = x.sum(axes, keepdim) if x.dim() else x.to(torch.int64)
        return [expect(total.to(target).to(torch.int64), target)]
    value = x.sum(axes, keepdim)
    terms = self.numel() // max(value.numel(), 1)
    return [expect(value, target, scale=x.abs().sum(axes, keepdim) * growth(terms))]


def _mean_oracle(
    self: torch.Tensor, dim: Dims = None, keepdim: bool = False, **more: Any
) -> list[Expected]:
    target = more["out"].dtype if "out" in more else more.get("dtype") or self.dtype
    x = wide(self.to(target))
    axes = axes_of(dim, x.dim())
    value = x.mean(axes, keepdim)
    terms = self.numel() // max(value.numel(), 1)
    return [expect(value, target, scale=x.abs().mean(axes, keepdim) * growth(terms))]


def _add_second(
    self: torch.Tensor, dim: Dims = None, keepdim: bool = False, **more: Any
) -> list[np.ndarray]:
    x = numpy_of(self.to(more.get("dtype") or self.dtype))
    with np.errstate(invalid="ignore"):
        return [np.asarray(x.sum(axis=axes_of(dim, x.ndim) or None, keepdims=keepdim))]


def _mean_second(
    self: torch.Tensor, dim: Dims = None, keepdim: bool = False, **more: Any
) -> list[np.ndarray]:
    x = numpy_of(self)
    total = _add_second(self, dim, keepdim)[0]
    terms = math.prod(x.shape[axis] for axis in axes_of(dim, x.ndim))
    with np.errstate(invalid="ignore", divide="ignore"):
        return [np.asarray(total, dtype=np.float64) / terms]


def half_along(x: torch.Tensor, dim: Dims) -> torch.Tensor:
    """The first half of `x` along the last reduced dimension."""
    if not x.dim() or not x.numel():
        return x
    axis = axes_of(dim, x.dim())[-1]
    return x.narrow(axis, 0, (x.shape[axis] + 1) // 2)


def _without_last(x: torch.Tensor, dim: Dims) -> torch.Tensor:
    if not x.dim() or not x.numel():
        return x
    axis = axes_of(dim, x.dim())[-1]
    return x.narrow(axis, 0, max(1, x.shape[axis] - 1))


def _low_precision_sum(
    self: torch.Tensor, dim: Dims = None, keepdim: bool = False, **more: Any
) -> Any:
    """A tree that rounds every partial sum to bfloat16 (floats only)."""
    if not self.is_floating_point() or not self.dim():
        return torch.ops.aten.sum(self, dim, keepdim, **more)
    x = self.to(_BF16)
    for axis in axes_of(dim, x.dim()):
        while x.shape[axis] > 1:
            low, high = x.tensor_split(2, dim=axis)
            if low.shape[axis] > high.shape[axis]:
                high = torch.cat([high, torch.zeros_like(high.narrow(axis, 0, 1))], axis)
            x = low + high
    return torch.ops.aten.sum(x.to(self.dtype), dim, keepdim, **more)


def _low_precision_mean(
    self: torch.Tensor, dim: Dims = None, keepdim: bool = False, **more: Any
) -> Any:
    total = _low_precision_sum(self, dim, keepdim)
    right = torch.ops.aten.mean(self, dim, keepdim, **more)
    terms = self.numel() / max(right.numel(), 1)
    return right.copy_(total / max(terms, 1))


_ADDING = (
    "sum(self: Tensor, *, dtype: ScalarType?=None) -> Tensor",
    "sum.dim_IntList(self: Tensor, dim: int[1]?, keepdim: bool=False, *, "
    "dtype: ScalarType?=None) -> Tensor",
    "sum.IntList_out(self: Tensor, dim: int[1]?, keepdim: bool=False, *, "
    "dtype: ScalarType?=None, out: Tensor!) -> Tensor!",
    "sum.out(self: Tensor, *, dtype: ScalarType?=None, out: Tensor!) -> Tensor!",
)

_SUM_TOLERANCE = Tolerance(
    limit=2.0,
    accumulator=torch.float32,
    why="float32 partial sums in any order: S is the sum of absolute values times "
    "1 + sqrt(terms)/4, which a sequential sum of positive terms needs; one final rounding 0.5",
)

_SUM = Operator(
    id="aten::sum",
    family="reduction",
    signatures=_ADDING,
    description=(
        "Sum of `self` over the dimensions `dim`: a list of ints, negative ones count from the "
        "end; None, an empty list, or the overloads without `dim` reduce all. With `keepdim` the "
        "reduced dimensions stay with size 1, else they go. "
        "With `dtype`, elements are cast to it first and the result has that dtype. Without it, "
        "bool and integer inputs of any width are summed in int64 and give int64 (wrapping on "
        "overflow); floating-point inputs give their own dtype, float16 and bfloat16 accumulate in "
        "float32 and are rounded once at the end. A sum over no elements is 0. NaN and infinities "
        "propagate as in IEEE addition. The `out` overloads write into `out`, which has the "
        "result's shape, may have any strides, and is returned."
    ),
    sources=("PyTorch 2.13, torch.ops.aten.sum", _SOURCE),
    cases=_sum_cases,
    oracle=_add_oracle,
    second=_add_second,
    baseline=torch.ops.aten.sum,
    baseline_name="aten",
    cost=reduction_cost,
    tolerance=_SUM_TOLERANCE,
    mutants=(
        Mutant(
            "half the reduction",
            lambda x, d=None, *a, **k: torch.ops.aten.sum(half_along(x, d), d, *a, **k),
        ),
        Mutant(
            "last element left out",
            lambda x, d=None, *a, **k: torch.ops.aten.sum(_without_last(x, d), d, *a, **k),
        ),
        Mutant("bfloat16 partial sums", _low_precision_sum),
        Mutant(
            "absolute values",
            lambda x, *a, **k: torch.ops.aten.sum(x.abs() if x.dtype != torch.bool else x, *a, **k),
        ),
    ),
)

_MEAN = Operator(
    id="aten::mean",
    family="reduction",
    signatures=(
        *(text.replace("sum", "mean", 1).replace("dim_IntList", "dim") for text in _ADDING[:2]),
        "mean.out(self: Tensor, dim: int[1]?, keepdim: bool=False, *, dtype: ScalarType?=None, "
        "out: Tensor!) -> Tensor!",
        "mean.dtype_out(self: Tensor, *, dtype: ScalarType?=None, out: Tensor!) -> Tensor!",
    ),
    description=(
        "Arithmetic mean of `self` over the dimensions `dim`: a list of ints, negative ones count "
        "from the end; None, an empty list, or the overloads without `dim` reduce all. With "
        "`keepdim` the reduced dimensions stay with size 1, else they go. The result has the dtype "
        "`dtype`, by default that of `self` and never narrower; integer and bool inputs need a "
        "floating-point one. "
        "float16 and bfloat16 accumulate in float32; the quotient is rounded once. A mean over no "
        "elements is NaN. NaN and infinities propagate. The `out` overloads write into `out`, "
        "which has the result's shape and dtype, may have any strides, and is returned."
    ),
    sources=("PyTorch 2.13, torch.ops.aten.mean", _SOURCE),
    cases=_mean_cases,
    oracle=_mean_oracle,
    second=_mean_second,
    baseline=torch.ops.aten.mean,
    baseline_name="aten",
    cost=reduction_cost,
    tolerance=_SUM_TOLERANCE,
    mutants=(
        Mutant(
            "half the reduction",
            lambda x, d=None, *a, **k: torch.ops.aten.mean(half_along(x, d), d, *a, **k),
        ),
        Mutant(
            "last element left out",
            lambda x, d=None, *a, **k: torch.ops.aten.mean(_without_last(x, d), d, *a, **k),
        ),
        Mutant("bfloat16 partial sums", _low_precision_mean),
        Mutant("no division", torch.ops.aten.sum),
    ),
)

OPERATORS = (_SUM, _MEAN)
