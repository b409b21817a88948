"""ATen's backward functions of activations and losses, element by element.

Oracle: the closed form of each gradient in float64. Second statement: NumPy, or differences of the
forward function's own derivative written another way.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from kernelmark.operators.aten import elementwise as e
from kernelmark.operators.building import spec, traffic, wide
from kernelmark.operators.draws import Call
from kernelmark.operators.records import (
    Argument,
    Case,
    Cost,
    Expected,
    Mutant,
    Operator,
    TensorSpec,
    Tolerance,
)

_UNIT: dict[str, Any] = {"fill": "uniform", "low": -1.0, "high": 1.0}
_ONCE = "float16 and bfloat16 are computed in float32 and rounded once."


def _same_shape(grad: dict[str, Any] | None = None) -> dict[str, e.Pair]:
    """Small (grad_output, self) of one shape and dtype, in different layouts."""
    g = grad or {}
    pairs = {n: (spec(x.shape, x.dtype, **g), x) for n, x in e.unary_layouts().items()}
    pairs["both-transposed"] = (
        spec((33, 31), strides=(1, 33), **g),
        spec((33, 31), strides=(1, 33)),
    )
    pairs["grad-gaps"] = (
        spec((17, 40), e.F16, strides=(80, 2), offset=1, **g),
        spec((17, 40), e.F16),
    )
    pairs["grad-expanded"] = (spec((17, 40), strides=(0, 0), **g), spec((17, 40)))
    return pairs


def _full_pairs(
    grad: dict[str, Any] | None = None,
) -> dict[str, tuple[TensorSpec, TensorSpec, str]]:
    g = grad or {}
    return {
        n: (spec(x.shape, x.dtype, strides=x.strides, **g), x, origin)
        for n, (x, origin) in e.unary_full().items()
    }


def _cost(case: Case) -> Cost:
    """Everything read once, the shape of `self` written."""
    out = case.kwargs.get("grad_input", case.kwargs.get("out"))
    x = case.tensors[1]
    read = sum(s.nbytes for s in case.tensors if s is not out)
    return traffic(case, x.numel * x.dtype.itemsize, 8 * x.numel, read=read)


def _wrong(label: str, function: Callable[..., torch.Tensor]) -> Mutant:
    """`function` on float64 in place of the operator; writes to `grad_input` or `out`."""

    def mutant(
        grad_output: torch.Tensor,
        self: torch.Tensor,
        *rest: Any,
        grad_input: torch.Tensor | None = None,
        out: torch.Tensor | None = None,
    ) -> torch.Tensor:
        more = [r.double() if isinstance(r, torch.Tensor) else r for r in rest]
        value = function(grad_output.double(), self.double(), *more).to(self.dtype)
        target = grad_input if out is None else out
        return value if target is None else target.copy_(value)

    return Mutant(label, mutant)


def _gradient(
    name: str,
    parameters: str,
    out_name: str | None,
    out_overload: str,
    description: str,
    file: str,
    cases: Callable[[], Sequence[Case]],
    oracle: Callable[..., Sequence[Expected]],
    second: Callable[..., Sequence[Any]],
    mutants: tuple[Mutant, ...],
    tolerance: Tolerance = e.TRANSCENDENTAL,
    prepare: Callable[[Call, Case, torch.Generator], None] | None = None,
    note: str = "",
    cost: Callable[[Case], Cost] = _cost,
) -> Operator:
    signatures = [f"{name}({parameters}) -> Tensor"]
    if out_name:
        signatures.append(f"{name}.{out_overload}({parameters}, *, {out_name}: Tensor!) -> Tensor!")
    return Operator(
        id=f"aten::{name}",
        family="pointwise-backward",
        signatures=tuple(signatures),
        description=description,
        sources=(f"PyTorch 2.13, torch.ops.aten.{name}", f"aten/src/ATen/native/{file}"),
        cases=cases,
        oracle=oracle,
        second=second,
        baseline=e.packet(name),
        baseline_name="aten",
        cost=cost,
        tolerance=tolerance,
        mutants=(*mutants, e.strides_ignored(e.packet(name))),
        prepare=prepare,
        note=note,
    )


# --- mish_backward ------------------------------------------------------------------------------


def _mish_terms(g: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    t = torch.tanh(torch.nn.functional.softplus(x))
    return g * t, g * x * torch.sigmoid(x) * (1 - t * t)


def _mish_oracle(grad_output: torch.Tensor, self: torch.Tensor) -> list[Expected]:
    g, x = wide(grad_output), wide(self)
    first, last = _mish_terms(g, x)
    # The terms cancel near -1.19, and 1 - tanh**2 for large x (until tanh is 1 in float32).
    # exp(x) magnifies the rounding of its argument by |x|, down to where results are flushed.
    argument = (first.abs() + last.abs()) * x.clamp(-104, 12)
    scale = e.condition(first, last, argument, ulps=4.0)
    scale += e.FLUSH * torch.nan_to_num(g * x, 0.0, 0.0, 0.0).abs()
    return [Expected(first + last, self.dtype, scale)]


def _mish_second(grad_output: torch.Tensor, self: torch.Tensor) -> list[Any]:
    g, x = e.array(grad_output), e.array(self)
    with np.errstate(all="ignore"):
        # With w = exp(x): mish'(x) = w (4(x+1) + 4 w**2 + w**3 + w (4x+6)) / (2w + w**2 + 2)**2.
        low = np.exp(np.minimum(x, 40.0))
        over = low * (4 * (x + 1) + 4 * low**2 + low**3 + low * (4 * x + 6))
        slope = np.where(x > 40.0, 1.0, over / (2 * low + low**2 + 2) ** 2)
        return [g * slope]


def _plain_cases(
    grad: dict[str, Any] | None = None, *rest: Argument
) -> tuple[list[Case], list[Case]]:
    """(small, full) cases of (grad_output, self, *rest)."""
    small = e.layout_cases(_same_shape(grad), *rest)
    full = [
        e.full_case(n, (g, x, *rest), origin) for n, (g, x, origin) in _full_pairs(grad).items()
    ]
    return small, full


@functools.cache
def _mish_cases() -> Sequence[Case]:
    small, full = _plain_cases()
    small.append(Case("wide-range", (spec((9, 65)), spec((9, 65), fill="wide"))))
    return (*small, *full)


_MISH = _gradient(
    "mish_backward",
    "grad_output: Tensor, self: Tensor",
    None,
    "",
    "Gradient of mish(x) = x tanh(ln(1 + exp(x))) at x = self, times grad_output: with "
    "t = tanh(softplus(x)) and s = sigmoid(x), out = grad_output * (t + x s (1 - t**2)). No "
    "overflow "
    f"for large x (the slope is 1). Both tensors have one shape and dtype. {_ONCE}",
    "Activation.cpp",
    _mish_cases,
    _mish_oracle,
    _mish_second,
    (
        _wrong("second term dropped", lambda g, x: _mish_terms(g, x)[0]),
        _wrong("first term dropped", lambda g, x: _mish_terms(g, x)[1]),
        _wrong("grad_output ignored", lambda g, x: sum(_mish_terms(torch.ones_like(g), x), x * 0)),
        _wrong(
            "gradient of silu", lambda g, x: g * torch.sigmoid(x) * (1 + x * (1 - torch.sigmoid(x)))
        ),
    ),
)


# --- softplus_backward --------------------------------------------------------------------------


def _softplus_oracle(
    grad_output: torch.Tensor,
    self: torch.Tensor,
    beta: float,
    threshold: float,
    grad_input: torch.Tensor | None = None,
) -> list[Expected]:
    g, x = wide(grad_output), wide(self)
    z = x * beta
    value = torch.where(z > threshold, g, g * torch.sigmoid(z))
    scale = e.condition(value, value * z * torch.sigmoid(-z), ulps=3.0)
    scale += e.FLUSH * torch.nan_to_num(g, 0.0, 0.0, 0.0).abs()  # a flushed sigmoid
    mask = (z - threshold).abs() > 1e-6 * (1 + abs(threshold))  # the jump is where rounding puts it
    return [Expected(value, self.dtype, scale, mask | ~z.isfinite())]


def _softplus_second(
    grad_output: torch.Tensor,
    self: torch.Tensor,
    beta: float,
    threshold: float,
    grad_input: torch.Tensor | None = None,
) -> list[Any]:
    g, z = e.array(grad_output), e.array(self) * beta
    with np.errstate(all="ignore"):
        return [np.where(z > threshold, g, g / (1 + np.exp(-z)))]


@functools.cache
def _softplus_cases() -> Sequence[Case]:
    small, full = _plain_cases(None, 1.0, 20.0)
    x, half = spec((9, 65)), spec((9, 65), e.F16)
    small += [
        Case("beta-2", (x, x, 2.0, 20.0)),
        Case("beta-half", (half, half, 0.5, 20)),
        Case("threshold-low", (x, x, 1, 0.5)),
        Case("threshold-low-beta", (spec((9, 65), e.BF16), spec((9, 65), e.BF16), 4, 1.25)),
        Case("out", (x, x, 1.0, 20.0), {"grad_input": x}, overload=1),
        Case(
            "out-transposed",
            (x, x, 3.0, 2.0),
            {"grad_input": spec((9, 65), strides=(1, 9))},
            overload=1,
        ),
    ]
    return (*small, *full)


_SOFTPLUS = _gradient(
    "softplus_backward",
    "grad_output: Tensor, self: Tensor, beta: Scalar, threshold: Scalar",
    "grad_input",
    "grad_input",
    "Gradient of softplus(x) = ln(1 + exp(beta x)) / beta, linear where beta x > threshold: out = "
    "grad_output where self * beta > threshold, else grad_output * z / (z + 1) with "
    f"z = exp(self * beta). All tensors have one shape and dtype. {_ONCE}",
    "Activation.cpp",
    _softplus_cases,
    _softplus_oracle,
    _softplus_second,
    (
        _wrong("beta ignored", lambda g, x, b, t: torch.where(x > t, g, g * torch.sigmoid(x))),
        _wrong("threshold ignored", lambda g, x, b, t: g * torch.sigmoid(x * b)),
        _wrong(
            "threshold on self", lambda g, x, b, t: torch.where(x > t, g, g * torch.sigmoid(x * b))
        ),
        _wrong("grad_output ignored", lambda g, x, b, t: torch.sigmoid(x * b)),
    ),
)


# --- log_sigmoid_backward -----------------------------------------------------------------------


def _log_sigmoid_oracle(
    grad_output: torch.Tensor,
    self: torch.Tensor,
    buffer: torch.Tensor,
    grad_input: torch.Tensor | None = None,
) -> list[Expected]:
    g, x = wide(grad_output), wide(self)
    value = g * torch.sigmoid(-x)
    scale = e.condition(value, value * x * torch.sigmoid(x), ulps=3.0)
    scale += e.FLUSH * torch.nan_to_num(g, 0.0, 0.0, 0.0).abs()  # a flushed sigmoid
    return [Expected(value, self.dtype, scale)]


def _log_sigmoid_second(
    grad_output: torch.Tensor,
    self: torch.Tensor,
    buffer: torch.Tensor,
    grad_input: torch.Tensor | None = None,
) -> list[Any]:
    g, x = e.array(grad_output), e.array(self)
    z = np.exp(-np.abs(x))
    return [g * np.where(x < 0, 1 / (1 + z), z / (1 + z))]


def _log_sigmoid_prepare(call: Call, case: Case, generator: torch.Generator) -> None:
    """`buffer` is what ATen's CPU forward saves: exp(-|self|)."""
    self, buffer = call.args[1], call.args[2]
    if buffer.numel():
        buffer.copy_(torch.exp(-self.double().abs()))


