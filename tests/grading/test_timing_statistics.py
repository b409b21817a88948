"""What the judge concludes from samples."""

from __future__ import annotations

import math

import numpy as np
import pytest

from kernelmark.evaluators.grading import statistics as judge


def blocks(mean: float, seed: int, *, count: int = 6, calls: int = 20, noise: float = 0.01,
           drift: float = 0.0) -> list[list[float]]:  # fmt: skip
    """Samples as a device gives them: noise, a drift over blocks, whole ticks of 32 ns."""
    rng = np.random.default_rng(seed)
    times = mean * (1 + drift * np.arange(count)[:, None] + noise * rng.normal(size=(count, calls)))
    return (np.round(times / 0.032) * 0.032).tolist()


def test_abba_alternates_which_side_comes_first() -> None:
    assert "".join(judge.abba(4)) == "ABBAABBA"


def test_one_disturbed_block_does_not_move_the_time() -> None:
    samples = [[10.0] * 20] * 5
    assert judge.typical_us([*samples, [90.0] * 20]) == 10
    assert judge.typical_us([[10.0] * 18 + [500.0] * 2] * 3) == 10


def test_a_speedup_is_found_with_its_interval() -> None:
    found = judge.speedup(blocks(10, 1), blocks(15, 2))
    assert found.low < 1.5 < found.high
    assert found.value == pytest.approx(1.5, abs=0.01)
    assert found.high - found.low < 0.05
    assert judge.differs(found, 10)


def test_the_interval_is_the_same_for_the_same_seed_only() -> None:
    a, b = blocks(10, 1), blocks(15, 2)
    assert judge.speedup(a, b, seed=3) == judge.speedup(a, b, seed=3)
    assert judge.speedup(a, b, seed=3) != judge.speedup(a, b, seed=4)


def test_the_interval_covers_the_truth() -> None:
    covered = 0
    for seed in range(100):
        found = judge.speedup(
            blocks(10, seed, drift=0.02), blocks(11, 1000 + seed, drift=0.02), resamples=400
        )
        covered += found.low <= 1.1 <= found.high
    assert covered >= 90


@pytest.mark.parametrize("mean", [2.1, 20.0, 900.0])
def test_twins_rarely_win(mean: float) -> None:
    wins = 0
    for seed in range(100):
        found = judge.speedup(blocks(mean, seed), blocks(mean, 1000 + seed), resamples=400)
        wins += judge.differs(found, mean)
    assert wins <= 5


def test_one_tick_is_not_a_win() -> None:
    fast, slow = [[2.112] * 20] * 6, [[2.144] * 20] * 6
    found = judge.speedup(fast, slow)
    assert found.low > 1, "the interval alone is fooled by ticks"
    assert not judge.differs(found, 2.112)


def test_a_loss_is_told_from_a_tie() -> None:
    assert judge.differs(judge.speedup(blocks(15, 1), blocks(10, 2)), 15)


def test_a_measured_resolution_replaces_the_default() -> None:
    found = judge.Interval(1.03, 1.02, 1.04)
    assert judge.differs(found, 100)
    assert not judge.differs(found, 100, resolution_share=0.05)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_times_that_cannot_be_are_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="positive and finite"):
        judge.speedup([[1.0, bad], [1.0, 1.0]], [[1.0, 1.0], [1.0, 1.0]])


def test_blocks_come_in_pairs() -> None:
    with pytest.raises(ValueError, match="1 candidate and 2 baseline"):
        judge.speedup([[1.0]], [[1.0], [1.0]])


@pytest.mark.parametrize(
    ("device_us", "floor_us", "expected"),
    [
        (4.9, 10, "implausible"),
        (5.0, 10, "audit"),
        (10.4, 10, "audit"),
        (10.5, 10, "plausible"),
        (0.0, 10, "implausible"),
        (math.nan, 10, "implausible"),
        (1.0, None, "unknown"),
    ],
)
def test_the_physical_floor(device_us: float, floor_us: float | None, expected: str) -> None:
    assert judge.plausibility(device_us, floor_us) == expected


def test_a_disturbed_queue_is_outvoted() -> None:
    assert judge.per_call_us([101, 99, 900], 10) == pytest.approx(10.1)


@pytest.mark.parametrize(
    ("claimed", "wall", "gross"),
    [(100.27, 94.08, False), (76.0, 100.0, False), (74.0, 100.0, True), (1.0, 2.9, False)],
)
def test_what_contradicts(claimed: float, wall: float, gross: bool) -> None:
    assert judge.agreement(claimed, wall).gross is gross


@pytest.mark.parametrize(
    ("claimed", "wall", "candidate", "baseline"),
    [
        (100.0, 99.0, 1.0, 1.0),  # within tolerance the trace stands
        (94.9, 100.0, 95.1 / 94.9, 1.0),  # and at its edge nothing jumps
        (100.0, 94.9, 1.0, 0.998),
        (90.0, 100.0, 1 / 0.9, 1.0),
        (80.0, 100.0, 1.25, 1.0),
        (100.0, 80.0, 1.0, 0.8),
        (100.0, None, 1.5, 1.0),  # end to end 150
    ],
)
def test_corrections_do_no_side_any_good(
    claimed: float, wall: float | None, candidate: float, baseline: float
) -> None:
    found = judge.agreement(claimed, wall)
    assert judge.correction(found, "candidate", 100.0, 150.0) == pytest.approx(candidate)
    assert judge.correction(found, "baseline", 100.0, 150.0) == pytest.approx(baseline)


@pytest.mark.parametrize(
    ("claimed", "wall", "cold", "finding"),
    [
        (19.62, 19.76, 20.58, "agree"),  # a softmax of 4096 x 4096 in float16 on an H200
        (3.57, 3.46, 2.11, "agree"),  # one of 256 x 1024: the gap between calls shows
        (10.0, 19.76, 10.0, "claimed_too_short"),
        (19.62, 19.76, 10.0, "cold_not_backed"),  # honest stream, forged cold time
        (98.0, 99.0, 91.0, "agree"),
        (98.0, 99.0, 88.0, "cold_not_backed"),
        (1.0, 3.46, 1.0, "claimed_too_short"),
        (30.0, 19.76, 31.0, "claimed_too_long"),
        (100.0, 96.0, 120.0, "agree"),
        (100.0, 94.0, 120.0, "claimed_too_long"),
    ],
)
def test_two_clocks(claimed: float, wall: float, cold: float, finding: str) -> None:
    found = judge.agreement(claimed, wall, cold)
    assert (found.finding, found.agree) == (finding, finding == "agree")


def test_without_a_second_clock_nothing_agrees() -> None:
    found = judge.agreement(20.0, None, 20.0)
    assert not found.agree
    assert found.finding == "no_second_clock"
