"""ATen copies and casts: clone, contiguous, to, _to_copy, copy_.

Oracle: torch's own rounding of each value to the new dtype, and the strides that ATen gives; where
ATen returns its argument, an `Alias`. Second statement: NumPy, bfloat16 rounded bit by bit.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from kernelmark.operators.aten import elementwise as e
from kernelmark.operators.building import FLOATS, dtype_name, spec, wide
from kernelmark.operators.records import (
    EXACT,
    Alias,
    Case,
    Cost,
    Expected,
    Mutant,
    Operator,
    TensorSpec,
)

_F64 = torch.float64
_INTEGERS: dict[str, Any] = {"fill": "integers", "low": -100, "high": 100}
_FORMATS = (
    "`memory_format` preserve (or None) keeps self's strides where self is dense and does not "
    "overlap, and otherwise gives dense strides in the order of self's; contiguous_format is "
    "row-major, channels_last as named."
)
_CASTS = (
    "Casts round to nearest, ties to even, with overflow to infinity; floats go toward zero for "
    "integers (out-of-range values are not tested), integers wrap around, anything but 0 is True."
)


def _strides(self: torch.Tensor, memory_format: Any) -> tuple[int, ...]:
    kept = torch.preserve_format if memory_format is None else memory_format
    return tuple(torch.empty_like(self, device="meta", memory_format=kept).stride())


def _copied(self: torch.Tensor, dtype: torch.dtype, strides: Any) -> list[Any]:
    return [Expected(wide(self.to(dtype)), dtype, strides=strides)]


def _same(self: torch.Tensor) -> list[Any]:
    offset = int(self.storage_offset())
    return [Alias(0, tuple(self.shape), tuple(self.stride()), offset)]


def _round_bfloat16(x: np.ndarray) -> np.ndarray:
    """float32 values to the nearest bfloat16, ties to even, by their bits."""
    bits = x.astype(np.float32).view(np.uint32)
    up = (bits >> np.uint32(16)) & np.uint32(1)
    rounded = (bits + np.uint32(0x7FFF) + up) & np.uint32(0xFFFF0000)
    return np.where(np.isnan(x), x, rounded.astype(np.uint32).view(np.float32))


def _cast(x: np.ndarray, dtype: torch.dtype) -> np.ndarray:
    with np.errstate(all="ignore"):
        if dtype == torch.bfloat16:
            return _round_bfloat16(x)
        if dtype == torch.bool:
            return x != 0
        return x.astype(dtype_name(dtype))


# --- cases --------------------------------------------------------------------------------------


def _plain(*rest: Any, **kwargs: Any) -> list[Case]:
    """Layouts and dtypes, copied as they are."""
    layouts = e.unary_layouts()
    small = [
        Case(name, (x, *(r or x.dtype for r in rest)), kwargs, draws=("base",))
        for name, x in layouts.items()
    ]
    dtypes = (e.I64, e.I32, e.I16, e.U8)
    ints = {dtype_name(t): spec((9, 65), t, fill="bits") for t in dtypes}
    ints["bool"] = spec((9, 65), e.BOOL, fill="bool")
    ints["complex64"] = spec((9, 33), e.C64)
    small += [
        Case(name, (x, *(r or x.dtype for r in rest)), kwargs, draws=("base",))
        for name, x in ints.items()
    ]
    x = spec((37, 53))
    small.append(Case("specials", (x, *(r or x.dtype for r in rest)), kwargs, draws=("specials",)))
    return small


def _casts(place: Callable[[TensorSpec, torch.dtype], Case]) -> list[Case]:
    """Pairs of dtypes; `place` makes the case."""
    pairs = [
        (spec((37, 53)), e.F16),
        (spec((37, 53)), e.BF16),
        (spec((9, 65)), _F64),
        (spec((9, 65), _F64), e.F32),
        (spec((9, 65), e.F16), e.F32),
        (spec((9, 65), e.BF16, strides=(1, 9)), e.F32),
        (spec((9, 65), e.BF16), e.F16),
        (spec((9, 65), e.F16, strides=(130, 2), offset=1), e.BF16),
        (spec((9, 65), fill="uniform", low=-100.0, high=100.0), e.I32),
        (spec((9, 65), e.F16, fill="uniform", low=0.0, high=200.0), e.U8),
        (spec((9, 65), e.I64, **_INTEGERS), e.F32),
        (spec((9, 65), e.I32, fill="bits"), e.F32),
        (spec((9, 65), e.I32, fill="bits"), e.I8),
        (spec((9, 65), e.I16, fill="integers", low=-2, high=3), e.BOOL),
        (spec((9, 65), fill="integers", low=-2, high=3), e.BOOL),
        (spec((9, 65), e.BOOL, fill="bool"), e.BF16),
    ]
    return [place(x, dtype) for x, dtype in pairs]


def _named(
    x: TensorSpec, dtype: torch.dtype, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None
) -> Case:
    floats = x.fill == "normal"
    draws = (
        ("base", "small", "large", "specials") if floats and dtype.is_floating_point else ("base",)
    )
    laid = "-strided" if x.strides else "-bits" if x.fill == "bits" else ""
    return Case(
        f"{dtype_name(x.dtype)}-to-{dtype_name(dtype)}{laid}", args, kwargs or {}, draws=draws
    )


_TRANSPOSED = {
    "heads-to-rows": (
        spec((16, 1024, 16, 64), e.F16, strides=(1048576, 64, 65536, 1)),
        "GPT-2 medium attention output, heads brought beside each other, batch 16",
    ),
    "weight-transposed": (
        spec((4096, 14336), e.BF16, strides=(1, 4096)),
        "Llama 3 8B MLP weight, transposed",
    ),
    "nchw-from-nhwc": (
        spec((64, 256, 56, 56), e.F16, strides=(802816, 1, 14336, 256)),
        "ResNet-50 stage 1, batch 64, from channels last",
    ),
    "fused-gate": (
        spec((4096, 14336), e.BF16, strides=(28672, 1)),
        "Llama 3 8B, gate half of the fused projection",
    ),
    "keys-transposed": (
        spec((32, 16, 64, 1024), strides=(1048576, 65536, 1, 64)),
        "GPT-2 medium keys as columns, batch 32",
    ),
    "mask-expanded": (
        spec((16, 16, 1024, 1024), e.F16, strides=(1048576, 0, 1024, 1)),
        "attention mask repeated over 16 heads",
    ),
    "image-int64": (
        spec((2048, 4096), e.I64, strides=(1, 2048), **_INTEGERS),
        "token ids, sequences as columns",
    ),
}


def _cast_pairs() -> list[tuple[str, TensorSpec, torch.dtype, str]]:
    full = {n: (x, origin) for n, (x, origin) in {**e.unary_full(), **_TRANSPOSED}.items()}
    wanted = (
        ("llama-2-mlp-float32", e.BF16),
        ("llama-3-mlp", e.F32),
        ("gpt2-mlp", e.F32),
        ("unet-float32", e.F16),
        ("llama-3-fused-gate", e.F32),
        ("resnet-channels-last", e.F32),
        ("heads-to-rows", e.F32),
        ("image-int64", e.I32),
    )
    return [(f"{n}-to-{dtype_name(t)}", full[n][0], t, full[n][1]) for n, t in wanted]


def _cost(dtype_of: Callable[[Case], torch.dtype]) -> Callable[[Case], Cost]:
    def cost(case: Case) -> Cost:
        out = case.kwargs.get("out")
        x = case.tensors[0]
        return Cost(
            0, x.nbytes + (x.numel * dtype_of(case).itemsize if out is None else out.nbytes)
        )

    return cost


def _copy(
    name: str,
    signatures: tuple[str, ...],
    description: str,
    cases: Callable[[], list[Case]],
    oracle: Callable[..., Sequence[Any]],
    second: Callable[..., Sequence[Any]],
    mutants: tuple[Mutant, ...],
    cost: Callable[[Case], Cost],
    note: str = "",
) -> Operator:
    return Operator(
        id=f"aten::{name}",
        family="copy/cast",
        signatures=signatures,
        description=description,
        sources=(
            f"PyTorch 2.13, torch.ops.aten.{name}",
            "aten/src/ATen/native/TensorConversions.cpp",
        ),
        cases=functools.cache(lambda: tuple(cases())),
        oracle=oracle,
        second=second,
        baseline=e.packet(name),
        baseline_name="aten",
        cost=cost,
        tolerance=EXACT,
        mutants=mutants,
        note=note,
    )


# --- wrong copies -------------------------------------------------------------------------------


def _truncated(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Low bits of a float32 cut off on the way to a 16-bit float."""
    if x.dtype != torch.float32 or dtype not in (torch.float16, torch.bfloat16):
        return x.to(dtype)
    drop = 13 if dtype == torch.float16 else 16
    return (x.contiguous().view(torch.int32) >> drop << drop).view(torch.float32).to(dtype)


