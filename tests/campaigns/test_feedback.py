"""What a method is told of a verdict: enough to mend the candidate, nothing that is secret."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kernelmark.benchmark.prompts import told_cases
from kernelmark.evaluators.campaigns.feedback import feedback
from kernelmark.evaluators.grading.correctness import describe
from kernelmark.evaluators.grading.records import (
    Comparison,
    Finding,
    Gate,
    KernelBuild,
    Timing,
    Verdict,
)
from kernelmark.operators.registry import get_operator

OPERATOR = get_operator("aten::scatter")
TOLD = told_cases(OPERATOR)
SHOWN = next(case for case in TOLD if case.tier == "small")
TIMED = next(case for case in TOLD if case.tier == "full")
HIDDEN = next(case for case in OPERATOR.cases() if case not in TOLD)
WRONG = Comparison(
    SHOWN.name, "large", 0, "wrong_values", 12.5, limit=1.0, bad=3, total=450,
    worst_index=(2, 7), got="1.25", expected="98765.4321",
)  # fmt: skip


def verdict(status: str, **more: object) -> Verdict:
    gates = (Gate("scan", True, 0.0), Gate("build", True, 0.0), Gate("correctness", False, 0.0))
    base = Verdict(OPERATOR.id, "id", "nvidia", "executed", "wrong_values", "", gates=gates)
    return replace(base, status=status, **more)  # type: ignore[arg-type]


def test_wrong_values_on_a_call_that_is_shown() -> None:
    told = feedback(
        verdict("wrong_values", comparisons=(WRONG,), message=describe(WRONG)), OPERATOR
    )
    assert "wrong_values (gate correctness)" in told
    assert "self=f32[5, 90], dim=-1" in told
    assert "values scaled by 64" in told
    assert "worst at [2, 7], 3 of 450 elements wrong, error 12.5 over limit 1" in told
    assert "98765" not in told  # the right answer


def test_nothing_of_a_call_that_is_not_shown() -> None:
    wrong = replace(WRONG, case=HIDDEN.name)
    for message in (describe(wrong), f"with kernels disabled, case {HIDDEN.name!r} is right"):
        comparisons = (wrong,) if message == describe(wrong) else ()
        told = feedback(verdict("wrong_values", comparisons=comparisons, message=message), OPERATOR)
        assert HIDDEN.name not in told
        assert "450" not in told
        assert "a call that is not shown" in told


def test_findings_and_compiler_errors() -> None:
    findings = (Finding(3, "`import os` is refused"), Finding(9, "`+` computes"))
    told = feedback(verdict("rejected", findings=findings, message="line 3: no"), OPERATOR)
    assert "line 3: `import os` is refused\nline 9: `+` computes" in told
    build = KernelBuild("k", config="BLOCK=64", error="out of resource: shared memory")
    told = feedback(verdict("build_error", builds=(build,), message="it fails"), OPERATOR)
    assert "kernel k BLOCK=64: out of resource: shared memory" in told


def test_times_against_baseline_and_roofline_and_what_the_compiler_gave() -> None:
    timing = Timing(TIMED.name, 20.0, 10.0, 0.5, 0.45, 0.55, 5.0, "cupti")
    build = KernelBuild("k", registers=255, spilled_bytes=64, occupancy=0.25, config="BLOCK=64")
    gates = tuple(Gate(name, True, 0.0) for name in ("scan", "timing"))
    told = feedback(
        verdict("passed", timings=(timing,), builds=(build, build), gates=gates), OPERATOR
    )
    assert "20 us, baseline 10 us, speedup 0.50, 25% of what the chip allows" in told
    assert told.count("255 registers, 64 bytes spilled, occupancy 25%") == 1


@pytest.mark.parametrize("status", ["timed_out", "out_of_memory", "runtime_error"])
def test_other_failures_say_their_message(status: str) -> None:
    assert "no answer within 60 s" in feedback(
        verdict(status, message="no answer within 60 s"), OPERATOR
    )
