"""ATen quotients: div, div_ and floor_divide, with their rounding modes.

Oracle: torch in float64, complex128 or int64. Second statement: NumPy.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from kernelmark.operators.aten import elementwise as e
from kernelmark.operators.building import spec, wide
from kernelmark.operators.draws import Call
from kernelmark.operators.records import Case, Expected, Mutant, Operator, Tolerance

_INTEGERS: dict[str, Any] = {"fill": "integers", "low": -60, "high": 60}
_DIVISORS: dict[str, Any] = {"fill": "integers", "low": -7, "high": 8}
_TOLERANCE = Tolerance(
    limit=1.0,
    accumulator=torch.float32,
    why="rounding to the output costs 0.5; S allows a float32 quotient 2 ulp (reciprocal and "
    "product); integral quotients must be right wherever the dtype holds every integer",
)
_MODES = (
    "`rounding_mode` None is true division (integers and bool give float32); 'trunc' rounds the "
    "quotient toward zero, as C; 'floor' is Python's //: the floor of the exact quotient, not of "
    "the rounded one (with m = fmod(self, other), exact: (self - m) / other rounded to the nearest "
    "integer, less 1 where m is not 0 and has the other sign than `other`); for floats self / 0 is "
    "an infinity or NaN in every mode, and infinity floor-divided by anything is NaN. Integers "
    "stay integers under 'trunc' and 'floor'; integer division by zero is not tested."
)
_PROMOTION = (
    "Operands broadcast and are promoted as torch.result_type says; float16 and bfloat16 are "
    "computed in float32 and rounded once."
)


def _quotient(
    a: torch.Tensor, b: torch.Tensor, mode: str | None, common: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """(value, scale, mask) of a floating-point or complex quotient, from float64 operands."""
    if mode is None:
        value = a / b
        return value, e.condition(value, ulps=4.0 if value.is_complex() else 2.0), None
    value = torch.div(a, b, rounding_mode=mode)
    # Where a 16-bit dtype does not hold every integer, ATen rounds on the way: twice eps_out.
    coarse = torch.finfo(common).eps / torch.finfo(torch.float32).eps
    scale = e.condition(value, ulps=coarse if coarse > 1 else 0.0)
    if mode == "floor":
        return value, scale, None
    # Truncation depends on how the quotient was rounded, within a rounding of an integer.
    exact = a / b
    near = (exact - exact.round()).abs() <= torch.finfo(common).eps * exact.abs()
    return value, scale, ~near | (torch.fmod(a, b) == 0) | ~exact.isfinite()


def _oracle(name: str) -> Callable[..., Sequence[Expected]]:
    def oracle(
        self: torch.Tensor,
        other: Any,
        rounding_mode: str | None = "floor" if name == "floor_divide" else None,
        out: torch.Tensor | None = None,
    ) -> list[Expected]:
        common = e.promoted(self, other)
        if rounding_mode is None:
            common = e.float_dtype(common)
        dtype = self.dtype if name.endswith("_") else common
        a, b = (wide(torch.as_tensor(x, device=self.device)) for x in (self, other))
        if not (common.is_floating_point or common.is_complex):
            value = torch.div(a, b, rounding_mode=rounding_mode)
            return [Expected(e.exact_as(value, dtype), dtype)]
        oracle_dtype = torch.complex128 if common.is_complex else torch.float64
        value, scale, mask = _quotient(
            a.to(oracle_dtype), b.to(oracle_dtype), rounding_mode, common
        )
        normal = e.normal_inputs(*(x for x in (self, other) if isinstance(x, torch.Tensor)))
        return [Expected(value, dtype, scale, normal if mask is None else mask & normal)]

    return oracle


def _second(name: str) -> Callable[..., Sequence[Any]]:
    def second(
        self: torch.Tensor,
        other: Any,
        rounding_mode: str | None = "floor" if name == "floor_divide" else None,
        out: torch.Tensor | None = None,
    ) -> list[Any]:
        a, b = e.array(self), e.array(other)
        with np.errstate(all="ignore"):
            if rounding_mode is None:
                return [np.true_divide(a, b)]
            if rounding_mode == "floor":
                return [np.floor_divide(a, b)]
            if a.dtype.kind in "iu" and b.dtype.kind in "iu":
                return [np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b))]
            return [np.trunc(a / b)]

    return second


def prepare(call: Call, case: Case, generator: torch.Generator) -> None:
    """Takes zeros out of integer divisors; makes quotients next to integers where asked."""
    self, other = call.args[0], call.args[1]
    if not isinstance(other, torch.Tensor):
        return
    if not other.is_floating_point() and not other.is_complex():
        other.masked_fill_(other == 0, 3)
    if case.name.startswith("next-to-integers"):
        times = torch.arange(self.numel(), device=self.device).reshape(self.shape) % 97 + 1
        self.copy_(other.double() * times)


def _mode(name: str, mode: str | None) -> dict[str, Any]:
    return {} if name == "floor_divide" else {"rounding_mode": mode}


def _overload(name: str, tensor: bool, mode: bool, out: bool) -> int:
    """Index into `_signatures`."""
    if name == "floor_divide":
        return 2 if out else 0 if tensor else 1
    return (4 + mode) if out else (0 if tensor else 2) + mode


def _signatures(name: str) -> tuple[str, ...]:
    if name == "floor_divide":
        return (
            "floor_divide(self: Tensor, other: Tensor) -> Tensor",
            "floor_divide.Scalar(self: Tensor, other: Scalar) -> Tensor",
            "floor_divide.out(self: Tensor, other: Tensor, *, out: Tensor!) -> Tensor!",
        )
    t = "Tensor!" if name.endswith("_") else "Tensor"
    made = [
        f"{name}.Tensor(self: {t}, other: Tensor) -> {t}",
        f"{name}.Tensor_mode(self: {t}, other: Tensor, *, rounding_mode: str?) -> {t}",
        f"{name}.Scalar(self: {t}, other: Scalar) -> {t}",
        f"{name}.Scalar_mode(self: {t}, other: Scalar, *, rounding_mode: str?) -> {t}",
    ]
    if name == "div":
        made += [
            "div.out(self: Tensor, other: Tensor, *, out: Tensor!) -> Tensor!",
            "div.out_mode(self: Tensor, other: Tensor, *, rounding_mode: str?, out: Tensor!)"
            " -> Tensor!",
        ]
    return tuple(made)


def _small(name: str) -> list[Case]:
    inplace, floors = name.endswith("_"), name == "floor_divide"
    pairs = {
        **e.binary_layouts(),
        "float16-float32": (spec((5, 33), e.F16), spec((5, 33))),
        "bfloat16-int64": (spec((5, 33), e.BF16), spec((33,), e.I64, **_DIVISORS)),
    }
    if not floors and not inplace:
        pairs["int32-int32"] = (spec((5, 33), e.I32, **_INTEGERS), spec((33,), e.I32, **_DIVISORS))
        pairs["int64-int16"] = (spec((99,), e.I64, **_INTEGERS), spec((99,), e.I16, **_DIVISORS))
    if not floors:
        pairs["complex64"] = (spec((5, 33), e.C64), spec((5, 33), e.C64))
    if inplace:
        pairs = {n: p for n, p in pairs.items() if e.holds_result(p)}
    small = e.layout_cases(pairs)
    x = spec((9, 65))
    modes: tuple[str | None, ...] = ("floor",) if floors else ("floor", "trunc")
    for mode in modes:
        small += _rounding(name, mode)
    small += [
        Case("scalar", (spec((9, 65), e.F16), -2.5), overload=_overload(name, False, False, False)),
        Case("scalar-float32", (x, 0.7), overload=_overload(name, False, False, False)),
        Case("specials", (x, x), draws=("specials", "base")),
        Case("wide-range", (spec((9, 65), fill="wide"), spec((9, 65), fill="wide"))),
    ]
    if not inplace:
        out = {"out": spec((9, 65), strides=(1, 9))}
        small.append(Case("out", (x, x), out, overload=_overload(name, True, False, True)))
    if not floors:
        mode_none = {"rounding_mode": None}
        small.append(
            Case("mode-none", (x, x), mode_none, overload=_overload(name, True, True, False))
        )
    return small


def _rounding(name: str, mode: str | None) -> list[Case]:
    """Cases of one rounding mode: negative operands of every kind, quotients next to integers."""
    tensors = {
        "int64": (spec((9, 65), e.I64, **_INTEGERS), spec((9, 65), e.I64, **_DIVISORS)),
        "int32-transposed": (
            spec((9, 65), e.I32, strides=(1, 9), **_INTEGERS),
            spec((65,), e.I32, **_DIVISORS),
        ),
        "int16": (spec((257,), e.I16, **_INTEGERS), spec((1,), e.I16, **_DIVISORS)),
        "int8": (
            spec((257,), e.I8, fill="bits"),
            spec((257,), e.I8, fill="integers", low=2, high=7),
        ),
        "float32": (spec((9, 65)), spec((9, 65), fill="uniform", low=-0.5, high=0.5)),
        "float16": (spec((9, 65), e.F16), spec((9, 65), e.F16, fill="uniform", low=-2.0, high=2.0)),
        "bfloat16": (spec((9, 65), e.BF16), spec((65,), e.BF16)),
        "specials-float32": (spec((9, 65)), spec((9, 65))),
    }
    if mode == "floor":
        tensors["next-to-integers"] = (spec((9, 65)), spec((9, 65)))
    kwargs, overload = _mode(name, mode), _overload(name, True, name != "floor_divide", False)
    cases = [
        Case(
            f"{n}-{mode}",
            pair,
            kwargs,
            overload=overload,
            draws=("specials",) if n.startswith("specials") else ("base", "large"),
        )
        for n, pair in tensors.items()
    ]
    scalar = _overload(name, False, name != "floor_divide", False)
    cases += [
        Case(f"scalar-int-{mode}", (spec((129,), e.I64, **_INTEGERS), -7), kwargs, overload=scalar),
        Case(f"scalar-float-{mode}", (spec((129,)), 0.375), kwargs, overload=scalar),
    ]
    if not name.endswith("_"):
        out = {**kwargs, "out": spec((9, 65), e.I64, **_INTEGERS)}
        into = _overload(name, True, True, True)
        cases.append(Case(f"out-int-{mode}", tensors["int64"], out, overload=into))
    return cases


def _full(name: str) -> list[Case]:
    inplace, floors = name.endswith("_"), name == "floor_divide"
    pairs = {
        n: (a, b, origin)
        for n, (a, b, origin) in e.binary_full().items()
        if not inplace or a.shape == e.result_shape(Case(n, (a, b)))
    }
    full = [e.full_case(n, (a, b), origin) for n, (a, b, origin) in pairs.items()]
    ids: dict[str, Any] = {"fill": "integers", "low": -(2**40), "high": 2**40}
    heads: dict[str, Any] = {"fill": "integers", "low": -128, "high": 128}
    kwargs, overload = _mode(name, "floor"), _overload(name, True, not floors, False)
    full += [
        e.full_case(
            "token-positions-int64",
            (spec((4096, 8192), e.I64, **ids), spec((8192,), e.I64, **heads)),
            "paged cache: block numbers from positions, 4096 sequences of 8192 tokens",
            kwargs=kwargs,
            overload=overload,
        ),
        e.full_case(
            "pixel-cells-int32",
            (spec((64, 1024, 1024), e.I32, **_INTEGERS), spec((1024, 1024), e.I32, **_DIVISORS)),
            "Swin window numbers of 1024 x 1024 pixels, batch 64",
            kwargs=kwargs,
            overload=overload,
        ),
    ]
    return full


def _wrong(name: str, label: str, change: Callable[..., Any]) -> Mutant:
    """`change(self, other, mode)` in place of the operator; writes where the operator writes."""

    def mutant(
        self: torch.Tensor,
        other: Any,
        rounding_mode: str | None = "floor" if name == "floor_divide" else None,
        out: torch.Tensor | None = None,
    ) -> torch.Tensor:
        value = change(self, other, rounding_mode)
        target = self if name.endswith("_") else out
        return value if target is None else target.copy_(value)

    return Mutant(label, mutant)


def _like(value: torch.Tensor, a: Any, b: Any, mode: str | None) -> torch.Tensor:
    dtype = e.promoted(a, b)
    return value.to(e.float_dtype(dtype) if mode is None else dtype)


def _mode_ignored(a: Any, b: Any, mode: str | None) -> torch.Tensor:
    return _like(torch.div(a, b), a, b, mode)


def _modes_exchanged(a: Any, b: Any, mode: str | None) -> torch.Tensor:
    return torch.div(a, b, rounding_mode={"floor": "trunc", "trunc": "floor", None: None}[mode])


def _rounded_then_floored(a: Any, b: Any, mode: str | None) -> torch.Tensor:
    value = torch.div(a, b)
    return (
        _like(torch.floor(value), a, b, mode)
        if mode == "floor"
        else torch.div(a, b, rounding_mode=mode)
    )


def _product(a: Any, b: Any, mode: str | None) -> torch.Tensor:
    return _like(torch.mul(a, b), a, b, mode)


def _divided_by_itself(a: Any, b: Any, mode: str | None) -> torch.Tensor:
    return _like(torch.true_divide(b * torch.ones_like(a), a * torch.ones_like(a)), a, b, mode)


def _division(name: str, does: str) -> Operator:
    def dtype(case: Case) -> torch.dtype:
        if name.endswith("_"):
            return e.first_dtype(case)
        common = e.promoted_of_case(case)
        whole = name == "floor_divide" or case.kwargs.get("rounding_mode")
        return common if whole else e.float_dtype(common)

    return Operator(
        id=f"aten::{name}",
        family="pointwise-binary",
        signatures=_signatures(name),
        description=f"{does} {_MODES} {_PROMOTION}",
        sources=("PyTorch 2.13, torch.ops.aten", "aten/src/ATen/native/BinaryOps.cpp"),
        cases=functools.cache(lambda: (*_small(name), *_full(name))),
        oracle=_oracle(name),
        second=_second(name),
        baseline=e.packet(name),
        baseline_name="aten",
        cost=e.elementwise_cost(dtype, 1),
        tolerance=_TOLERANCE,
        prepare=prepare,
        mutants=(
            _wrong(name, "rounding mode ignored", _mode_ignored),
            _wrong(name, "trunc and floor exchanged", _modes_exchanged),
            _wrong(name, "floor of the rounded quotient", _rounded_then_floored),
            _wrong(name, "product", _product),
            _wrong(name, "operands exchanged", _divided_by_itself),
        ),
    )


OPERATORS = (
    _division("div", "out = self / other."),
    _division(
        "div_",
        "In place: self = self / other, rounded to the dtype of `self`; `other` is broadcast to "
        "the shape of `self`. Returns `self`.",
    ),
    _division("floor_divide", "out = div(self, other, rounding_mode='floor')."),
)
