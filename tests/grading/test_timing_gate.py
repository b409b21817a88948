"""The timing gate, end to end on the CPU: every timed call may be asked for its answer."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path

import pytest
import stepping
import torch
from judging import KERNEL, operator

from kernelmark.evaluators.chips.base import Peaks
from kernelmark.evaluators.grading.channel import Garbled
from kernelmark.evaluators.grading.judge import Settings, _Cascade, grade
from kernelmark.evaluators.grading.records import Candidate, Verdict, from_json, to_json
from kernelmark.evaluators.grading.speed import TimedSide, exchange, parse_block
from kernelmark.evaluators.grading.warming import Warming, Warmings
from kernelmark.evaluators.grading.workers import Infrastructure
from kernelmark.evaluators.languages.triton import TritonLanguage
from kernelmark.operators.records import Case, Cost, Expected, TensorSpec

# The baseline's runner finds the registry's operator of this id, called in the same way.
NEGATIVE = operator(
    "neg",
    "neg(self: Tensor) -> Tensor",
    lambda self: [Expected(-self.double(), self.dtype)],
    (
        Case("small", (TensorSpec((70,)),)),
        Case("timed", (TensorSpec((40, 50)),), tier="full", origin="test"),
    ),
)
SOURCE = KERNEL.replace("v * 2", "-v") + "\nmany = []\n"
HONEST = (
    SOURCE
    + """
def neg(self):
    x = self.contiguous()
    return launch(x, torch.empty_like(x))
"""
)


@pytest.fixture
def no_scan(monkeypatch):
    monkeypatch.setattr(TritonLanguage, "scan", lambda *args: [])


def timed(source: str, **changes) -> Verdict:
    op = NEGATIVE if not changes else dataclasses.replace(NEGATIVE, **changes)
    settings = Settings(tier="full", timeout_s=20)
    return grade(Candidate("aten::neg", source), op, stepping.CHIP, settings)


def test_honest_is_timed_and_the_record_survives_its_file():
    verdict = timed(HONEST)
    assert verdict.status == "passed", verdict.message
    (timing,) = verdict.timings
    assert timing.case == "timed"
    assert len(timing.candidate.device_us) == len(timing.baseline.device_us)
    assert timing.speedup_low <= timing.speedup <= timing.speedup_high
    assert "x none" in verdict.message
    assert from_json(Verdict, to_json(verdict)) == verdict


def test_a_compiled_baseline_is_tuned_once_a_machine(tmp_path):
    op = dataclasses.replace(NEGATIVE, baseline_name="torch.compile formulation")
    settings = Settings(tier="full", timeout_s=20, baseline_cache=str(tmp_path))
    for _ in ("compiled, then tuned", "tuned already"):
        verdict = grade(Candidate(op.id, HONEST), op, stepping.CHIP, settings)
        assert verdict.status == "passed", verdict.message
        assert "baseline_not_warmed" not in verdict.evidence
        assert len(list((tmp_path / "tuned").iterdir())) == 1


def test_what_our_own_compiler_takes_is_at_nobodys_expense(monkeypatch):
    real, limit_s = Warmings.take, 12.0

    def slow(self, case):
        time.sleep(0.95 * limit_s)
        return real(self, case)

    monkeypatch.setattr(Warmings, "take", slow)
    settings = Settings(tier="full", timeout_s=20, grade_timeout_s=limit_s)
    verdict = grade(Candidate("aten::neg", HONEST), NEGATIVE, stepping.CHIP, settings)
    assert verdict.status == "passed", verdict.message
    assert verdict.seconds > limit_s


def test_a_baseline_that_compiles_too_long_is_our_failure_and_leaves_no_runner(monkeypatch):
    taken, take = [], Warming.take

    def spy(self):
        taken.append(take(self))
        return taken[-1]

    def too_long(self, waited_s):
        raise Infrastructure("the baseline compiled for 901 s")

    monkeypatch.setattr(Warming, "take", spy)
    monkeypatch.setattr(_Cascade, "_excuse", too_long)
    verdict = timed(HONEST)
    assert (verdict.status, len(taken)) == ("infrastructure_error", 2)
    assert not any(Path(f"/proc/{worker.pid}").exists() for worker in taken)


def test_a_call_that_is_waited_for_alone_is_checked_too(monkeypatch):
    checked = []
    real = TimedSide.check

    def check(self, calls):
        checked.append((self.role, calls))
        real(self, calls)

    monkeypatch.setattr(TimedSide, "check", check)
    assert timed(HONEST).status == "passed"
    assert checked[-2:] == [("candidate", 1), ("baseline", 1)]


def test_stops_working_when_it_is_timed(no_scan):
    source = (
        SOURCE
        + """
