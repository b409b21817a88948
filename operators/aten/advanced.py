"""ATen advanced indexing: index, and what indices mean (`puts` writes through them).

Oracle: flat positions in `self`, worked out here from the indices in torch, then read.
Second statement: NumPy's own advanced indexing.
"""

from __future__ import annotations

import functools
import math
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
_I32, _I64 = torch.int32, torch.int64
_ONCE = ("base", "base")

Indices = Sequence[torch.Tensor | None]

INDEXING = (
    "`indices` has an entry for each of the first dimensions of `self` (the rest counts as None). "
    "An entry is None (the whole dimension), an integer tensor (int64 or int32; negative values "
    "count from the end of the dimension), or a bool mask over as many dimensions as it has, which "
    "stands for the coordinates of its True elements in row-major order, one integer vector for "
    "each of its dimensions. Integer tensors are broadcast together; call their common shape B. "
    "If the indexed dimensions are adjacent, B takes their place in the result; if a None stands "
    "between them, B comes first, followed by the dimensions that are not indexed. "
)


def integers(shape: tuple[int, ...], high: int, t: torch.dtype = _I64, **more: Any) -> TensorSpec:
    return spec(shape, t, fill="integers", high=high, **more)


def signed(shape: tuple[int, ...], size: int) -> TensorSpec:
    """Indices in [-size, size)."""
    return integers(shape, size, low=-size)


def distinct(shape: tuple[int, ...]) -> TensorSpec:
    """A permutation of range(shape[-1])."""
    return spec(shape, _I64, fill="permutation")


def mask(shape: tuple[int, ...]) -> TensorSpec:
    return spec(shape, torch.bool, fill="bool")


def expand_masks(indices: Indices) -> list[torch.Tensor | None]:
    """Indices with every mask replaced by the coordinates of its True elements."""
    expanded: list[torch.Tensor | None] = []
    for index in indices:
        if index is not None and index.dtype == torch.bool:
            expanded += list(index.nonzero().unbind(1))
        else:
            expanded.append(None if index is None else index.to(torch.int64))
    return expanded


def positions(self: torch.Tensor, indices: Indices) -> torch.Tensor:
    """Flat (row-major) positions in `self` that ``self[indices]`` reads, in the result's shape."""
    expanded = expand_masks(indices)
    expanded += [None] * (self.dim() - len(expanded))
    given = [axis for axis, index in enumerate(expanded) if index is not None]
    shape = np.broadcast_shapes(*(tuple(expanded[axis].shape) for axis in given))  # type: ignore[union-attr]
    free = [axis for axis in range(self.dim()) if axis not in given]
    adjacent = given == list(range(given[0], given[-1] + 1))
    before = [axis for axis in free if adjacent and axis < given[0]]
    after = [axis for axis in free if axis not in before]
    order: list[int | None] = [*before, *([None] * len(shape)), *after]
    total = torch.zeros([], dtype=torch.int64, device=self.device)
    for axis, size in enumerate(self.shape):
        step = math.prod(self.shape[axis + 1 :])
        index = expanded[axis]
        if index is None:
            place = order.index(axis)
            along = torch.arange(size, device=self.device)
            view = [-1 if i == place else 1 for i in range(len(order))]
        else:
            along = torch.where(index < 0, index + size, index)
            view = [1] * len(before) + [1] * (len(shape) - index.dim()) + list(index.shape)
            view += [1] * len(after)
        total = total + along.reshape(view) * step
    sizes = [*(self.shape[a] for a in before), *shape, *(self.shape[a] for a in after)]
    return total.expand(sizes)


def numpy_indices(indices: Indices, rank: int) -> tuple[Any, ...]:
    return tuple(slice(None) if i is None else i.numpy() for i in indices)


def numpy_of(tensor: torch.Tensor) -> np.ndarray:
    return wide(tensor).numpy()


# --- index --------------------------------------------------------------------------------------


