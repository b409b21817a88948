"""ATen operators that fill memory with one value or a ramp: zeros, full, arange, fill_ and kin.

Oracle: the value, cast to the result's dtype, and the strides that ATen gives. Second statement:
NumPy. All but `arange` are exact.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from kernelmark.operators.aten import elementwise as e
from kernelmark.operators.building import dtype_name, spec, wide
from kernelmark.operators.records import (
    EXACT,
    Case,
    Cost,
    Expected,
    Mutant,
    OnDevice,
    Operator,
    TensorSpec,
    Tolerance,
    contiguous_strides,
)

_HERE = {"device": OnDevice()}
_DTYPES = (e.F32, e.F16, e.BF16, torch.float64, e.I64, e.I32, e.I16, e.BOOL)
_FACTORY = (
    "dtype: ScalarType?=None, layout: Layout?=None, device: Device?=None, pin_memory: bool?=None"
)
_BITS: dict[str, Any] = {"fill": "integers", "low": 0, "high": 2}
#: sizes that models allocate and fill: (name, size, dtype, origin)
_LARGE = (
    ("llama-3-cache", (32, 2, 8, 8192, 128), e.BF16, "Llama 3 8B key and value cache, 8192 tokens"),
    ("gpt2-accumulator", (64, 1024, 1024), e.F32, "GPT-2 medium gradients of the stream, batch 64"),
    (
        "vocabulary-counts",
        (512, 128256),
        e.I32,
        "Llama 3 vocabulary, penalty counts of 512 requests",
    ),
    ("causal-mask", (64, 2048, 2048), e.BOOL, "masks of 64 sequences of 2048 tokens"),
    ("token-ids", (4096, 8192), e.I64, "4096 sequences of 8192 tokens"),
    ("sd-latents", (256, 4, 128, 128), e.F16, "Stable Diffusion XL latents, 256 images"),
    ("llama-2-states", (4096, 11008), e.F32, "Llama 2 7B, optimizer state of an MLP matrix"),
)


def _like_strides(self: torch.Tensor, memory_format: Any) -> tuple[int, ...]:
    """Strides of a new tensor like `self`: its own where dense, else in the same order."""
    kept = torch.preserve_format if memory_format is None else memory_format
    return tuple(torch.empty_like(self, device="meta", memory_format=kept).stride())


def _filled(
    size: Sequence[int],
    value: Any,
    dtype: torch.dtype,
    device: Any,
    strides: tuple[int, ...] | None = None,
) -> list[Expected]:
    one = wide(torch.tensor(value, dtype=dtype, device=device))
    wanted = contiguous_strides(size) if strides is None else strides
    return [Expected(one.expand(tuple(size)), dtype, strides=wanted)]


def _written(case: Case) -> Cost:
    """Bytes of the result, which an operator of this family names in one of three ways."""
    out = case.kwargs.get("out")
    first = case.args[0]
    inputs = [s for s in case.tensors if s is not out]
    if out is not None:
        return Cost(0, out.nbytes)
    if isinstance(first, TensorSpec) and not isinstance(case.args[-1], tuple):
        dtype, numel = case.kwargs.get("dtype") or first.dtype, first.numel
    else:
        size = case.args[-1] if inputs else first
        numel = math.prod(size) if isinstance(size, tuple) else 1
        dtype = case.kwargs.get("dtype") or (inputs[0].dtype if inputs else torch.float32)
    return Cost(0, numel * dtype.itemsize)


def _seedless(case: Case) -> Case:
    return Case(
        case.name, case.args, case.kwargs, case.tier, case.overload, case.origin, ("base",), True
    )


def _creation(
    name: str,
    signatures: tuple[str, ...],
    description: str,
    cases: Callable[[], list[Case]],
    oracle: Callable[..., Sequence[Expected]],
    second: Callable[..., Sequence[Any]],
    mutants: tuple[Mutant, ...],
    cost: Callable[[Case], Cost] = _written,
    tolerance: Tolerance = EXACT,
    note: str = "",
) -> Operator:
    return Operator(
        id=f"aten::{name}",
        family="creation/fill",
        signatures=signatures,
        description=description,
        sources=(
            f"PyTorch 2.13, torch.ops.aten.{name}",
            "aten/src/ATen/native/TensorFactories.cpp",
        ),
        cases=functools.cache(lambda: tuple(_seedless(case) for case in cases())),
        oracle=oracle,
        second=second,
        baseline=e.packet(name),
        baseline_name="aten",
        cost=cost,
        tolerance=tolerance,
        mutants=mutants,
        note=note,
    )


def _off_by(name: str, amount: float) -> Mutant:
    """The right tensor plus a number (or its negation, for bool)."""
    aten = e.packet(name)

    def mutant(*args: Any, **kwargs: Any) -> Any:
        result = aten(*args, **kwargs)
        return result.logical_not_() if result.dtype == torch.bool else result.add_(amount)

    return Mutant("another value", mutant)


def _first_half(name: str, other: float) -> Mutant:
    aten = e.packet(name)

    def mutant(*args: Any, **kwargs: Any) -> Any:
        result = aten(*args, **kwargs)
        flat = result if result.dim() else result.unsqueeze(0)
        flat[(flat.shape[0] + 1) // 2 :] = other
        return result

    return Mutant("first half only", mutant)


def _as_float32(name: str) -> Mutant:
    aten = e.packet(name)

    def mutant(*args: Any, out: Any = None, **kwargs: Any) -> Any:
        if out is not None:
            return aten(*args, out=out, **kwargs)
        return aten(*args, **kwargs).float()

    return Mutant("dtype ignored", mutant)


def _contiguous_only(name: str) -> Mutant:
    aten = e.packet(name)

    def mutant(*args: Any, out: Any = None, **kwargs: Any) -> Any:
        if out is not None:
            return aten(*args, out=out, **kwargs)
        return aten(*args, **kwargs).contiguous()

    return Mutant("layout ignored", mutant)


# --- zeros, full --------------------------------------------------------------------------------

_SIZES = ((37, 53), (2049,), (2, 3, 4, 5, 7), (1,), (), (0, 5))


def _sized(value: tuple[Any, ...]) -> list[Case]:
    """Cases of a factory that takes a size and, before its keywords, `value`."""
    small = [Case(f"{dtype_name(t)}", ((37, 53), *value), {"dtype": t, **_HERE}) for t in _DTYPES]
    small += [
        Case(
            f"size-{'x'.join(map(str, size)) or 'none'}", (size, *value), {"dtype": e.F16, **_HERE}
        )
        for size in _SIZES
    ]
    small += [
        Case("default-dtype", ((9, 65), *value), dict(_HERE)),
        Case("out", ((9, 65), *value), {"out": spec((9, 65), e.BF16)}, overload=1),
        Case(
            "out-transposed",
            ((9, 65), *value),
            {"out": spec((9, 65), e.I32, strides=(1, 9), **_BITS)},
            overload=1,
        ),
    ]
    full = [
        e.full_case(name, (size, *value), origin, kwargs={"dtype": dtype, **_HERE})
        for name, size, dtype, origin in _LARGE
    ]
    return small + full


def _full_oracle(
    size: Sequence[int],
    fill_value: Any,
    *,
    dtype: torch.dtype | None = None,
    device: Any = None,
    out: torch.Tensor | None = None,
) -> list[Expected]:
    if out is not None:
        return _filled(size, fill_value, out.dtype, out.device, tuple(out.stride()))
    inferred = {bool: torch.bool, int: torch.int64, float: torch.float32}[type(fill_value)]
    return _filled(size, fill_value, dtype or inferred, device)


def _full_second(size: Sequence[int], fill_value: Any, **kwargs: Any) -> list[Any]:
    return [np.full(tuple(size), fill_value)]


def _full_cases() -> list[Case]:
    named = {"float": 3.25, "int": 7, "bool": True, "infinity": math.inf, "negative": -2}
    more = [
        Case(f"inferred-{name}", ((9, 65), value), dict(_HERE)) for name, value in named.items()
    ]
    more += [
        Case("truncated", ((9, 65), 2.9), {"dtype": e.I32, **_HERE}),
        Case("rounded", ((9, 65), 0.1), {"dtype": e.F32, **_HERE}),
    ]
    return _sized((3,)) + more


_ZEROS = _creation(
    "zeros",
    (
        f"zeros(size: int[], *, {_FACTORY}) -> Tensor",
        "zeros.out(size: int[], *, out: Tensor!) -> Tensor!",
    ),
    "A new contiguous tensor of shape `size` on `device`, every element 0 (False); dtype float32 "
    "where None. With `out` (already of that shape) its elements are set, in its dtype and "
    "strides.",
    lambda: _sized(()),
    lambda size, **kwargs: _full_oracle(size, 0.0, **kwargs),
    lambda size, **kwargs: [np.zeros(tuple(size))],
    (_off_by("zeros", 1), _first_half("zeros", 1), _as_float32("zeros")),
)

_FULL = _creation(
    "full",
    (
        f"full(size: int[], fill_value: Scalar, *, {_FACTORY}) -> Tensor",
        "full.out(size: int[], fill_value: Scalar, *, out: Tensor!) -> Tensor!",
    ),
    "A new contiguous tensor of shape `size` on `device`, every element `fill_value` cast to dtype "
    "(floats toward zero for integers, nonzero to True for bool). Where dtype is None it is bool, "
    "int64 or float32, as the value is a bool, int or float. With `out` (already of that shape) "
    "its "
    "elements are set, in its dtype and strides.",
    _full_cases,
    _full_oracle,
    _full_second,
    (_off_by("full", 1), _first_half("full", 0), _as_float32("full")),
)


# --- zeros_like, ones_like, new_ones, scalar_tensor ---------------------------------------------


def _like_cases() -> list[Case]:
    layouts = e.unary_layouts()
    small = [Case(name, (x,)) for name, x in layouts.items()]
    x, image = spec((9, 65)), spec((2, 3, 8, 8), e.F16)
    last = {"memory_format": torch.channels_last}
    small += [
        Case("int64", (spec((9, 65), e.I64, **_BITS),)),
        Case("bool", (spec((9, 65), e.BOOL, fill="bool"),)),
        Case("dtype", (x,), {"dtype": e.I32}),
        Case("dtype-transposed", (layouts["transposed"],), {"dtype": e.BF16}),
        Case(
            "contiguous-format",
            (layouts["transposed"],),
            {"memory_format": torch.contiguous_format},
        ),
        Case("to-channels-last", (image,), last),
        Case("out", (x,), {"out": spec((9, 65))}, overload=1),
        Case("out-transposed", (x,), {"out": spec((9, 65), strides=(1, 9))}, overload=1),
    ]
    full = [e.full_case(name, (x,), origin) for name, (x, origin) in e.unary_full().items()]
    return small + full


def _like_oracle(value: float) -> Callable[..., Sequence[Expected]]:
    def oracle(
        self: torch.Tensor,
        *,
        dtype: torch.dtype | None = None,
        memory_format: Any = None,
        out: torch.Tensor | None = None,
    ) -> list[Expected]:
        if out is not None:
            return _filled(self.shape, value, out.dtype, out.device, tuple(out.stride()))
        strides = _like_strides(self, memory_format)
        return _filled(self.shape, value, dtype or self.dtype, self.device, strides)

    return oracle


def _like(name: str, value: float, word: str) -> Operator:
    return _creation(
        name,
        (
            f"{name}(self: Tensor, *, {_FACTORY}, memory_format: MemoryFormat?=None) -> Tensor",
            f"{name}.out(self: Tensor, *, memory_format: MemoryFormat?=None, out: Tensor!)"
            " -> Tensor!",
        ),
        f"A new tensor with the shape of `self`, every element {word}; self's dtype where None. "
        f"Its "
        "strides are self's own where self is dense and does not overlap, else dense in the "
        "order of "
        "self's strides (as torch.empty_like gives them), unless `memory_format` says otherwise. "
        "The "
        "values of `self` are not read.",
        _like_cases,
        _like_oracle(value),
        lambda self, **kwargs: [np.full(tuple(self.shape), value)],
        (
            _off_by(name, 1),
            _first_half(name, 1 - value),
            _as_float32(name),
            _contiguous_only(name),
            Mutant(
                "input copied", lambda self, **kwargs: e.packet(name)(self, **kwargs).copy_(self)
            ),
        ),
    )


def _new_ones_cases() -> list[Case]:
    x = spec((2, 3), e.BF16)
    small = [Case(f"size-{'x'.join(map(str, size)) or 'none'}", (x, size)) for size in _SIZES]
    small += [Case(f"from-{dtype_name(t)}", (spec((3,), t, **_BITS), (37, 53))) for t in _DTYPES]
    small += [
        Case("dtype", (x, (9, 65)), {"dtype": e.I32}),
        Case("from-transposed", (spec((33, 31), strides=(1, 33)), (33, 31))),
        Case("out", (x, (9, 65)), {"out": spec((9, 65), e.BF16)}, overload=1),
    ]
    full = [
        e.full_case(name, (spec((1,), dtype, **_BITS), size), origin)
        for name, size, dtype, origin in _LARGE
    ]
    return small + full


def _new_ones_oracle(
    self: torch.Tensor,
    size: Sequence[int],
    *,
    dtype: torch.dtype | None = None,
    out: torch.Tensor | None = None,
) -> list[Expected]:
    if out is not None:
        return _filled(size, 1, out.dtype, out.device, tuple(out.stride()))
    return _filled(size, 1, dtype or self.dtype, self.device)


_NEW_ONES = _creation(
    "new_ones",
    (
        f"new_ones(self: Tensor, size: int[], *, {_FACTORY}) -> Tensor",
        "new_ones.out(self: Tensor, size: int[], *, out: Tensor!) -> Tensor!",
    ),
    "A new contiguous tensor of shape `size`, every element 1, with the dtype (where None) and the "
    "device of `self`, whose values, shape and strides do not matter.",
    _new_ones_cases,
    _new_ones_oracle,
    lambda self, size, **kwargs: [np.ones(tuple(size))],
    (_off_by("new_ones", 1), _first_half("new_ones", 0), _as_float32("new_ones")),
)


def _scalar_cases() -> list[Case]:
    values = {
        "int": -7,
        "zero": 0,
        "large": 12345,
        "float": 3.140625,
        "true": True,
        "infinity": math.inf,
    }
    small = [Case(name, (value,), dict(_HERE)) for name, value in values.items()]
    small += [
        Case(dtype_name(t), (1 if t == e.BOOL else -3,), {"dtype": t, **_HERE}) for t in _DTYPES
    ]
    small += [
        Case("truncated", (2.9,), {"dtype": e.I32, **_HERE}),
        Case("out", (5,), {"out": spec((), e.I64, **_BITS)}, overload=1),
    ]
    return small


def _scalar_oracle(
    s: Any,
    *,
    dtype: torch.dtype | None = None,
    device: Any = None,
    out: torch.Tensor | None = None,
) -> list[Expected]:
    if out is not None:
        return _filled((), s, out.dtype, out.device)
    return _filled((), s, dtype or torch.float32, device)


_SCALAR_TENSOR = _creation(
    "scalar_tensor",
    (
        f"scalar_tensor(s: Scalar, *, {_FACTORY}) -> Tensor",
        "scalar_tensor.out(s: Scalar, *, out: Tensor!) -> Tensor!",
    ),
    "A new 0-d tensor on `device` that holds `s` cast to dtype (floats toward zero for integers). "
    "dtype is float32 where None, whatever the kind of `s`.",
    _scalar_cases,
    _scalar_oracle,
    lambda s, **kwargs: [np.asarray(s)],
    (_off_by("scalar_tensor", 1), _as_float32("scalar_tensor")),
    note="One element is bound by the launch alone: there is nothing to time, so no full case.",
)


# --- fill_, zero_ -------------------------------------------------------------------------------


def _in_place_inputs() -> dict[str, TensorSpec]:
    made = {n: x for n, x in e.unary_layouts().items() if n != "expanded"}
    made.update(
        {dtype_name(t): spec((9, 65), t, **_BITS) for t in (e.I64, e.I32, e.I16, e.U8, e.BOOL)}
    )
    made["complex64"] = spec((5, 33), e.C64)
    return made


def _in_place_full() -> dict[str, tuple[TensorSpec, str]]:
    return {
        **{name: (spec(size, dtype, **_BITS), origin) for name, size, dtype, origin in _LARGE},
        "fused-gate": e.unary_full()["llama-3-fused-gate"],
    }


def _fill_cases() -> list[Case]:
    x = spec((9, 65))
    small = [Case(name, (x, 3)) for name, x in _in_place_inputs().items()]
    small += [
        Case("infinity", (x, -math.inf)),
        Case("truncated", (spec((9, 65), e.I32, **_BITS), 2.9)),
        Case("rounded", (x, 0.1)),
        Case("tensor", (spec((9, 65), e.BF16), spec((), e.BF16)), overload=1),
        Case("tensor-float32-to-float16", (spec((9, 65), e.F16), spec(())), overload=1),
        Case("tensor-int-to-float", (x, spec((), e.I64, fill="integers", high=9)), overload=1),
        Case("tensor-strided", (spec((33, 31), strides=(1, 33)), spec(())), overload=1),
    ]
    value = {"causal-mask": True, "vocabulary-counts": -1}
    full = [
        e.full_case(name, (x, value.get(name, 3)), origin)
        for name, (x, origin) in _in_place_full().items()
    ]
    return small + full


def _fill_oracle(self: torch.Tensor, value: Any) -> list[Expected]:
    one = value if isinstance(value, torch.Tensor) else torch.tensor(value)
    return [Expected(wide(one.to(self.device, self.dtype)).expand(self.shape), self.dtype)]


def _fill_second(self: torch.Tensor, value: Any) -> list[Any]:
    number = value.item() if isinstance(value, torch.Tensor) else value
    return [np.full(tuple(self.shape), number)]


def _in_place_cost(case: Case) -> Cost:
    return Cost(0, case.tensors[0].numel * case.tensors[0].dtype.itemsize)


def _front_only(self: torch.Tensor, value: Any = 0) -> torch.Tensor:
    """As many elements from the storage's start, whatever the strides."""
    flat = self.as_strided((self.numel(),), (1,), 0)
    flat.fill_(value)
    return self