def neg(self):
    many.append(1)
    x = self.contiguous()
    return launch(x, torch.empty_like(x)) if len(many) < 40 else torch.zeros_like(x)
"""
    )
    verdict = timed(source)
    assert (verdict.status, verdict.gates[-1].name) == ("wrong_values", "timing")
    assert "timed" in verdict.message


def test_answers_kept_by_a_sample_of_the_input(no_scan):
    source = (
        SOURCE
        + """
def neg(self):
    x = self.contiguous()
    key = (tuple(x.shape), *x.flatten()[:16].tolist(), *x.flatten()[-16:].tolist())
    for k, y in many:
        if k == key:
            return y.clone()
    y = launch(x, torch.empty_like(x))
    many.append((key, y))
    return y.clone()
"""
    )
    verdict = timed(source)
    assert (verdict.status, verdict.gates[-1].name) == ("wrong_values", "timing")


def test_below_the_floor_is_implausible(monkeypatch):
    verdict = timed(HONEST, cost=lambda case: Cost(0, int(1e18)))
    assert verdict.status == "implausible"
    assert verdict.timings


def test_a_narrower_type_may_do_the_arithmetic(monkeypatch):
    # Products with 8-bit weights and float32 activations took a quarter of float32's own floor.
    peaks = Peaks(1e15, {"float32": 1e6, "int8": 1e15}, 1 << 20, "none")
    monkeypatch.setattr(stepping.Stepping, "peaks", lambda self, sku: peaks)
    verdict = timed(
        HONEST, cost=lambda case: Cost(0, 0) if case.tier == "small" else Cost(10**6, 0)
    )
    assert verdict.status == "passed", verdict.message
    assert verdict.timings[0].floor_us == 1e6
    assert verdict.timings[0].roofline > 2


def test_foreign_kernels_are_seen(monkeypatch, no_scan):
    # The timer here names every kernel "double"; a candidate that has none of that name is seen.
    verdict = timed(HONEST.replace("double", "triple"))
    assert (verdict.status, "of others" in verdict.message) == ("tampered", True)


def test_exchange_is_spread_repeatable_and_of_the_same_values():
    before = torch.randn(100_000)
    first, second, third = before.clone(), before.clone(), before.clone()
    for tensor, salt in ((first, 5), (second, 5), (third, 6)):
        exchange(tensor.view(torch.uint8), 4, salt)
    assert torch.equal(first, second)
    assert not torch.equal(first, third)
    changed = (first != before).nonzero().flatten()
    assert 60 < len(changed) < 200
    assert changed.max() - changed.min() > 90_000
    assert torch.isin(first, before).all()


GOOD = {
    "clock": "cupti",
    "mode": "cold",
    "device_us": [1.0, 2.0],
    "host_us": [1.0, 2.0],
    "busy_us": [],
    "activities": [1, 1],
    "kernels": [{"name": "k", "count": 2, "total_us": 3.0}],
    "late": 0,
    "early": None,
    "stray": 0,
    "unheld": 0,
}


def test_a_good_block_is_read():
    assert parse_block(GOOD, 2).device_us == (1.0, 2.0)


@pytest.mark.parametrize(
    "change",
    [
        {"device_us": [1.0]},
        {"device_us": [1.0, -2.0]},
        {"device_us": [1.0, 0.0]},
        {"device_us": [1.0, float("nan")]},
        {"device_us": [1.0, True]},
        {"device_us": "12"},
        {"mode": "other"},
        {"late": -1},
        {"late": "0"},
        {"activities": [1, 2.5]},
        {"kernels": [{"name": 3, "count": 2, "total_us": 3.0}]},
        {"kernels": [{"name": "k", "count": 2, "total_us": float("inf")}]},
        {"clock": None},
    ],
)
def test_a_bad_block_is_refused(change):
    with pytest.raises(Garbled):
        parse_block(GOOD | change, 2)
