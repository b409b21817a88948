"""ATen operators that draw random numbers: bernoulli, exponential_, poisson, rrelu_with_noise.

No result is compared with ATen's own stream. `accepts` tests support, distribution and
independence of what one call returned; each call is falsely refused with a probability below 1e-6
(about forty tests, each below `_CHANCE`). That calls differ from one another is the judge's test:
the oracle's `scale` is each element's standard deviation, and where the elements together can't
agree by chance (`operators.calling.must_differ`), two equal answers are refused.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from kernelmark.operators.aten import elementwise as e
from kernelmark.operators.building import FLOATS, dtype_name, spec, wide
from kernelmark.operators.records import (
    Case,
    Cost,
    Expected,
    Mutant,
    Operator,
    TensorSpec,
    Tolerance,
)

_CHANCE = 1e-8  #: false-alarm probability of one test
_MANY = 1 << 22  #: elements that the costlier tests look at
_TOLERANCE = Tolerance(
    kind="distribution",
    limit=0.0,
    why="Bernstein bounds on sums and lagged products, the Dvoretzky-Kiefer-Wolfowitz bound on the "
    "distribution function; false alarms below 1e-6 a call",
)
_GENERATOR = (
    "Numbers come from `generator`, the device's default where None; no particular stream is asked "
    "for, but elements are independent of each other, and every call draws new ones."
)


# --- tests, each an empty string or the reason for refusal --------------------------------------


def _too_far(deviation: torch.Tensor, variance: torch.Tensor, of: str) -> str:
    """Bernstein: a sum of independent terms of this total variance, each within 1 of its mean."""
    log = math.log(2 / _CHANCE)
    bound = math.sqrt(2 * float(variance) * log) + 2 * log / 3
    if abs(float(deviation)) <= bound:
        return ""
    return f"{of} is {float(deviation):+.6g} from its mean, bound {bound:.6g} (chance {_CHANCE:g})"


def _dependent(centred: torch.Tensor, variance: torch.Tensor, row: int) -> Iterator[str]:
    """Products of elements a lag apart, for powers of two and the row length, average to zero."""
    x, v = centred.reshape(-1)[: 4 * _MANY], variance.expand(centred.shape).reshape(-1)
    lags = {1 << k for k in range(24)} | {3, row}
    for lag in sorted(n for n in lags if 0 < n <= x.numel() // 2):
        spread = (x[:-lag].square() * v[lag : x.numel()]).sum()
        yield _too_far((x[:-lag] * x[lag:]).sum(), spread, f"the product over a lag of {lag}")


def _parts(centred: torch.Tensor, variance: torch.Tensor) -> Iterator[str]:
    """Sums over the whole and over sixteen stretches of it."""
    x, v = centred.reshape(-1), variance.expand(centred.shape).reshape(-1)
    yield _too_far(x.sum(), v.sum(), "the sum")
    if x.numel() >= 1024:
        for number, (a, b) in enumerate(zip(x.chunk(16), v.chunk(16), strict=True)):
            yield _too_far(a.sum(), b.sum(), f"the sum over stretch {number} of 16")


def _not_uniform(u: torch.Tensor, slack: float) -> str:
    """Distance of the empirical distribution of `u` from U(0, 1): Dvoretzky-Kiefer-Wolfowitz."""
    n = u.numel()
    if n < 2:
        return ""
    step = max(1, n // _MANY)
    ordered = u.reshape(-1)[::step].sort().values
    n = ordered.numel()
    rank = torch.arange(1, n + 1, device=u.device, dtype=torch.float64) / n
    distance = float(torch.maximum((rank - ordered).abs(), (ordered - rank + 1 / n).abs()).max())
    bound = math.sqrt(math.log(2 / _CHANCE) / (2 * n)) + slack + 1 / n
    return "" if distance <= bound else f"distribution is off by {distance:.4g}, bound {bound:.4g}"


def _first(reasons: Iterator[str]) -> str:
    return next((reason for reason in reasons if reason), "")


def _row(x: torch.Tensor) -> int:
    return x.shape[-1] if x.dim() else 1


def _expect(mean: torch.Tensor, deviation: torch.Tensor, dtype: torch.dtype) -> Expected:
    return Expected(mean, dtype, deviation)


def _means(*args: Any, **kwargs: Any) -> list[Any]:
    """Random results have no second statement."""
    raise NotImplementedError("judged by accepts")


def _random(
    name: str,
    signatures: tuple[str, ...],
    description: str,
    cases: Callable[[], list[Case]],
    oracle: Callable[..., Sequence[Expected]],
    accepts: Callable[[Case, Sequence[Any], Sequence[torch.Tensor]], str],
    mutants: tuple[Mutant, ...],
    cost: Callable[[Case], Cost],
    note: str = "",
) -> Operator:
    return Operator(
        id=f"aten::{name}",
        family="random",
        signatures=signatures,
        description=f"{description} {_GENERATOR}",
        sources=(f"PyTorch 2.13, torch.ops.aten.{name}", "aten/src/ATen/native/Distributions.cpp"),
        cases=functools.cache(lambda: tuple(cases())),
        oracle=oracle,
        second=_means,
        baseline=e.packet(name),
        baseline_name="aten",
        cost=cost,
        tolerance=_TOLERANCE,
        mutants=mutants,
        kind="random",
        accepts=accepts,
        note=note,
    )


def _layouts(**fill: Any) -> dict[str, TensorSpec]:
    """Small inputs; the larger ones give the tests their power."""
    made = e.unary_layouts(**fill)
    made["long"] = spec((16411,), **fill)
    return {n: x for n, x in made.items() if n != "expanded"}


def _same_seed(name: str) -> Mutant:
    """Seeded anew in every call."""

    def mutant(*args: Any, **kwargs: Any) -> Any:
        device = next(a.device for a in args if isinstance(a, torch.Tensor))
        generator = torch.Generator(device).manual_seed(1234)
        return e.packet(name)(*args, generator=generator, **kwargs)

    return Mutant("same seed in every call", mutant)


def _repeated(x: torch.Tensor, period: int = 512) -> torch.Tensor:
    """Every `period` elements the same, as if each program used the same stream."""
    flat = x.reshape(-1)
    index = torch.arange(flat.numel(), device=x.device) % period
    return flat[index.clamp_max(max(flat.numel() - 1, 0))].view(x.shape)


# --- bernoulli ----------------------------------------------------------------------------------

_UNIT: dict[str, Any] = {"fill": "uniform", "low": 0.0, "high": 1.0}


def _chances(self: torch.Tensor, p: Any = None) -> torch.Tensor:
    """Probability of each element, float64 in self's shape."""
    if p is None:
        return wide(self)
    return wide(torch.as_tensor(p, device=self.device)).double().expand(self.shape)


