"""ATen scatter: writes, adds or multiplies into places named element by element.

Oracle: flat positions worked out in torch, in float64 or int64. Second statement: a loop.
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
    small,
    spec,
    traffic,
    wide,
)
from kernelmark.operators.draws import Call
from kernelmark.operators.records import (
    Case,
    Cost,
    Expected,
    Mutant,
    Operator,
    TensorSpec,
    Tolerance,
)

_F16, _BF16 = torch.float16, torch.bfloat16
_I32, _I64 = torch.int32, torch.int64
_ONCE = ("base", "base")
_VALUE, _SRC, _REDUCE, _VALUE_REDUCE, _SRC_OUT, _VALUE_OUT, _REDUCE_OUT, _VALUE_REDUCE_OUT = range(
    8
)


def _integers(shape: tuple[int, ...], high: int, t: torch.dtype = _I64, **more: Any) -> TensorSpec:
    return spec(shape, t, fill="integers", high=high, **more)


# --- scatter ------------------------------------------------------------------------------------


@functools.cache
def _scatter_cases() -> Sequence[Case]:
    def src(name: str, *args: Any, **more: Any) -> Case:
        return small(name, *args, overload=_SRC, **more)

    def reduce(name: str, how: str, *args: Any, draws: tuple[str, ...] = Case.draws) -> Case:
        return small(name, *args, overload=_REDUCE, draws=draws, reduce=how)

    def factors(shape: tuple[int, ...], t: torch.dtype = torch.float32) -> TensorSpec:
        return spec(shape, t, fill="uniform", low=0.5, high=1.5)

    return (
        *(
            src(
                f"last-dim-{dtype_name(t)}",
                spec((5, 90), t),
                -1,
                _integers((5, 40), 90),
                spec((5, 40), t),
            )
            for t in FLOATS
        ),
        src("first-dim", spec((40, 9)), 0, _integers((25, 9), 40), spec((25, 9))),
        src(
            "middle-dim",
            spec((3, 30, 7), _F16),
            1,
            _integers((3, 20, 7), 30),
            spec((3, 20, 7), _F16),
        ),
        src("index-smaller", spec((6, 20, 9)), 1, _integers((4, 5, 3), 20), spec((7, 6, 5))),
        src(
            "self-transposed",
            spec((20, 30), strides=(1, 20)),
            1,
            _integers((20, 9), 30),
            spec((20, 9)),
        ),
        src(
            "strided-misaligned",
            spec((6, 50), _F16, strides=(101, 2), offset=1),
            1,
            _integers((6, 20), 50),
            spec((6, 20), _F16, strides=(1, 6), offset=1),
        ),
        src(
            "int32",
            _integers((6, 50), 99, _I32),
            0,
            _integers((3, 50), 6),
            _integers((3, 50), 99, _I32),
            draws=_ONCE,
        ),
        src("scalar", spec(()), 0, _integers((), 1), spec(())),
        src("no-index", spec((4, 8)), 1, _integers((0, 8), 8), spec((0, 8))),
        small("value", spec((6, 40)), 1, _integers((6, 9), 40), 2.5),
        small(
            "value-one-hot",
            spec((30, 20), _BF16, fill="zeros"),
            1,
            _integers((30, 1), 20),
            1.0,
            draws=_ONCE,
        ),
        *(
            reduce(
                f"add-{dtype_name(t)}",
                "add",
                spec((5, 20), t),
                1,
                _integers((5, 64), 20),
                spec((5, 64), t),
            )
            for t in FLOATS
        ),
        reduce("add-first-dim", "add", spec((6, 40)), 0, _integers((50, 40), 6), spec((50, 40))),
        reduce(
            "multiply",
            "multiply",
            factors((5, 20)),
            1,
            _integers((5, 64), 20),
            factors((5, 64)),
            draws=_ONCE,
        ),
        reduce(
            "multiply-float16",
            "multiply",
            factors((9, 6), _F16),
            0,
            _integers((30, 6), 9),
            factors((30, 6), _F16),
            draws=_ONCE,
        ),
        reduce(
            "add-int64",
            "add",
            _integers((5, 20), 99),
            1,
            _integers((5, 64), 20),
            _integers((5, 64), 2**60),
            draws=_ONCE,
        ),
        small(
            "value-add",
            spec((6, 20)),
            1,
            _integers((6, 50), 20),
            0.75,
            overload=_VALUE_REDUCE,
            reduce="add",
        ),
        small(
            "value-multiply",
            spec((6, 20)),
            0,
            _integers((3, 20), 6),
            -1.5,
            overload=_VALUE_REDUCE,
            reduce="multiply",
        ),
        small(
            "src-out",
            spec((6, 20)),
            1,
            _integers((6, 9), 20),
            spec((6, 9)),
            overload=_SRC_OUT,
            out=spec((6, 20), strides=(1, 6)),
        ),
        small(
            "value-out",
            spec((6, 20)),
            1,
            _integers((6, 9), 20),
            -3.0,
            overload=_VALUE_OUT,
            out=spec((6, 20)),
        ),
        small(
            "reduce-out",
            spec((6, 20)),
            1,
            _integers((6, 50), 20),
            spec((6, 50)),
            overload=_REDUCE_OUT,
            reduce="add",
            out=spec((6, 20)),
        ),
        small(
            "value-reduce-out",
            spec((6, 20)),
            1,
            _integers((6, 50), 20),
            2.0,
            overload=_VALUE_REDUCE_OUT,
            reduce="add",
            out=spec((6, 20)),
        ),
        *_full_scatters(),
    )


def _full_scatters() -> list[Case]:
    return [
        full(
            "one-hot",
            "Llama 2 one-hot labels of 8192 tokens",
            spec((8192, 32000), _BF16, fill="zeros"),
            1,
            _integers((8192, 1), 32000),
            1.0,
            draws=_ONCE,
        ),
        full(
            "token-unpruning",
            "ViT-L tokens put back, batch 128",
            spec((128, 577, 1024), _F16),
            1,
            _integers((128, 288, 1024), 577),
            spec((128, 288, 1024), _F16),
            overload=_SRC,
        ),
        full(
            "rows",
            "DLRM dense update by element (first dimension)",
            spec((1 << 17, 256)),
            0,
            _integers((1 << 16, 256), 1 << 17),
            spec((1 << 16, 256)),
            overload=_SRC,
        ),
        full(
            "nodes-add",
            "ogbn-products: 64 features of 1M edges added into nodes",
            spec((262144, 64)),
            0,
            _integers((1 << 20, 64), 262144),
            spec((1 << 20, 64)),
            overload=_REDUCE,
            reduce="add",
        ),
        full(
            "moe-weights",
            "DeepSeek-V3 router: 8 weights of 256 experts, 524288 tokens",
            spec((524288, 256), _BF16),
            1,
            _integers((524288, 8), 256),
            spec((524288, 8), _BF16),
            overload=_SRC,
        ),
        full(
            "repetition",
            "Llama 3 repetition penalty: logits of seen tokens scaled",
            spec((256, 128256)),
            1,
            _integers((256, 8192), 128256),
            0.8,
            overload=_VALUE_REDUCE,
            reduce="multiply",
            draws=_ONCE,
        ),
        full(
            "voxels",
            "PointPillars: 64 features of 12000 pillars on a 496 x 432 grid, batch 4",
            spec((4, 64, 214272), _F16),
            2,
            _integers((4, 64, 12000), 214272),
            spec((4, 64, 12000), _F16),
            overload=_SRC,
        ),
    ]


def _prepare_scatter(call: Call, case: Case, generator: torch.Generator) -> None:
    """Without a reduction no element is named twice: each slice gets distinct indices."""
    self, dim, index = call.args[:3]
    if "reduce" in case.kwargs or not index.numel() or not index.dim() or index.shape[dim] == 1:
        return
    moved = index.movedim(dim, -1)
    for part in moved.split(max(1, (1 << 24) // self.shape[dim]), 0):  # bounded temporaries
        keys = torch.rand(
            (*part.shape[:-1], self.shape[dim]), generator=generator, device=index.device
        )
        part.copy_(keys.argsort(-1)[..., : index.shape[dim]])


def _scatter_places(self: torch.Tensor, dim: int, index: torch.Tensor) -> torch.Tensor:
    """Flat positions in a contiguous `self` that the elements of `index` name."""
    total = torch.zeros_like(index)
    for axis in range(self.dim()):
        if axis == dim % self.dim():
            along = index
        else:
            along = torch.arange(index.shape[axis], device=index.device)
            along = along.view([-1 if i == axis else 1 for i in range(index.dim())])
        total = total + along * math.prod(self.shape[axis + 1 :])
    return total.reshape(-1)


def _scatter_oracle(
    self: torch.Tensor,
    dim: int,
    index: torch.Tensor,
    src: torch.Tensor | float,
    *,
    reduce: str = "",
    out: torch.Tensor | None = None,
) -> list[Expected]:
    flat, places = wide(self).reshape(-1).clone(), _scatter_places(self, dim, index)
    if isinstance(src, torch.Tensor):
        new = wide(src)[tuple(slice(0, n) for n in index.shape)].reshape(-1)
    else:
        new = torch.full(places.shape, src, device=self.device).to(self.dtype).to(flat.dtype)
    zeros = torch.zeros_like(flat, dtype=torch.float64)
    counts = zeros.index_add(0, places, torch.ones_like(new, dtype=torch.float64))
    if not reduce:
        flat[places], scale = new, zeros
    elif reduce == "add":
        sums = flat.abs().double().index_add_(0, places, new.abs().double())
        flat.index_add_(0, places, new)
        scale = torch.where(counts > 1, sums * counts.sqrt() / 2, 0.0)
    else:
        flat.scatter_reduce_(0, places, new, "prod")
        scale = flat.abs().double() * torch.where(counts > 1, counts.sqrt() / 2, 0.0)
    if not self.is_floating_point():
        return [expect(flat.view(self.shape).to(self.dtype).to(torch.int64), self.dtype)]
    return [expect(flat.view(self.shape), self.dtype, scale=scale.view(self.shape))]


def _scatter_second(
    self: torch.Tensor,
    dim: int,
    index: torch.Tensor,
    src: torch.Tensor | float,
    *,
    reduce: str = "",
    **more: Any,
) -> list[Any]:
    x = wide(self).numpy().copy()
    for place in np.ndindex(*index.shape):
        target = list(place)
        if target:
            target[dim] = int(index[place])
        at = tuple(target)
        scalar = torch.as_tensor(src if not isinstance(src, torch.Tensor) else src[place])
        new = wide(scalar.to(self.dtype)).numpy()
        x[at] = x[at] + new if reduce == "add" else x[at] * new if reduce else new
    return [x]


def _scatter_cost(case: Case) -> Cost:
    x, index = case.tensors[0], case.tensors[1]
    src = case.args[3]
    item = x.dtype.itemsize
    read = x.nbytes + index.nbytes + (index.numel * item if isinstance(src, TensorSpec) else 0)
    flops = index.numel if "reduce" in case.kwargs else 0
    return traffic(case, x.numel * item, flops=flops, read=read)


def _shifted_index(self: Any, dim: int, index: Any, *a: Any, **k: Any) -> Any:
    size = self.shape[dim] if self.dim() else 1
    return torch.ops.aten.scatter(self, dim, (index + 1) % size, *a, **k)


def _from_zero(self: Any, *a: Any, **k: Any) -> Any:
    """What is not written is 0 instead of `self`."""
    return torch.ops.aten.scatter(torch.zeros_like(self), *a, **k)


def _reduction_ignored(self: Any, dim: int, index: Any, src: Any, **k: Any) -> Any:
    kept = {name: value for name, value in k.items() if name != "reduce"}
    return torch.ops.aten.scatter(self, dim, index, src, **kept)


def _src_from_start(self: Any, dim: int, index: Any, src: Any, **k: Any) -> Any:
    """Reads the first elements of `src` in memory order instead of those at the index's places."""
    if isinstance(src, torch.Tensor) and src.dim():
        src = src.reshape(-1)[: index.numel()].reshape(index.shape)
    return torch.ops.aten.scatter(self, dim, index, src, **k)


