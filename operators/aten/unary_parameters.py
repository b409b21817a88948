"""ATen functions of one tensor and a number: logit and polygamma.

Oracle: torch in float64. Second statement: NumPy and SciPy.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from kernelmark.operators.aten import elementwise as e
from kernelmark.operators.building import spec, wide
from kernelmark.operators.records import Case, Expected, Mutant, Operator, Tolerance

_UNIT: dict[str, Any] = {"fill": "uniform", "low": 0.0, "high": 1.0}
_POSITIVE: dict[str, Any] = {"fill": "uniform", "low": 0.05, "high": 20.0}
_NEGATIVE: dict[str, Any] = {"fill": "uniform", "low": -0.9, "high": -0.1}


# --- logit --------------------------------------------------------------------------------------


def _clamped(self: torch.Tensor, eps: float | None) -> torch.Tensor:
    x = wide(self)
    return x if eps is None else torch.where(x < eps, eps, torch.where(x > 1 - eps, 1 - eps, x))


def _logit_oracle(
    self: torch.Tensor, eps: float | None = None, out: torch.Tensor | None = None
) -> list[Expected]:
    z = _clamped(self, eps)
    value = torch.log(z / (1 - z))
    # 1 - x and the bound 1 - eps are rounded: |x f'(x)| = 1 / (1 - x).
    scale = e.condition(value, 1 / (1 - z), ulps=2.0)
    return [Expected(value, self.dtype, scale, e.normal_inputs(self))]


def _logit_second(
    self: torch.Tensor, eps: float | None = None, out: torch.Tensor | None = None
) -> list[Any]:
    import scipy.special

    x = e.array(self)
    if eps is not None:
        x = np.where(np.isnan(x), x, np.clip(x, eps, 1 - eps))
    return [scipy.special.logit(x)]


@functools.cache
def _logit_cases() -> Sequence[Case]:
    # ATen's CPU kernel rounds x / (1 - x) to 16 bits, which shows near x = 0.5 only.
    layouts = {
        n: x if x.dtype == torch.float32 else dataclasses.replace(x, high=0.1)
        for n, x in e.unary_layouts(**_UNIT).items()
    }
    small = e.layout_cases(layouts)
    x = spec((9, 65), **_UNIT)
    small += [
        Case("eps", (x, 1e-3)),
        Case("eps-small", (x, 1e-6)),
        Case("eps-float16", (spec((9, 65), e.F16, fill="uniform", high=0.1), 0.0625)),
        Case("eps-bfloat16", (spec((9, 65), e.BF16, fill="uniform", high=0.1), 0.03125)),
        Case("eps-outside-domain", (spec((37, 53)), 0.01), draws=("base", "specials", "large")),
        Case("outside-domain", (spec((37, 53)),), draws=("base", "specials")),
        Case("out", (x, None), {"out": spec((9, 65))}, overload=1),
        Case("out-transposed", (x, 0.1), {"out": spec((9, 65), strides=(1, 9))}, overload=1),
    ]
    full = [e.full_case(n, (x,), origin) for n, (x, origin) in e.unary_full(**_UNIT).items()]
    full.append(
        e.full_case(
            "detr-reference-points",
            (spec((64, 300, 2048), **_UNIT), 1e-5),
            "Deformable DETR inverse sigmoid of reference points, batch 64",
        )
    )
    return (*small, *full)


def _wrong_logit(label: str, function: Callable[[torch.Tensor, float | None], Any]) -> Mutant:
    def mutant(self: torch.Tensor, eps: float | None = None) -> torch.Tensor:
        return function(self.double(), eps).to(self.dtype)

    return Mutant(label, e.into_out(mutant))


_LOGIT = Operator(
    id="aten::logit",
    family="pointwise-unary",
    signatures=(
        "logit(self: Tensor, eps: float?=None) -> Tensor",
        "logit.out(self: Tensor, eps: float?=None, *, out: Tensor!) -> Tensor!",
    ),
    description=(
        "ln(z / (1 - z)) with z = self clamped to [eps, 1 - eps], or z = self where `eps` is None: "
        "then 0 gives -inf, 1 gives +inf and values outside [0, 1] NaN. NaN gives NaN. float16 and "
        "bfloat16 are computed in float32 (the bounds too) and rounded once."
    ),
    sources=("PyTorch 2.13, torch.ops.aten.logit", "aten/src/ATen/native/UnaryOps.cpp"),
    cases=_logit_cases,
    oracle=_logit_oracle,
    second=_logit_second,
    baseline=e.packet("logit"),
    baseline_name="aten",
    cost=e.elementwise_cost(e.first_dtype, 6),
    tolerance=e.TRANSCENDENTAL,
    mutants=(
        _wrong_logit("eps ignored", lambda x, eps: torch.logit(x)),
        _wrong_logit(
            "upper bound dropped",
            lambda x, eps: torch.logit(x if eps is None else torch.where(x < eps, eps, x)),
        ),
        _wrong_logit("logarithm alone", lambda x, eps: torch.log(_clamped(x, eps))),
        _wrong_logit("sigmoid", lambda x, eps: torch.sigmoid(x)),
        e.strides_ignored(e.packet("logit")),
    ),
)


# --- polygamma ----------------------------------------------------------------------------------


#: B_2, B_4, ...: Bernoulli numbers
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)
#: steps of the recurrence: the series at 16 and beyond is right to float64
_STEPS = 16


def _exact_polygamma(n: int, x: torch.Tensor) -> torch.Tensor:
    """The n-th derivative of digamma for x > -16, by recurrence and the asymptotic series.

    Abramowitz and Stegun 6.3.18, 6.4.6, 6.4.11. torch compiles its own for float64 when it is
    first called on a GPU, which takes seconds.
    """
    y = x + _STEPS
    inverse = y.reciprocal().square_()
    series = torch.zeros_like(y)
    for k, number in reversed(list(enumerate(_BERNOULLI, 1))):
        series.add_(number * math.factorial(2 * k + n - 1) / math.factorial(2 * k)).mul_(inverse)
    lead = math.factorial(n - 1) if n else -torch.log(y)
    total = (series + 0.5 * math.factorial(n) / y + lead) * y**-n
    for k in range(_STEPS):
        total += math.factorial(n) / (x + k) ** (n + 1)
    return total if n % 2 else -total


def _polygamma_oracle(
    n: int, self: torch.Tensor, out: torch.Tensor | None = None
) -> list[Expected]:
    x = wide(self).double()
    value = _exact_polygamma(n, x)
    slope = _exact_polygamma(n + 1, x)
    # Recurrence and asymptotic series: a dozen float32 terms; reflection rounds pi x.
    scale = e.condition(value, x * slope, ulps=8.0)
    return [Expected(value, e.float_dtype(self.dtype), scale, e.normal_inputs(self))]


def _polygamma_second(n: int, self: torch.Tensor, out: torch.Tensor | None = None) -> list[Any]:
    import scipy.special

    x = self.double().cpu().numpy()
    if n == 0:
        return [scipy.special.digamma(x)]
    sign = 1 if n % 2 else -1
    positive = sign * scipy.special.factorial(n) * scipy.special.zeta(n + 1, np.abs(x))
    if n != 1:
        return [positive]
    # Reflection: psi1(x) = pi**2 / sin(pi x)**2 - psi1(1 - x).
    reflected = (np.pi / np.sin(np.pi * x)) ** 2 - scipy.special.zeta(2, 1 + np.abs(x))
    return [np.where(x < 0, reflected, positive)]


@functools.cache
def _polygamma_cases() -> Sequence[Case]:
    layouts = e.unary_layouts(**_POSITIVE)
    small = [Case(f"digamma-{n}", (0, x), draws=("base",)) for n, x in layouts.items()]
    small += [
        Case(f"order-{order}-{name}", (order, layouts[name]), draws=("base", "base"))
        for order in (1, 2, 3)
        for name in ("rows-float32", "transposed")
    ]
    ints: dict[str, Any] = {"fill": "integers", "low": 1, "high": 40}
    small += [
        Case("order-1-float16", (1, spec((9, 65), e.F16, **_POSITIVE))),
        Case("order-1-bfloat16", (1, spec((9, 65), e.BF16, **_POSITIVE))),
        Case("digamma-negative", (0, spec((9, 65), **_NEGATIVE))),
        Case("order-1-negative", (1, spec((9, 65), **_NEGATIVE))),
        Case("digamma-int64", (0, spec((129,), e.I64, **ints))),
        Case("order-2-int32", (2, spec((129,), e.I32, **ints))),
        Case("large", (0, spec((257,), fill="uniform", low=100.0, high=1e6))),
        Case("out", (1, layouts["transposed"]), {"out": spec((33, 31))}, overload=1),
    ]
    inputs = e.unary_full(**_POSITIVE)
    single = [n for n, (x, _) in inputs.items() if x.dtype == torch.float32]
    full = [e.full_case(f"digamma-{n}", (0, x), origin) for n, (x, origin) in inputs.items()]
    full += [e.full_case(f"order-1-{n}", (1, *inputs[n][:1]), inputs[n][1]) for n in single]
    full += [e.full_case(f"order-2-{n}", (2, *inputs[n][:1]), inputs[n][1]) for n in single]
    return (*small, *full)


def _wrong_polygamma(label: str, function: Callable[[int, torch.Tensor], torch.Tensor]) -> Mutant:
    def mutant(n: int, self: torch.Tensor) -> torch.Tensor:
        return function(n, self.double()).to(e.float_dtype(self.dtype))

    return Mutant(label, e.into_out(mutant))


def _few_terms(n: int, x: torch.Tensor) -> torch.Tensor:
    """The leading asymptotic term."""
    return torch.log(x) - 0.5 / x if n == 0 else torch.special.polygamma(n, x + 1)


_POLYGAMMA = Operator(
    id="aten::polygamma",
    family="pointwise-unary",
    signatures=(
        "polygamma(n: int, self: Tensor) -> Tensor",
        "polygamma.out(n: int, self: Tensor, *, out: Tensor!) -> Tensor!",
    ),
    description=(
        "The n-th derivative (n >= 0) of the digamma function: n = 0 is digamma itself, n = 1 "
        "trigamma; in general (-1)**(n+1) n! zeta(n+1, self), zeta being Hurwitz's. Orders 0 and 1 "
        "are right for negative values too (by reflection). The result has self's dtype, float32 "
        "for "
        "integers. float16 and bfloat16 are computed in float32 and rounded once."
    ),
    sources=("PyTorch 2.13, torch.ops.aten.polygamma", "aten/src/ATen/native/Math.h"),
    cases=_polygamma_cases,
    oracle=_polygamma_oracle,
    second=_polygamma_second,
    baseline=e.packet("polygamma"),
    baseline_name="aten",
    cost=e.elementwise_cost(lambda case: e.float_dtype(e.first_dtype(case)), 40),
    tolerance=Tolerance(
        limit=1.0,
        accumulator=torch.float32,
        why="rounding to the output costs 0.5; S allows a float32 recurrence with an asymptotic "
        "series 8 ulp of the value and of |x f'(x)|",
    ),
    mutants=(
        _wrong_polygamma("order ignored", lambda n, x: torch.digamma(x)),
        _wrong_polygamma("sign dropped", lambda n, x: torch.special.polygamma(n, x).abs()),
        _wrong_polygamma("next order", lambda n, x: torch.special.polygamma(n + 1, x)),
        _wrong_polygamma("recurrence dropped", _few_terms),
        e.strides_ignored(e.packet("polygamma")),
    ),
    note="ATen's CUDA kernel computes orders 2 and more in the tensor's own dtype; those are timed "
    "in float32 only.",
)

OPERATORS = (_LOGIT, _POLYGAMMA)
