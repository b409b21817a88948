"""Measures this machine's judge, with the judge's own means: what its figures are worth here.

Baselines are timed against themselves by the gate that times candidates, each side in a fresh
process. Whatever the gate then claims, other than a tie, is false. Nothing here is compared with
another machine's figures, and nothing is judged good or bad. Device layer.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import secrets
import statistics as basics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch

from kernelmark.evaluators.chips.base import Chip
from kernelmark.evaluators.grading import statistics
from kernelmark.evaluators.grading.correctness import Failed
from kernelmark.evaluators.grading.isolation import Limits
from kernelmark.evaluators.grading.records import Timing
from kernelmark.evaluators.grading.session import Memory, Session
from kernelmark.evaluators.grading.speed import Disturbed, Speed, Timekeeper
from kernelmark.evaluators.grading.workers import Fault, Server, claim_accelerator, shared_server
from kernelmark.operators.records import Case, Operator

#: operators whose baselines are measured by default: nothing is compiled, one kernel or a few
SUBJECTS = (
    *("aten::softmax", "aten::add", "aten::sum", "aten::mul"),
    *("cublas::cublasSgemm_v2", "cublas::cublasSdot_v2"),
)
CASES = 2  #: full cases of each
#: times below are told apart: a tick of the device's clock is a large share of a short kernel
SHORT_US = 10.0

Subject = tuple[Operator, Case]


@dataclass(frozen=True)
class Row:
    """One line of the table. `value` None: it cannot be measured here, and `detail` says why."""

    what: str
    value: float | None
    unit: str
    detail: str


@dataclass
class _Found:
    """Measurements by subject, over all rounds."""

    speeds: dict[str, list[Speed]] = field(default_factory=lambda: defaultdict(list))
    seconds: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def all(self) -> list[Speed]:
        return [speed for speeds in self.speeds.values() for speed in speeds]


def subjects(names: Sequence[str] = SUBJECTS) -> list[Subject]:
    """The first full cases of each operator named."""
    from kernelmark.operators.registry import get_operator

    found = [get_operator(name) for name in names]
    return [(operator, case) for operator in found for case in operator.tier("full")[:CASES]]


def selftest(
    chip: Chip,
    chosen: Sequence[Subject],
    rounds: int = 5,
    index: int = 0,
    progress: Callable[[str], None] = lambda text: None,
) -> list[Row]:
    """The table for `chip`: `rounds` measurements of each subject, each in fresh processes."""
    server = shared_server(chip, index)
    claim_accelerator(chip, index)
    rows = [_isolation(server, chip), _judges_clock()]
    if chip.timer() is None:
        why = f"{chip.name} is never timed"
        return rows + [Row(what, None, unit, why) for what, unit in _TIMED]
    found = _Found()
    for number in range(rounds):
        for operator, case in chosen:
            progress(f"round {number + 1}/{rounds}: {operator.id} {case.name}")
            _measure(server, chip, index, operator, case, found)
    return rows + _rows(found)


#: what needs a device's clock
_TIMED = (
    ("resolution of the device's clock", "ns"),
    ("false claims, baseline against itself", "%"),
    ("repeatability over fresh processes, speedup", "%"),
    ("repeatability over fresh processes, device time", "%"),
    ("disagreement of the two clocks", "%"),
    ("measurements that came to nothing", ""),
    ("time to measure a case", "s"),
)


def _isolation(server: Server, chip: Chip) -> Row:
    worker = server.spawn("candidate", chip, Limits())
    try:
        parts = worker.isolation.partition("; not available: ")
    finally:
        worker.end()
    return Row("protections of a runner in force", len(parts[0].split(", ")), "", worker.isolation)


def _judges_clock() -> Row:
    """The smallest step between two readings of the clock that times from outside."""
    readings = [time.perf_counter_ns() for _ in range(20_000)]
    steps = {b - a for a, b in itertools.pairwise(readings) if b > a}
    return Row("resolution of the judge's clock", min(steps), "ns", "between two readings")


def _measure(
    server: Server, chip: Chip, index: int, operator: Operator, case: Case, found: _Found
) -> None:
    """The baseline as a candidate of its own operator, by the gate itself."""
    memory = Memory(torch.device(chip.device))
    sku = chip.detect().sku
    name = f"{operator.id} {case.name}"
    begin = time.monotonic()
    try:
        with (
            _baseline(server, chip, memory, operator) as first,
            _baseline(server, chip, memory, operator) as second,
        ):
            begin = time.monotonic()
            dice = random.Random(secrets.randbits(256))
            keeper = Timekeeper(operator, chip, sku, dice, first, second, None, index)
            found.speeds[name].append(keeper.time(case, last=True))
    except (Disturbed, Failed, Fault) as error:
        found.failures.append(f"{name}: {error}")
    finally:
        memory.close()
        found.seconds.append(time.monotonic() - begin)


@contextlib.contextmanager
def _baseline(server: Server, chip: Chip, memory: Memory, operator: Operator) -> Iterator[Session]:
    worker = server.spawn("baseline", chip, Limits())
    try:
        session = Session(worker, memory, timeout_s=120.0)
        session.load_baseline(operator.id)
        yield session
    finally:
        worker.end()


def _rows(found: _Found) -> list[Row]:
    speeds = found.all()
    timings = [speed.timing for speed in speeds]
    if not timings:
        why = found.failures[0] if found.failures else "nothing was measured"
        return [Row(what, None, unit, why) for what, unit in _TIMED]
    by_name = {name: [s.timing for s in each] for name, each in found.speeds.items()}
    values = [
        _resolution(timings),
        _false_claims(timings),
        _repeatability(by_name, lambda timing: timing.speedup),
        _repeatability(by_name, lambda timing: timing.device_us),
        _disagreement(speeds),
        (float(len(found.failures)), "; ".join(found.failures[:3]) or "none"),
        (basics.median(found.seconds), f"median of {len(found.seconds)}, both sides"),
    ]
    return [
        Row(what, value, unit, detail)
        for (what, unit), (value, detail) in zip(_TIMED, values, strict=True)
    ]


def _resolution(timings: Sequence[Timing]) -> tuple[float | None, str]:
    """The smallest difference between two device times of one case."""
    steps = []
    for timing in timings:
        times = sorted({round(1e3 * t) for t in timing.candidate.device_us})
        steps += [b - a for a, b in itertools.pairwise(times)]
    return (float(min(steps)) if steps else None), "smallest step between times of single calls"


def _false_claims(timings: Sequence[Timing]) -> tuple[float | None, str]:
    claims = [
        timing
        for timing in timings
        if statistics.differs(
            statistics.Interval(timing.speedup, timing.speedup_low, timing.speedup_high),
            timing.device_us,
        )
    ]
    largest = max(max(t.speedup, 1 / t.speedup) - 1 for t in timings)
    text = (
        f"{len(claims)} of {len(timings)} called a win or a loss; "
        f"the largest difference was {largest:.2%}"
    )
    return 100 * len(claims) / len(timings), text


def _repeatability(
    by_name: dict[str, list[Timing]], of: Callable[[Timing], float]
) -> tuple[float | None, str]:
    """The largest coefficient of variation of any case of `SHORT_US` or more."""
    spreads: dict[str, float] = {}
    short: dict[str, float] = {}
    for name, timings in by_name.items():
        values = [of(timing) for timing in timings]
        if len(values) > 1:
            into = spreads if timings[0].device_us >= SHORT_US else short
            into[name] = 100 * basics.stdev(values) / basics.mean(values)
    if not spreads and not short:
        return None, "needs two rounds"
    parts = [
        f"{where}: median {basics.median(each.values()):.2f}, largest {max(each.values()):.2f} "
        f"({max(each, key=lambda name: each[name])})"
        for where, each in ((f"from {SHORT_US:g} us", spreads), ("shorter", short))
        if each
    ]
    return max((spreads or short).values()), "; ".join(parts)


def _disagreement(speeds: Sequence[Speed]) -> tuple[float | None, str]:
    """How far the trace is from the judge's clock over the same calls."""
    clocks = [clock for speed in speeds for clock in speed.evidence["clocks"].values()]
    both = [clock for clock in clocks if clock["wall_us"] is not None]
    if not both:
        return None, "no second clock here"
    apart = [100 * abs(c["claimed_us"] - c["wall_us"]) / c["wall_us"] for c in both]
    agreed = sum(clock["finding"] == "agree" for clock in both)
    text = f"median of {len(both)}; largest {max(apart):.2f}; {agreed} within tolerance"
    return basics.median(apart), text