_FILL = _creation(
    "fill_",
    (
        "fill_.Scalar(self: Tensor!, value: Scalar) -> Tensor!",
        "fill_.Tensor(self: Tensor!, value: Tensor) -> Tensor!",
    ),
    "In place: every element of `self` becomes `value`, a number or a 0-d tensor of any dtype, "
    "cast "
    "to self's dtype (floats toward zero for integers, nonzero to True for bool). Memory between "
    "the elements of a strided `self` stays untouched. Returns `self`.",
    _fill_cases,
    _fill_oracle,
    _fill_second,
    (
        _off_by("fill_", 1),
        _first_half("fill_", 0),
        Mutant("strides and offset ignored", _front_only),
    ),
    cost=_in_place_cost,
)

_ZERO = _creation(
    "zero_",
    ("zero_(self: Tensor!) -> Tensor!",),
    "In place: every element of `self` becomes 0 (False). Memory between the elements of a strided "
    "`self` stays untouched. Returns `self`.",
    lambda: [
        *(Case(name, (x,)) for name, x in _in_place_inputs().items()),
        *(e.full_case(name, (x,), origin) for name, (x, origin) in _in_place_full().items()),
    ],
    lambda self: _fill_oracle(self, 0),
    lambda self: [np.zeros(tuple(self.shape))],
    (
        _off_by("zero_", 1),
        _first_half("zero_", 1),
        Mutant("strides and offset ignored", _front_only),
    ),
    cost=_in_place_cost,
)