def _bernoulli_oracle(
    self: torch.Tensor, p: Any = None, *, out: torch.Tensor | None = None
) -> list[Expected]:
    chance = _chances(self, p)
    return [_expect(chance, (chance * (1 - chance)).sqrt(), self.dtype)]


def _bernoulli_accepts(case: Case, args: Sequence[Any], results: Sequence[torch.Tensor]) -> str:
    x = wide(results[0]).double()
    if not bool(((x == 0) | (x == 1)).all()):
        return "an element is neither 0 nor 1"
    chance = _chances(*args[:2])
    variance = chance * (1 - chance)
    if bool(((variance == 0) & (x != chance)).any()):
        return "an element of probability 0 or 1 has the other value"
    centred = x - chance
    return _first(iter([*_parts(centred, variance), *_dependent(centred, variance, _row(x))]))


def _bernoulli_cases() -> list[Case]:
    one = ("base", "base")
    small = [Case(n, (x,), draws=one) for n, x in _layouts(**_UNIT).items()]
    x, half = spec((37, 53)), spec((64, 65), e.BF16)
    small += [
        Case("p", (x, 0.3), overload=1, draws=one),
        Case("p-bfloat16", (half, 0.9), overload=1, draws=one),
        Case("p-int64", (spec((4099,), e.I64, fill="zeros"), 0.1), overload=1, draws=one),
        Case("p-zero", (x, 0.0), overload=1, draws=("base",)),
        Case("p-one", (x, 1.0), overload=1, draws=("base",)),
        Case("tensor", (half, spec((64, 65), **_UNIT)), overload=2, draws=one),
        Case("tensor-row", (x, spec((53,), **_UNIT)), overload=2, draws=one),
        Case("out", (spec((37, 53), **_UNIT),), {"out": spec((37, 53))}, overload=3, draws=one),
        Case("out-p", (x, 0.7), {"out": spec((37, 53), strides=(1, 37))}, overload=5, draws=one),
        Case(
            "out-tensor",
            (x, spec((37, 1), **_UNIT)),
            {"out": spec((37, 53))},
            overload=4,
            draws=one,
        ),
    ]
    full = [e.full_case(n, (x,), o, draws=one) for n, (x, o) in _large(**_UNIT)]
    full += [
        e.full_case(f"dropout-{n}", (x, 0.9), o, overload=1, draws=one) for n, (x, o) in _large()
    ]
    return small + full