@functools.cache
def _log_sigmoid_cases() -> Sequence[Case]:
    small = []
    for n, (g, x) in _same_shape(_UNIT).items():
        draws = Case.draws if n.startswith("rows-") else ("base",)
        small.append(Case(n, (g, x, spec(x.shape, x.dtype)), draws=draws))
    x = spec((9, 65))
    small += [
        Case("out", (x, x, x), {"grad_input": x}, overload=1),
        Case(
            "out-transposed", (x, x, x), {"grad_input": spec((9, 65), strides=(1, 9))}, overload=1
        ),
    ]
    full = [
        e.full_case(n, (g, x, spec((0,), x.dtype)), origin)
        for n, (g, x, origin) in _full_pairs(_UNIT).items()
    ]
    return (*small, *full)


_LOG_SIGMOID = _gradient(
    "log_sigmoid_backward",
    "grad_output: Tensor, self: Tensor, buffer: Tensor",
    "grad_input",
    "grad_input",
    "Gradient of log_sigmoid(x) = -ln(1 + exp(-x)): out = grad_output * sigmoid(-self), computed "
    "without overflow as grad_output / (1 + z) for negative self and grad_output * z / (1 + z) "
    "otherwise, with z = exp(-|self|). `buffer` holds z in self's dtype or, as ATen's CUDA forward "
    f"leaves it, nothing (shape (0,)): it need not be read. {_ONCE}",
    "Activation.cpp",
    _log_sigmoid_cases,
    _log_sigmoid_oracle,
    _log_sigmoid_second,
    (
        _wrong("gradient of the sigmoid", lambda g, x, b: g * torch.sigmoid(x) * torch.sigmoid(-x)),
        _wrong("sign of self turned", lambda g, x, b: g * torch.sigmoid(x)),
        _wrong("grad_output ignored", lambda g, x, b: torch.sigmoid(-x)),
        _wrong("negative branch everywhere", lambda g, x, b: g / (1 + torch.exp(-x.abs()))),
    ),
    prepare=_log_sigmoid_prepare,
)


