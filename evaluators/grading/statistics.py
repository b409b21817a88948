"""What the judge concludes from samples: speed, its interval, and whether clocks tell one story.

Numbers in, numbers out; runs anywhere. All times in microseconds. Device layer.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

#: clocks agree within this share of the longer time, or within this many microseconds
AGREE_SHARE, AGREE_US = 0.05, 2.0
#: beyond this share of the longer time (and `AGREE_US`) the clocks contradict each other; between,
#: the figure that does its side no good is taken (`correction`)
GROSS_SHARE = 0.25
#: a call alone may be faster than in a stream by this share: what it writes can stay in the cache
ALONE_SHARE = 0.10
#: below this share of the physical floor a time is impossible; below the other it is looked at
IMPOSSIBLE_SHARE, AUDIT_SHARE = 0.5, 1.05
#: smallest difference of two times that means something, as a share of them and as ticks of the
#: device's timestamps. On an H200, of 60 comparisons each of a function with itself in another
#: process, the largest differences were 0.5% at 18 us and 0.9% at 2.1 us, where one tick of 32 ns
#: is 1.5%. `kernelmark selftest` measures it on the machine at hand
RESOLUTION_SHARE, RESOLUTION_US = 0.005, 0.032


def block_medians(blocks: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """The median of each block."""
    return tuple(statistics.median(block) for block in blocks)


def typical_us(blocks: Sequence[Sequence[float]]) -> float:
    """Median of the block medians: one disturbed block, or a few slow calls, leave it alone."""
    return statistics.median(block_medians(blocks))


def abba(pairs: int) -> tuple[str, ...]:
    """The order of 2 * `pairs` blocks: A B, B A, A B, ...: a steady drift cancels.

    "A" is the candidate, "B" the baseline; the i-th A and the i-th B make pair i.
    """
    return tuple(side for i in range(pairs) for side in ("AB" if i % 2 == 0 else "BA"))


@dataclass(frozen=True)
class Interval:
    """An estimate with the bounds of its confidence interval."""

    value: float
    low: float
    high: float


def speedup(
    candidate: Sequence[Sequence[float]],
    baseline: Sequence[Sequence[float]],
    *,
    seed: int = 0,
    resamples: int = 2000,
    confidence: float = 0.95,
) -> Interval:
    """Baseline time over candidate time, from blocks measured in pairs (block i beside block i).

    The value is the ratio of the medians of block medians. The interval is a percentile bootstrap
    in two levels: pairs of blocks are drawn with replacement (drift hits both sides of a pair),
    then calls within each block. Needs two pairs at least; five are the least that is useful.
    Raises ValueError on unequal numbers of blocks or times that are not positive and finite.
    """
    if len(candidate) != len(baseline) or len(candidate) < 2:
        raise ValueError(f"{len(candidate)} candidate and {len(baseline)} baseline blocks")
    if not all(np.isfinite(t) and t > 0 for side in (candidate, baseline) for b in side for t in b):
        raise ValueError("a time is not positive and finite")
    rng = np.random.default_rng(seed)
    pairs = rng.integers(0, len(candidate), size=(resamples, len(candidate)))
    ratios = _resampled(baseline, pairs, rng) / _resampled(candidate, pairs, rng)
    tail = (1 - confidence) / 2
    low, high = np.quantile(ratios, [tail, 1 - tail])
    value = typical_us(baseline) / typical_us(candidate)
    return Interval(value, min(float(low), value), max(float(high), value))


def _resampled(
    blocks: Sequence[Sequence[float]], pairs: npt.NDArray[np.int64], rng: np.random.Generator
) -> npt.NDArray[np.float64]:
    """One median of block medians a row of `pairs`, each block's calls drawn anew."""
    medians = np.empty(pairs.shape)
    for index, block in enumerate(blocks):
        times = np.asarray(block, dtype=np.float64)
        chosen = pairs == index
        draws = rng.integers(0, len(times), size=(int(chosen.sum()), len(times)))
        medians[chosen] = np.median(times[draws], axis=1)
    return np.asarray(np.median(medians, axis=1), dtype=np.float64)


def differs(interval: Interval, device_us: float, resolution_share: float | None = None) -> bool:
    """Whether a speedup is claimed as a win or a loss, not as a tie.

    Two conditions: the interval excludes 1, and the effect exceeds the resolution of the clock for
    a time of `device_us`. The interval alone is not enough: samples are multiples of the device's
    tick, and where a process's memory happens to lie shifts all of its blocks alike.
    `resolution_share` replaces the default share by one that `selftest` measured.
    """
    share = RESOLUTION_SHARE if resolution_share is None else resolution_share
    resolution = share + RESOLUTION_US / device_us
    excludes_one = interval.low > 1 or interval.high < 1
    effect = max(interval.value, 1 / interval.value) - 1
    return excludes_one and effect > resolution


Plausibility = Literal["plausible", "audit", "implausible", "unknown"]


