"""ATen comparisons and selections of two tensors: eq, gt, le, fmax, heaviside. All exact.

Oracle: torch in the promoted dtype. Second statement: NumPy.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from kernelmark.operators.aten import elementwise as e
from kernelmark.operators.building import spec, wide
from kernelmark.operators.records import EXACT, Case, Expected, Mutant, Operator

_TIES: dict[str, Any] = {"fill": "integers", "low": -3, "high": 4}
_BOOL: dict[str, Any] = {"fill": "bool"}
_SOURCES = ("PyTorch 2.13, torch.ops.aten", "aten/src/ATen/native/BinaryOps.cpp")

NumpyFunction = Callable[[np.ndarray, np.ndarray], np.ndarray]


def _common(*values: Any) -> list[torch.Tensor]:
    """Operands as tensors, in the promoted dtype."""
    dtype = e.promoted(*values)
    device = next(v.device for v in values if isinstance(v, torch.Tensor))
    return [torch.as_tensor(v, device=device).to(dtype) for v in values]


def _unlike(like: bool) -> dict[str, e.Pair]:
    """Operands of integer, bool and unlike dtypes; `like` keeps to equal dtypes."""
    ints = {
        "int64": (spec((9, 65), e.I64, **_TIES), spec((65,), e.I64, **_TIES)),
        "int32-transposed": (
            spec((9, 65), e.I32, strides=(1, 9), **_TIES),
            spec((9, 65), e.I32, **_TIES),
        ),
        "int16-bits": (spec((513,), e.I16, fill="bits"), spec((513,), e.I16, fill="bits")),
        "bool": (spec((9, 65), e.BOOL, **_BOOL), spec((65,), e.BOOL, **_BOOL)),
    }
    mixed = {
        "float16-float32": (spec((5, 33), e.F16, **_TIES), spec((5, 33), **_TIES)),
        "bfloat16-int64": (spec((5, 33), e.BF16, **_TIES), spec((33,), e.I64, **_TIES)),
        "int32-float32": (spec((129,), e.I32, **_TIES), spec((129,), **_TIES)),
        "uint8-int8": (
            spec((300,), e.U8, fill="integers", low=0, high=256),
            spec((300,), e.I8, fill="integers", low=-128, high=128),
        ),
        "int64-zero-dimensions": (spec((65,), e.I64, **_TIES), spec((), **_TIES)),
    }
    return ints if like else {**ints, **mixed}


def _small(name: str) -> list[Case]:
    like = name == "heaviside"
    ties = {f"ties-{n}": pair for n, pair in e.binary_layouts(left=_TIES, right=_TIES).items()}
    small = e.layout_cases(ties)
    small += e.layout_cases({"rows-drawn": e.binary_layouts()["rows-float32"], **_unlike(like)})
    small += [
        Case("specials", (spec((37, 53)), spec((37, 53))), draws=("specials", "base")),
        Case("specials-float16", (spec((37, 53), e.F16), spec((53,), e.F16)), draws=("specials",)),
    ]
    return small


def _full(other: dict[str, Any], scalar: bool) -> list[Case]:
    full = [
        e.full_case(n, (a, b), origin)
        for n, (a, b, origin) in e.binary_full(left=_TIES, right=other).items()
    ]
    ids: dict[str, Any] = {"fill": "integers", "low": 0, "high": 16}
    if scalar:
        full.append(
            e.full_case(
                "padding-token",
                (spec((2048, 8192), e.I64, **ids), 0),
                "padding mask of 2048 sequences of 8192 token ids",
                overload=1,
            )
        )
    return full


# --- eq, gt, le ---------------------------------------------------------------------------------


def _compare_cases(name: str) -> Callable[[], Sequence[Case]]:
    @functools.cache
    def cases() -> Sequence[Case]:
        x, half = spec((9, 65), **_TIES), spec((9, 65), e.F16, **_TIES)
        ints = spec((130,), e.I64, **_TIES)
        small = _small(name)
        small += [
            Case("scalar", (half, 2), overload=1),
            Case("scalar-float", (x, -1.0), overload=1),
            Case("scalar-raises-dtype", (ints, 0.5), overload=1),
            Case("scalar-nan", (x, float("nan")), overload=1),
            Case("out", (x, x), {"out": spec((9, 65), e.BOOL, **_BOOL)}, overload=2),
            Case("out-float32", (x, x), {"out": spec((9, 65), strides=(1, 9))}, overload=2),
            Case("scalar-out", (ints, 1), {"out": spec((130,), e.BOOL, **_BOOL)}, overload=3),
        ]
        if name == "eq":
            pair = (spec((5, 33), e.C64, **_TIES), spec((5, 33), e.C64, **_TIES))
            small.append(Case("complex64", pair))
        return (*small, *_full(_TIES, scalar=True))

    return cases


def _compare_oracle(function: e.Function) -> Callable[..., Sequence[Expected]]:
    def oracle(self: torch.Tensor, other: Any, out: torch.Tensor | None = None) -> list[Expected]:
        value = function(*_common(self, other))
        return [Expected(value if out is None else wide(value.to(out.dtype)), _bool_or(out))]

    return oracle


def _bool_or(out: torch.Tensor | None) -> torch.dtype:
    return torch.bool if out is None else out.dtype


def _compare_second(function: NumpyFunction) -> Callable[..., Sequence[Any]]:
    def second(self: torch.Tensor, other: Any, out: torch.Tensor | None = None) -> list[Any]:
        a, b = (e.array(x) for x in _common(self, other))
        return [function(a, b)]

    return second


def _wrong(label: str, function: e.Function) -> Mutant:
    def mutant(self: torch.Tensor, other: Any) -> torch.Tensor:
        return function(*_common(self, other))

    return Mutant(label, e.into_out(mutant))


def _comparison(
    name: str, does: str, right: e.Function, second: NumpyFunction, wrong: dict[str, e.Function]
) -> Operator:
    aten = e.packet(name)
    return Operator(
        id=f"aten::{name}",
        family="pointwise-binary",
        signatures=(
            f"{name}.Tensor(self: Tensor, other: Tensor) -> Tensor",
            f"{name}.Scalar(self: Tensor, other: Scalar) -> Tensor",
            f"{name}.Tensor_out(self: Tensor, other: Tensor, *, out: Tensor!) -> Tensor!",
            f"{name}.Scalar_out(self: Tensor, other: Scalar, *, out: Tensor!) -> Tensor!",
        ),
        description=(
            f"{does} The result is bool, of the broadcast shape; with `out` of another dtype, 1 or "
            "0 in it. Operands are compared in the dtype that torch.result_type gives (a float "
            "scalar raises integers to float32; uint8 with int8 gives int16). Every comparison "
            "with NaN is false; -0 equals 0."
        ),
        sources=_SOURCES,
        cases=_compare_cases(name),
        oracle=_compare_oracle(right),
        second=_compare_second(second),
        baseline=aten,
        baseline_name="aten",
        cost=e.elementwise_cost(lambda case: torch.bool, 1),
        tolerance=EXACT,
        mutants=(
            *(_wrong(label, function) for label, function in wrong.items()),
            e.strides_ignored(aten),
        ),
    )


# --- fmax, heaviside ----------------------------------------------------------------------------


def _select_cases(name: str) -> Callable[[], Sequence[Case]]:
    @functools.cache
    def cases() -> Sequence[Case]:
        x, half = spec((9, 65), **_TIES), spec((9, 65), e.F16, **_TIES)
        small = _small(name)
        small += [
            Case("out", (half, half), {"out": spec((9, 65), e.F16)}, overload=1),
            Case(
                "out-transposed",
                (x, spec((65,))),
                {"out": spec((9, 65), strides=(1, 9))},
                overload=1,
            ),
        ]
        return (*small, *_full({}, scalar=False))

    return cases


def _fmax(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    if not a.is_floating_point():
        return torch.maximum(a, b)
    larger = torch.where(a > b, a, b)
    return torch.where(a.isnan(), b, torch.where(b.isnan(), a, larger))


def _heaviside(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.where(a == 0, b, (a > 0).to(b.dtype))


def _np_heaviside(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.select([a > 0, a == 0], [np.ones_like(b), b], np.zeros_like(b))


def _selection(
    name: str,
    second_operand: str,
    does: str,
    right: e.Function,
    second: NumpyFunction,
    wrong: dict[str, e.Function],
) -> Operator:
    aten = e.packet(name)

    def oracle(self: torch.Tensor, other: Any, out: torch.Tensor | None = None) -> list[Expected]:
        return [Expected(wide(right(*_common(self, other))), e.promoted(self, other))]

    return Operator(
        id=f"aten::{name}",
        family="pointwise-binary",
        signatures=(
            f"{name}(self: Tensor, {second_operand}: Tensor) -> Tensor",
            f"{name}.out(self: Tensor, {second_operand}: Tensor, *, out: Tensor!) -> Tensor!",
        ),
        description=does,
        sources=_SOURCES,
        cases=_select_cases(name),
        oracle=oracle,
        second=_compare_second(second),
        baseline=aten,
        baseline_name="aten",
        cost=e.elementwise_cost(e.promoted_of_case, 1),
        tolerance=EXACT,
        mutants=(
            *(_wrong(label, function) for label, function in wrong.items()),
            e.strides_ignored(aten),
        ),
    )


OPERATORS = (
    _comparison(
        "eq",
        "self == other.",
        torch.eq,
        np.equal,
        {
            "not equal": torch.ne,
            "at least": lambda a, b: a.real >= b.real,
            "within a tolerance": lambda a, b: (
                (a.to(b.dtype) - b.to(a.dtype)).abs() <= 1 if a.dtype != torch.bool else a == b
            ),
        },
    ),
    _comparison(
        "gt",
        "self > other.",
        torch.gt,
        np.greater,
        {"at least": torch.ge, "less": torch.lt, "not at most": lambda a, b: ~(a <= b)},
    ),
    _comparison(
        "le",
        "self <= other.",
        torch.le,
        np.less_equal,
        {"less": torch.lt, "at least": torch.ge, "not greater": lambda a, b: ~(a > b)},
    ),
    _selection(
        "fmax",
        "other",
        "The larger of self and other, element by element; where one of them is NaN, the other; "
        "NaN "
        "only where both are. Operands broadcast and are promoted as torch.result_type says; for "
        "integers and bool the maximum.",
        _fmax,
        np.fmax,
        {
            "NaN wins": torch.maximum,
            "minimum": torch.minimum,
            "self dropped": lambda a, b: (
                b + torch.zeros_like(a) if a.dtype != torch.bool else a & b
            ),
            "NaN of self wins": lambda a, b: torch.where(a.isnan(), a, torch.fmax(a, b)),
        },
    ),
    _selection(
        "heaviside",
        "values",
        "The step function: 0 where self < 0, the element of `values` where self == 0 (-0 too), 1 "
        "where self > 0, 0 where self is NaN. `self` and `values` broadcast and have one dtype.",
        _heaviside,
        _np_heaviside,
        {
            "half at zero": lambda a, b: (
                torch.where(a == 0, 0.5, (a > 0).float()).to(b.dtype) + torch.zeros_like(b)
            ),
            "values at negatives": lambda a, b: torch.where(a > 0, torch.ones_like(b), b),
            "zero counts as positive": lambda a, b: (
                (a >= 0).to(b.dtype) | torch.zeros_like(b)
                if b.dtype == torch.bool
                else (a >= 0).to(b.dtype) + torch.zeros_like(b)
            ),
            "NaN passes through": lambda a, b: torch.where(a != a, a, torch.heaviside(a, b)),
        },
    ),
)
