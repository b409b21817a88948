"""The judge measured by its own means: on a chip that is never timed, and on one that is."""

from __future__ import annotations

import dataclasses

import stepping
from test_timing_gate import NEGATIVE

from kernelmark.evaluators.chips.registry import get_chip
from kernelmark.evaluators.grading import selftest
from kernelmark.evaluators.grading.records import Samples, Timing
from kernelmark.evaluators.grading.workers import shared_server
from kernelmark.operators.records import Cost


def by_name(rows: list[selftest.Row]) -> dict[str, selftest.Row]:
    return {row.what: row for row in rows}


def test_a_cpu_says_what_cannot_be_measured() -> None:
    rows = by_name(selftest.selftest(get_chip("interpreter"), []))
    missing = [row for row in rows.values() if row.value is None]
    assert len(missing) == len(selftest._TIMED)
    assert all("never timed" in row.detail for row in missing)
    assert rows["protections of a runner in force"].value >= 1
    assert rows["resolution of the judge's clock"].value >= 1


def test_a_baseline_against_itself() -> None:
    operator = dataclasses.replace(NEGATIVE, cost=lambda case: Cost(0, 0))
    (case,) = operator.tier("full")
    rows = by_name(selftest.selftest(stepping.CHIP, [(operator, case)], rounds=2))
    assert rows["measurements that came to nothing"].value == 0, rows
    assert "of 2 called" in rows["false claims, baseline against itself"].detail
    assert rows["repeatability over fresh processes, device time"].value is not None
    assert rows["disagreement of the two clocks"].value is None  # no latch on a CPU
    shared_server(stepping.CHIP)  # still alive: nobody broke it


def timing(speedup: float, low: float, high: float) -> Timing:
    samples = Samples(device_us=(20.0, 20.032, 20.096))
    return Timing(
        "case", 20.0, 20.0 * speedup, speedup, low, high, None, "cupti", candidate=samples
    )


def test_a_claim_is_counted_and_a_tie_is_not() -> None:
    found = [timing(1.0, 0.99, 1.01), timing(1.05, 1.04, 1.06), timing(1.001, 1.0005, 1.002)]
    value, detail = selftest._false_claims(found)
    assert (round(value or 0), detail[:6]) == (33, "1 of 3")
    assert selftest._resolution(found)[0] == 32


def test_spread_of_short_kernels_is_told_apart() -> None:
    steady = [timing(1.0, 1, 1), timing(1.0, 1, 1)]
    short = [dataclasses.replace(t, device_us=d) for t, d in zip(steady, (2.0, 3.0), strict=True)]
    value, detail = selftest._repeatability({"a": steady, "b": short}, lambda t: t.device_us)
    assert value == 0
    assert "shorter" in detail