def plausibility(device_us: float, floor_us: float | None) -> Plausibility:
    """Holds a time against the least that the chip's peaks allow.

    Under half the floor: "implausible", the work was not done. Up to 1.05 of it: "audit", as good
    as perfect, which is rare. "unknown" where the chip's peaks are not known.
    """
    if floor_us is None:
        return "unknown"
    if not device_us >= IMPOSSIBLE_SHARE * floor_us:  # NaN is implausible too
        return "implausible"
    return "audit" if device_us < AUDIT_SHARE * floor_us else "plausible"


def per_call_us(spans_us: Sequence[float], calls: int) -> float:
    """Time of one call from the judge's spans of queues of `calls`: a disturbed one is outvoted."""
    return statistics.median(spans_us) / calls


Finding = Literal[
    "agree", "claimed_too_short", "claimed_too_long", "cold_not_backed", "no_second_clock"
]


@dataclass(frozen=True)
class Agreement:
    """Whether the runner's claim holds against the judge's clock, and why in one line.

    `gross`: by more than `GROSS_SHARE`; the measurement is void, or one side lies.
    """

    finding: Finding
    detail: str
    claimed_us: float
    wall_us: float | None
    gross: bool = False

    @property
    def agree(self) -> bool:
        """Whether both clocks tell one story."""
        return self.finding == "agree"


def tolerance_us(*times_us: float) -> float:
    """By how much two clocks may differ: 5% of the longer, or 2 microseconds."""
    return max(AGREE_SHARE * max(times_us), AGREE_US)


def agreement(claimed_us: float, wall_us: float | None, cold_us: float | None = None) -> Agreement:
    """Holds the runner's device trace against the judge's wall clock over a queue of calls.

    claimed_us: the trace's time per call, mode "stream": the same calls after the same copies of
    inputs, no flush; the caches are in the same state in both.
    wall_us: the judge's time per call over the queue (`latch`, then `per_call_us`); None when it
    could not be taken, because the call waits for the device itself.
    cold_us: the device time that goes into the speedup.

    Findings other than "agree":

    - "claimed_too_short": the work took longer than the runner said: the candidate's gain.
    - "claimed_too_long": nobody's gain on the candidate's side; the tracer's own cost for each
      kernel, a disturbed measurement, or others on the device.
    - "cold_not_backed": the trace is right about the stream, but the cold time is well below it,
      and a call alone with cold caches has little reason to be faster.
    - "no_second_clock": nothing backs the claim.

    What becomes of the figures is in `correction`; what a `gross` one means, in `speed`.
    """
    if wall_us is None:
        detail = "the call cannot be queued, so that the judge's clock sees the host's time too"
        return Agreement("no_second_clock", detail, claimed_us, None)
    slack = tolerance_us(claimed_us, wall_us)
    apart = abs(claimed_us - wall_us)
    gross = apart > max(GROSS_SHARE * max(claimed_us, wall_us), AGREE_US)
    text = f"trace {claimed_us:.2f} us, judge's clock {wall_us:.2f} us a call"
    if apart > slack:
        finding: Finding = "claimed_too_short" if claimed_us < wall_us else "claimed_too_long"
        return Agreement(finding, text, claimed_us, wall_us, gross)
    if cold_us is not None and cold_us < wall_us - _alone_us(wall_us):
        text = f"cold device time {cold_us:.2f} us, judge's clock {wall_us:.2f} us in a stream"
        return Agreement("cold_not_backed", text, cold_us, wall_us)
    return Agreement("agree", text, claimed_us, wall_us)


Role = Literal["candidate", "baseline"]


def correction(found: Agreement, role: Role, cold_us: float, latency_us: float | None) -> float:
    """What cold times are multiplied by, so that no disagreement does the candidate any good.

    The candidate's are never shortened, the baseline's never lengthened: the longer figure of the
    two clocks counts for the one, the shorter for the other. Just beyond the edge of agreement only
    part of the difference counts, and all of it from twice as far on, so that nothing jumps there:
    a measurement at the edge repeats. A candidate whose calls no second
    clock can see gets the judge's end-to-end latency (`latency_us`), for want of a better figure;
    the baseline is our own code, and its trace stands. `latency_us` None: not to be used.
    """
    if found.finding == "no_second_clock":
        longer = 1.0 if latency_us is None else latency_us / cold_us
        return max(1.0, longer) if role == "candidate" else 1.0
    if found.agree or found.wall_us is None:
        return 1.0
    slack = tolerance_us(found.claimed_us, found.wall_us)
    if found.finding == "cold_not_backed":
        slack = _alone_us(found.wall_us)
    slack = max(0.0, 2 * slack - abs(found.wall_us - found.claimed_us))
    if role == "candidate":
        return max(1.0, (found.wall_us - slack) / found.claimed_us)
    return min(1.0, (found.wall_us + slack) / found.claimed_us)


def _alone_us(wall_us: float) -> float:
    """By how much a call alone may be faster than in a stream."""
    return max(ALONE_SHARE * wall_us, AGREE_US)