# --- smooth_l1_loss_backward --------------------------------------------------------------------


def _smooth_l1(
    g: torch.Tensor, x: torch.Tensor, y: torch.Tensor, reduction: int, beta: float
) -> torch.Tensor:
    norm = 1 / x.numel() if reduction == 1 and x.numel() else 1.0
    return norm * g * ((x - y) / beta).clamp(-1, 1)


def _smooth_l1_oracle(
    grad_output: torch.Tensor,
    self: torch.Tensor,
    target: torch.Tensor,
    reduction: int,
    beta: float,
    grad_input: torch.Tensor | None = None,
) -> list[Expected]:
    g, x, y = wide(grad_output), wide(self), wide(target)
    value = _smooth_l1(g, x, y, reduction, beta)
    # ATen's CUDA kernel takes each step in the tensor's dtype; the difference is rounded first.
    step = max(torch.finfo(self.dtype).eps / torch.finfo(torch.float32).eps / 4, 1.0)
    return [Expected(value, self.dtype, e.condition(value, value, ulps=2 * step))]


def _smooth_l1_second(
    grad_output: torch.Tensor,
    self: torch.Tensor,
    target: torch.Tensor,
    reduction: int,
    beta: float,
    grad_input: torch.Tensor | None = None,
) -> list[Any]:
    g, d = e.array(grad_output), e.array(self) - e.array(target)
    slope = np.select([d <= -beta, d >= beta], [np.full_like(d, -1.0), np.ones_like(d)], d / beta)
    return [g * slope / (max(d.size, 1) if reduction == 1 else 1)]


