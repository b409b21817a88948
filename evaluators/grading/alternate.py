"""The judge's part of timing one case: two runners in alternation, then a clock of its own.

What a runner does on request (trace a block, queue calls behind the latch) is in `timing` and
`latch`; what the numbers mean is in `statistics`. Here is the order of events. Device layer.

Both sides hold the same number of private input sets; a block is one call on each of them:

1. Both open a recording. Blocks alternate A B, B A, ...; before each the sets get fresh inputs,
   after each its results are checked.
2. One warm block and one stream each, in the same recording; recordings are closed.
3. Each side queues half of its sets, and all of them, some times over; the judge's clock times
   them. No set is called twice in a queue: a second call on the same input could be skipped, and
   its answer would not show it.

A figure that the judge's clock does not back is replaced by one of the judge's own, which is
longer (`Measured.correction`); it is never taken on trust.
"""

from __future__ import annotations

import math
import statistics as basics
from dataclasses import dataclass
from typing import Protocol

from kernelmark.evaluators.grading import statistics
from kernelmark.evaluators.grading.latch import QUEUE_LIMIT, Latch
from kernelmark.evaluators.grading.records import Samples, Timing
from kernelmark.evaluators.grading.statistics import Agreement
from kernelmark.evaluators.grading.telemetry import Summary
from kernelmark.evaluators.grading.timing import Block, Mode

#: a queue of all sets should last this long, so that microseconds of jitter are little beside it
QUEUE_US = 1_500.0
LEAST_SETS, MOST_SETS = 8, 64


class Side(Protocol):
    """One runner with its input sets. A candidate's failures pass through as the judge's own."""

    def refresh(self) -> None:
        """Fresh secret inputs in every set, results of earlier calls gone."""
        ...

    def start(self) -> None:
        """Opens a recording after a warm-up on inputs that are not used again."""
        ...

    def block(self, mode: Mode) -> None:
        """One recorded call on each set, in order."""
        ...

    def check(self, sets: int) -> None:
        """Checks results of the last calls on the first `sets` sets, a secret choice of them."""
        ...

    def stop(self) -> tuple[Block, ...]:
        """Closes the recording."""
        ...

    def queue(self, sets: int, ticket: int, timeout_s: float) -> float | None:
        """Queues a call on each of the first `sets` sets behind the latch.

        The queue begins with the copy of *all* sets' inputs out of shared memory: the same work
        whatever `sets` is, and it reads what `refresh` writes between here and the release.
        Returns the judge's wall time until "queued", microseconds; None when that did not come in
        time, because a call waits for the device.
        """
        ...

    def unqueue(self) -> None:
        """Receives the late answer of a queue that came back None, after its release."""
        ...

    def latencies_us(self) -> tuple[float, ...]:
        """The judge's wall time of single calls: request, call, device idle, reply."""
        ...


@dataclass(frozen=True)
class Plan:
    """How much is measured. Fixed before the first sample, never adapted to the samples."""

    pairs: int = 6  #: blocks of each side
    repeats: int = 5  #: of each queue
    queue_timeout_s: float = 2.0


@dataclass(frozen=True)
class Measured:
    """One side: its recording, and what the judge's clock says of it."""

    blocks: tuple[Block, ...]  #: all of the recording: cold, warm, stream
    agreement: Agreement
    latencies_us: tuple[float, ...]

    @property
    def cold(self) -> tuple[Block, ...]:
        """The blocks that the speedup is made of."""
        return tuple(block for block in self.blocks if block.mode == "cold")

    @property
    def claimed_us(self) -> float:
        """Median of the medians of cold blocks: the runner's figure."""
        return statistics.typical_us([block.device_us for block in self.cold])

    @property
    def correction(self) -> float:
        """What cold times are multiplied by, 1 or more, so that the judge's clock backs them.

        1 when clocks agree. Cold times below what the judge saw in a stream are raised to that.
        Without a second clock they are raised to the judge's end-to-end latency.
        """
        if self.agreement.finding == "cold_not_backed":
            assert self.agreement.wall_us is not None
            return max(1.0, self.agreement.wall_us / self.claimed_us)
        if self.agreement.finding == "no_second_clock":
            return max(1.0, basics.median(self.latencies_us) / self.claimed_us)
        return 1.0

    @property
    def clock(self) -> str:
        """Whose figure the record carries: the trace's (``cupti``), or the ``judge``'s."""
        return self.blocks[0].clock if self.correction == 1 else "judge"


