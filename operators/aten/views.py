"""ATen operators that give another shape to the same memory. No kernel is needed or timed.

Oracle: shape, strides and offset by arithmetic, as `Alias`; where ATen must copy, the values and
the strides of the copy. Second statement: the values that the view shows, in NumPy.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from kernelmark.operators.aten import elementwise as e
from kernelmark.operators.building import spec, wide
from kernelmark.operators.records import (
    EXACT,
    Alias,
    Case,
    Cost,
    Expected,
    Mutant,
    Operator,
    contiguous_strides,
)

_C = torch.complex64


def _alias(self: torch.Tensor, shape: Any, strides: Any, offset: Any = None) -> Alias:
    start = int(self.storage_offset() if offset is None else offset)
    return Alias(0, tuple(shape), tuple(strides), start)


def _no_cost(case: Case) -> Cost:
    return Cost(0, 0)


def _copies(function: Callable[..., Any]) -> Mutant:
    """The right values in memory of their own."""

    def mutant(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        if result is None:
            return None
        if isinstance(result, tuple | list):
            return [part.clone() for part in result]
        return result.clone()

    return Mutant("copied", mutant)


def _unchanged(*args: Any, **kwargs: Any) -> Any:
    return args[0]


def _with_out(cases: Callable[[], Sequence[Case]], *made: Case) -> Callable[[], Sequence[Case]]:
    return lambda: (*cases(), *made)


def _view(
    name: str,
    parameters: str,
    description: str,
    cases: Callable[[], Sequence[Case]],
    oracle: Callable[..., Sequence[Any]],
    second: Callable[..., Sequence[Any]],
    mutants: tuple[Mutant, ...] = (),
    returns: str = "Tensor",
    overload: str = "",
    note: str = "",
    out_overload: str = "",
) -> Operator:
    signatures = [f"{name}{overload}({parameters}) -> {returns}"]
    if out_overload:
        signatures.append(f"{name}.{out_overload}({parameters}, *, out: Tensor![]) -> ()")
    aten = e.packet(name)
    return Operator(
        id=f"aten::{name}",
        family="view (no compute)",
        signatures=tuple(signatures),
        description=f"{description} No data is copied where the result is a view.",
        sources=(f"PyTorch 2.13, torch.ops.aten.{name}", "aten/src/ATen/native/TensorShape.cpp"),
        cases=functools.cache(cases),
        oracle=oracle,
        second=second,
        baseline=aten,
        baseline_name="aten",
        cost=_no_cost,
        tolerance=EXACT,
        mutants=(*mutants, _copies(aten)),
        kind="metadata",
        note=note,
    )


# --- inputs -------------------------------------------------------------------------------------


def _cases(*made: tuple[str, tuple[Any, ...]], **kwargs: Any) -> Callable[[], Sequence[Case]]:
    return lambda: tuple(Case(name, args, kwargs, draws=("base",)) for name, args in made)


_X = spec((4, 6))
_T = spec((4, 6), e.F16, strides=(1, 4))
_DEEP = spec((2, 3, 4, 5), e.BF16)
_AWAY = spec((5, 7), strides=(20, 2), offset=3)
_WIDE = spec((128, 256))
_DOT = spec((), e.F32)
_NONE = spec((0, 3))
_LONG = spec((64,), e.I64, fill="integers", low=-9, high=9)


# --- expand, expand_as --------------------------------------------------------------------------


def _expanded(self: torch.Tensor, size: Sequence[int]) -> Alias:
    added = len(size) - self.dim()
    shape, strides = [], []
    for i, wanted in enumerate(size):
        own = self.shape[i - added] if i >= added else 1
        stride = self.stride(i - added) if i >= added else 0
        shape.append(own if wanted == -1 else wanted)
        if own == 1 and shape[-1] != 1:
            stride = 0
        elif i < added and shape[-1] == 1:
            stride = 1
        strides.append(stride)
    return _alias(self, shape, strides)


def _expand_second(self: torch.Tensor, size: Sequence[int], implicit: bool = False) -> list[Any]:
    x = e.array(self)
    added = len(size) - x.ndim
    shape = [x.shape[i - added] if n == -1 else n for i, n in enumerate(size)]
    return [np.broadcast_to(x, shape).copy()]


_EXPAND = _view(
    "expand",
    "self: Tensor, size: int[], *, implicit: bool=False",
    "A view of `self` in which dimensions of size 1 are repeated to `size` with stride 0; -1 keeps "
    "a dimension, new dimensions are added in front. `implicit` changes nothing.",
    _cases(
        ("rows", (spec((1, 65)), (9, 65))),
        ("columns", (spec((9, 1), e.F16), (9, 33))),
        ("keep", (spec((3, 1), e.BF16), (-1, 4))),
        ("added", (_X, (2, 3, 4, 6))),
        ("added-of-one", (_X, (1, 4, 6))),
        ("transposed", (spec((1, 6), strides=(1, 1)), (4, 6))),
        ("offset", (spec((5, 1), strides=(20, 2), offset=3), (5, 8))),
        ("same", (_T, (4, 6))),
        ("from-zero-dimensions", (_DOT, (3, 2))),
        ("zero-dimensions", (_DOT, ())),
        ("to-empty", (spec((1, 3)), (0, 3))),
        ("integers", (spec((1, 64), e.I64, fill="integers", low=0, high=9), (4, 64))),
        ("large", (spec((1, 4096), e.BF16), (16, 4096))),
    ),
    lambda self, size, implicit=False: [_expanded(self, size)],
    _expand_second,
    (Mutant("repeated in new memory", lambda self, size: self.expand(size).contiguous()),),
)

_EXPAND_AS = _view(
    "expand_as",
    "self: Tensor, other: Tensor",
    "`expand` of `self` to the shape of `other`, whose values, strides and dtype do not matter.",
    _cases(
        ("rows", (spec((1, 65)), spec((9, 65)))),
        ("columns", (spec((9, 1), e.F16), spec((9, 33), e.BF16))),
        ("added", (_X, spec((2, 4, 6)))),
        ("transposed", (spec((1, 6), strides=(1, 1)), _T)),
        ("offset", (spec((5, 1), strides=(20, 2), offset=3), spec((5, 8)))),
        ("same", (_X, _T)),
        ("zero-dimensions", (_DOT, spec((3, 2), e.I32, fill="bits"))),
        ("to-empty", (spec((1, 3)), _NONE)),
        ("large", (spec((4096,), e.BF16), spec((16, 4096), e.BF16))),
    ),
    lambda self, other: [_expanded(self, other.shape)],
    lambda self, other: [np.broadcast_to(e.array(self), tuple(other.shape)).copy()],
    (Mutant("other returned", lambda self, other: other),),
)


# --- as_strided ---------------------------------------------------------------------------------


def _as_strided_second(
    self: torch.Tensor, size: Any, stride: Any, storage_offset: int | None = None
) -> list[Any]:
    storage = e.array(torch.empty(0, dtype=self.dtype).set_(self.untyped_storage()))
    start = self.storage_offset() if storage_offset is None else storage_offset
    index = np.full(tuple(size), start)
    for axis, (n, step) in enumerate(zip(size, stride, strict=True)):
        where = [1] * len(size)
        where[axis] = n
        index = index + (np.arange(n) * step).reshape(where)
    return [storage[index]]


_AS_STRIDED = _view(
    "as_strided",
    "self: Tensor, size: int[], stride: int[], storage_offset: int?=None",
    "A view of the storage of `self` with the given size, strides and storage offset, all in "
    "elements; the offset is absolute (not added to self's own, which is taken where None). The "
    "shape and strides of `self` do not matter; elements may overlap or leave gaps.",
    _cases(
        ("contiguous", (_X, (4, 6), (6, 1))),
        ("transpose", (_X, (6, 4), (1, 6))),
        ("subsample", (_WIDE, (64, 64), (512, 4))),
        ("offset", (_X, (2, 3), (6, 1), 7)),
        ("own-offset-kept", (_AWAY, (3, 4), (20, 2))),
        ("own-offset-replaced", (_AWAY, (3, 4), (20, 2), 0)),
        ("overlap", (spec((16,), e.F16), (7, 4), (2, 1))),
        ("stride-zero", (spec((16,), e.BF16), (3, 16), (0, 1))),
        ("diagonal", (spec((8, 8)), (8,), (9,))),
        ("zero-dimensions", (_X, (), (), 5)),
        ("empty", (_X, (0, 3), (3, 1))),
        ("deep", (_DEEP, (5, 4, 3, 2), (1, 5, 20, 60))),
        ("integers", (_LONG, (8, 8), (1, 8))),
    ),
    lambda self, size, stride, storage_offset=None: [_alias(self, size, stride, storage_offset)],
    _as_strided_second,
    (
        Mutant(
            "offset ignored",
            lambda self, size, stride, storage_offset=None: self.as_strided(size, stride),
        ),
        Mutant(
            "strides ignored",
            lambda self, size, stride, storage_offset=None: self.as_strided(
                size, contiguous_strides(size), self.storage_offset()
            ),
        ),
    ),
)


# --- narrow, select, t, unsqueeze ---------------------------------------------------------------


def _narrow_oracle(self: torch.Tensor, dim: int, start: int, length: int) -> list[Alias]:
    axis, begin = dim % self.dim(), start % max(self.shape[dim], 1) if start < 0 else start
    shape = list(self.shape)
    shape[axis] = length
    return [_alias(self, shape, self.stride(), self.storage_offset() + begin * self.stride(axis))]


def _narrow_second(self: torch.Tensor, dim: int, start: int, length: int) -> list[Any]:
    begin = start if start >= 0 else self.shape[dim] + start
    return [np.take(e.array(self), range(begin, begin + length), axis=dim)]


_NARROW = _view(
    "narrow",
    "self: Tensor, dim: int, start: int, length: int",
    "A view of `length` consecutive slices along `dim` from `start`. Negative `dim` and `start` "
    "count from the end.",
    _cases(
        ("first", (_X, 0, 1, 2)),
        ("last", (_X, 1, 2, 3)),
        ("negative-dim", (_DEEP, -2, 1, 2)),
        ("negative-start", (_X, 1, -3, 2)),
        ("transposed", (_T, 0, 2, 2)),
        ("offset", (_AWAY, 1, 3, 4)),
        ("whole", (_X, 0, 0, 4)),
        ("nothing", (_X, 1, 6, 0)),
        ("vector", (_LONG, 0, 60, 4)),
        ("large", (_WIDE, 0, 100, 28)),
    ),
    _narrow_oracle,
    _narrow_second,
    (
        Mutant("start ignored", lambda self, dim, start, length: self.narrow(dim, 0, length)),
        Mutant(
            "last dimension",
            lambda self, dim, start, length: self.narrow(-1, 0, min(length, self.shape[-1])),
        ),
    ),
)


def _select_oracle(self: torch.Tensor, dim: int, index: int) -> list[Alias]:
    axis = dim % self.dim()
    at = index % self.shape[axis]
    shape = [n for i, n in enumerate(self.shape) if i != axis]
    strides = [s for i, s in enumerate(self.stride()) if i != axis]
    return [_alias(self, shape, strides, self.storage_offset() + at * self.stride(axis))]


_SELECT = _view(
    "select",
    "self: Tensor, dim: int, index: int",
    "A view of one slice along `dim`, with that dimension removed. Negative `dim` and `index` "
    "count "
    "from the end.",
    _cases(
        ("first", (_X, 0, 1)),
        ("last", (_X, 1, 5)),
        ("negative", (_DEEP, -2, -1)),
        ("inner", (_DEEP, 1, 0)),
        ("transposed", (_T, 0, 3)),
        ("offset", (_AWAY, 1, -2)),
        ("vector", (_LONG, 0, 63)),
        ("of-empty", (spec((2, 0)), 0, 1)),
        ("large", (_WIDE, 1, 77)),
    ),
    _select_oracle,
    lambda self, dim, index: [np.take(e.array(self), index, axis=dim)],
    (
        Mutant("index ignored", lambda self, dim, index: self.select(dim, 0)),
        Mutant("dimension kept", lambda self, dim, index: self.select(dim, index).unsqueeze(dim)),
    ),
    overload=".int",
)

_TRANSPOSE = _view(
    "t",
    "self: Tensor",
    "Exchanges the two dimensions of a matrix, as a view; a vector or 0-d tensor is returned as it "
    "is (as a view of itself).",
    _cases(
        ("matrix", (_X,)),
        ("transposed", (_T,)),
        ("offset", (_AWAY,)),
        ("vector", (_LONG,)),
        ("vector-with-gaps", (spec((9,), e.F16, strides=(3,), offset=2),)),
        ("zero-dimensions", (_DOT,)),
        ("empty", (_NONE,)),
        ("row", (spec((1, 65), e.BF16),)),
        ("large", (_WIDE,)),
    ),
    lambda self: [_alias(self, reversed(self.shape), reversed(self.stride()))],
    lambda self: [e.array(self).T],
    (Mutant("not transposed", _unchanged),),
)


def _unsqueeze_oracle(self: torch.Tensor, dim: int) -> list[Alias]:
    axis = dim % (self.dim() + 1)
    shape, strides = list(self.shape), list(self.stride())
    stride = shape[axis] * strides[axis] if axis < self.dim() else 1
    return [
        _alias(self, [*shape[:axis], 1, *shape[axis:]], [*strides[:axis], stride, *strides[axis:]])
    ]


_UNSQUEEZE = _view(
    "unsqueeze",
    "self: Tensor, dim: int",
    "A view with a dimension of size 1 inserted before dimension `dim`, in [-n-1, n] for n "
    "dimensions; negative values count from the end of the result.",
    _cases(
        ("front", (_X, 0)),
        ("middle", (_X, 1)),
        ("back", (_X, 2)),
        ("negative", (_DEEP, -3)),
        ("transposed", (_T, -1)),
        ("offset", (_AWAY, 1)),
        ("zero-dimensions", (_DOT, 0)),
        ("zero-dimensions-negative", (_DOT, -1)),
        ("empty", (_NONE, 1)),
        ("integers", (_LONG, 1)),
    ),
    _unsqueeze_oracle,
    lambda self, dim: [np.expand_dims(e.array(self), dim)],
    (
        Mutant("always in front", lambda self, dim: self.unsqueeze(0)),
        Mutant("nothing inserted", _unchanged),
    ),
)


# --- reshape ------------------------------------------------------------------------------------


def _reshape_oracle(self: torch.Tensor, shape: Sequence[int]) -> list[Any]:
    known = int(np.prod([n for n in shape if n != -1], dtype=np.int64))
    full = [self.numel() // known if n == -1 else n for n in shape]
    try:
        view = self.view(full)
    except RuntimeError:  # its strides do not allow a view
        copy = wide(self).contiguous().view(full)
        return [Expected(copy, self.dtype, strides=contiguous_strides(full))]
    return [_alias(self, full, view.stride())]


_RESHAPE = _view(
    "reshape",
    "self: Tensor, shape: int[]",
    "The elements of `self` in row-major order in another shape; one -1 is inferred. A view of "
    "`self` where its strides allow one (every dimension of the result divides or merges "
    "dimensions "
    "that lie next to each other in memory), else a contiguous copy in self's dtype.",
    _cases(
        ("split", (_X, (2, 2, 6))),
        ("merge", (_X, (24,))),
        ("infer", (_X, (3, -1))),
        ("transposed-copies", (_T, (24,))),
        ("transposed-split-is-a-view", (_T, (2, 2, 6))),
        ("permuted-copies", (spec((4, 2, 3), e.BF16, strides=(1, 12, 4)), (4, 6))),
        ("gaps-copy", (_AWAY, (35,))),
        ("gaps-view", (_AWAY, (5, 7, 1))),
        ("expanded-copies", (spec((3, 8), strides=(0, 1)), (24,))),
        ("same", (_T, (4, 6))),
        ("to-zero-dimensions", (spec((1, 1)), ())),
        ("from-zero-dimensions", (_DOT, (1, -1))),
        ("empty", (_NONE, (3, 0))),
        ("integers", (_LONG, (8, 8))),
        ("large-copy", (spec((256, 128), strides=(1, 256)), (-1,))),
    ),
    _reshape_oracle,
    lambda self, shape: [e.array(self).reshape(shape)],
    (
        Mutant(
            "column-major",
            lambda self, shape: self.t().reshape(shape) if self.dim() == 2 else self.reshape(shape),
        ),
        Mutant("shape kept", _unchanged),
    ),
)


# --- resolve_conj, resolve_neg ------------------------------------------------------------------

_PLAIN = (
    ("matrix", (_X,)),
    ("transposed", (_T,)),
    ("offset", (_AWAY,)),
    ("complex", (spec((3, 5), _C),)),
    ("complex-transposed", (spec((3, 5), _C, strides=(1, 3)),)),
    ("zero-dimensions", (_DOT,)),
    ("empty", (_NONE,)),
    ("integers", (_LONG,)),
)


def _resolve(name: str, bit: str) -> Operator:
    return _view(
        name,
        "self: Tensor",
        f"A tensor without the lazy {bit} bit: `self` itself where its bit is not set, else a new "
        "tensor that holds the values the bit stands for.",
        _cases(*_PLAIN),
        lambda self: [_alias(self, self.shape, self.stride())],
        lambda self: [e.array(self)],
        (
            Mutant("changed", lambda self: -self.conj().resolve_conj()),
            Mutant("transposed", lambda self: self.mT if self.dim() > 1 else self.clone()),
        ),
        note="No tested tensor has its bit set: no layout of a case declares one.",
    )


# --- unsafe_split, unsafe_split_with_sizes ------------------------------------------------------


def _pieces(self: torch.Tensor, sizes: Sequence[int], dim: int) -> list[Alias]:
    axis, start, found = dim % self.dim(), 0, []
    for length in sizes:
        shape = list(self.shape)
        shape[axis] = length
        offset = self.storage_offset() + start * self.stride(axis)
        found.append(_alias(self, shape, self.stride(), offset))
        start += length
    return found


def _equal_sizes(self: torch.Tensor, split_size: int, dim: int) -> list[int]:
    n = self.shape[dim]
    if n == 0 or split_size == 0:
        return [0]
    return [min(split_size, n - start) for start in range(0, n, split_size)]


def _split_oracle(
    self: torch.Tensor, sizes: Sequence[int], dim: int, out: Sequence[torch.Tensor] | None
) -> list[Any]:
    """Views; or the values that are copied to `out`."""
    if out is None:
        return list(_pieces(self, sizes, dim))
    return [
        Expected(part, self.dtype)
        for part in torch.ops.aten.split_with_sizes(wide(self), list(sizes), dim)
    ]


def _out(*shapes: tuple[int, ...]) -> dict[str, Any]:
    return {"out": tuple(spec(shape) for shape in shapes)}


def _np_pieces(self: torch.Tensor, sizes: Sequence[int], dim: int) -> list[Any]:
    return list(np.split(e.array(self), np.cumsum(sizes)[:-1], axis=dim))


def _swapped_ends(*args: Any, out: Any = None) -> Any:
    parts = torch.ops.aten.unsafe_split_with_sizes(*args)
    return None if out is not None else list(reversed(parts))


def _split_along_another(self: torch.Tensor, split_size: int, dim: int = 0, out: Any = None) -> Any:
    return None if out is not None else torch.ops.aten.split(self, split_size, dim - 1)


def _not_split(self: torch.Tensor, *args: Any, out: Any = None) -> Any:
    return None if out is not None else [self]


_SPLIT = _view(
    "unsafe_split",
    "self: Tensor, split_size: int, dim: int=0",
    "Consecutive pieces of `split_size` along `dim`, the last one shorter where it does not "
    "divide; "
    "one piece where split_size exceeds the dimension. Each is a view; with `out`, "
    "each is copied to the tensor there.",
    _with_out(
        _cases(
            ("even", (_X, 2)),
            ("uneven", (_X, 4, 1)),
            ("negative-dim", (_DEEP, 3, -2)),
            ("larger", (_X, 100)),
            ("transposed", (_T, 3, 0)),
            ("offset", (_AWAY, 2, 1)),
            ("vector", (_LONG, 10)),
            ("empty", (_NONE, 2, 0)),
            ("large", (_WIDE, 64, 1)),
        ),
        Case("out", (_X, 4, 1), _out((4, 4), (4, 2)), overload=1, draws=("base",)),
    ),
    lambda self, split_size, dim=0, out=None: _split_oracle(
        self, _equal_sizes(self, split_size, dim), dim, out
    ),
    lambda self, split_size, dim=0, out=None: _np_pieces(
        self, _equal_sizes(self, split_size, dim), dim
    ),
    (
        Mutant("other dimension", _split_along_another),
        Mutant("not split", _not_split),
    ),
    returns="Tensor[]",
    overload=".Tensor",
    out_overload="Tensor_out",
)

_SPLIT_SIZES = _view(
    "unsafe_split_with_sizes",
    "self: Tensor, split_sizes: int[], dim: int=0",
    "Consecutive pieces of the given sizes along `dim`, which add up to it. Each is a view; with "
    "`out`, "
    "each is copied to the tensor there.",
    _with_out(
        _cases(
            ("even", (_X, (2, 2))),
            ("uneven", (_X, (1, 2, 3), 1)),
            ("negative-dim", (_DEEP, (3, 1), -2)),
            ("one", (_X, (4,))),
            ("with-nothing", (_X, (4, 0, 2), 1)),
            ("transposed", (_T, (1, 3), 0)),
            ("offset", (_AWAY, (3, 4), 1)),
            ("vector", (_LONG, (10, 54))),
            ("large", (_WIDE, (100, 156), 1)),
        ),
        Case("out", (_X, (1, 5), 1), _out((4, 1), (4, 5)), overload=1, draws=("base",)),
    ),
    lambda self, split_sizes, dim=0, out=None: _split_oracle(self, split_sizes, dim, out),
    lambda self, split_sizes, dim=0, out=None: _np_pieces(self, split_sizes, dim),
    (
        Mutant("pieces reversed", _swapped_ends),
        Mutant("not split", _not_split),
    ),
    returns="Tensor[]",
    out_overload="out",
)

OPERATORS = (
    _AS_STRIDED,
    _EXPAND,
    _EXPAND_AS,
    _NARROW,
    _RESHAPE,
    _resolve("resolve_conj", "conjugate"),
    _resolve("resolve_neg", "negative"),
    _SELECT,
    _TRANSPOSE,
    _SPLIT,
    _SPLIT_SIZES,
    _UNSQUEEZE,
)