@functools.cache
def _smooth_l1_cases() -> Sequence[Case]:
    small = []
    for n, (g, x) in _same_shape().items():
        draws = Case.draws if n.startswith("rows-") else ("base",)
        small.append(Case(f"none-{n}", (g, x, spec(x.shape, x.dtype), 0, 1.0), draws=draws))
    for dtype in (e.F32, e.BF16):
        for reduction, name in ((1, "mean"), (2, "sum")):
            x = spec((9, 65), dtype)
            args = (spec((), dtype), x, x, reduction, 0.5)
            small.append(Case(f"{name}-{str(dtype)[6:]}", args))
    x = spec((9, 65))
    small += [
        Case("beta-2", (x, x, spec((9, 65), strides=(1, 9)), 0, 2.0)),
        Case("out", (x, x, x, 0, 1.0), {"grad_input": x}, overload=1),
        Case(
            "out-mean",
            (spec(()), x, x, 1, 1.0),
            {"grad_input": spec((9, 65), strides=(1, 9))},
            overload=1,
        ),
    ]
    boxes: dict[str, tuple[TensorSpec, int, float, str]] = {
        "retinanet-sum": (spec((64, 120087, 4)), 2, 1 / 9, "RetinaNet boxes, batch 64"),
        "faster-rcnn-mean": (spec((128, 100000, 4)), 1, 1.0, "Faster R-CNN anchors, batch 128"),
        "ssd-bfloat16": (spec((512, 24564, 4), e.BF16), 2, 1.0, "SSD 512 boxes, batch 512"),
    }
    full = [
        e.full_case(n, (spec((), x.dtype), x, x, reduction, beta), origin)
        for n, (x, reduction, beta, origin) in boxes.items()
    ]
    full += [
        e.full_case(n, (g, x, x, 0, 1.0), origin) for n, (g, x, origin) in _full_pairs().items()
    ]
    return (*small, *full)


