"""ATen losses: an elementwise function of predictions and targets, then optionally a mean or sum.

Oracle: torch in float64. Second statement: NumPy, each formula written another way.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from kernelmark.operators.aten import elementwise as e
from kernelmark.operators.building import FLOATS, dtype_name, spec, traffic, wide
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

_PROBABILITY: dict[str, Any] = {"fill": "uniform", "low": 0.0, "high": 1.0}
_SIGN: dict[str, Any] = {"fill": "bool"}
_POSITIVE: dict[str, Any] = {"fill": "uniform", "low": 0.25, "high": 4.0}
_MODEST: dict[str, Any] = {"fill": "uniform", "low": -4.0, "high": 4.0}
_NAMES = {0: "none", 1: "mean", 2: "sum"}
_REDUCTION = (
    "`reduction` 0 (none) returns every element, in the broadcast shape; 1 (mean) their mean and 2 "
    "(sum) their sum, as a 0-d tensor. The result has the dtype of the input; sums accumulate in "
    "float32 at least, and elementwise steps may be rounded to the dtype or kept in float32."
)
_TOLERANCE = Tolerance(
    limit=1.0,
    accumulator=torch.float32,
    why="rounding to the output costs 0.5; S = sum of absolute terms, 4 float32 eps each, or one "
    "eps of a 16-bit dtype, because ATen composes the loss of steps that are rounded to it",
)

#: (elementwise values, sum of absolute terms) of float64 tensors
Terms = tuple[torch.Tensor, torch.Tensor]


def _reduced(terms: Terms, reduction: int, dtype: torch.dtype) -> list[Expected]:
    value, scale = terms
    coarse = max(4.0, torch.finfo(dtype).eps / torch.finfo(torch.float32).eps)
    scale = scale.abs() + value.abs()
    if reduction:
        reduce = torch.mean if reduction == 1 else torch.sum
        value, scale = reduce(value), reduce(scale)
    return [Expected(value, dtype, e.condition(scale, ulps=coarse))]


def _np_reduced(value: np.ndarray, reduction: int) -> list[Any]:
    if reduction == 0:
        return [value]
    total = value.sum()
    return [total / value.size if reduction == 1 else total]


def _cost(flops: int) -> Callable[[Case], Cost]:
    def cost(case: Case) -> Cost:
        out = case.kwargs.get("out")
        inputs = [s for s in case.tensors if s is not out]
        numel = int(np.prod(np.broadcast_shapes(*(s.shape for s in inputs)), dtype=np.int64))
        item = inputs[0].dtype.itemsize
        whole = case.kwargs.get("reduction", 1) == 0
        read = sum(s.nbytes for s in inputs)
        return traffic(case, item * (numel if whole else 1), flops * numel, read=read)

    return cost


def _cases(
    make: Callable[[TensorSpec], tuple[Argument, ...]],
    parameters: dict[str, Any],
    extra: Callable[[], list[Case]],
    full: Sequence[tuple[str, TensorSpec, int, str]],
    has_out: bool = True,
    input_fill: dict[str, Any] | None = None,
) -> Callable[[], Sequence[Case]]:
    """Cases from a shape: `make` gives the positional arguments for an input spec."""
    fill = input_fill or {}

    @functools.cache
    def cases() -> Sequence[Case]:
        small = []
        for name, x in e.unary_layouts(**fill).items():
            draws = Case.draws if name.startswith("rows-") else ("base",)
            kwargs = {"reduction": 0, **parameters}
            small.append(Case(f"none-{name}", make(x), kwargs, draws=draws))
        for reduction in (1, 2):
            for dtype in FLOATS:
                kwargs = {"reduction": reduction, **parameters}
                name = f"{_NAMES[reduction]}-{dtype_name(dtype)}"
                small.append(Case(name, make(spec((11, 65), dtype, **fill)), kwargs))
            x = spec((33, 31), strides=(1, 33), **fill)
            small.append(Case(f"{_NAMES[reduction]}-transposed", make(x), kwargs, draws=("base",)))
        small.append(Case("sum-empty", make(spec((0, 5), **fill)), {"reduction": 2}))
        small.append(Case("mean-one", make(spec((1,), **fill)), {"reduction": 1}))
        small.append(Case("default", make(spec((7, 33), **fill))))
        small += extra()
        if has_out:
            x = spec((9, 65), **fill)
            out = {"reduction": 0, "out": spec((9, 65))}
            small.append(Case("out", make(x), out, overload=1))
        large = [
            e.full_case(name, make(x), origin, kwargs={"reduction": reduction, **parameters})
            for name, x, reduction, origin in full
        ]
        return (*small, *large)

    return cases


def _full(**fill: Any) -> list[tuple[str, TensorSpec, int, str]]:
    """(name, input, reduction, origin)."""
    return [
        (
            "imagenet-21k-mean",
            spec((4096, 21843), **fill),
            1,
            "ImageNet-21k multi-label, batch 4096",
        ),
        (
            "imagenet-21k-bfloat16",
            spec((4096, 21843), e.BF16, **fill),
            1,
            "ImageNet-21k, batch 4096",
        ),
        ("mask-rcnn-mean", spec((512, 80, 28, 28), **fill), 1, "Mask R-CNN mask logits, 512 boxes"),
        ("unet-none", spec((32, 1, 1024, 1024), e.F16, **fill), 0, "U-Net masks, batch 32"),
        ("depth-none", spec((64, 1, 480, 640), **fill), 0, "NYU depth maps, batch 64"),
        ("dqn-sum", spec((1 << 24,), **fill), 2, "DQN temporal differences, 16.8 million"),
        (
            "masks-transposed",
            spec((64, 1024, 1024), strides=(1024 * 1024, 1, 1024), **fill),
            1,
            "binary masks, batch 64, rows and columns exchanged",
        ),
    ]


def _wrong(label: str, function: Callable[..., torch.Tensor], takes: Callable[..., Any]) -> Mutant:
    """`function` in place of the elementwise part, on float64; reduced as the operator is."""

    def mutant(*args: Any, out: torch.Tensor | None = None, **kwargs: Any) -> torch.Tensor:
        tensors, reduction, dtype = takes(*args, **kwargs)
        value = function(*tensors)
        value = value if reduction == 0 else value.mean() if reduction == 1 else value.sum()
        return value.to(dtype) if out is None else out.copy_(value)

    return Mutant(label, mutant)


def _exchanged(name: str) -> Mutant:
    """Mean and sum exchanged."""
    aten = e.packet(name)

    def mutant(*args: Any, reduction: int = 1, **kwargs: Any) -> torch.Tensor:
        swapped = {0: 0, 1: 2, 2: 1}[reduction]
        return aten(*args, reduction=swapped, **kwargs)

    return Mutant("mean and sum exchanged", mutant)


def _half_of_it(name: str) -> Mutant:
    """Reduces the first half only."""
    aten = e.packet(name)

    def mutant(*args: Any, reduction: int = 1, **kwargs: Any) -> torch.Tensor:
        if reduction == 0:
            return aten(*args, reduction=0, **kwargs)
        out = kwargs.pop("out", None)
        values = aten(*args, reduction=0, **kwargs).reshape(-1)
        total = values[: (values.numel() + 1) // 2].sum()
        value = total / max(values.numel(), 1) if reduction == 1 else total
        return value if out is None else out.copy_(value)

    return Mutant("half the reduction", mutant)


def _loss(
    name: str,
    parameters: str,
    does: str,
    cases: Callable[[], Sequence[Case]],
    oracle: Callable[..., Sequence[Expected]],
    second: Callable[..., Sequence[Any]],
    mutants: tuple[Mutant, ...],
    flops: int,
    has_out: bool = True,
    prepare: Callable[[Call, Case, torch.Generator], None] | None = None,
) -> Operator:
    signatures = [f"{name}({parameters}) -> Tensor"]
    if has_out:
        signatures.append(f"{name}.out({parameters}, *, out: Tensor!) -> Tensor!")
    return Operator(
        id=f"aten::{name}",
        family="loss (pointwise + reduction)",
        signatures=tuple(signatures),
        description=f"{does} {_REDUCTION}",
        sources=(f"PyTorch 2.13, torch.ops.aten.{name}", "aten/src/ATen/native/Loss.cpp"),
        cases=cases,
        oracle=oracle,
        second=second,
        baseline=e.packet(name),
        baseline_name="aten",
        cost=_cost(flops),
        tolerance=_TOLERANCE,
        mutants=(*mutants, _exchanged(name), _half_of_it(name)),
        prepare=prepare,
    )


# --- binary_cross_entropy_with_logits -----------------------------------------------------------


def _bce_terms(
    x: torch.Tensor, t: torch.Tensor, weight: torch.Tensor | None, pos: torch.Tensor | None
) -> Terms:
    factor = torch.ones_like(t) if pos is None else (pos - 1) * t + 1
    linear, log = (1 - t) * x, factor * torch.nn.functional.logsigmoid(x)
    # exp(-|x|) magnifies the rounding of its argument by |x|.
    argument = (factor * x * torch.sigmoid(-x)).abs()
    value, scale = linear - log, linear.abs() + log.abs() + argument
    return (value, scale) if weight is None else (value * weight, scale * weight.abs())


def _bce_oracle(
    self: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    pos_weight: torch.Tensor | None = None,
    reduction: int = 1,
    out: torch.Tensor | None = None,
) -> list[Expected]:
    w, p = (None if v is None else wide(v) for v in (weight, pos_weight))
    return _reduced(_bce_terms(wide(self), wide(target), w, p), reduction, self.dtype)


def _bce_second(
    self: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    pos_weight: torch.Tensor | None = None,
    reduction: int = 1,
    out: torch.Tensor | None = None,
) -> list[Any]:
    x, t = e.array(self), e.array(target)
    w = 1.0 if weight is None else e.array(weight)
    p = 1.0 if pos_weight is None else e.array(pos_weight)
    # -p t ln s(x) - (1 - t) ln s(-x), with ln s(x) = -ln(1 + exp(-x)).
    value = w * (p * t * np.logaddexp(0, -x) + (1 - t) * np.logaddexp(0, x))
    return _np_reduced(value, reduction)


def _bce_extra() -> list[Case]:
    x, t = spec((11, 65)), spec((11, 65), **_PROBABILITY)
    half, half_t = spec((11, 65), e.BF16), spec((11, 65), e.BF16, **_PROBABILITY)
    w, p = spec((11, 65), **_POSITIVE), spec((65,), **_POSITIVE)
    return [
        Case("weight", (x, t, w), {"reduction": 1}),
        Case("weight-broadcast", (x, t, spec((11, 1), **_POSITIVE)), {"reduction": 2}),
        Case("pos-weight", (x, t, None, p), {"reduction": 1}),
        Case("both-weights", (x, t, w, p), {"reduction": 0}),
        Case(
            "both-weights-bfloat16",
            (half, half_t, spec((65,), e.BF16, **_POSITIVE), spec((65,), e.BF16, **_POSITIVE)),
            {"reduction": 0},
        ),
        Case("out-mean", (x, t), {"out": spec(())}, overload=1),
        Case("hard-targets", (x, spec((11, 65), **_SIGN)), {"reduction": 0}),
    ]


def _takes_bce(
    self: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    pos_weight: torch.Tensor | None = None,
    reduction: int = 1,
) -> tuple[Any, int, torch.dtype]:
    w, p = (None if v is None else wide(v) for v in (weight, pos_weight))
    return (wide(self), wide(target), w, p), reduction, self.dtype


def _bce_unguarded(x: torch.Tensor, t: torch.Tensor, w: Any, p: Any) -> torch.Tensor:
    """Through the probability in float32, as if there were no logits."""
    s = torch.sigmoid(x.float()).double()
    factor = 1.0 if p is None else p
    value = -(factor * t * torch.log(s) + (1 - t) * torch.log(1 - s))
    return value if w is None else value * w


_BCE = _loss(
    "binary_cross_entropy_with_logits",
    "self: Tensor, target: Tensor, weight: Tensor?=None, pos_weight: Tensor?=None, reduction: "
    "int=1",
    "Binary cross entropy of logits: l = -weight * (pos_weight * target * ln sigmoid(self) + "
    "(1 - target) * ln(1 - sigmoid(self))), computed from the logits without overflow: (1 - "
    "target) "
    "* self + (1 + (pos_weight - 1) * target) * (ln(1 + exp(-|self|)) + max(-self, 0)). `target` "
    "has the shape of `self`; `weight` and `pos_weight` (each 1 where None) broadcast to it. The "
    "mean divides by the number of elements, not by the weights.",
    _cases(lambda x: (x, spec(x.shape, x.dtype, **_PROBABILITY)), {}, _bce_extra, _full()),
    _bce_oracle,
    _bce_second,
    (
        _wrong("pos_weight ignored", lambda x, t, w, p: _bce_terms(x, t, w, None)[0], _takes_bce),
        _wrong("weight ignored", lambda x, t, w, p: _bce_terms(x, t, None, p)[0], _takes_bce),
        _wrong("no overflow guard", _bce_unguarded, _takes_bce),
        _wrong(
            "linear term dropped",
            lambda x, t, w, p: _bce_terms(x, torch.ones_like(t), w, p)[0],
            _takes_bce,
        ),
    ),
    flops=8,
)


# --- huber_loss ---------------------------------------------------------------------------------


def _huber(x: torch.Tensor, y: torch.Tensor, delta: float) -> torch.Tensor:
    z = (x - y).abs()
    return torch.where(z < delta, 0.5 * z * z, delta * (z - 0.5 * delta))


def _huber_oracle(
    self: torch.Tensor,
    target: torch.Tensor,
    reduction: int = 1,
    delta: float = 1.0,
    out: torch.Tensor | None = None,
) -> list[Expected]:
    value = _huber(wide(self), wide(target), delta)
    return _reduced((value, 2 * value), reduction, self.dtype)


def _huber_second(
    self: torch.Tensor,
    target: torch.Tensor,
    reduction: int = 1,
    delta: float = 1.0,
    out: torch.Tensor | None = None,
) -> list[Any]:
    d = e.array(self) - e.array(target)
    inner = np.clip(d, -delta, delta)
    return _np_reduced(inner * (d - inner / 2), reduction)


def _huber_extra() -> list[Case]:
    x = spec((11, 65))
    return [
        Case("delta-half", (x, x), {"reduction": 1, "delta": 0.5}),
        Case("delta-2", (x, x), {"reduction": 0, "delta": 2.0}),
        Case("gaps", (spec((9, 40), strides=(160, 2)), spec((9, 40))), {"reduction": 2}),
    ]


def _takes_huber(
    self: torch.Tensor, target: torch.Tensor, reduction: int = 1, delta: float = 1.0
) -> tuple[Any, int, torch.dtype]:
    return (wide(self), wide(target), delta), reduction, self.dtype


_HUBER = _loss(
    "huber_loss",
    "self: Tensor, target: Tensor, reduction: int=1, delta: float=1.",
    "Huber loss of z = |self - target|: 0.5 * z * z where z < delta, delta * (z - 0.5 * delta) "
    "elsewhere (not divided by delta). self and target have one shape and dtype.",
    _cases(lambda x: (x, spec(x.shape, x.dtype)), {}, _huber_extra, _full()),
    _huber_oracle,
    _huber_second,
    (
        _wrong("smooth L1", lambda x, y, delta: _huber(x, y, delta) / delta, _takes_huber),
        _wrong("delta ignored", lambda x, y, delta: _huber(x, y, 1.0), _takes_huber),
        _wrong("squares everywhere", lambda x, y, delta: 0.5 * (x - y) ** 2, _takes_huber),
        _wrong(
            "offset dropped",
            lambda x, y, delta: torch.where(
                (x - y).abs() < delta, 0.5 * (x - y) ** 2, delta * (x - y).abs()
            ),
            _takes_huber,
        ),
    ),
    flops=6,
)


# --- soft_margin_loss ---------------------------------------------------------------------------


def _signs(call: Call, case: Case, generator: torch.Generator) -> None:
    """Targets drawn 0 or 1 become -1 or 1."""
    target = call.args[-1]
    if case.name != "weighted-targets":
        target.mul_(2).sub_(1)


def _soft_margin_oracle(
    self: torch.Tensor, target: torch.Tensor, reduction: int = 1, out: torch.Tensor | None = None
) -> list[Expected]:
    z = -wide(target) * wide(self)
    value = torch.nn.functional.softplus(z, threshold=40.0)
    return _reduced((value, torch.sigmoid(z) * (1 + z.abs())), reduction, self.dtype)


def _soft_margin_second(
    self: torch.Tensor, target: torch.Tensor, reduction: int = 1, out: torch.Tensor | None = None
) -> list[Any]:
    return _np_reduced(np.logaddexp(0, -e.array(self) * e.array(target)), reduction)


def _soft_margin_extra() -> list[Case]:
    x = spec((11, 65), **_MODEST)
    return [
        Case("weighted-targets", (x, spec((11, 65), fill="uniform", low=-1.0)), {"reduction": 0}),
        Case("broadcast", (x, spec((65,), **_SIGN)), {"reduction": 1}),
    ]


def _takes_soft_margin(
    self: torch.Tensor, target: torch.Tensor, reduction: int = 1
) -> tuple[Any, int, torch.dtype]:
    return (wide(self), wide(target)), reduction, self.dtype


_SOFT_MARGIN = _loss(
    "soft_margin_loss",
    "self: Tensor, target: Tensor, reduction: int=1",
    "ln(1 + exp(-target * self)); targets are -1 or 1. Where exp overflows the dtype, ATen gives "
    "infinity and a stable form the exact value; no such inputs are tested. self and target "
    "broadcast and have one dtype.",
    _cases(
        lambda x: (x, spec(x.shape, x.dtype, **_SIGN)),
        {},
        _soft_margin_extra,
        _full(**_MODEST),
        input_fill=_MODEST,
    ),
    _soft_margin_oracle,
    _soft_margin_second,
    (
        _wrong("target ignored", lambda x, y: torch.nn.functional.softplus(-x), _takes_soft_margin),
        _wrong("sign turned", lambda x, y: torch.nn.functional.softplus(x * y), _takes_soft_margin),
        _wrong("hinge", lambda x, y: (1 - x * y).clamp_min(0), _takes_soft_margin),
    ),
    flops=6,
    prepare=_signs,
)


# --- margin_ranking_loss ------------------------------------------------------------------------


def _margin_oracle(
    input1: torch.Tensor,
    input2: torch.Tensor,
    target: torch.Tensor,
    margin: float = 0.0,
    reduction: int = 1,
) -> list[Expected]:
    push = -wide(target) * (wide(input1) - wide(input2))
    return _reduced(
        ((push + margin).clamp_min(0), push.abs() + abs(margin)), reduction, input1.dtype
    )


def _margin_second(
    input1: torch.Tensor,
    input2: torch.Tensor,
    target: torch.Tensor,
    margin: float = 0.0,
    reduction: int = 1,
) -> list[Any]:
    a, b, t = e.array(input1), e.array(input2), e.array(target)
    return _np_reduced(np.maximum(0.0, t * (b - a) + margin), reduction)


def _margin_extra() -> list[Case]:
    x = spec((11, 65))
    return [
        Case("margin-zero", (x, x, spec((11, 65), **_SIGN)), {"reduction": 0}),
        Case("margin-negative", (x, x, spec((11, 65), **_SIGN)), {"margin": -0.5, "reduction": 1}),
        Case("broadcast", (spec((7, 1)), spec((1, 33)), spec((7, 33), **_SIGN)), {"margin": 1.0}),
    ]


def _takes_margin(
    a: torch.Tensor, b: torch.Tensor, t: torch.Tensor, margin: float = 0.0, reduction: int = 1
) -> tuple[Any, int, torch.dtype]:
    return (wide(a), wide(b), wide(t), margin), reduction, a.dtype


_MARGIN = _loss(
    "margin_ranking_loss",
    "input1: Tensor, input2: Tensor, target: Tensor, margin: float=0., reduction: int=1",
    "max(0, -target * (input1 - input2) + margin); targets are -1 or 1. The three tensors have the "
    "same number of dimensions, broadcast, and have one dtype.",
    _cases(
        lambda x: (x, spec(x.shape, x.dtype), spec(x.shape, x.dtype, **_SIGN)),
        {"margin": 0.5},
        _margin_extra,
        _full(),
        has_out=False,
    ),
    _margin_oracle,
    _margin_second,
    (
        _wrong("margin ignored", lambda a, b, t, m: (-t * (a - b)).clamp_min(0), _takes_margin),
        _wrong("target ignored", lambda a, b, t, m: (b - a + m).clamp_min(0), _takes_margin),
        _wrong("not clamped", lambda a, b, t, m: -t * (a - b) + m, _takes_margin),
        _wrong("sign turned", lambda a, b, t, m: (t * (a - b) + m).clamp_min(0), _takes_margin),
    ),
    flops=4,
    has_out=False,
    prepare=_signs,
)

OPERATORS = (_BCE, _HUBER, _SOFT_MARGIN, _MARGIN)
