"""The judge's part of timing one case: two runners in alternation, then a clock of its own.

What a runner does on request (trace a block, queue calls behind the latch) is in `timing` and
`latch`; what the numbers mean is in `statistics`. Here is the order of events. Device layer.

Both sides hold the same number of private input sets; a block is one call on each of them:

1. Both open a recording. Blocks alternate A B, B A, ...; before each the sets get fresh inputs,
   after each its results are checked.
2. One short warm block and one stream each, in the same recording; recordings are closed.
3. Each side queues a call on each set, some times over, and the judge's clock times them. No set is
   called twice in a queue: a second call on the same input could be skipped, and its answer would
   not show it. Stream and queue are the same calls after the same copies of the same inputs, so
   that what those leave in the cache is the same for both clocks.

A figure that the judge's clock does not back is replaced by the one that does its side no good
(`statistics.correction`); it is never taken on trust.
"""

from __future__ import annotations

import statistics as basics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from kernelmark.evaluators.grading import statistics
from kernelmark.evaluators.grading.latch import Latch, LatchError
from kernelmark.evaluators.grading.records import Samples, Timing
from kernelmark.evaluators.grading.statistics import Agreement, Role
from kernelmark.evaluators.grading.telemetry import Summary
from kernelmark.evaluators.grading.timing import Block, Mode

#: input sets: of calls that are over soon, of others, of those that are long by the chip's peaks
SHORT_SETS, SETS, LONG_SETS = 12, 8, 4
SHORT_BYTES, LONG_US = 64 << 20, 1_000.0
#: calls of the warm block
WARM = 4


class Side(Protocol):
    """One runner with its input sets. A candidate's failures pass through as the judge's own."""

    def refresh(self) -> None:
        """Fresh secret inputs in every set, results of earlier calls gone."""
        ...

    def start(self) -> None:
        """Opens a recording after a warm-up on inputs that are not used again."""
        ...

    def block(self, mode: Mode, calls: int) -> None:
        """One recorded call on each of the first `calls` sets, in order."""
        ...

    def check(self, sets: int) -> None:
        """Checks results of the last calls on the first `sets` sets, a secret choice of them."""
        ...

    def stop(self) -> Callable[[], tuple[Block, ...]]:
        """Has the recording closed and does not wait; what it returns waits, and gives it."""
        ...

    def queue_limit(self, activities: int) -> int:
        """On how many sets a call can be queued if each puts so many `activities` on the device,
        with the copies of their inputs."""
        ...

    def queue(self, calls: int, ticket: int, timeout_s: float) -> bool:
        """Queues the copy of inputs of the first `calls` sets and a call on each, behind the latch.

        The copies read what `refresh` writes between here and the release. False when "queued" did
        not come in time, because a call waits for the device.
        """
        ...

    def stuck(self, error: LatchError) -> Exception:
        """What it means that a queue was let go and did not end."""
        ...

    def unqueue(self) -> None:
        """Receives the late answer of a queue that came back False, after its release."""
        ...

    def latencies_us(self) -> tuple[float, ...]:
        """The judge's wall time of single calls: request, call, device idle, reply."""
        ...


@dataclass(frozen=True)
class Plan:
    """How much is measured. Fixed before the first sample, never adapted to the samples."""

    pairs: int = 6  #: blocks of each side
    repeats: int = 3  #: of the queue
    queue_timeout_s: float = 2.0


@dataclass(frozen=True)
class Measured:
    """One side: its recording, and what the judge's clock says of it."""

    blocks: tuple[Block, ...]  #: all of the recording: cold, warm, stream
    agreement: Agreement
    latencies_us: tuple[float, ...]
    role: Role
    correction: float = 1.0  #: what cold times are multiplied by (`statistics.correction`)

    @property
    def cold(self) -> tuple[Block, ...]:
        """The blocks that the speedup is made of."""
        return tuple(block for block in self.blocks if block.mode == "cold")

    @property
    def claimed_us(self) -> float:
        """Median of the medians of cold blocks: the runner's figure."""
        return statistics.typical_us([block.device_us for block in self.cold])

    @property
    def clock(self) -> str:
        """Whose figure the record carries: the trace's (``cupti``), or the ``judge``'s."""
        return self.blocks[0].clock if self.correction == 1 else "judge"

    @property
    def void(self) -> bool:
        """Whether no figure can be made of it: the clocks contradict each other.

        A candidate that claims more time than the judge saw is left to its claim.
        """
        excused = self.role == "candidate" and self.agreement.finding == "claimed_too_long"
        return self.agreement.gross and not excused


def sets_for(case_bytes: int, floor_us: float | None, memory_bytes: int) -> int:
    """How many input sets to hold, known before anything is measured.

    case_bytes: inputs and results of one call. floor_us: the least time that the chip's peaks
    allow. memory_bytes: what each runner may spend; of a case of gigabytes one set may fit, which
    gets new contents for every call. Raises ValueError if not even that fits.
    """
    wanted = SHORT_SETS if case_bytes < SHORT_BYTES else SETS
    if floor_us is not None and floor_us > LONG_US:
        wanted = LONG_SETS
    fits = memory_bytes // max(1, case_bytes)
    if fits < 1:
        raise ValueError(f"a set of {case_bytes} bytes does not fit into {memory_bytes}")
    return min(wanted, fits)