@functools.cache
def _index_cases() -> Sequence[Case]:
    return (
        *(
            small(f"vector-{dtype_name(t)}", spec((300,), t), (integers((70,), 300),))
            for t in FLOATS
        ),
        *(small(f"rows-{dtype_name(t)}", spec((32, 33), t), (integers((9,), 32),)) for t in FLOATS),
        small("points", spec((32, 20)), (signed((50,), 32), signed((50,), 20))),
        small("broadcast", spec((16, 12), _F16), (integers((5, 1), 16), integers((7,), 12))),
        small("second-dim", spec((5, 30, 4)), (None, signed((11,), 30))),
        small("last-dim", spec((6, 40), _BF16), (None, integers((3, 5), 40))),
        small("split-apart", spec((6, 7, 8)), (integers((5,), 6), None, integers((5,), 8))),
        small("middle-two", spec((3, 8, 9, 5)), (None, integers((4,), 8), integers((2, 4), 9))),
        small("int32", spec((32, 9)), (integers((20,), 32, _I32),)),
        small("mask", spec((20, 30)), (mask((20, 30)),)),
        small("mask-rows", spec((40, 9), _F16), (mask((40,)),)),
        small("mask-columns", spec((5, 40)), (None, mask((40,)))),
        small("mask-of-two", spec((6, 7, 8)), (mask((6, 7)),)),
        small("transposed", spec((20, 30), strides=(1, 20)), (signed((25,), 20), None)),
        small("misaligned", spec((33, 35), _F16, offset=1), (integers((12,), 33),)),
        small(
            "int64-values",
            integers((90,), 2**62, low=-(2**62)),
            (integers((40,), 90),),
            draws=_ONCE,
        ),
        small("scalar-index", spec((8, 33)), (integers((), 8),)),
        small("empty-index", spec((8, 5)), (integers((0,), 8),)),
        small("one-element", spec((1, 1)), (integers((1,), 1), integers((1,), 1))),
        small("specials", spec((300,), _F16), (integers((90,), 300),), draws=("specials", "base")),
        small("out", spec((32, 9)), (integers((6,), 32),), overload=1, out=spec((6, 9))),
        full(
            "tokens-kept",
            "Mixtral 8x7B: hidden states of routed tokens",
            spec((16384, 4096), _BF16),
            (integers((32768,), 16384),),
        ),
        full(
            "points-sampled",
            "NeRF: 4M rays out of 100 images of 800 x 800",
            spec((100, 800, 800, 4)),
            (integers((1 << 22,), 100), integers((1 << 22,), 800), integers((1 << 22,), 800)),
        ),
        full(
            "label-logits",
            "Llama 3 sampled softmax: 65536 candidates for each of 512 tokens",
            spec((512, 128256), _F16),
            (integers((512, 1), 512), integers((512, 65536), 128256)),
        ),
        full(
            "masked-tokens",
            "BERT-large: masked positions of 64 x 512 tokens",
            spec((64, 512, 1024), _F16),
            (mask((64, 512)),),
        ),
        full(
            "relative-bias",
            "Swin-L relative position bias, 32 heads, 24 x 24 windows",
            spec((2209, 32)),
            (integers((576, 576), 2209),),
        ),
        full(
            "embedding-columns",
            "DLRM dense features gathered by column",
            spec((65536, 512)),
            (None, integers((512,), 512)),
        ),
        full(
            "flat",
            "2**27 elements, 2**23 of them, as in sparse attention",
            spec((1 << 27,), _BF16),
            (integers((1 << 23,), 1 << 27),),
        ),
    )


def _index_oracle(
    self: torch.Tensor, indices: Indices, *, out: torch.Tensor | None = None
) -> list[Expected]:
    return [expect(wide(self).reshape(-1)[positions(self, indices)], self.dtype)]


def _index_second(self: torch.Tensor, indices: Indices, **more: Any) -> list[Any]:
    return [numpy_of(self)[numpy_indices(indices, self.dim())]]


def _index(
    self: torch.Tensor, indices: Indices, *, out: torch.Tensor | None = None
) -> torch.Tensor:
    if out is None:
        return torch.ops.aten.index.Tensor(self, indices)
    return torch.ops.aten.index.Tensor_out(self, indices, out=out)


def selected_numel(case: Case) -> int:
    """Elements that the indices select; a mask counts as half True."""
    x, indices = case.tensors[0], case.args[1]
    shapes: list[tuple[int, ...]] = []
    rest, axis = 1, 0
    for index in indices:
        if index is None:
            rest *= x.shape[axis]
            axis += 1
        elif index.dtype == torch.bool:
            shapes.append((index.numel // 2,))
            axis += len(index.shape)
        else:
            shapes.append(index.shape)
            axis += 1
    return math.prod(np.broadcast_shapes(*shapes)) * rest * math.prod(x.shape[axis:])


def _index_cost(case: Case) -> Cost:
    x, out = case.tensors[0], case.kwargs.get("out")
    count, item = selected_numel(case), x.dtype.itemsize
    index_bytes = sum(t.nbytes for t in case.tensors[1:] if t is not out)
    return traffic(case, count * item, flops=0, read=min(count, x.numel) * item + index_bytes)


def _other_indices(
    change: Callable[[torch.Tensor], torch.Tensor],
) -> Callable[[Indices], list[Any]]:
    def changed(indices: Indices) -> list[Any]:
        return [
            i if i is None or i.dtype == torch.bool or i.numel() == 0 else change(i)
            for i in indices
        ]

    return changed


reversed_indices = _other_indices(lambda i: i.flip(-1) if i.dim() else i)
_first_only = _other_indices(lambda i: i.reshape(-1)[:1].expand(i.numel()).reshape(i.shape))
_clamped = _other_indices(lambda i: i.clamp_min(0))


def _index_mutant(changed: Callable[[Indices], list[Any]]) -> Callable[..., Any]:
    return lambda self, indices, **more: _index(self, changed(indices), **more)


_INDEX = Operator(
    id="aten::index",
    family="indexing",
    signatures=(
        "index.Tensor(self: Tensor, indices: Tensor?[]) -> Tensor",
        "index.Tensor_out(self: Tensor, indices: Tensor?[], *, out: Tensor!) -> Tensor!",
    ),
    description=(
        "Elements of `self` chosen by tensors: result = self[indices] in NumPy's meaning. "
        + INDEXING
        + "The result has the dtype of `self` (any). `self` and the indices may have any strides. "
        "`index.Tensor_out` writes into `out`, which has the result's shape, and returns it."
    ),
    sources=(
        "PyTorch 2.13, torch.ops.aten.index.Tensor",
        "aten/src/ATen/native/TensorAdvancedIndexing.cpp",
        "NumPy, Indexing on ndarrays, Advanced indexing",
    ),
    cases=_index_cases,
    oracle=_index_oracle,
    second=_index_second,
    baseline=_index,
    baseline_name="aten",
    cost=_index_cost,
    tolerance=EXACT,
    mutants=(
        Mutant("indices in reverse order", _index_mutant(reversed_indices)),
        Mutant("first index for all", _index_mutant(_first_only)),
        Mutant("negative indices taken as 0", _index_mutant(_clamped)),
    ),
    note="A mask makes the result's size depend on the data; reading it back synchronises.",
)

OPERATORS = (_INDEX,)
