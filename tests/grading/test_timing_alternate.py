"""The order of a measurement, with sides that are honest, forged, or cannot be queued."""

from __future__ import annotations

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
    now_ns = 1000

    def release(self, ticket: int) -> int:
        assert ticket == self._ticket
        assert self.device.fresh, "a queue was let go before its inputs were written"
        return self.now_ns

    def wait(self, ticket: int, timeout_s: float) -> int:
        if not self.device.finishes:
            raise LatchError("not done")
        self.now_ns += round(1000 * (200 + self.device.queued * self.device.true_us))
        return self.now_ns


class FakeSide:
    """A runner whose device needs `true_us` a call and whose trace says what it likes."""

    def __init__(self, log: list[str], name: str, latch: FakeLatch, true_us: float, **claims: Any):
        self.log, self.name, self.latch, self.true_us = log, name, latch, true_us
        self.cold_us = claims.get("cold_us", true_us)
        self.stream_us = claims.get("stream_us", true_us)
        self.queues = claims.get("queues", True)
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

    def block(self, mode: Mode) -> None:
        assert self.fresh, "a block on inputs that were seen before"
        self.fresh = False
        self.note(mode)
        times = (self.cold_us,) * SETS if mode != "stream" else (self.stream_us,)
        self.blocks.append(Block("cupti", mode, times, (30.0,) * len(times), activities=(2,)))

    def check(self, sets: int) -> None:
        self.note(f"check {sets}")

    def stop(self) -> tuple[Block, ...]:
        self.note("stop")
        return tuple(self.blocks)

    def queue(self, sets: int, ticket: int, timeout_s: float) -> float | None:
        self.fresh = False
        self.note(f"queue {sets}")
        self.latch.device, self.queued = self, sets
        if not self.queues:
            self.fresh = True  # what runs late is not timed
            return None
        return 100.0

    def unqueue(self) -> None:
        self.note("unqueue")

    def latencies_us(self) -> tuple[float, ...]:
        return (self.true_us + 50,) * 5


PLAN = Plan(pairs=2, repeats=3)
TRUE_US = 40.0


def measured(**claims: Any) -> tuple[Measured, Measured, list[str]]:
    log: list[str] = []
    latch = FakeLatch()
    a, b = FakeSide(log, "A", latch, TRUE_US, **claims), FakeSide(log, "B", latch, 2 * TRUE_US)
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
            assert log[i - 1] == f"{line[0]} refresh"
            assert log[i + 1] == f"{line[0]} check {SETS}"
    queues = [i for i, line in enumerate(log) if "queue" in line]
    assert len(queues) == 2 * 2 * PLAN.repeats
    assert all("check" in log[i + 2] and "refresh" in log[i + 1] for i in queues)


def test_a_forged_trace_is_contradicted() -> None:
    first, second, _ = measured(cold_us=TRUE_US / 2, stream_us=TRUE_US / 2)
    assert first.agreement.finding == "claimed_too_short"
    assert second.agreement.agree
    with pytest.raises(ValueError, match="void"):
        record(first, second)


def test_a_forged_cold_time_gains_nothing() -> None:
    first, second, _ = measured(cold_us=TRUE_US / 2)
    assert first.agreement.finding == "cold_not_backed"
    timing = record(first, second)
    assert timing.device_us == pytest.approx(TRUE_US, rel=0.1)
    assert timing.speedup == pytest.approx(2, rel=0.1)
    assert timing.clock == "judge/cupti"


def test_calls_that_cannot_be_queued_are_timed_end_to_end() -> None:
    first, second, log = measured(queues=False, cold_us=10.0)
    assert first.agreement.finding == "no_second_clock"
    assert "A unqueue" in log
    assert record(first, second).device_us == pytest.approx(TRUE_US + 50)


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
    assert record(first, second).clock == "judge"


@pytest.mark.parametrize(
    ("case_bytes", "device_us", "activities", "memory_bytes", "sets"),
    [
        (64 << 20, 18.0, 1, 8 << 30, 64),  # many short calls, limited by number
        (64 << 20, 18.0, 1, 1 << 30, 16),  # limited by memory
        (1 << 20, 2.0, 40, 8 << 30, 8),  # limited by the length of a stream's queue
        (1 << 30, 5000.0, 1, 20 << 30, 8),  # long calls: the least will do
        (1 << 30, 5000.0, 1, 5 << 30, 4),
    ],
)
def test_number_of_sets(
    case_bytes: int, device_us: float, activities: int, memory_bytes: int, sets: int
) -> None:
    assert alternate.sets_for(case_bytes, device_us, activities, memory_bytes) == sets


def test_too_little_memory_is_said() -> None:
    with pytest.raises(ValueError, match="too many"):
        alternate.sets_for(1 << 30, 10.0, 1, 1 << 30)
