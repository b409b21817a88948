"""ATen functions of one floating-point tensor, element by element.

Oracle: the function in float64, with |x f'(x)| from automatic differentiation as its condition.
Second statement: NumPy and SciPy. Facts about each function stand in one table.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from kernelmark.operators.aten import elementwise as e
from kernelmark.operators.building import spec, wide
from kernelmark.operators.records import Case, Expected, Mutant, Operator

_PROMOTION = (
    "The result has the shape of `self` and its dtype; integers and bool give float32. float16 and "
    "bfloat16 are computed in float32 and rounded once. NaN gives NaN."
)
_NORMAL: dict[str, Any] = {"fill": "normal"}

Array = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Unary:
    """What is particular to one function. `domain`: the fill that keeps to where it is defined.

    Results within a factor `headroom` of float32's maximum are not graded: there the exponential
    overflows before the function does.
    """

    name: str
    function: e.Function  # on float64
    second: Array
    does: str
    source: str
    wrong: dict[str, e.Function]  # label -> a wrong function, on float64
    domain: dict[str, Any] = field(default_factory=lambda: dict(_NORMAL))
    ulps: float = 2.0
    flops: int = 4
    integers: tuple[float, float] | None = (-8, 9)  # range of integer inputs; None: refused
    subnormal: bool = True  # whether a subnormal input has a result that all chips agree on
    headroom: float = 1.0
    slope: e.Function | None = None  # |x f'(x)| or a bound; None: by differentiation
    note: str = ""


# --- functions that torch and SciPy do not name -------------------------------------------------


def _silu(x: torch.Tensor) -> torch.Tensor:
    return x * torch.sigmoid(x)


def _mish(x: torch.Tensor) -> torch.Tensor:
    return x * torch.tanh(torch.nn.functional.softplus(x))


def _hardsigmoid(x: torch.Tensor) -> torch.Tensor:
    return (x + 3).clamp(0, 6) / 6


def _scipy(name: str) -> Array:
    def function(x: np.ndarray) -> np.ndarray:
        import scipy.special

        return getattr(scipy.special, name)(x)

    return function


def _np_silu(x: np.ndarray) -> np.ndarray:
    exponential = np.exp(-np.abs(x))
    return x * np.where(x >= 0, 1.0, exponential) / (1 + exponential)


def _np_mish(x: np.ndarray) -> np.ndarray:
    # tanh(log(1 + t)) = t (t + 2) / (t (t + 2) + 2)
    grown = np.exp(np.minimum(x, 40.0)) * (np.exp(np.minimum(x, 40.0)) + 2)
    return x * grown / (grown + 2)


def _np_hardsigmoid(x: np.ndarray) -> np.ndarray:
    return np.where(np.isnan(x), x, np.clip(x / 6 + 0.5, 0.0, 1.0))


def _tanh_silu(x: torch.Tensor) -> torch.Tensor:
    """GELU's tanh form, a common confusion."""
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def _i0_series(x: torch.Tensor) -> torch.Tensor:
    """Five terms of the power series: right near zero only."""
    q = x * x / 4
    return 1 + q * (1 + q / 4 * (1 + q / 9 * (1 + q / 16)))


def _exact_i0(x: torch.Tensor) -> torch.Tensor:
    """The power series up to 20, the asymptotic one beyond (Abramowitz and Stegun 9.6.10, 9.7.1).

    torch compiles its own for float64 when it is first called on a GPU, which takes a second.
    """
    size = x.abs()
    quarter = size.clamp_max(20.0).square_().div_(4)
    near = torch.ones_like(size)
    for k in range(50, 0, -1):
        near.mul_(quarter).div_(k * k).add_(1)
    large = size.clamp_min(20.0)
    far = torch.ones_like(size)
    for k in range(30, 0, -1):
        far.mul_((2 * k - 1) ** 2 / (8 * k)).div_(large).add_(1)
    far *= torch.exp(large) / torch.sqrt(2 * math.pi * large)
    return torch.where(size > 20.0, far, near)  # infinities give NaN, as ATen does


def _i0_slope(x: torch.Tensor) -> torch.Tensor:
    """An upper bound of x I1(x), at most twice it: Amos (1974) bounds I1(x) / I0(x)."""
    return x * x / (0.5 + torch.sqrt(x * x + 0.25)) * _exact_i0(x)


