"""How candidates are ranked by what the judge said of them."""

from __future__ import annotations

import math

from kernelmark.evaluators.grading.records import GATES, Verdict


def standing(verdict: Verdict | None) -> tuple[float, ...]:
    """How good a candidate is, to be compared: right ones by speedup, others by the gate reached,
    and there by how many comparisons were right.

    None stands for a reply without a candidate.
    """
    if verdict is None:
        return (-1.0,)
    if verdict.status == "passed":
        return (len(GATES) + 1, speedup(verdict) or 0.0)
    right = sum(comparison.status == "passed" for comparison in verdict.comparisons)
    return (sum(gate.passed for gate in verdict.gates), float(right))


def speedup(verdict: Verdict) -> float | None:
    """Geometric mean of the speedups over the timed cases; None where nothing was timed."""
    if not verdict.timings:
        return None
    logarithms = [math.log(timing.speedup) for timing in verdict.timings]
    return math.exp(sum(logarithms) / len(logarithms))
