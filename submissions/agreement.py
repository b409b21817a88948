"""Whether what was claimed of candidates is what we found: paired by operator, with intervals.

Statuses are compared one by one. Speeds are compared as ratios, ours over claimed: for a candidate
the interval spans both speedups' intervals; over all, a paired bootstrap of operators (seeded).
Times repeat to a few per cent on the same kind of chip, so a claim is contradicted only where the
whole interval lies more than `TOLERANCE` below it. A claim that was too modest contradicts nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

TOLERANCE = 0.10
#: so many of the candidates may be slower than claimed, by chance or by another driver
ODD_SHARE = 0.05
N_BOOT = 2000
SEED = 20250101

#: agrees; contradicts; incomplete: not all could be graded; elsewhere: on other hardware than
#: claimed, where agreeing is no confirmation and disagreeing no contradiction
Outcome = Literal["agrees", "contradicts", "incomplete", "elsewhere"]


@dataclass(frozen=True)
class Speed:
    """A candidate's speedup: geometric mean over its cases, with the mean ends of the intervals."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Pair:
    """One candidate: claimed and found. No speed: nothing was timed. `unfit`: why it could not be
    graded here at all."""

    operator: str
    candidate: str
    claimed_status: str
    status: str
    claimed: Speed | None = None
    found: Speed | None = None
    unfit: str = ""


@dataclass(frozen=True)
class Agreement:
    """What one pair says. `agrees` is None where nothing can be said."""

    pair: Pair
    agrees: bool | None
    reason: str
    ratio: Speed | None = None


@dataclass(frozen=True)
class Conclusion:
    """What all pairs say together."""

    outcome: Outcome
    reason: str
    ratio: Speed | None


def speed(cases: Iterable[tuple[float, float, float]]) -> Speed | None:
    """The speed of a candidate from (speedup, low, high) of each case; None without any."""
    logs = [[math.log(value) for value in case] for case in cases]
    if not logs:
        return None
    value, low, high = (math.exp(sum(column) / len(logs)) for column in zip(*logs, strict=True))
    return Speed(value, low, high)


def agree(pair: Pair) -> Agreement:
    """Compares one candidate's verdicts."""
    if pair.unfit:
        return Agreement(pair, None, pair.unfit)
    if pair.status in ("infrastructure_error", "unsupported"):
        return Agreement(pair, None, f"could not be graded here: {pair.status}")
    if pair.claimed_status != pair.status:
        return Agreement(pair, False, f"claimed {pair.claimed_status}, found {pair.status}")
    if pair.claimed is None or pair.found is None:
        return Agreement(pair, True, "same status")
    ratio = Speed(
        pair.found.value / pair.claimed.value,
        pair.found.low / pair.claimed.high,
        pair.found.high / pair.claimed.low,
    )
    if ratio.high < 1 - TOLERANCE:
        slower = f"{ratio.value:.2f} of the claimed speedup ({ratio.low:.2f} to {ratio.high:.2f})"
        return Agreement(pair, False, slower, ratio)
    return Agreement(pair, True, "same status and speed", ratio)


def conclude(agreements: Sequence[Agreement], same_hardware: bool) -> Conclusion:
    """What the pairs say together; only of the same hardware it can be for or against the claim."""
    ratio = _overall([a.ratio.value for a in agreements if a.ratio is not None])
    if not same_hardware:
        return Conclusion("elsewhere", "graded on other hardware than claimed", ratio)
    unknown = [a for a in agreements if a.agrees is None]
    wrong = [a for a in agreements if a.agrees is False]
    other = [a for a in wrong if a.pair.claimed_status != a.pair.status]
    if other:
        first = other[0]
        more = f" and {len(other) - 1} more" if len(other) > 1 else ""
        return Conclusion("contradicts", f"{first.pair.operator}: {first.reason}{more}", ratio)
    if ratio is not None and ratio.high < 1 - TOLERANCE:
        told = f"{ratio.value:.2f} of the claimed speed ({ratio.low:.2f} to {ratio.high:.2f})"
        return Conclusion("contradicts", f"over all operators {told}", ratio)
    if len(wrong) > max(ODD_SHARE * len(agreements), 1):
        slow = f"{len(wrong)} of {len(agreements)} operators are slower than claimed"
        return Conclusion("contradicts", slow, ratio)
    if unknown or not agreements:
        what = f"{len(unknown)} of {len(agreements)} candidates could not be graded here"
        return Conclusion("incomplete", what, ratio)
    same = len(agreements) - len(wrong)
    return Conclusion("agrees", f"{same} of {len(agreements)} candidates as claimed", ratio)


def _overall(ratios: Sequence[float]) -> Speed | None:
    """Geometric mean of the ratios, with the 95% interval of a bootstrap over operators."""
    if not ratios:
        return None
    logs = np.log(np.asarray(ratios))
    generator = np.random.default_rng(SEED)
    draws = generator.integers(0, len(logs), size=(N_BOOT, len(logs)))
    low, high = np.quantile(logs[draws].mean(axis=1), [0.025, 0.975])
    return Speed(math.exp(float(logs.mean())), math.exp(float(low)), math.exp(float(high)))