_TABLE = (
    Unary(
        "rsqrt",
        torch.rsqrt,
        lambda x: 1 / np.sqrt(x),
        "1 / sqrt(self); +inf at 0 (-inf at -0), NaN for negative values, 0 at +inf.",
        "UnaryOps.cpp, cuda/UnaryOpsKernel.cu",
        {
            "square root": torch.sqrt,
            "reciprocal only": torch.reciprocal,
            "sign of the input ignored": lambda x: torch.rsqrt(x.abs()),
        },
        domain={"fill": "uniform", "low": 0.01, "high": 100.0},
        flops=2,
        integers=(1, 1000),
        subnormal=False,
    ),
    Unary(
        "silu",
        _silu,
        _np_silu,
        "self * sigmoid(self) = self / (1 + exp(-self)). Large negative values give -0, not NaN.",
        "Activation.cpp",
        {
            "sigmoid alone": torch.sigmoid,
            "tanh form of GELU": _tanh_silu,
            "exp without overflow guard": lambda x: x * torch.exp(x) / (1 + torch.exp(x)),
            "hard sigmoid": lambda x: x * _hardsigmoid(x),
        },
        integers=None,
        note="-inf gives NaN (-inf times 0), as ATen does.",
    ),
    Unary(
        "acosh",
        torch.acosh,
        np.arccosh,
        "Inverse hyperbolic cosine; NaN below 1, +inf at +inf.",
        "UnaryOps.cpp",
        {
            "inverse hyperbolic sine": torch.asinh,
            "logarithm of 2 x": lambda x: torch.log(2 * x),
            "clamped to the domain": lambda x: torch.acosh(x.clamp_min(1)),
        },
        domain={"fill": "uniform", "low": 1.0, "high": 20.0},
        integers=(1, 1000),
    ),
    Unary(
        "asin",
        torch.asin,
        np.arcsin,
        "Inverse sine in radians, in [-pi/2, pi/2]; NaN outside [-1, 1].",
        "UnaryOps.cpp",
        {
            "inverse cosine": torch.acos,
            "inverse tangent": torch.atan,
            "clamped to the domain": lambda x: torch.asin(x.clamp(-1, 1)),
        },
        domain={"fill": "uniform", "low": -1.0, "high": 1.0},
        integers=(-1, 2),
    ),
    Unary(
        "cos",
        torch.cos,
        np.cos,
        "Cosine of radians, with a full argument reduction; NaN at infinities.",
        "UnaryOps.cpp",
        {
            "sine": torch.sin,
            "four terms of the series": lambda x: 1 - x**2 / 2 + x**4 / 24 - x**6 / 720,
            "degrees": lambda x: torch.cos(torch.deg2rad(x)),
        },
    ),
    Unary(
        "sin",
        torch.sin,
        np.sin,
        "Sine of radians, with a full argument reduction; NaN at infinities.",
        "UnaryOps.cpp",
        {
            "cosine": torch.cos,
            "four terms of the series": lambda x: x - x**3 / 6 + x**5 / 120 - x**7 / 5040,
            "degrees": lambda x: torch.sin(torch.deg2rad(x)),
        },
    ),
    Unary(
        "cosh",
        torch.cosh,
        np.cosh,
        "Hyperbolic cosine (exp(self) + exp(-self)) / 2; +inf at infinities.",
        "UnaryOps.cpp",
        {
            "hyperbolic sine": torch.sinh,
            "small term dropped": lambda x: torch.exp(x.abs()) / 2,
            "sum not halved": lambda x: torch.exp(x) + torch.exp(-x),
        },
        headroom=4.0,
    ),
    Unary(
        "erfc",
        torch.erfc,
        _scipy("erfc"),
        "Complementary error function 1 - erf(self), accurate in relative terms for large values "
        "(not computed as 1 - erf).",
        "UnaryOps.cpp",
        {
            "error function": torch.erf,
            "one minus erf in float32": lambda x: (1 - torch.erf(x.float())).double(),
            "absolute value": lambda x: torch.erfc(x.abs()),
        },
        ulps=3.0,
        integers=(-3, 4),
    ),
    Unary(
        "i0",
        _exact_i0,
        _scipy("i0"),
        "Modified Bessel function of the first kind, order 0; even, 1 at 0, NaN at infinities.",
        "UnaryOps.cpp; cephes i0",
        {
            "exponentially scaled": torch.special.i0e,
            "order 1": torch.special.i1,
            "five terms of the series": _i0_series,
        },
        ulps=4.0,
        flops=40,
        headroom=64.0,
        slope=_i0_slope,
    ),
    Unary(
        "log10",
        torch.log10,
        np.log10,
        "Logarithm to base 10; -inf at 0, NaN for negative values.",
        "UnaryOps.cpp",
        {
            "natural logarithm": torch.log,
            "logarithm to base 2": torch.log2,
            "sign of the input ignored": lambda x: torch.log10(x.abs()),
        },
        domain={"fill": "uniform", "low": 0.001, "high": 1000.0},
        integers=(1, 1000),
        subnormal=False,
    ),
    Unary(
        "special_entr",
        torch.special.entr,
        _scipy("entr"),
        "Entropy term: -self * ln(self) for positive values, 0 at 0, -inf for negative values.",
        "UnaryOps.cpp, special_entr",
        {
            "logarithm to base 2": lambda x: -x * torch.log2(x),
            "sign turned": lambda x: -torch.special.entr(x),
            "negative values give 0": lambda x: torch.special.entr(x.clamp_min(0)),
        },
        domain={"fill": "uniform", "low": 0.0, "high": 4.0},
        integers=(-2, 9),
    ),
    Unary(
        "hardsigmoid",
        _hardsigmoid,
        _np_hardsigmoid,
        "min(max(self + 3, 0), 6) / 6.",
        "Activation.cpp",
        {
            "slope of one fifth": lambda x: (0.2 * x + 0.5).clamp(0, 1),
            "not divided by 6": lambda x: (x + 3).clamp(0, 6),
            "upper limit dropped": lambda x: (x + 3).clamp_min(0) / 6,
        },
        flops=4,
        integers=None,
    ),
    Unary(
        "mish",
        _mish,
        _np_mish,
        "self * tanh(ln(1 + exp(self))); equals self for large values (no overflow).",
        "Activation.cpp",
        {
            "softplus alone": torch.nn.functional.softplus,
            "tanh dropped": lambda x: x * torch.nn.functional.softplus(x),
            "silu": _silu,
            "exp without overflow guard": lambda x: x * torch.tanh(torch.log(1 + torch.exp(x))),
        },
        ulps=3.0,
        flops=8,
        integers=None,
    ),
)