# --- arange -------------------------------------------------------------------------------------


def _bounds(args: tuple[Any, ...]) -> tuple[Any, Any, Any]:
    """(start, end, step) of any overload's positional arguments."""
    if len(args) == 1:
        return 0, args[0], 1
    return args[0], args[1], args[2] if len(args) > 2 else 1


def _ramp_dtype(args: tuple[Any, ...], dtype: torch.dtype | None) -> torch.dtype:
    whole = all(isinstance(value, int) for value in args)
    return dtype or (torch.int64 if whole else torch.float32)


def _arange_oracle(
    *args: Any,
    dtype: torch.dtype | None = None,
    device: Any = None,
    out: torch.Tensor | None = None,
) -> list[Expected]:
    start, end, step = _bounds(args)
    given = out.dtype if out is not None else _ramp_dtype(args, dtype)
    where = out.device if out is not None else device
    count = math.ceil((end - start) / step)
    index = torch.arange(count, device=where)
    strides = (1,) if out is None else tuple(out.stride())
    if not given.is_floating_point:
        return [Expected(e.exact_as(start + index * step, given), given, strides=strides)]
    terms = index.double() * step
    scale = e.condition(terms, torch.full_like(terms, start))
    return [Expected(terms + start, given, scale, strides=strides)]


def _arange_second(*args: Any, **kwargs: Any) -> list[Any]:
    start, end, step = _bounds(args)
    return [np.arange(start, end, step)]