_SCATTER = Operator(
    id="aten::scatter",
    family="indexing",
    signatures=(
        "scatter.value(self: Tensor, dim: int, index: Tensor, value: Scalar) -> Tensor",
        "scatter.src(self: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor",
        "scatter.reduce(self: Tensor, dim: int, index: Tensor, src: Tensor, *, reduce: str) "
        "-> Tensor",
        "scatter.value_reduce(self: Tensor, dim: int, index: Tensor, value: Scalar, *, "
        "reduce: str) -> Tensor",
        "scatter.src_out(self: Tensor, dim: int, index: Tensor, src: Tensor, *, out: Tensor!) "
        "-> Tensor!",
        "scatter.value_out(self: Tensor, dim: int, index: Tensor, value: Scalar, *, out: Tensor!) "
        "-> Tensor!",
        "scatter.reduce_out(self: Tensor, dim: int, index: Tensor, src: Tensor, *, reduce: str, "
        "out: Tensor!) -> Tensor!",
        "scatter.value_reduce_out(self: Tensor, dim: int, index: Tensor, value: Scalar, *, "
        "reduce: str, out: Tensor!) -> Tensor!",
    ),
    description=(
        "A copy of `self` in which elements named by `index` are replaced: for three dimensions "
        "and `dim` = 1, out[i, index[i, j, k], k] = src[i, j, k] for every place of `index`. "
        "`index` is int64 with as many dimensions as `self`, values in [0, self.shape[dim]), and "
        "may be shorter than `self` outside `dim`, and than `src` anywhere; only the part of `src` "
        "that lies under `index` is read. `src` has the dtype of `self`; `value` is a number "
        'converted to it. With `reduce` "add" or "multiply" the new value is added to what is '
        "there, or multiplied with it; an element named several times gets all of them, in any "
        "order, and each step may round to the dtype. Without `reduce` none is named twice. A "
        "negative `dim` counts from the end; strides may be any. The `out` overloads write the "
        "whole result into `out` and return it."
    ),
    sources=(
        "PyTorch 2.13, torch.ops.aten.scatter",
        "aten/src/ATen/native/TensorAdvancedIndexing.cpp",
    ),
    cases=_scatter_cases,
    oracle=_scatter_oracle,
    second=_scatter_second,
    baseline=torch.ops.aten.scatter,
    baseline_name="aten",
    cost=_scatter_cost,
    tolerance=Tolerance(
        limit=1.0,
        accumulator=None,
        why="S is 0 where at most one value arrives (one rounding, 0.5); for n values it is the "
        "sum or product of absolute values times sqrt(n)/2, for a rounding at each step",
    ),
    mutants=(
        Mutant("next element", _shifted_index),
        Mutant("the rest is 0", _from_zero),
        Mutant("reduction ignored", _reduction_ignored),
        Mutant("src read from its start", _src_from_start),
    ),
    prepare=_prepare_scatter,
)

OPERATORS = (_SCATTER,)