def _oracle(f: Unary) -> Callable[..., Sequence[Expected]]:
    def oracle(self: torch.Tensor, out: torch.Tensor | None = None) -> list[Expected]:
        x = wide(self).to(torch.float64)
        value = f.function(x)
        slope = f.slope(x) if f.slope else e.sensitivity(f.function, x)
        scale = e.condition(value, slope, ulps=f.ulps)
        scale += e.FLUSH * torch.nan_to_num(x, 0.0, 0.0, 0.0).abs()  # a flushed factor of x
        mask = None if f.subnormal else e.normal_inputs(self)
        if f.headroom > 1:
            top = torch.finfo(torch.float32).max
            mask = (value.abs() < top / f.headroom) | (value.abs() > top) | value.isnan()
        return [Expected(value, e.float_dtype(self.dtype), scale, mask)]

    return oracle


def _second(f: Unary) -> Callable[..., Sequence[Any]]:
    def second(self: torch.Tensor, out: torch.Tensor | None = None) -> list[Any]:
        with np.errstate(all="ignore"):
            return [f.second(self.double().cpu().numpy())]

    return second


def _cases(f: Unary) -> Callable[[], Sequence[Case]]:
    @functools.cache
    def cases() -> Sequence[Case]:
        small = e.layout_cases(e.unary_layouts(**f.domain))
        domain = {**f.domain}
        small += [
            Case("anywhere", (spec((9, 65)),), draws=("base", "large", "structured")),
            Case("anywhere-float16", (spec((9, 65), e.F16),), draws=("base", "large")),
            Case("wide-range", (spec((9, 65), fill="wide"),), draws=("base",)),
            Case("specials", (spec((37, 53)),), draws=("specials", "base")),
            Case("specials-bfloat16", (spec((37, 53), e.BF16),), draws=("specials",)),
            Case(
                "out",
                (spec((9, 65), e.BF16, **domain),),
                {"out": spec((9, 65), e.BF16)},
                "small",
                1,
            ),
            Case(
                "out-transposed",
                (spec((9, 65), **domain),),
                {"out": spec((9, 65), strides=(1, 9))},
                overload=1,
            ),
        ]
        if f.integers is not None:
            low, high = f.integers
            ints: dict[str, Any] = {"fill": "integers", "low": low, "high": high}
            small += [
                Case("int32", (spec((9, 65), e.I32, **ints),)),
                Case("int64-transposed", (spec((9, 65), e.I64, strides=(1, 9), **ints),)),
            ]
        full = [e.full_case(n, (x,), origin) for n, (x, origin) in e.unary_full(**f.domain).items()]
        return (*small, *full)

    return cases


def _wrong(label: str, function: e.Function) -> Mutant:
    def mutant(self: torch.Tensor) -> torch.Tensor:
        return function(self.double()).to(e.float_dtype(self.dtype))

    return Mutant(label, e.into_out(mutant))


def _operator(f: Unary) -> Operator:
    aten = e.packet(f.name)
    return Operator(
        id=f"aten::{f.name}",
        family="pointwise-unary",
        signatures=(
            f"{f.name}(self: Tensor) -> Tensor",
            f"{f.name}.out(self: Tensor, *, out: Tensor!) -> Tensor!",
        ),
        description=f"{f.does} {_PROMOTION}",
        sources=(f"PyTorch 2.13, torch.ops.aten.{f.name}", f"aten/src/ATen/native/{f.source}"),
        cases=_cases(f),
        oracle=_oracle(f),
        second=_second(f),
        baseline=aten,
        baseline_name="aten",
        cost=e.elementwise_cost(lambda case: e.float_dtype(e.first_dtype(case)), f.flops),
        tolerance=e.TRANSCENDENTAL,
        mutants=(
            *(_wrong(label, function) for label, function in f.wrong.items()),
            e.strides_ignored(aten),
            e.offset_ignored(aten),
        ),
        note=f.note,
    )


OPERATORS = tuple(_operator(f) for f in _TABLE)