def sets_for(case_bytes: int, device_us: float, activities: int, memory_bytes: int) -> int:
    """How many input sets to hold, even: enough for a queue of `QUEUE_US`, as memory allows.

    case_bytes: inputs and results of one call. device_us, activities: of the slower side, from a
    trial. memory_bytes: what each runner may spend. Raises ValueError if not even two sets fit.
    """
    wanted = min(MOST_SETS, max(LEAST_SETS, math.ceil(QUEUE_US / device_us)))
    fits = memory_bytes // max(1, case_bytes)
    launches = QUEUE_LIMIT // max(1, activities + 1)  # one for the copy of a set's inputs
    sets = min(wanted, fits, launches) // 2 * 2
    if sets < 2:
        raise ValueError(f"two sets of {case_bytes} bytes or {activities} launches are too many")
    return int(sets)


def alternate(
    candidate: Side, baseline: Side, sets: int, latch: Latch | None, plan: Plan | None = None
) -> tuple[Measured, Measured]:
    """Measures both sides. `latch` None: this chip has no second clock, and nothing agrees.

    Raises TimingError on a void trace and LatchError on a queue that was let go and did not end.
    """
    plan = plan or Plan()
    sides = {"A": candidate, "B": baseline}
    for side in sides.values():
        side.start()
    for name in statistics.abba(plan.pairs):
        _block(sides[name], sets, "cold")
    for side in sides.values():
        _block(side, sets, "warm")
        if latch is not None:
            _block(side, sets, "stream")
    recordings = [side.stop() for side in sides.values()]
    first, second = (
        _measured(side, blocks, _walls(side, sets, latch, plan), sets)
        for side, blocks in zip(sides.values(), recordings, strict=True)
    )
    return first, second


def _block(side: Side, sets: int, mode: Mode) -> None:
    side.refresh()
    side.block(mode)
    side.check(sets)


def _walls(side: Side, sets: int, latch: Latch | None, plan: Plan) -> dict[int, list[float]] | None:
    """The judge's times of queues of half and of all sets; None where calls can't be queued."""
    walls: dict[int, list[float]] = {sets // 2: [], sets: []}
    for _ in range(plan.repeats):
        for count, times in walls.items():
            wall_us = None if latch is None else _queued_us(side, count, latch, plan)
            if wall_us is None:
                return None
            times.append(wall_us)
            side.check(count)
    return walls


def _queued_us(side: Side, count: int, latch: Latch, plan: Plan) -> float | None:
    ticket = latch.next_ticket()
    queued = side.queue(count, ticket, plan.queue_timeout_s)
    if queued is None:
        latch.release(ticket)
        side.unqueue()
        return None
    side.refresh()  # what the queue reads exists from here on, not before
    released_ns = latch.release(ticket)
    return (latch.wait(ticket, plan.queue_timeout_s) - released_ns) / 1e3


def _measured(
    side: Side, blocks: tuple[Block, ...], walls: dict[int, list[float]] | None, sets: int
) -> Measured:
    cold_us = statistics.typical_us([b.device_us for b in blocks if b.mode == "cold"])
    last = blocks[-1]  # the stream, where there is a second clock
    wall_us = None
    if walls is not None:
        wall_us = statistics.per_call_us(walls[sets // 2], walls[sets], sets - sets // 2)
    agreement = statistics.agreement(basics.median(last.device_us), wall_us, cold_us)
    return Measured(blocks, agreement, side.latencies_us())


def timing_record(
    case: str,
    candidate: Measured,
    baseline: Measured,
    *,
    floor_us: float | None,
    telemetry: Summary,
    seed: int = 0,
) -> Timing:
    """The record of a case. Neither side's agreement may be "claimed_too_short" or "..._long".

    Raw samples are stored as the trace gave them; the figures are corrected where they must be.
    """
    for side in (candidate, baseline):
        if side.agreement.finding.startswith("claimed"):
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
