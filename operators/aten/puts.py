"""ATen writes through indices: index_put_ and _index_put_impl_.

Oracle: flat positions in `self` (`advanced.positions`), then torch's scatter or sum over those in
float64 or int64. Second statement: NumPy's assignment and ``numpy.add.at``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from kernelmark.operators.aten.advanced import (
    INDEXING,
    Indices,
    distinct,
    integers,
    mask,
    numpy_indices,
    numpy_of,
    positions,
    reversed_indices,
    selected_numel,
    signed,
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
from kernelmark.operators.records import Case, Cost, Expected, Mutant, Operator, Tolerance

_F16, _BF16 = torch.float16, torch.bfloat16
_I32, _I64 = torch.int32, torch.int64
_ONCE = ("base", "base")


@functools.cache
def _put_cases() -> Sequence[Case]:
    points = (distinct((24,)), integers((24,), 20))  # distinct in the first: no pair twice
    return (
        *(
            small(f"rows-{dtype_name(t)}", spec((32, 33), t), (distinct((32,)),), spec((32, 33), t))
            for t in FLOATS
        ),
        *(
            small(
                f"add-{dtype_name(t)}",
                spec((20, 9), t),
                (signed((70,), 20),),
                spec((70, 9), t),
                True,
            )
            for t in FLOATS
        ),
        small("points", spec((24, 20)), points, spec((24,))),
        small(
            "points-add", spec((8, 5)), (integers((90,), 8), integers((90,), 5)), spec((90,)), True
        ),
        small("values-scalar", spec((24, 20), _F16), points, spec((), _F16)),
        small("values-broadcast", spec((16, 9)), (distinct((16,)),), spec((9,))),
        small(
            "broadcast",
            spec((16, 12)),
            (spec((16, 1), _I64, fill="permutation", strides=(1, 1)), integers((1,), 12)),
            spec((16, 1)),
            True,
        ),
        small("second-dim", spec((5, 30, 4)), (None, distinct((30,))), spec((5, 30, 4))),
        small(
            "split-apart-add",
            spec((6, 7, 8)),
            (integers((5,), 6), None, integers((5,), 8)),
            spec((5, 7)),
            True,
        ),
        small("mask", spec((20, 30)), (mask((20, 30)),), spec(())),
        small("mask-rows-add", spec((40, 9)), (mask((40,)),), spec((9,)), True),
        small(
            "self-transposed", spec((20, 30), strides=(1, 20)), (distinct((20,)),), spec((20, 30))
        ),
        small(
            "misaligned", spec((33, 35), _F16, offset=1), (distinct((33,)),), spec((33, 35), _F16)
        ),
        small(
            "int32-indices", spec((32, 9)), (spec((32,), _I32, fill="permutation"),), spec((32, 9))
        ),
        small(
            "int64-add",
            integers((30,), 2**61, low=-(2**61)),
            (integers((90,), 30),),
            integers((90,), 2**61),
            True,
            draws=_ONCE,
        ),
        small("empty-index", spec((8, 5)), (integers((0,), 8),), spec((0, 5))),
        small("one-element", spec((1, 1)), (integers((1,), 1), integers((1,), 1)), spec((1,))),
        *_full_puts(),
    )


def _full_puts() -> list[Case]:
    return [
        full(
            "kv-cache-slots",
            "Llama 3 8B paged cache: 131072 slots written in random order",
            spec((131072, 1024), _BF16),
            (distinct((131072,)),),
            spec((131072, 1024), _BF16),
        ),
        full(
            "combine-experts",
            "Mixtral 8x7B: expert outputs added into 16384 tokens",
            spec((16384, 4096), _BF16),
            (integers((32768,), 16384),),
            spec((32768, 4096), _BF16),
            True,
        ),
        full(
            "embedding-gradient",
            "GPT-2: 65536 token gradients added into the table",
            spec((50257, 768)),
            (integers((65536,), 50257),),
            spec((65536, 768)),
            True,
        ),
        full(
            "graph-sum",
            "ogbn-products GraphSAGE: 1M edges added into 262144 nodes",
            spec((262144, 64)),
            (integers((1 << 20,), 262144),),
            spec((1 << 20, 64)),
            True,
        ),
        full(
            "voxels",
            "CenterPoint: 4M points into a 512 x 512 x 40 grid, distinct columns",
            spec((1 << 22, 8), _F16),
            (distinct((1 << 22,)), integers((1 << 22,), 8)),
            spec((1 << 22,), _F16),
        ),
        full(
            "masked-inputs",
            "BERT-large: mask embedding into 128 x 512 tokens",
            spec((128, 512, 1024), _F16),
            (mask((128, 512)),),
            spec((1024,), _F16),
        ),
        full(
            "histogram",
            "joint histogram of 2**24 samples, 1024 x 1024 bins",
            spec((1024, 1024)),
            (integers((1 << 24,), 1024), integers((1 << 24,), 1024)),
            spec((1 << 24,)),
            True,
        ),
    ]


def _put_oracle(
    self: torch.Tensor,
    indices: Indices,
    values: torch.Tensor,
    accumulate: bool = False,
    unsafe: bool = False,
) -> list[Expected]:
    where = positions(self, indices)
    flat, new = wide(self).reshape(-1).clone(), wide(values).expand(where.shape).reshape(-1)
    where = where.reshape(-1)
    if not self.is_floating_point():
        flat = flat.index_add_(0, where, new) if accumulate else flat.scatter_(0, where, new)
        exact = flat.view(self.shape).to(self.dtype).to(flat.dtype)
        return [expect(exact, self.dtype)]
    scale = torch.zeros_like(flat)
    if accumulate:
        # Up to one rounding an addition, in any order; the first one is the result's own.
        counts = torch.zeros_like(flat).index_add_(0, where, torch.ones_like(new))
        sums = flat.abs().index_add_(0, where, new.abs())
        scale = torch.where(counts > 1, sums * counts.sqrt() / 2, scale)
        flat.index_add_(0, where, new)
    else:
        flat.scatter_(0, where, new)
    return [expect(flat.view(self.shape), self.dtype, scale=scale.view(self.shape))]


def _put_second(
    self: torch.Tensor,
    indices: Indices,
    values: torch.Tensor,
    accumulate: bool = False,
    unsafe: bool = False,
) -> list[Any]:
    x, where = numpy_of(self).copy(), numpy_indices(indices, self.dim())
    if accumulate:
        np.add.at(x, where, numpy_of(values))
    else:
        x[where] = numpy_of(values)
    return [x]


def _put_cost(case: Case) -> Cost:
    x, values = case.tensors[0], case.tensors[-1]
    accumulate = len(case.args) > 3 and case.args[3]
    count, item = selected_numel(case), x.dtype.itemsize
    touched = min(count, x.numel) * item
    index_bytes = sum(t.nbytes for t in case.tensors[1:-1])
    read = values.nbytes + index_bytes + (touched if accumulate else 0)
    return traffic(case, touched, flops=count if accumulate else 0, read=read)


def _put_mutants(put: Callable[..., Any]) -> tuple[Mutant, ...]:
    def not_added(self: Any, indices: Any, values: Any, accumulate: bool = False, *a: Any) -> Any:
        """Each element gets one of its values; nothing is added."""
        return put(self, indices, values, False, *a)

    def added(self: Any, indices: Any, values: Any, accumulate: bool = False, *a: Any) -> Any:
        return put(self, indices, values, True, *a)

    def turned(self: Any, indices: Any, *a: Any) -> Any:
        return put(self, reversed_indices(indices), *a)

    def cleared(self: Any, indices: Any, *a: Any) -> Any:
        """What is not written becomes 0."""
        return put(self.zero_(), indices, *a)

    return (
        Mutant("accumulate ignored", not_added),
        Mutant("always accumulates", added),
        Mutant("indices in reverse order", turned),
        Mutant("the rest cleared", cleared),
    )


_PUT_DESCRIPTION = (
    "Writes `values` where self[indices] would read, in place, and returns `self`. "
    + INDEXING
    + "`values` has the dtype of `self` and is broadcast to the shape of self[indices]. With "
    "`accumulate` values are added to what is there, and an element that is named several times "
    "gets all of them, in any order; each addition may round to the dtype. Without it every "
    "element is named at most once. Elements that are not named keep their value. `self` may have "
    "any strides without overlap. "
)
_PUT_SOURCES = ("aten/src/ATen/native/TensorAdvancedIndexing.cpp", "NumPy, numpy.ufunc.at")
_PUT_TOLERANCE = Tolerance(
    limit=1.0,
    accumulator=None,
    why="S is 0 where nothing or one value is added (one rounding, 0.5); for n values it is the "
    "sum of absolute values times sqrt(n)/2: each addition in the dtype may round by half an eps",
)

_INDEX_PUT = Operator(
    id="aten::index_put_",
    family="indexing",
    signatures=(
        "index_put_(self: Tensor!, indices: Tensor?[], values: Tensor, accumulate: bool=False) "
        "-> Tensor!",
    ),
    description=_PUT_DESCRIPTION,
    sources=("PyTorch 2.13, torch.ops.aten.index_put_", *_PUT_SOURCES),
    cases=_put_cases,
    oracle=_put_oracle,
    second=_put_second,
    baseline=torch.ops.aten.index_put_.default,
    baseline_name="aten",
    cost=_put_cost,
    tolerance=_PUT_TOLERANCE,
    mutants=_put_mutants(torch.ops.aten.index_put_.default),
)


@functools.cache
def _impl_cases() -> Sequence[Case]:
    extra = (
        small("unsafe", spec((24, 20)), (distinct((24,)),), spec((24, 20)), False, True),
        small("unsafe-add", spec((24, 20)), (integers((60,), 24),), spec((60, 20)), True, True),
    )
    return (*_put_cases(), *extra)


_INDEX_PUT_IMPL = Operator(
    id="aten::_index_put_impl_",
    family="indexing",
    signatures=(
        "_index_put_impl_(self: Tensor!, indices: Tensor?[], values: Tensor, "
        "accumulate: bool=False, unsafe: bool=False) -> Tensor!",
    ),
    description=_PUT_DESCRIPTION
    + "`unsafe` promises that all indices are in range; they always are, so it changes nothing.",
    sources=("PyTorch 2.13, torch.ops.aten._index_put_impl_", *_PUT_SOURCES),
    cases=_impl_cases,
    oracle=_put_oracle,
    second=_put_second,
    baseline=torch.ops.aten._index_put_impl_.default,
    baseline_name="aten",
    cost=_put_cost,
    tolerance=_PUT_TOLERANCE,
    mutants=_put_mutants(torch.ops.aten._index_put_impl_.default),
)

OPERATORS = (_INDEX_PUT, _INDEX_PUT_IMPL)