_SMOOTH_L1 = _gradient(
    "smooth_l1_loss_backward",
    "grad_output: Tensor, self: Tensor, target: Tensor, reduction: int, beta: float",
    "grad_input",
    "grad_input",
    "Gradient of the smooth L1 loss with respect to self: with d = self - target, out = "
    "norm * grad_output * s, s = -1 where d <= -beta, 1 where d >= beta, d / beta between. "
    "`reduction` 0 (none): grad_output has the shape of self and norm = 1; 1 (mean): grad_output "
    "is "
    "0-d and norm = 1 / self.numel(); 2 (sum): grad_output is 0-d and norm = 1. The result has the "
    "shape and dtype of self. Each step may be rounded to 16 bits, or computed in float32.",
    "Loss.cpp, BinaryOps.cpp",
    _smooth_l1_cases,
    _smooth_l1_oracle,
    _smooth_l1_second,
    (
        _wrong("mean not divided", lambda g, x, y, r, b: _smooth_l1(g, x, y, 0, b)),
        _wrong("beta ignored", lambda g, x, y, r, b: _smooth_l1(g, x, y, r, 1.0)),
        _wrong("linear part dropped", lambda g, x, y, r, b: _smooth_l1(g, x, y, r, 1e-12)),
        _wrong("not clamped", lambda g, x, y, r, b: g * (x - y) / b / (x.numel() if r == 1 else 1)),
        _wrong("target ignored", lambda g, x, y, r, b: _smooth_l1(g, x, 0 * y, r, b)),
    ),
    tolerance=Tolerance(
        limit=1.0,
        accumulator=torch.float32,
        why="rounding costs 0.5; S allows the steps of the product to be rounded in the dtype",
    ),
)


# --- rrelu_with_noise_backward ------------------------------------------------------------------


def _rrelu_oracle(
    grad_output: torch.Tensor,
    self: torch.Tensor,
    noise: torch.Tensor,
    lower: float,
    upper: float,
    training: bool,
    self_is_result: bool,
    out: torch.Tensor | None = None,
) -> list[Expected]:
    g, x, r = wide(grad_output), wide(self), wide(noise)
    value = g * r if training else torch.where(x > 0, g, g * (lower + upper) / 2)
    return [Expected(value, self.dtype, e.condition(value))]


