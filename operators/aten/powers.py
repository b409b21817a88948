"""ATen pow, logaddexp2 and prelu: functions of two tensors that are not one arithmetic operation.

Oracle: torch in float64 or int64. Second statement: NumPy.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from kernelmark.operators.aten import elementwise as e
from kernelmark.operators.building import spec, traffic, wide
from kernelmark.operators.records import Case, Expected, Mutant, Operator

_BASES: dict[str, Any] = {"fill": "uniform", "low": 0.05, "high": 4.0}
_EXPONENTS: dict[str, Any] = {"fill": "uniform", "low": -3.0, "high": 3.0}
_WHOLE: dict[str, Any] = {"fill": "integers", "low": -4, "high": 5}
_COUNTS: dict[str, Any] = {"fill": "integers", "low": 0, "high": 6}
_SOURCES = ("PyTorch 2.13, torch.ops.aten", "aten/src/ATen/native")


# --- pow ----------------------------------------------------------------------------------------


def _pow_oracle(self: Any, exponent: Any, out: torch.Tensor | None = None) -> list[Expected]:
    dtype = e.promoted(self, exponent)
    device = next(v.device for v in (self, exponent) if isinstance(v, torch.Tensor))
    a, b = (wide(torch.as_tensor(x, device=device)) for x in (self, exponent))
    if not dtype.is_floating_point:
        return [Expected(e.exact_as(torch.pow(a, b), dtype), dtype)]
    a, b = a.double(), b.double()
    value = torch.pow(a, b)
    # exp2(b * log2(a)) rounds its exponent: relative error |b ln a| eps.
    scale = e.condition(value, value * b * torch.log(a.abs()), ulps=2.0)
    top = torch.finfo(dtype).max  # next to overflow, a rounding decides between it and infinity
    mask = ~((value.abs() > 0.99 * top) & (value.abs() < 1.01 * top))
    mask &= ~((a == -torch.inf) & (b.abs() == 0.5))  # C's pow and the square root differ
    tensors = [x for x in (self, exponent) if isinstance(x, torch.Tensor)]
    return [Expected(value, dtype, scale, mask & e.normal_inputs(*tensors))]


def _pow_second(self: Any, exponent: Any, out: torch.Tensor | None = None) -> list[Any]:
    a, b = e.array(self), e.array(exponent)
    if not e.promoted(self, exponent).is_floating_point:
        a, b = np.broadcast_arrays(a.astype(np.int64), b.astype(np.int64))
        odd = np.where(b % 2 == 0, 1, a)
        inverse = np.where(a == 1, 1, np.where(a == -1, odd, 0))
        return [np.where(b >= 0, np.power(a, np.maximum(b, 0)), inverse)]
    with np.errstate(all="ignore"):
        return [np.power(a.astype(np.float64), b.astype(np.float64))]


@functools.cache
def _pow_cases() -> Sequence[Case]:
    small = e.layout_cases(e.binary_layouts(left=_BASES, right=_EXPONENTS))
    x, y = spec((9, 65), **_BASES), spec((9, 65), **_EXPONENTS)
    half, ints = spec((9, 65), e.F16, **_BASES), spec((9, 65), e.I64, **_WHOLE)
    pairs = {
        "anywhere": (spec((9, 65)), spec((9, 65))),
        "negative-bases": (spec((9, 65)), spec((9, 65), **_WHOLE)),
        "float32-int64": (x, ints),
        "float16-float32": (half, y),
        "int64": (ints, spec((65,), e.I64, **_COUNTS)),
        "int32-negative-exponents": (spec((300,), e.I32, **_WHOLE), spec((300,), e.I32, **_WHOLE)),
        "int32-wraps": (spec((99,), e.I32, fill="bits"), spec((99,), e.I32, **_COUNTS)),
    }
    small += [Case(name, pair, draws=("base", "large")) for name, pair in pairs.items()]
    small.append(Case("specials", (spec((37, 53)), spec((37, 53))), draws=("specials",)))
    for number in (0, 1, 2, 0.5, -0.5, -1, 3, 2.7):
        small.append(Case(f"exponent-{number}", (x, number), overload=1))
    small += [
        Case("exponent-2-float16", (half, 2), overload=1),
        Case("exponent-2.5-bfloat16", (spec((3, 65), e.BF16, **_BASES), 2.5), overload=1),
        Case(
            "exponent-half-of-negatives",
            (spec((9, 65)), 0.5),
            overload=1,
            draws=("specials", "base"),
        ),
        Case("exponent-3-int64", (ints, 3), overload=1),
        Case("exponent-raises-dtype", (spec((99,), e.I32, **_COUNTS), 0.5), overload=1),
        Case("base-2", (2, y), overload=2),
        Case("base-10-float16", (10.0, spec((9, 65), e.F16, **_EXPONENTS)), overload=2),
        Case("base-1", (1, spec((9, 65))), overload=2, draws=("specials", "base")),
        Case("base-negative", (-1.5, spec((65,), **_WHOLE)), overload=2),
        Case("base-3-int64", (3, spec((65,), e.I64, **_COUNTS)), overload=2),
        Case("out", (x, y), {"out": spec((9, 65), strides=(1, 9))}, overload=3),
        Case("out-exponent", (half, 2), {"out": spec((9, 65), e.F16)}, overload=4),
        Case("out-base", (2.0, y), {"out": spec((9, 65))}, overload=5),
    ]
    full = [
        e.full_case(n, (a, b), origin)
        for n, (a, b, origin) in e.binary_full(left=_BASES, right=_EXPONENTS).items()
    ]
    full += [
        e.full_case(
            "squares",
            (spec((8192, 4096), e.BF16), 2),
            "Llama 3 8B, variance of RMSNorm, 8192 tokens",
            overload=1,
        ),
        e.full_case(
            "rope-base",
            (10000.0, spec((4096, 8192), **_EXPONENTS)),
            "rotary frequencies from exponents, widened to 4096 rows",
            overload=2,
        ),
    ]
    return (*small, *full)


def _wrong_pow(label: str, function: Callable[..., torch.Tensor]) -> Mutant:
    def mutant(self: Any, exponent: Any) -> torch.Tensor:
        device = next(v.device for v in (self, exponent) if isinstance(v, torch.Tensor))
        a, b = (torch.as_tensor(x, device=device).double() for x in (self, exponent))
        return function(a, b).to(e.promoted(self, exponent))

    return Mutant(label, e.into_out(mutant))


_POW = Operator(
    id="aten::pow",
    family="pointwise-binary",
    signatures=(
        "pow.Tensor_Tensor(self: Tensor, exponent: Tensor) -> Tensor",
        "pow.Tensor_Scalar(self: Tensor, exponent: Scalar) -> Tensor",
        "pow.Scalar(self: Scalar, exponent: Tensor) -> Tensor",
        "pow.Tensor_Tensor_out(self: Tensor, exponent: Tensor, *, out: Tensor!) -> Tensor!",
        "pow.Tensor_Scalar_out(self: Tensor, exponent: Scalar, *, out: Tensor!) -> Tensor!",
        "pow.Scalar_out(self: Scalar, exponent: Tensor, *, out: Tensor!) -> Tensor!",
    ),
    description=(
        "self raised to exponent; either may be a Python scalar, not both. Operands broadcast and "
        "are promoted as torch.result_type says. Floats follow C's pow: x**0 = 1 and 1**y = 1 even "
        "for NaN, negative bases have a result for whole exponents (odd ones keep the sign) and "
        "NaN "
        "for others, 0 to a negative power is infinite. float16 and bfloat16 are computed in "
        "float32 "
        "and rounded once. Integer results wrap around; an integer to a negative power is 0, "
        "save 1 "
        "(1) and -1 (1 or -1); a negative scalar exponent of an integer tensor is refused."
    ),
    sources=(*_SOURCES, "aten/src/ATen/native/Pow.cpp, Pow.h"),
    cases=_pow_cases,
    oracle=_pow_oracle,
    second=_pow_second,
    baseline=e.packet("pow"),
    baseline_name="aten",
    cost=e.elementwise_cost(e.promoted_of_case, 8),
    tolerance=e.TRANSCENDENTAL,
    mutants=(
        _wrong_pow("product", torch.mul),
        _wrong_pow("operands exchanged", lambda a, b: torch.pow(b, a)),
        _wrong_pow("sign of the base lost", lambda a, b: torch.pow(a.abs(), b)),
        _wrong_pow("no negative bases", lambda a, b: torch.exp(b * torch.log(a))),
        _wrong_pow("exponent truncated", lambda a, b: torch.pow(a, b.trunc())),
    ),
)


# --- logaddexp2 ---------------------------------------------------------------------------------


def _logaddexp2_oracle(
    self: torch.Tensor, other: torch.Tensor, out: torch.Tensor | None = None
) -> list[Expected]:
    a, b = wide(self), wide(other)
    value = torch.logaddexp2(a, b)
    larger = torch.maximum(a, b)
    # The larger operand and the logarithm are rounded on their own, and may cancel.
    return [Expected(value, e.promoted(self, other), e.condition(larger, value - larger, ulps=2.0))]


def _logaddexp2_second(
    self: torch.Tensor, other: torch.Tensor, out: torch.Tensor | None = None
) -> list[Any]:
    with np.errstate(all="ignore"):
        return [np.logaddexp2(e.array(self), e.array(other))]


@functools.cache
def _logaddexp2_cases() -> Sequence[Case]:
    small = e.layout_cases(e.binary_layouts())
    x = spec((9, 65))
    small += [
        Case("wide-range", (spec((9, 65), fill="wide"), spec((9, 65), fill="wide"))),
        Case("specials", (spec((37, 53)), spec((37, 53))), draws=("specials", "base")),
        Case("float16-float32", (spec((5, 33), e.F16), spec((33,)))),
        Case("out", (x, x), {"out": spec((9, 65))}, overload=1),
        Case(
            "out-transposed", (x, spec((65,))), {"out": spec((9, 65), strides=(1, 9))}, overload=1
        ),
    ]
    full = [e.full_case(n, (a, b), origin) for n, (a, b, origin) in e.binary_full().items()]
    return (*small, *full)


def _wrong_logaddexp2(label: str, function: e.Function) -> Mutant:
    def mutant(self: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return function(self.double(), other.double()).to(e.promoted(self, other))

    return Mutant(label, e.into_out(mutant))


def _unguarded(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.log2(torch.exp2(a.float()) + torch.exp2(b.float()))


_LOGADDEXP2 = Operator(
    id="aten::logaddexp2",
    family="pointwise-binary",
    signatures=(
        "logaddexp2(self: Tensor, other: Tensor) -> Tensor",
        "logaddexp2.out(self: Tensor, other: Tensor, *, out: Tensor!) -> Tensor!",
    ),
    description=(
        "log2(2**self + 2**other), computed without overflow as the larger operand plus "
        "log2(1 + 2**-|self - other|). Equal infinities give themselves, NaN gives NaN. Operands "
        "broadcast and are promoted; float16 and bfloat16 are computed in float32 and rounded once."
    ),
    sources=(*_SOURCES, "aten/src/ATen/native/cuda/LogAddExpKernel.cu"),
    cases=_logaddexp2_cases,
    oracle=_logaddexp2_oracle,
    second=_logaddexp2_second,
    baseline=e.packet("logaddexp2"),
    baseline_name="aten",
    cost=e.elementwise_cost(e.promoted_of_case, 8),
    tolerance=e.TRANSCENDENTAL,
    mutants=(
        _wrong_logaddexp2("natural base", torch.logaddexp),
        _wrong_logaddexp2("maximum", torch.maximum),
        _wrong_logaddexp2("no overflow guard", _unguarded),
        e.strides_ignored(e.packet("logaddexp2")),
    ),
)


# --- prelu --------------------------------------------------------------------------------------


def _by_channel(self: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """`weight` shaped to broadcast over dimension 1 of `self`."""
    if weight.numel() == 1 or self.dim() < 2:
        return weight.reshape((1,) * self.dim())
    return weight.reshape((1, -1) + (1,) * (self.dim() - 2))


def _prelu_oracle(self: torch.Tensor, weight: torch.Tensor) -> list[Expected]:
    x, w = wide(self), wide(_by_channel(self, weight))
    value = torch.where(x > 0, x, w * x)
    return [Expected(value, self.dtype, e.condition(value))]


def _prelu_second(self: torch.Tensor, weight: torch.Tensor) -> list[Any]:
    x, w = e.array(self), e.array(weight)
    with np.errstate(all="ignore"):
        if w.size == 1:
            product = x * w.reshape(-1)[0]
        else:
            product = np.moveaxis(np.moveaxis(x, 1, -1) * w, -1, 1)
    return [np.where(x > 0, x, product)]


@functools.cache
def _prelu_cases() -> Sequence[Case]:
    one = {f"one-{n}": x for n, x in e.unary_layouts().items()}
    channels = {
        f"channels-{n}": x for n, x in e.unary_layouts().items() if len(x.shape) > 1 and x.numel
    }
    small = [Case(n, (x, spec((1,), x.dtype))) for n, x in one.items()]
    small += [Case(n, (x, spec((x.shape[1],), x.dtype))) for n, x in channels.items()]
    small += [
        Case("zero-dimensional-weight", (spec((9, 65)), spec(()))),
        Case("weight-gaps", (spec((4, 33, 5)), spec((33,), strides=(2,)))),
        Case("specials", (spec((37, 53)), spec((53,))), draws=("specials", "base")),
    ]
    full = [
        e.full_case(n, (x, spec((1,), x.dtype)), origin)
        for n, (x, origin) in e.unary_full().items()
        if n in ("llama-3-mlp", "llama-3-fused-gate", "gpt2-mlp")
    ]
    images = {
        "arcface": (spec((256, 64, 112, 112), e.F16), "ArcFace ResNet-50, stage 1, batch 256"),
        "arcface-float32": (spec((128, 64, 56, 56)), "ArcFace ResNet-50, stage 2, batch 128"),
        "arcface-channels-last": (
            spec((128, 128, 56, 56), e.BF16, strides=(128 * 3136, 1, 56 * 128, 128)),
            "ArcFace ResNet-50, stage 2, batch 128, channels last",
        ),
        "srgan": (spec((16, 64, 96, 96)), "SRGAN generator, batch 16"),
    }
    full += [
        e.full_case(n, (x, spec((x.shape[1],), x.dtype)), origin)
        for n, (x, origin) in images.items()
    ]
    return (*small, *full)


def _wrong_prelu(label: str, function: Callable[..., torch.Tensor]) -> Mutant:
    def mutant(self: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return function(self, weight)

    return Mutant(label, mutant)


_PRELU = Operator(
    id="aten::prelu",
    family="pointwise-binary",
    signatures=("prelu(self: Tensor, weight: Tensor) -> Tensor",),
    description=(
        "self where self > 0, weight * self elsewhere (NaN stays NaN). `weight` has self's dtype "
        "and either one element (0-d or 1-d) or one for each channel, dimension 1 of `self`. "
        "float16 and bfloat16 are multiplied in float32 and rounded once."
    ),
    sources=(*_SOURCES, "aten/src/ATen/native/Activation.cpp"),
    cases=_prelu_cases,
    oracle=_prelu_oracle,
    second=_prelu_second,
    baseline=e.packet("prelu"),
    baseline_name="aten",
    cost=lambda case: traffic(
        case, case.tensors[0].numel * e.first_dtype(case).itemsize, case.tensors[0].numel
    ),
    tolerance=e.ARITHMETIC,
    mutants=(
        _wrong_prelu("rectified", lambda x, w: torch.relu(x)),
        _wrong_prelu(
            "first weight for every channel",
            lambda x, w: torch.where(x > 0, x, x * w.reshape(-1)[0]),
        ),
        _wrong_prelu("positive values scaled too", lambda x, w: x * _by_channel(x, w)),
        _wrong_prelu("absolute value", lambda x, w: torch.where(x > 0, x, -x * _by_channel(x, w))),
        e.strides_ignored(e.packet("prelu")),
    ),
)

OPERATORS = (_POW, _LOGADDEXP2, _PRELU)