def _through_bfloat16(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return x.to(torch.bfloat16).to(dtype) if x.is_floating_point() else x.to(dtype)


def _rounded_integers(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return x.round().to(dtype) if x.is_floating_point() and dtype != torch.bool else x.to(dtype)


def _memory_order(x: torch.Tensor) -> torch.Tensor:
    """Elements in the order of the storage, under the shape of `x`."""
    room = x.untyped_storage().nbytes() // x.dtype.itemsize - x.storage_offset()
    if x.numel() > room:
        return x.clone()
    return x.as_strided((x.numel(),), (1,), x.storage_offset()).clone().view(x.shape)


# --- clone --------------------------------------------------------------------------------------


def _clone_cases() -> list[Case]:
    x, image = spec((33, 31), strides=(1, 33)), spec((2, 3, 8, 8), e.F16)
    return [
        *_plain(),
        Case("contiguous-format", (x,), {"memory_format": torch.contiguous_format}),
        Case("preserve-format", (x,), {"memory_format": torch.preserve_format}),
        Case("to-channels-last", (image,), {"memory_format": torch.channels_last}),
        Case("out", (x,), {"out": spec((33, 31))}, overload=1),
        *(e.full_case(n, (x,), origin) for n, (x, origin) in e.unary_full().items()),
        *(
            e.full_case(n, (x,), origin, kwargs={"memory_format": torch.contiguous_format})
            for n, (x, origin) in _TRANSPOSED.items()
        ),
    ]


def _clone_oracle(
    self: torch.Tensor, *, memory_format: Any = None, out: torch.Tensor | None = None
) -> list[Any]:
    strides = None if out is not None else _strides(self, memory_format)
    return _copied(self, self.dtype, strides)


_CLONE = _copy(
    "clone",
    (
        "clone(self: Tensor, *, memory_format: MemoryFormat?=None) -> Tensor",
        "clone.out(self: Tensor, *, memory_format: MemoryFormat?=None, out: Tensor!) -> Tensor!",
    ),
    f"A copy of `self` in new memory, bit by bit. {_FORMATS}",
    _clone_cases,
    _clone_oracle,
    lambda self, **kwargs: [e.array(self)],
    (
        Mutant("not copied", e.into_out(lambda self, memory_format=None: self.zero_())),
        Mutant("memory order", e.into_out(lambda self, memory_format=None: _memory_order(self))),
        Mutant(
            "format ignored", e.into_out(lambda self, memory_format=None: self.contiguous().clone())
        ),
    ),
    _cost(e.first_dtype),
)


# --- contiguous ---------------------------------------------------------------------------------


def _contiguous_cases() -> list[Case]:
    image = spec((2, 3, 8, 8), e.F16)
    last = spec((2, 3, 8, 8), e.F16, strides=(192, 1, 24, 3))
    return [
        *_plain(),
        Case("to-channels-last", (image,), {"memory_format": torch.channels_last}),
        Case("is-channels-last", (last,), {"memory_format": torch.channels_last}),
        *(e.full_case(n, (x,), origin) for n, (x, origin) in _TRANSPOSED.items()),
    ]


def _contiguous_oracle(
    self: torch.Tensor, *, memory_format: torch.memory_format = torch.contiguous_format
) -> list[Any]:
    if self.is_contiguous(memory_format=memory_format):
        return _same(self)
    return _copied(self, self.dtype, _strides(self, memory_format))


_CONTIGUOUS = _copy(
    "contiguous",
    ("contiguous(self: Tensor, *, memory_format: MemoryFormat=0) -> Tensor",),
    "`self` itself where it is contiguous in `memory_format` (0: torch.contiguous_format) already, "
    "else a copy, bit by bit, that is.",
    _contiguous_cases,
    _contiguous_oracle,
    lambda self, **kwargs: [e.array(self)],
    (
        Mutant("always copied", lambda self, **kwargs: self.contiguous(**kwargs).clone()),
        Mutant("never copied", lambda self, **kwargs: self),
        Mutant("memory order", lambda self, **kwargs: _memory_order(self)),
    ),
    _cost(e.first_dtype),
)


# --- _to_copy -----------------------------------------------------------------------------------


def _to_copy_cases() -> list[Case]:
    x = spec((33, 31), strides=(1, 33))
    return [
        *_plain(),
        *_casts(lambda x, t: _named(x, t, (x,), {"dtype": t})),
        Case("contiguous-format", (x,), {"dtype": e.F16, "memory_format": torch.contiguous_format}),
        Case("non-blocking", (x,), {"dtype": e.BF16, "non_blocking": True}),
        Case("out", (x,), {"out": spec((33, 31), e.F16)}, overload=1),
        *(e.full_case(n, (x,), o, kwargs={"dtype": t}) for n, x, t, o in _cast_pairs()),
    ]


def _to_copy_oracle(
    self: torch.Tensor,
    *,
    dtype: torch.dtype | None = None,
    non_blocking: bool = False,
    memory_format: Any = None,
    out: torch.Tensor | None = None,
) -> list[Any]:
    if out is not None:
        return _copied(self, out.dtype, None)
    return _copied(self, dtype or self.dtype, _strides(self, memory_format))


def _to_copy_second(
    self: torch.Tensor, *, dtype: Any = None, out: torch.Tensor | None = None, **kwargs: Any
) -> list[Any]:
    return [_cast(e.array(self), out.dtype if out is not None else dtype or self.dtype)]


def _cast_mutant(label: str, change: Callable[[torch.Tensor, torch.dtype], torch.Tensor]) -> Mutant:
    def mutant(
        self: torch.Tensor, *, dtype: Any = None, out: torch.Tensor | None = None, **kwargs: Any
    ) -> torch.Tensor:
        if out is not None:
            return out.copy_(change(self, out.dtype))
        return change(self, dtype or self.dtype)

    return Mutant(label, mutant)


_TO_COPY = _copy(
    "_to_copy",
    (
        "_to_copy(self: Tensor, *, dtype: ScalarType?=None, layout: Layout?=None, "
        "device: Device?=None, pin_memory: bool?=None, non_blocking: bool=False, "
        "memory_format: MemoryFormat?=None) -> Tensor",
        "_to_copy.out(self: Tensor, *, non_blocking: bool=False, "
        "memory_format: MemoryFormat?=None, out: Tensor!) -> Tensor!",
    ),
    f"A copy of `self` in new memory, cast to `dtype` (self's own where None), always copied. "
    f"{_CASTS} {_FORMATS}",
    _to_copy_cases,
    _to_copy_oracle,
    _to_copy_second,
    (
        _cast_mutant("bits cut off", _truncated),
        _cast_mutant("through bfloat16", _through_bfloat16),
        _cast_mutant("integers rounded", _rounded_integers),
        _cast_mutant("memory order", lambda x, t: _memory_order(x).to(t)),
    ),
    _cost(lambda case: case.kwargs.get("dtype") or e.first_dtype(case)),
)


# --- to -----------------------------------------------------------------------------------------


def _to_cases() -> list[Case]:
    x = spec((33, 31), strides=(1, 33))
    return [
        *_plain(None),
        *_casts(lambda x, t: _named(x, t, (x, t))),
        Case("copy", (x, e.F32, False, True)),
        Case("cast-contiguous", (x, e.F16, False, False, torch.contiguous_format)),
        Case("same-contiguous", (x, e.F32, False, False, torch.contiguous_format)),
        Case("non-blocking", (x, e.BF16, True)),
        *(e.full_case(n, (x, t), o) for n, x, t, o in _cast_pairs()),
    ]


def _suggested(self: torch.Tensor) -> torch.memory_format:
    """The format that ATen takes a tensor to have: row-major unless it is channels last."""
    last = self.dim() == 4 and self.is_contiguous(memory_format=torch.channels_last)
    return torch.channels_last if last and not self.is_contiguous() else torch.contiguous_format


def _to_oracle(
    self: torch.Tensor,
    dtype: torch.dtype,
    non_blocking: bool = False,
    copy: bool = False,
    memory_format: Any = None,
) -> list[Any]:
    kept = memory_format in (None, torch.preserve_format, _suggested(self))
    if dtype == self.dtype and not copy and kept:
        return _same(self)
    return _copied(self, dtype, _strides(self, memory_format))


_TO = _copy(
    "to",
    (
        "to.dtype(self: Tensor, dtype: ScalarType, non_blocking: bool=False, copy: bool=False, "
        "memory_format: MemoryFormat?=None) -> Tensor",
    ),
    "`self` itself where it has `dtype` and the memory format asked for and `copy` is False, "
    "else a "
    f"copy in new memory, cast to `dtype`. {_CASTS} {_FORMATS}",
    _to_cases,
    _to_oracle,
    lambda self, dtype, *rest: [_cast(e.array(self), dtype)],
    (
        Mutant("always copied", lambda self, dtype, *rest: self.to(dtype, copy=True)),
        Mutant("bits cut off", lambda self, dtype, *rest: _truncated(self, dtype)),
        Mutant("through bfloat16", lambda self, dtype, *rest: _through_bfloat16(self, dtype)),
        Mutant("integers rounded", lambda self, dtype, *rest: _rounded_integers(self, dtype)),
    ),
    _cost(lambda case: case.args[1]),
)


# --- copy_ --------------------------------------------------------------------------------------


def _like(x: TensorSpec, dtype: torch.dtype | None = None) -> TensorSpec:
    """A tensor of the same shape to copy into."""
    more = {"fill": "zeros"} if (dtype or x.dtype) not in FLOATS else {}
    return spec(x.shape, dtype or x.dtype, **more)


def _copy_in_cases() -> list[Case]:
    small = [Case(c.name, (_like(c.tensors[0]), *c.args), draws=c.draws) for c in _plain()]
    small += _casts(lambda x, t: _named(x, t, (_like(x, t), x)))
    small += [
        Case("into-transposed", (spec((33, 31), strides=(1, 33)), spec((33, 31)))),
        Case("into-gaps", (spec((9, 40), e.F16, strides=(160, 2), offset=3), spec((9, 40), e.F16))),
        Case("into-gaps-cast", (spec((9, 40), e.BF16, strides=(160, 2)), spec((9, 40)))),
        Case("broadcast-row", (spec((9, 65)), spec((65,)))),
        Case("broadcast-column", (spec((9, 65), e.F16), spec((9, 1)))),
        Case("broadcast-zero-dimensions", (spec((9, 65)), spec(()))),
        Case("non-blocking", (spec((9, 65)), spec((9, 65)), True)),
    ]
    full = [e.full_case(n, (_like(x, t), x), origin) for n, x, t, origin in _cast_pairs()[:5]]
    full += [
        e.full_case(n, (_like(x), x), origin)
        for n, (x, origin) in {**_TRANSPOSED, "gpt2-mlp": e.unary_full()["gpt2-mlp"]}.items()
    ]
    return small + full


def _copy_in_oracle(self: torch.Tensor, src: torch.Tensor, non_blocking: bool = False) -> list[Any]:
    return [Expected(wide(src.to(self.dtype)).expand(self.shape), self.dtype)]


def _copy_in_second(self: torch.Tensor, src: torch.Tensor, non_blocking: bool = False) -> list[Any]:
    return [np.broadcast_to(_cast(e.array(src), self.dtype), tuple(self.shape)).copy()]


def _copy_in_mutant(label: str, change: Callable[..., torch.Tensor]) -> Mutant:
    def mutant(self: torch.Tensor, src: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
        return self.copy_(change(src, self.dtype))

    return Mutant(label, mutant)


_COPY_IN = _copy(
    "copy_",
    ("copy_(self: Tensor!, src: Tensor, non_blocking: bool=False) -> Tensor!",),
    "In place: the elements of `self` become those of `src`, broadcast to self's shape and cast to "
    f"self's dtype. {_CASTS} Memory between the elements of a strided `self` stays untouched. "
    "Returns `self`.",
    _copy_in_cases,
    _copy_in_oracle,
    _copy_in_second,
    (
        _copy_in_mutant("bits cut off", _truncated),
        _copy_in_mutant("through bfloat16", _through_bfloat16),
        _copy_in_mutant("integers rounded", _rounded_integers),
        _copy_in_mutant("memory order", lambda x, t: _memory_order(x).to(t)),
    ),
    lambda case: Cost(
        0, case.tensors[1].nbytes + case.tensors[0].numel * case.tensors[0].dtype.itemsize
    ),
)

OPERATORS = (_CLONE, _CONTIGUOUS, _COPY_IN, _TO, _TO_COPY)