def _arange_cases() -> list[Case]:
    small = [
        Case(
            f"{dtype_name(t)}-{start}-{end}-{step}",
            (start, end, step),
            {"dtype": t, **_HERE},
            "small",
            2,
        )
        for t in (e.F32, e.F16, e.BF16, e.I64, e.I32, e.I16)
        for start, end, step in ((0, 128, 1), (3, 256, 5), (100, -20, -7))
    ]
    small += [
        Case("end", (1025,), dict(_HERE)),
        Case("end-float", (100.0,), dict(_HERE)),
        Case("start", (7, 300), dict(_HERE), overload=1),
        Case("fraction", (0.5, 9.75, 0.25), dict(_HERE), overload=2),
        Case("tenth", (0.0, 99.95, 0.1), dict(_HERE), overload=2),
        Case("one", (4, 5, 100), dict(_HERE), overload=2),
        Case("nothing", (4, 4, 1), dict(_HERE), overload=2),
        Case("out-end", (257,), {"out": spec((257,), e.I32, **_BITS)}, overload=4),
        Case("out", (2, 131, 2), {"out": spec((65,), e.F32, strides=(3,))}, overload=3),
    ]
    long = 1 << 25
    full = [
        ("positions-int64", (0, long, 1), e.I64, "positions of 33.5 million tokens"),
        ("positions-int32", (0, 2 * long, 1), e.I32, "positions of 67 million tokens"),
        ("slots-int64", (16, 16 * long, 16), e.I64, "first slots of 33.5 million cache blocks"),
        ("samples-float32", (0, long, 1), e.F32, "Whisper, sample numbers of 35 minutes"),
        ("timesteps-float32", (0.0, 1024.0, 2.0**-15), e.F32, "diffusion time steps, 33.5 million"),
        ("reversed-int64", (long, 0, -1), e.I64, "Transformer-XL relative positions"),
        (
            "slopes-bfloat16",
            (0, 256, 2.0**-17),
            e.BF16,
            "ALiBi distances in bfloat16, 33.5 million",
        ),
    ]
    return small + [
        e.full_case(name, args, origin, kwargs={"dtype": dtype, **_HERE}, overload=2)
        for name, args, dtype, origin in full
    ]