def _large(**fill: Any) -> list[tuple[str, tuple[TensorSpec, str]]]:
    wanted = (
        "llama-3-mlp",
        "llama-2-mlp-float32",
        "gpt2-mlp",
        "unet-float32",
        "resnet-channels-last",
    )
    return [(n, x) for n, x in e.unary_full(**fill).items() if n in wanted]


def _wrong_bernoulli(label: str, function: Callable[[torch.Tensor], torch.Tensor]) -> Mutant:
    def mutant(self: torch.Tensor, p: Any = None) -> torch.Tensor:
        return function(_chances(self, p)).to(self.dtype)

    return Mutant(label, e.into_out(mutant))


def _cost(reads: Callable[[Case], int], flops: int) -> Callable[[Case], Cost]:
    def cost(case: Case) -> Cost:
        x = case.tensors[0]
        return Cost(flops * x.numel, reads(case) + x.numel * x.dtype.itemsize)

    return cost


def _bernoulli_reads(case: Case) -> int:
    """The probabilities, wherever they are: `self`'s own values only count where there is no p."""
    if len(case.args) == 1:
        return case.tensors[0].nbytes
    return case.args[1].nbytes if isinstance(case.args[1], TensorSpec) else 0


_BERNOULLI = _random(
    "bernoulli",
    (
        "bernoulli(self: Tensor, *, generator: Generator?=None) -> Tensor",
        "bernoulli.p(self: Tensor, p: float, *, generator: Generator?=None) -> Tensor",
        "bernoulli.Tensor(self: Tensor, p: Tensor, *, generator: Generator?=None) -> Tensor",
        "bernoulli.out(self: Tensor, *, generator: Generator?=None, out: Tensor!) -> Tensor!",
        "bernoulli.Tensor_out(self: Tensor, p: Tensor, *, generator: Generator?=None, out: Tensor!)"
        " -> Tensor!",
        "bernoulli.float_out(self: Tensor, p: float=0.5, *, generator: Generator?=None, "
        "out: Tensor!) -> Tensor!",
    ),
    "Ones and zeros in the shape and dtype of `self`, each 1 with its own probability: the element "
    "of `self` where no `p` is given, else `p`, a number or a tensor that broadcasts to `self` "
    "(whose "
    "values then do not matter). Probability 0 gives 0 and 1 gives 1, always.",
    _bernoulli_cases,
    _bernoulli_oracle,
    _bernoulli_accepts,
    (
        _wrong_bernoulli("rounded probability", lambda p: p > 0.5),
        _wrong_bernoulli("fair coin", lambda p: torch.rand_like(p) < 0.5),
        _wrong_bernoulli("complement", lambda p: torch.rand_like(p) >= p),
        _wrong_bernoulli("repeated stream", lambda p: _repeated(torch.rand_like(p)) < p),
        _wrong_bernoulli(
            "one number a row", lambda p: torch.rand_like(p[..., :1] if p.dim() else p) < p
        ),
        _same_seed("bernoulli"),
    ),
    _cost(_bernoulli_reads, 1),
)


# --- exponential_ -------------------------------------------------------------------------------


def _exponential_oracle(self: torch.Tensor, lambd: float = 1.0) -> list[Expected]:
    mean = torch.full((), 1 / lambd, dtype=torch.float64, device=self.device).expand(self.shape)
    return [_expect(mean, mean, self.dtype)]


def _exponential_accepts(case: Case, args: Sequence[Any], results: Sequence[torch.Tensor]) -> str:
    rate = args[1] if len(args) > 1 else 1.0
    x = wide(results[0])
    if not bool((x.isfinite() & (x >= 0)).all()):
        return "an element is negative or not finite"
    u = -torch.expm1(-rate * x)
    reason = _not_uniform(u, slack=2 * torch.finfo(results[0].dtype).eps)
    if reason or results[0].dtype != torch.float32:
        return reason or _first(_independent(u))
    ordered = x.reshape(-1)[:_MANY].sort().values
    few = int((ordered[1:] != ordered[:-1]).sum()) < 0.5 * ordered.numel()
    return (
        "more than half of the values repeat" if few and x.numel() > 64 else _first(_independent(u))
    )


