"""The order of a measurement, with sides that are honest, forged, or cannot be queued."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kernelmark.evaluators.grading import alternate, records
from kernelmark.evaluators.grading.alternate import Measured, Plan
from kernelmark.evaluators.grading.latch import Latch, LatchError
from kernelmark.evaluators.grading.telemetry import Summary
from kernelmark.evaluators.grading.timing import Block, Mode

SETS = 8


class FakeLatch(Latch):
    """A latch on a clock of its own; the side that queued last is the device."""

    device: FakeSide

    def release(self, ticket: int) -> None:
        assert ticket == self._ticket
        assert self.device.fresh, "a queue was let go before its inputs were written"

    def span_us(self, ticket: int, timeout_s: float) -> float:
        if not self.device.finishes:
            raise LatchError("not done")
        return 2 + self.device.queued * self.device.true_us


class FakeSide:
    """A runner whose device needs `true_us` a call and whose trace says what it likes."""

    def __init__(self, log: list[str], name: str, latch: FakeLatch, true_us: float, **claims: Any):
        self.log, self.name, self.latch, self.true_us = log, name, latch, true_us
        self.cold_us = claims.get("cold_us", true_us)
        self.stream_us = claims.get("stream_us", true_us)
        self.queues = claims.get("queues", True)
        self.fits = claims.get("fits", SETS)
        self.finishes = claims.get("finishes", True)
        self.blocks: list[Block] = []
        self.fresh = False

    def note(self, what: str) -> None:
        self.log.append(f"{self.name} {what}")

    def refresh(self) -> None:
        self.fresh = True
        self.note("refresh")

    def start(self) -> None:
        self.note("start")

    def block(self, mode: Mode, calls: int) -> None:
        assert self.fresh, "a block on inputs that were seen before"
        self.fresh = False
        self.note(mode)
        times = (self.cold_us,) * calls if mode != "stream" else (self.stream_us,)
        self.blocks.append(Block("cupti", mode, times, (30.0,) * len(times), activities=(2,)))

    def check(self, sets: int) -> None:
        self.note(f"check {sets}")

    def stop(self) -> Callable[[], tuple[Block, ...]]:
        self.note("stop")
        return lambda: tuple(self.blocks)

    def queue_limit(self, activities: int) -> int:
        assert activities == 2
        return int(self.fits)

    def queue(self, calls: int, ticket: int, timeout_s: float) -> bool:
        self.fresh = False
        self.note(f"queue {calls}")
        self.latch.device, self.queued = self, calls
        if not self.queues:
            self.fresh = True  # what runs late is not timed
        return bool(self.queues)

    def stuck(self, error: LatchError) -> Exception:
        return error

    def unqueue(self) -> None:
        self.note("unqueue")

    def latencies_us(self) -> tuple[float, ...]:
        return (self.true_us + 50,) * 5


PLAN = Plan(pairs=2, repeats=3)
TRUE_US = 40.0


def measured(
    baseline: dict[str, Any] | None = None, **claims: Any
) -> tuple[Measured, Measured, list[str]]:
    """Both sides measured; what the candidate claims, and what the `baseline` does."""
    log: list[str] = []
    latch = FakeLatch()
    a = FakeSide(log, "A", latch, TRUE_US, **claims)
    b = FakeSide(log, "B", latch, 2 * TRUE_US, **(baseline or {}))
    first, second = alternate.alternate(a, b, SETS, latch, PLAN)
    return first, second, log


def record(first: Measured, second: Measured) -> records.Timing:
    return alternate.timing_record("case", first, second, floor_us=100.0, telemetry=Summary("none"))


def test_honest_sides_agree_and_make_a_record() -> None:
    first, second, _ = measured()
    assert first.agreement.agree, first.agreement
    assert second.agreement.agree, second.agreement
    timing = record(first, second)
    assert timing.speedup == pytest.approx(2)
    assert timing.clock == "cupti"
    assert timing.candidate.kernels == 2
    assert len(timing.candidate.device_us) == 2 * SETS
    assert timing.latency_us == TRUE_US + 50
    assert records.from_json(records.Timing, records.to_json(timing)) == timing


def test_blocks_alternate_and_every_block_is_checked() -> None:
    _, _, log = measured()
    cold = [line for line in log if line.endswith("cold")]
    assert cold == ["A cold", "B cold", "B cold", "A cold"]
    for i, line in enumerate(log):
        if line.split()[1] in ("cold", "warm", "stream"):
            calls = alternate.WARM if "warm" in line else SETS
            assert log[i - 1] == f"{line[0]} refresh"
            assert log[i + 1] == f"{line[0]} check {calls}"
    queues = [i for i, line in enumerate(log) if "queue" in line]
    assert len(queues) == 2 * PLAN.repeats
    assert all("check" in log[i + 2] and "refresh" in log[i + 1] for i in queues)


def test_a_call_of_more_launches_than_a_queue_takes_has_no_second_clock() -> None:
    long_us = 2 * alternate.LONG_US
    first, _, log = measured(cold_us=long_us, stream_us=long_us, fits=0)
    assert first.agreement.finding == "no_second_clock"
    assert not any("A queue" in line for line in log)


def test_one_recording_a_side() -> None:
    _, _, log = measured()
    assert [line for line in log if line.split()[1] in ("start", "stop")] == [
        "A start",
        "B start",
        "A stop",
        "B stop",
    ]


def test_a_forged_trace_is_contradicted() -> None:
    first, second, _ = measured(cold_us=TRUE_US / 2, stream_us=TRUE_US / 2)
    assert first.agreement.finding == "claimed_too_short"
    assert first.void
    assert second.agreement.agree
    with pytest.raises(ValueError, match="void"):
        record(first, second)


@pytest.mark.parametrize("share", [0.85, 1.0, 1.2])
def test_a_small_disagreement_does_neither_side_any_good(share: float) -> None:
    """Trace and judge 15 or 20% apart: the longer figure counts for the candidate, the shorter
    for the baseline; the record says whose figure it is."""
    claim = share * TRUE_US
    first, second, _ = measured(cold_us=claim, stream_us=claim)
    timing = record(first, second)
    assert timing.device_us == pytest.approx(max(claim, TRUE_US), rel=0.01)
    assert timing.clock == ("judge/cupti" if share < 1 else "cupti")
    first, second, _ = measured({"cold_us": 2 * claim, "stream_us": 2 * claim})
    timing = record(first, second)
    assert timing.baseline_us == pytest.approx(min(2 * claim, 2 * TRUE_US), rel=0.01)
    assert timing.speedup == pytest.approx(timing.baseline_us / TRUE_US)
    assert timing.clock == ("cupti/judge" if share > 1 else "cupti")


@pytest.mark.parametrize("share", [0.6, 1.5])
def test_a_baseline_that_the_clocks_contradict_is_void(share: float) -> None:
    claim = 2 * share * TRUE_US
    first, second, _ = measured({"cold_us": claim, "stream_us": claim})
    assert second.void
    with pytest.raises(ValueError, match="void"):
        record(first, second)


def test_a_candidate_that_claims_too_much_is_left_to_it() -> None:
    first, second, _ = measured(cold_us=2 * TRUE_US, stream_us=2 * TRUE_US)
    assert first.agreement.gross
    assert record(first, second).device_us == pytest.approx(2 * TRUE_US)


def test_a_forged_cold_time_gains_nothing() -> None:
    first, second, _ = measured(cold_us=TRUE_US / 2)
    assert first.agreement.finding == "cold_not_backed"
    timing = record(first, second)
    assert timing.device_us == pytest.approx(TRUE_US, rel=0.1)
    assert timing.speedup == pytest.approx(2, rel=0.1)
    assert timing.clock == "judge/cupti"


@pytest.mark.parametrize("how", [{"queues": False}, {"fits": 1}])
def test_candidates_that_cannot_be_queued_are_timed_end_to_end(how: dict[str, Any]) -> None:
    first, second, log = measured(**how, cold_us=10.0)
    assert first.agreement.finding == "no_second_clock"
    assert ("A unqueue" in log) is ("queues" in how)
    assert record(first, second).device_us == pytest.approx(TRUE_US + 50)


def test_a_baseline_that_cannot_be_queued_keeps_its_trace() -> None:
    first, second, _ = measured({"queues": False})
    assert second.agreement.finding == "no_second_clock"
    assert record(first, second).baseline_us == pytest.approx(2 * TRUE_US)


def test_fewer_calls_are_queued_where_launches_are_many() -> None:
    first, _, log = measured(fits=3)
    assert first.agreement.agree
    assert [line for line in log if line.startswith("A queue")] == ["A queue 3"] * PLAN.repeats


def test_a_queue_that_never_ends_is_an_error() -> None:
    with pytest.raises(LatchError):
        measured(finishes=False)


def test_a_chip_without_latch_has_no_stream_and_no_agreement() -> None:
    log: list[str] = []
    latch = FakeLatch()
    sides = FakeSide(log, "A", latch, 10.0), FakeSide(log, "B", latch, 20.0)
    first, second = alternate.alternate(*sides, SETS, None, PLAN)
    assert not any("stream" in line or "queue" in line for line in log)
    assert first.agreement.finding == "no_second_clock"
    timing = record(first, second)
    assert timing.clock == "judge"
    assert timing.speedup == pytest.approx(70 / 60)  # end to end, both


@pytest.mark.parametrize(
    ("case_bytes", "floor_us", "memory_bytes", "sets"),
    [
        (1 << 20, 2.0, 8 << 30, 12),
        (1 << 20, None, 8 << 30, 12),
        (512 << 20, 100.0, 8 << 30, 8),
        (512 << 20, 100.0, 2 << 30, 4),  # limited by memory
        (64 << 20, 5000.0, 8 << 30, 4),  # long calls
        (12 << 30, 5000.0, 20 << 30, 1),  # new contents for every call, in one place
    ],
)
def test_number_of_sets(
    case_bytes: int, floor_us: float | None, memory_bytes: int, sets: int
) -> None:
    assert alternate.sets_for(case_bytes, floor_us, memory_bytes) == sets


def test_too_little_memory_is_said() -> None:
    with pytest.raises(ValueError, match="does not fit"):
        alternate.sets_for(2 << 30, 10.0, 1 << 30)