def _rrelu_second(
    grad_output: torch.Tensor,
    self: torch.Tensor,
    noise: torch.Tensor,
    lower: float,
    upper: float,
    training: bool,
    self_is_result: bool,
    out: torch.Tensor | None = None,
) -> list[Any]:
    g, x = e.array(grad_output), e.array(self)
    if training:
        return [np.multiply(e.array(noise), g)]
    return [g * (0.5 * (lower + upper) + (x > 0) * (1 - 0.5 * (lower + upper)))]


@functools.cache
def _rrelu_cases() -> Sequence[Case]:
    noise: dict[str, Any] = {"fill": "uniform", "low": 0.125, "high": 1.0}
    small = []
    for n, (g, x) in _same_shape().items():
        draws = Case.draws if n.startswith("rows-") else ("base",)
        r = spec(x.shape, x.dtype, **noise)
        small.append(Case(f"train-{n}", (g, x, r, 0.125, 0.375, True, False), draws=draws))
        small.append(Case(f"eval-{n}", (g, x, r, 0.125, 0.375, False, False), draws=draws))
    x, r = spec((9, 65)), spec((9, 65), **noise)
    small += [
        Case("in-place-forward", (x, x, r, 0.1, 0.3, False, True)),
        Case("out", (x, x, r, 0.125, 1 / 3, True, False), {"out": x}, overload=1),
        Case(
            "out-transposed",
            (x, x, r, 0.125, 1 / 3, False, False),
            {"out": spec((9, 65), strides=(1, 9))},
            overload=1,
        ),
    ]
    full = [
        e.full_case(
            f"{'train' if training else 'eval'}-{n}",
            (g, x, spec(x.shape, x.dtype, **noise), 0.125, 1 / 3, training, False),
            origin,
        )
        for training, names in (
            (True, ("llama-3-mlp", "llama-2-mlp-float32", "gpt2-mlp", "resnet-channels-last")),
            (False, ("llama-3-fused-gate", "clip-mlp", "unet-float32", "gpt2-mlp-misaligned")),
        )
        for n, (g, x, origin) in _full_pairs().items()
        if n in names
    ]
    return (*small, *full)


def _rrelu_cost(case: Case) -> Cost:
    """Training needs no `self`, evaluation no `noise`."""
    _, x, noise, *_, training, _ = case.args
    every = _cost(case)
    return Cost(2 * x.numel, every.nbytes - (x.nbytes if training else noise.nbytes))


_RRELU = _gradient(
    "rrelu_with_noise_backward",
    "grad_output: Tensor, self: Tensor, noise: Tensor, lower: Scalar, upper: Scalar, "
    "training: bool, self_is_result: bool",
    "out",
    "out",
    "Gradient of the randomised leaky rectifier. Where `training`: out = "
    "noise * grad_output (noise holds each element's slope, 1 where it was positive). Otherwise "
    "out "
    "= grad_output where self > 0, grad_output * (lower + upper) / 2 elsewhere. With "
    "`self_is_result`, self is the forward's result instead of its input, which changes nothing "
    "for "
    f"slopes that are not negative. All tensors have one shape and dtype. {_ONCE}",
    "Activation.cpp",
    _rrelu_cases,
    _rrelu_oracle,
    _rrelu_second,
    (
        _wrong(
            "training ignored",
            lambda g, x, r, lo, up, t, s: torch.where(x > 0, g, g * (lo + up) / 2),
        ),
        _wrong("always training", lambda g, x, r, lo, up, t, s: g * r),
        _wrong(
            "lower slope",
            lambda g, x, r, lo, up, t, s: g * r if t and up > lo else torch.where(x > 0, g, g * lo),
        ),
        _wrong("grad_output ignored", lambda g, x, r, lo, up, t, s: r),
    ),
    tolerance=e.ARITHMETIC,
    cost=_rrelu_cost,
)

OPERATORS = (_MISH, _SOFTPLUS, _LOG_SIGMOID, _SMOOTH_L1, _RRELU)