def _independent(u: torch.Tensor) -> Iterator[str]:
    variance = torch.full((), 1 / 12, dtype=torch.float64, device=u.device)
    yield from _dependent(u - 0.5, variance, _row(u))


def _exponential_cases() -> list[Case]:
    one = ("base", "base")
    small = [Case(n, (x,), draws=one) for n, x in _layouts().items()]
    small += [
        Case("rate-2.5", (spec((64, 65)), 2.5), draws=one),
        Case("rate-0.1-bfloat16", (spec((64, 65), e.BF16), 0.1), draws=one),
        Case("rate-100", (spec((4099,)), 100.0), draws=one),
    ]
    full = [e.full_case(n, (x,), o, draws=one) for n, (x, o) in _large()]
    full += [
        e.full_case(
            "llama-3-sampling",
            (spec((512, 128256)),),
            "Llama 3 vocabulary, exponential race of 512 requests",
            draws=one,
        ),
        e.full_case(
            "arrivals",
            (spec((1 << 25,)), 0.25),
            "load generator of a serving benchmark, 33.5 million arrivals",
            draws=one,
        ),
    ]
    return small + full


def _wrong_exponential(
    label: str, function: Callable[[torch.Tensor, float], torch.Tensor]
) -> Mutant:
    def mutant(self: torch.Tensor, lambd: float = 1.0) -> torch.Tensor:
        u = torch.rand(self.shape, device=self.device, dtype=torch.float64)
        return self.copy_(function(1 - u, lambd))

    return Mutant(label, mutant)


_EXPONENTIAL = _random(
    "exponential_",
    ("exponential_(self: Tensor!, lambd: float=1., *, generator: Generator?=None) -> Tensor!",),
    "In place: every element of `self` becomes a draw from the exponential distribution of rate "
    "`lambd` (density lambd * exp(-lambd x) for x >= 0, mean 1 / lambd), rounded to self's dtype. "
    "All are finite. The former values do not matter; memory between the elements of a strided "
    "`self` stays untouched. Returns `self`.",
    _exponential_cases,
    _exponential_oracle,
    _exponential_accepts,
    (
        _wrong_exponential("rate ignored", lambda u, rate: -u.log()),
        _wrong_exponential("rate for mean", lambda u, rate: -u.log() * rate),
        _wrong_exponential("uniform", lambda u, rate: u / rate),
        _wrong_exponential("repeated stream", lambda u, rate: -_repeated(u).log() / rate),
        _wrong_exponential(
            "eight random bits", lambda u, rate: -((u * 256).ceil() / 256).log() / rate
        ),
        _same_seed("exponential_"),
    ),
    _cost(lambda case: 0, 4),
)


# --- poisson ------------------------------------------------------------------------------------

_RATES: dict[str, Any] = {"fill": "uniform", "low": 0.0, "high": 12.0}


def _poisson_oracle(self: torch.Tensor, *, out: torch.Tensor | None = None) -> list[Expected]:
    return [_expect(wide(self), wide(self).sqrt(), self.dtype)]