def _arange_cost(case: Case) -> Cost:
    start, end, step = _bounds(case.args)
    out = case.kwargs.get("out")
    dtype = out.dtype if out is not None else _ramp_dtype(case.args, case.kwargs.get("dtype"))
    count = math.ceil((end - start) / step)
    return Cost(2 * count, count * dtype.itemsize)


def _ramp(label: str, change: Callable[[Any, Any, Any, torch.Tensor], torch.Tensor]) -> Mutant:
    def mutant(*args: Any, out: torch.Tensor | None = None, **kwargs: Any) -> torch.Tensor:
        right = e.packet("arange")(*args, **kwargs) if out is None else out
        value = change(*_bounds(args), torch.arange(right.numel(), device=right.device))
        return value.to(right.dtype) if out is None else out.copy_(value)

    return Mutant(label, mutant)


_ARANGE = _creation(
    "arange",
    (
        f"arange(end: Scalar, *, {_FACTORY}) -> Tensor",
        f"arange.start(start: Scalar, end: Scalar, *, {_FACTORY}) -> Tensor",
        f"arange.start_step(start: Scalar, end: Scalar, step: Scalar=1, *, {_FACTORY}) -> Tensor",
        "arange.start_out(start: Scalar, end: Scalar, step: Scalar=1, *, out: Tensor!) -> Tensor!",
        "arange.out(end: Scalar, *, out: Tensor!) -> Tensor!",
    ),
    "The numbers start + i * step for i from 0 to ceil((end - start) / step) - 1, as a new 1-d "
    "tensor on `device`; start is 0 and step 1 where not given. Each is computed from i (not by "
    "repeated addition), in int64 for integer dtypes and in float32 or better for floats, and "
    "rounded once. dtype, where None, is int64 if all bounds are ints, else float32.",
    _arange_cases,
    _arange_oracle,
    _arange_second,
    (
        _ramp("step ignored", lambda start, end, step, i: start + i),
        _ramp("start ignored", lambda start, end, step, i: i * step),
        _ramp("counted from one", lambda start, end, step, i: start + (i + 1) * step),
        _ramp("counted down", lambda start, end, step, i: start + i.flip(0) * step),
    ),
    cost=_arange_cost,
    tolerance=Tolerance(
        limit=1.0,
        accumulator=torch.float32,
        why="integers are exact; floats round i, i * step and the sum in float32, then once more",
    ),
)

OPERATORS = (
    _ARANGE,
    _FILL,
    _FULL,
    _NEW_ONES,
    _like("ones_like", 1, "1 (True)"),
    _SCALAR_TENSOR,
    _ZERO,
    _ZEROS,
    _like("zeros_like", 0, "0 (False)"),
)
