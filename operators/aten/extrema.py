"""ATen extrema: amin over dimensions, argmax with its ties and NaN.

Oracle: torch, exact. Second statement: NumPy, whose argmax has the same order of ties and NaN.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from kernelmark.operators.aten.reductions import (
    ONCE,
    Dims,
    axes_of,
    half_along,
    large_reductions,
    numpy_of,
    reduction_cost,
    result_numel,
)
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
from kernelmark.operators.records import (
    EXACT,
    Case,
    Cost,
    Expected,
    Mutant,
    Operator,
    TensorSpec,
)

_F16, _BF16 = torch.float16, torch.bfloat16
_SOURCE = "aten/src/ATen/native/ReduceOps.cpp"


def _argmax_cost(case: Case) -> Cost:
    x = case.tensors[0]
    return traffic(case, 8 * result_numel(case), flops=x.numel, read=x.nbytes)


# --- amin ---------------------------------------------------------------------------------------


@functools.cache
def _amin_cases() -> Sequence[Case]:
    def integers(t: torch.dtype, low: int, high: int) -> TensorSpec:
        return spec((7, 90), t, fill="integers", low=low, high=high)

    return (
        *(small(f"rows-{dtype_name(t)}", spec((5, 77), t), [1]) for t in FLOATS),
        small("all-default", spec((3, 335))),
        small("all-empty-list", spec((3, 5, 7), _F16), [], True),
        small("first-dim", spec((33, 40), _BF16), [0], True),
        small("two-dims", spec((5, 6, 7, 8), _F16), [0, -2]),
        small("transposed", spec((7, 130), strides=(1, 7)), [-1]),
        small("strided-misaligned", spec((6, 50), _F16, strides=(101, 2), offset=1), [1]),
        small("positive", spec((9, 40), fill="uniform", low=3.0, high=4.0), [1], draws=ONCE),
        small("one-column", spec((6, 1)), [1]),
        small("scalar", spec(())),
        small("no-rows", spec((0, 8)), [1]),
        small("specials", spec((120, 16), _F16), [1], draws=("specials", "base")),
        small("int8", integers(torch.int8, -128, 128), [1], draws=ONCE),
        small("uint8", integers(torch.uint8, 3, 256), [0], draws=ONCE),
        small("int32", integers(torch.int32, 2**30, 2**31), [1], draws=ONCE),
        small("int64", integers(torch.int64, -(2**62), 2**62), [1], draws=ONCE),
        small("bool", spec((40, 4), torch.bool, fill="bool"), [-1], draws=ONCE),
        small("out", spec((6, 9, 20)), [2], overload=1, out=spec((6, 9), strides=(1, 6))),
        *(
            Case(case.name, (case.args[0], *case.args[1:]), {}, "full", 0, case.origin)
            for case in large_reductions()
        ),
    )


def _amin_oracle(
    self: torch.Tensor,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    out: torch.Tensor | None = None,
) -> list[Expected]:
    return [expect(torch.amin(wide(self), axes_of(dim, self.dim()), keepdim), self.dtype)]


def _amin_second(
    self: torch.Tensor, dim: Dims = None, keepdim: bool = False, **more: Any
) -> list[np.ndarray]:
    x = numpy_of(self)
    with np.errstate(invalid="ignore"):
        return [np.asarray(x.min(axis=axes_of(dim, x.ndim) or None, keepdims=keepdim))]


def _amin_ignoring_nan(self: torch.Tensor, dim: Dims = (), *a: Any, **k: Any) -> Any:
    x = (
        self.nan_to_num(float("inf"), float("inf"), float("-inf"))
        if self.is_floating_point()
        else self
    )
    return torch.ops.aten.amin(x, dim, *a, **k)


def _amin_from_zero(self: torch.Tensor, dim: Dims = (), *a: Any, **k: Any) -> Any:
    """Lanes beyond the end count as 0."""
    return torch.ops.aten.amin(self, dim, *a, **k).clamp_max_(0)


_AMIN = Operator(
    id="aten::amin",
    family="reduction",
    signatures=(
        "amin(self: Tensor, dim: int[1]=[], keepdim: bool=False) -> Tensor",
        "amin.out(self: Tensor, dim: int[1]=[], keepdim: bool=False, *, out: Tensor!) -> Tensor!",
    ),
    description=(
        "Smallest element of `self` over the dimensions `dim`: a list of ints, negative ones count "
        "from the end; an empty list (the default) reduces all. With `keepdim` the reduced "
        "dimensions stay with size 1, else they go. The result has the dtype of `self` (floating "
        "point, integer or bool) and is exact. NaN wins: a slice that holds a NaN gives NaN. "
        "Reduced dimensions are never empty. `amin.out` writes into `out`, which has the result's "
        "shape and dtype, may have any strides, and is returned."
    ),
    sources=("PyTorch 2.13, torch.ops.aten.amin", _SOURCE),
    cases=_amin_cases,
    oracle=_amin_oracle,
    second=_amin_second,
    baseline=torch.ops.aten.amin,
    baseline_name="aten",
    cost=reduction_cost,
    tolerance=EXACT,
    mutants=(
        Mutant(
            "half the reduction",
            lambda x, d=(), *a, **k: torch.ops.aten.amin(half_along(x, d), d, *a, **k),
        ),
        Mutant("maximum instead", torch.ops.aten.amax),
        Mutant("NaN ignored", _amin_ignoring_nan),
        Mutant("padding of 0", _amin_from_zero),
    ),
)

# --- argmax -------------------------------------------------------------------------------------


@functools.cache
def _argmax_cases() -> Sequence[Case]:
    def tied(shape: tuple[int, ...], t: torch.dtype) -> TensorSpec:
        return spec(shape, t, fill="integers", low=0, high=5)

    return (
        *(small(f"rows-{dtype_name(t)}", spec((5, 77), t), 1) for t in FLOATS),
        small("all", spec((3, 335))),
        small("all-keepdim", spec((3, 5, 7)), None, True),
        small("first-dim", spec((33, 40), _BF16), 0, True),
        small("middle-dim", spec((4, 30, 6), _F16), -2),
        small("transposed-all", spec((7, 30), strides=(1, 7))),
        small("strided-misaligned", spec((6, 50), _F16, strides=(101, 2), offset=1), 1),
        small("ties-float16", tied((8, 200), _F16), 1, draws=ONCE),
        small("ties-int32-all", tied((40, 30), torch.int32), draws=ONCE),
        small("ties-first-dim", tied((90, 9), torch.int64), 0, draws=ONCE),
        small("uint8", spec((9, 90), torch.uint8, fill="integers", low=0, high=256), 1, draws=ONCE),
        small("negative", spec((9, 40), fill="uniform", low=-4.0, high=-3.0), 1, draws=ONCE),
        small("one-column", spec((6, 1)), 1),
        small("scalar", spec(())),
        small("no-rows", spec((0, 5)), 1),
        small("no-columns", spec((3, 0, 4)), 0),
        small("specials", spec((24, 16)), 1, draws=("specials", "base")),
        small("specials-all", spec((10, 90), _F16), draws=("specials", "base")),
        small(
            "out", spec((6, 9, 20)), 2, overload=1, out=spec((6, 9), torch.int64, fill="integers")
        ),
        full("greedy-llama-3", "Llama 3 vocabulary, 256 sequences", spec((256, 128256), _BF16), -1),
        full(
            "greedy-llama-3-float32", "Llama 3 vocabulary, 128 sequences", spec((128, 128256)), -1
        ),
        full("greedy-gpt2", "GPT-2 logits of 2048 tokens", spec((2048, 50257), _F16), -1),
        full("classifier", "ViT-L ImageNet-21k head, batch 4096", spec((4096, 21843), _BF16), -1),
        full(
            "segmentation",
            "SegFormer ADE20K logits, batch 8: over 150 classes (second dimension)",
            spec((8, 150, 256, 256), _F16),
            1,
        ),
        full("all-float32", "Llama 3 8B MLP matrix, largest element", spec((14336, 4096))),
        full(
            "vector-quantiser",
            "VQGAN scores of 16384 codes, transposed (codes are the first dimension)",
            spec((16384, 4096)),
            0,
        ),
    )


def _argmax_oracle(
    self: torch.Tensor,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    out: torch.Tensor | None = None,
) -> list[Expected]:
    x = self.reshape(-1) if dim is None else self
    axis = 0 if dim is None else dim
    if not x.numel():
        shape = [n for i, n in enumerate(x.shape) if keepdim or i != axis % max(x.dim(), 1)]
        return [expect(torch.zeros(shape, dtype=torch.int64, device=x.device))]
    x = x.reshape(1) if not x.dim() else x
    best = x.amax(axis, keepdim=True)  # NaN where the slice holds one
    places = torch.arange(x.shape[axis], device=x.device)
    places = places.view([-1 if i == axis % x.dim() else 1 for i in range(x.dim())])
    hit = (x == best) | ((x != x) & (best != best))
    first = torch.where(hit, places, x.shape[axis]).amin(axis, keepdim)
    if dim is None or not self.dim():
        first = first.reshape([1] * self.dim() if keepdim else [])
    return [expect(first)]


def _argmax_second(
    self: torch.Tensor, dim: int | None = None, keepdim: bool = False, **more: Any
) -> list[np.ndarray]:
    x = numpy_of(self)  # numpy: the first of equal maxima, and NaN counts as the largest
    if not x.size:
        return [np.zeros(x.sum(axis=dim, keepdims=keepdim).shape, np.int64)]
    return [np.asarray(np.argmax(x, axis=dim if x.ndim else None, keepdims=keepdim))]


def _last_of_ties(
    self: torch.Tensor, dim: int | None = None, keepdim: bool = False, **more: Any
) -> Any:
    right = torch.ops.aten.argmax(self, dim, keepdim, **more)
    if not self.numel() or not self.dim():
        return right
    size = self.numel() if dim is None else self.shape[dim]
    flipped = self.reshape(-1).flip(0) if dim is None else self.flip(dim)
    return right.copy_(
        (size - 1 - torch.argmax(flipped, 0 if dim is None else dim, keepdim)).view(right.shape)
    )


def _ignoring_nan(self: torch.Tensor, *a: Any, **k: Any) -> Any:
    x = self
    if self.is_floating_point():
        x = torch.where(self.isnan(), float("-inf"), self)
    return torch.ops.aten.argmax(x, *a, **k)


def _narrowed(self: torch.Tensor, dim: int | None = None, *a: Any, **k: Any) -> Any:
    x = self if dim is None else half_along(self, dim)
    return torch.ops.aten.argmax(x, dim, *a, **k)


_ARGMAX = Operator(
    id="aten::argmax",
    family="reduction",
    signatures=(
        "argmax(self: Tensor, dim: int?=None, keepdim: bool=False) -> Tensor",
        "argmax.out(self: Tensor, dim: int?=None, keepdim: bool=False, *, out: Tensor!) -> Tensor!",
    ),
    description=(
        "Index (int64) of the largest element of `self` along `dim`; a negative `dim` counts from "
        "the end. Without `dim` it is the index into `self` flattened in row-major order (whatever "
        "the strides). With `keepdim` the reduced dimension stays with size 1 (without `dim`, all "
        "of them do), else it goes. Among equal maxima the lowest index wins; NaN counts as larger "
        "than everything, so a slice that holds NaN gives the index of its first NaN. -0 equals 0. "
        "Inputs are floating point or integer. An empty slice along `dim` is an error, a tensor "
        "with no slices gives an empty result; a 0-d tensor gives 0. `argmax.out` writes into "
        "`out` (int64) and returns it."
    ),
    sources=("PyTorch 2.13, torch.argmax (first of equal maxima is documented)", _SOURCE),
    cases=_argmax_cases,
    oracle=_argmax_oracle,
    second=_argmax_second,
    baseline=torch.ops.aten.argmax,
    baseline_name="aten",
    cost=_argmax_cost,
    tolerance=EXACT,
    mutants=(
        Mutant("half the reduction", _narrowed),
        Mutant("last of equal maxima", _last_of_ties),
        Mutant("NaN ignored", _ignoring_nan),
        Mutant("smallest instead", torch.ops.aten.argmin),
    ),
)

OPERATORS = (_AMIN, _ARGMAX)