def alternate(
    candidate: Side, baseline: Side, sets: int, latch: Latch | None, plan: Plan | None = None
) -> tuple[Measured, Measured]:
    """Measures both sides. `latch` None: this chip has no second clock, and nothing agrees.

    Raises TimingError on a void trace, and what `Side.stuck` makes of a queue that does not end.
    """
    plan = plan or Plan()
    sides = {"A": candidate, "B": baseline}
    for side in sides.values():
        side.start()
    for name in statistics.abba(plan.pairs):
        _block(sides[name], sets, "cold")
    for side in sides.values():
        _block(side, min(WARM, sets), "warm")
        if latch is not None:
            _block(side, sets, "stream")
    stopping = [side.stop() for side in sides.values()]  # both read their traces at once
    recordings = [recording() for recording in stopping]
    roles: tuple[Role, Role] = ("candidate", "baseline")
    first, second = (
        _measured(side, blocks, sets, latch, plan, role)
        for side, blocks, role in zip(sides.values(), recordings, roles, strict=True)
    )
    return first, second


def _block(side: Side, calls: int, mode: Mode) -> None:
    side.refresh()
    side.block(mode, calls)
    side.check(calls)


def _measured(
    side: Side,
    blocks: tuple[Block, ...],
    sets: int,
    latch: Latch | None,
    plan: Plan,
    role: Role,
) -> Measured:
    cold = [block for block in blocks if block.mode == "cold"]
    cold_us = statistics.typical_us([block.device_us for block in cold])
    stream_us = basics.median(blocks[-1].device_us)  # where there is a second clock
    activities = max((n for block in cold for n in block.activities), default=1)
    calls = min(sets, side.queue_limit(activities))
    # One call is enough of a clock where it is long against the two words of the latch.
    timeable = latch is not None and (calls > 1 or (calls == 1 and cold_us > LONG_US))
    wall_us = _wall_us(side, calls, latch, plan) if latch and timeable else None
    agreement = statistics.agreement(stream_us, wall_us, cold_us)
    latencies_us = side.latencies_us()
    correction = statistics.correction(
        # Without a latch both sides are timed end to end: like is compared with like.
        agreement, "candidate" if latch is None else role, cold_us, basics.median(latencies_us)
    )  # fmt: skip
    return Measured(blocks, agreement, latencies_us, role, correction)


def _wall_us(side: Side, calls: int, latch: Latch, plan: Plan) -> float | None:
    """The judge's time of one call of a queue; None where calls can't be queued."""
    spans_us = []
    for _ in range(plan.repeats):
        span_us = _queued_us(side, calls, latch, plan)
        if span_us is None:
            return None
        spans_us.append(span_us)
        side.check(calls)
    return statistics.per_call_us(spans_us, calls)


def _queued_us(side: Side, calls: int, latch: Latch, plan: Plan) -> float | None:
    ticket = latch.next_ticket()
    if not side.queue(calls, ticket, plan.queue_timeout_s):
        latch.release(ticket)
        side.unqueue()
        return None
    side.refresh()  # what the queue reads exists from here on, not before
    latch.release(ticket)
    try:
        return latch.span_us(ticket, plan.queue_timeout_s)
    except LatchError as error:
        raise side.stuck(error) from error


def timing_record(
    case: str,
    candidate: Measured,
    baseline: Measured,
    *,
    floor_us: float | None,
    telemetry: Summary,
    seed: int = 0,
) -> Timing:
    """The record of a case. Neither side may be `void`.

    Raw samples are stored as the trace gave them; the figures are corrected where they must be.
    """
    for side in (candidate, baseline):
        if side.void:
            raise ValueError(f"no record of a measurement that is void: {side.agreement.detail}")
    speedup = statistics.speedup(_corrected(candidate), _corrected(baseline), seed=seed)
    ours, theirs = _samples(candidate), _samples(baseline)
    return Timing(
        case=case,
        device_us=candidate.claimed_us * candidate.correction,
        baseline_us=baseline.claimed_us * baseline.correction,
        speedup=speedup.value,
        speedup_low=speedup.low,
        speedup_high=speedup.high,
        floor_us=floor_us,
        clock="/".join(dict.fromkeys((candidate.clock, baseline.clock))),
        latency_us=ours.latency_us,
        baseline_latency_us=theirs.latency_us,
        warm_us=ours.warm_us,
        baseline_warm_us=theirs.warm_us,
        sm_clock_mhz=telemetry.sm_clock_mhz,
        throttle_reasons=telemetry.throttle_reasons,
        candidate=ours,
        baseline=theirs,
    )


def _corrected(side: Measured) -> list[list[float]]:
    return [[time * side.correction for time in block.device_us] for block in side.cold]


def _samples(side: Measured) -> Samples:
    times = [block.device_us for block in side.cold]
    activities = [count for block in side.cold for count in block.activities]
    warm = [time for block in side.blocks if block.mode == "warm" for time in block.device_us]
    return Samples(
        device_us=tuple(time for block in times for time in block),
        block_us=statistics.block_medians(times),
        warm_us=basics.median(warm),
        latency_us=basics.median(side.latencies_us),
        kernels=round(basics.median(activities)) if activities else None,
    )