def _poisson_accepts(case: Case, args: Sequence[Any], results: Sequence[torch.Tensor]) -> str:
    x, rate = wide(results[0]), wide(args[0])
    if not bool((x.isfinite() & (x >= 0) & (x == x.round())).all()):
        return "an element is not a natural number"
    if bool(((rate == 0) & (x != 0)).any()):
        return "an element of rate 0 is not 0"
    positive = (rate > 0).reshape(-1)
    step = max(1, x.numel() // _MANY)
    k, r = x.reshape(-1)[positive][::step], rate.reshape(-1)[positive][::step]
    # Where the distribution jumps from P(X < k) to P(X <= k), a point between, at random.
    up = torch.special.gammaincc(k + 1, r)
    down = torch.where(k > 0, torch.special.gammaincc(k.clamp_min(1), r), 0.0)
    generator = torch.Generator(x.device).manual_seed(k.numel())
    between = torch.rand(k.shape, generator=generator, device=x.device, dtype=torch.float64)
    u = down + between * (up - down)
    total = _too_far((x - rate).sum(), rate.sum(), "the sum")
    return total or _not_uniform(u, slack=0.0) or _first(_independent(u))


def _poisson_cases() -> list[Case]:
    one = ("base", "base")
    small = [Case(n, (x,), draws=one) for n, x in _layouts(**_RATES).items()]
    tiny: dict[str, Any] = {"fill": "uniform", "low": 0.0, "high": 0.2}
    large: dict[str, Any] = {"fill": "uniform", "low": 50.0, "high": 100.0}
    small += [
        Case("rare", (spec((64, 65), **tiny),), draws=one),
        Case("frequent", (spec((64, 65), **large),), draws=one),
        Case("zero", (spec((37, 53), fill="zeros"),), draws=("base",)),
        Case("out", (spec((37, 53), **_RATES),), {"out": spec((37, 53))}, overload=1, draws=one),
    ]
    full = [e.full_case(n, (x,), o, draws=one) for n, (x, o) in _large(**_RATES)]
    full += [
        e.full_case(
            f"photon-counts-{dtype_name(t)}",
            (spec((64, 512, 512), t, **(large if t == e.F32 else _RATES)),),
            "shot noise of 64 images of 512 x 512 for a denoiser",
            draws=one,
        )
        for t in (e.F32, e.F16)
    ]
    return small + full


def _wrong_poisson(label: str, function: Callable[[torch.Tensor], torch.Tensor]) -> Mutant:
    def mutant(self: torch.Tensor) -> torch.Tensor:
        return function(wide(self)).to(self.dtype)

    return Mutant(label, e.into_out(mutant))


def _normal_approximation(rate: torch.Tensor) -> torch.Tensor:
    return (rate + rate.sqrt() * torch.randn_like(rate)).round().clamp_min(0)


_POISSON = _random(
    "poisson",
    (
        "poisson(self: Tensor, generator: Generator?=None) -> Tensor",
        "poisson.out(self: Tensor, generator: Generator?=None, *, out: Tensor!) -> Tensor!",
    ),
    "A draw from the Poisson distribution for every element of `self`, its rate (mean and "
    "variance, "
    "not negative), as a natural number in self's dtype. Rate 0 gives 0.",
    _poisson_cases,
    _poisson_oracle,
    _poisson_accepts,
    (
        _wrong_poisson("rounded rate", torch.round),
        _wrong_poisson("normal approximation", _normal_approximation),
        _wrong_poisson(
            "mean of the rates", lambda r: torch.poisson(r * 0 + (r.mean() if r.numel() else 0))
        ),
        _wrong_poisson("off by one", lambda r: torch.poisson(r) + 1),
        _wrong_poisson("repeated stream", lambda r: torch.poisson(_repeated(r))),
        _same_seed("poisson"),
    ),
    _cost(lambda case: case.tensors[0].nbytes, 20),
)


# --- rrelu_with_noise ---------------------------------------------------------------------------


def _rrelu_oracle(
    self: torch.Tensor,
    noise: torch.Tensor,
    lower: float = 0.125,
    upper: float = 1 / 3,
    training: bool = False,
    *,
    out: torch.Tensor | None = None,
) -> list[Expected]:
    x, middle = wide(self), (lower + upper) / 2
    drawn = (x <= 0) & training
    spread = drawn.double() * (upper - lower) / math.sqrt(12)
    slope = torch.where(x <= 0, middle, 1.0)
    result = _expect(x * slope, x.abs() * spread, self.dtype)
    kept = torch.where(x <= 0, middle, 1.0) if training else wide(noise)
    changed = _expect(kept, spread, noise.dtype)
    return [changed, result] if out is not None else [result, changed]


def _rrelu_accepts(case: Case, args: Sequence[Any], results: Sequence[torch.Tensor]) -> str:
    lower, upper, training = (*args[2:], *(0.125, 1 / 3, False)[len(args) - 2 :])[:3]
    given = [wide(r) for r in results]
    result, noise = reversed(given) if "out" in case.kwargs else given
    x = wide(args[0])
    eps = torch.finfo(args[0].dtype).eps
    slope = noise
    if not training:
        if not torch.equal(noise, wide(args[1])):
            return "noise was changed outside training"
        slope = torch.where(x <= 0, (lower + upper) / 2, 1.0)
    tiny = torch.finfo(args[0].dtype).smallest_normal
    if bool(((result - x * slope).abs() > 1.5 * eps * (x * slope).abs().clamp_min(tiny)).any()):
        return "the result is not self times its slope"
    if not training:
        return ""
    if bool(((x > 0) & (noise != 1)).any()):
        return "noise is not 1 where self is positive"
    drawn = noise[x <= 0]
    if bool(((drawn < lower - eps * lower) | (drawn > upper + eps * upper)).any()):
        return "a slope lies outside [lower, upper]"
    if upper == lower:
        return ""
    u = (drawn - lower) / (upper - lower)
    # Slopes are rounded to the dtype, by up to eps * upper / 2.
    return _not_uniform(u, slack=eps * upper / (upper - lower)) or _first(_independent(u))


def _rrelu_cases() -> list[Case]:
    one = ("base", "base")
    small = []
    for n, x in _layouts().items():
        if x.dtype == torch.float16:  # ATen's CPU kernel has no float16 in training
            x = spec(x.shape, e.BF16, strides=x.strides, offset=x.offset)
        small.append(Case(f"train-{n}", (x, spec(x.shape, x.dtype), 0.125, 0.375, True), draws=one))
    for t in FLOATS:
        x = spec((9, 65), t)
        small.append(Case(f"eval-{dtype_name(t)}", (x, x, 0.125, 0.375, False), draws=one))
    x = spec((64, 65))
    small += [
        Case("default", (x, x), draws=("base",)),
        Case("bounds-far", (spec((64, 65), strides=(1, 64)), x, 0.01, 0.99, True), draws=one),
        Case("bounds-equal", (x, x, 0.25, 0.25, True), draws=("base",)),
        Case("out", (x, x, 0.1, 0.4, True), {"out": x}, overload=1, draws=one),
    ]
    full = [
        e.full_case(f"train-{n}", (x, spec(x.shape, x.dtype), 0.125, 1 / 3, True), o, draws=one)
        for n, (x, o) in _large()
    ]
    full += [
        e.full_case(f"eval-{n}", (x, spec(x.shape, x.dtype), 0.125, 1 / 3, False), o, draws=one)
        for n, (x, o) in _large()
        if n != "unet-float32"
    ]
    return small + full


def _wrong_rrelu(
    label: str, slopes: Callable[[torch.Tensor, float, float], torch.Tensor]
) -> Mutant:
    def mutant(
        self: torch.Tensor,
        noise: torch.Tensor,
        lower: float = 0.125,
        upper: float = 1 / 3,
        training: bool = False,
        *,
        out: torch.Tensor | None = None,
    ) -> torch.Tensor:
        x = wide(self)
        slope = torch.where(x <= 0, slopes(torch.rand_like(x), lower, upper), 1.0).to(self.dtype)
        if training:
            noise.copy_(slope)
        value = (x * slope).to(self.dtype)
        return value if out is None else out.copy_(value)

    return Mutant(label, mutant)


def _noise_unwritten(
    self: torch.Tensor, noise: torch.Tensor, *args: Any, **kwargs: Any
) -> torch.Tensor:
    return torch.ops.aten.rrelu_with_noise(self, noise.clone(), *args, **kwargs)


def _rrelu_cost(case: Case) -> Cost:
    x = case.tensors[0]
    training = len(case.args) > 4 and case.args[4]
    return Cost(2 * x.numel, x.nbytes + x.numel * x.dtype.itemsize * (2 if training else 1))


_RRELU = _random(
    "rrelu_with_noise",
    (
        "rrelu_with_noise(self: Tensor, noise: Tensor!, lower: Scalar=0.125, "
        "upper: Scalar=0.3333333333333333, training: bool=False, generator: Generator?=None)"
        " -> Tensor",
        "rrelu_with_noise.out(self: Tensor, noise: Tensor!, lower: Scalar=0.125, "
        "upper: Scalar=0.3333333333333333, training: bool=False, generator: Generator?=None, *, "
        "out: Tensor!) -> Tensor!",
    ),
    "Randomised leaky rectifier. In training every element that is not positive is multiplied by a "
    "slope of its own, drawn uniformly from [lower, upper], and `noise` (self's shape and dtype) "
    "is "
    "overwritten with the slopes, 1 where self is positive; the result is self * noise, rounded "
    "once "
    "or from the rounded slope. Outside training the slope is (lower + upper) / 2 and `noise` "
    "keeps "
    "its values.",
    _rrelu_cases,
    _rrelu_oracle,
    _rrelu_accepts,
    (
        _wrong_rrelu("mean slope", lambda u, lo, up: 0 * u + (lo + up) / 2),
        _wrong_rrelu("slopes from 0", lambda u, lo, up: u * up),
        _wrong_rrelu("lower half only", lambda u, lo, up: lo + u * (up - lo) / 2),
        _wrong_rrelu("repeated stream", lambda u, lo, up: lo + _repeated(u) * (up - lo)),
        Mutant("noise not written", _noise_unwritten),
        _same_seed("rrelu_with_noise"),
    ),
    _rrelu_cost,
)

OPERATORS = (_BERNOULLI, _EXPONENTIAL, _POISSON, _RRELU)
