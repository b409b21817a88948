"""What a person reads of verdicts, portability and runs, in the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from kernelmark.benchmark import rendering
from kernelmark.evaluators.grading.records import Comparison, Portability, Verdict


def print_verdict(verdict: Verdict) -> None:
    """A verdict: status, gates, and what went wrong where."""
    console = rendering.out()
    good = verdict.status == "passed"
    head = rendering.plain(verdict.status, rendering.GOOD if good else rendering.BAD)
    where = f" on {verdict.chip}" + (f" ({verdict.sku})" if verdict.sku else "")
    console.print(Text.assemble(head, rendering.plain(f"  {verdict.operator}{where}")))
    if verdict.message:
        console.print(rendering.plain(verdict.message))
    if verdict.gates:
        _print_gates(verdict)
    for finding in verdict.findings:
        console.print(rendering.plain(f"line {finding.line}: {finding.reason}"))
    worst = worst_comparison(verdict)
    if worst is not None:
        console.print(rendering.plain(describe_comparison(worst)))
    if verdict.timings:
        _print_timings(verdict)


def worst_comparison(verdict: Verdict) -> Comparison | None:
    """The comparison that decided a failure: the one that is furthest out."""
    failed = [c for c in verdict.comparisons if c.status != "passed"]
    return max(failed, key=lambda c: c.max_error or 0.0, default=None)


def describe_comparison(comparison: Comparison) -> str:
    """Case, worst element, what it is and should be, error against limit: several lines."""
    lines = [f"case {comparison.case}, draw {comparison.draw}, result {comparison.result}"]
    if comparison.bad:
        lines.append(f"wrong elements    {comparison.bad} of {comparison.total}")
    if comparison.worst_index or comparison.got:
        lines.append(f"worst element     {list(comparison.worst_index)}")
        lines.append(f"got               {comparison.got}")
        lines.append(f"expected          {comparison.expected}")
    if comparison.max_error is not None and comparison.limit is not None:
        lines.append(f"error             {comparison.max_error:.4g} (limit {comparison.limit:.4g})")
    if comparison.detail:
        lines.append(comparison.detail)
    return "\n  ".join(lines)


def print_portability(rows: Sequence[Portability]) -> None:
    """One row a compile target."""
    table = [
        {
            "target": row.target,
            "status": row.status,
            "registers": max((k.registers or 0 for k in row.kernels), default=0) or None,
            "spilled": sum(k.spilled_bytes or 0 for k in row.kernels) if row.kernels else None,
            "shared": max((k.shared_bytes or 0 for k in row.kernels), default=0) or None,
            "occupancy": row.occupancy,
            "matrix": row.matrix_instructions,
            "seconds": row.seconds,
            "error": row.error.strip().splitlines()[-1] if row.error.strip() else "",
        }
        for row in rows
    ]
    columns = {
        "target": "target",
        "status": "status",
        "registers": "registers",
        "spilled": "spilled B",
        "shared": "shared B",
        "occupancy": "occupancy",
        "matrix": "matrix instr.",
        "seconds": "s",
        "error": "error",
    }
    rendering.print_rows(table, columns)


def _print_gates(verdict: Verdict) -> None:
    rows = [
        {
            "gate": gate.name,
            "state": "passed" if gate.passed else "failed",
            "seconds": gate.seconds,
            "detail": gate.detail,
        }
        for gate in verdict.gates
    ]
    rendering.print_rows(rows, {"gate": "gate", "state": "", "seconds": "s", "detail": ""})


def _print_timings(verdict: Verdict) -> None:
    rows = [
        {
            "case": timing.case,
            "device": timing.device_us,
            "baseline": timing.baseline_us,
            "speedup": timing.speedup,
            "interval": f"{timing.speedup_low:.2f} to {timing.speedup_high:.2f}",
            "roofline": timing.roofline,
        }
        for timing in verdict.timings
    ]
    columns = {
        "case": "case",
        "device": "µs",
        "baseline": "baseline µs",
        "speedup": "speedup",
        "interval": "95%",
        "roofline": "roofline",
    }
    rendering.print_rows(rows, columns, caption=f"baseline: {verdict.baseline}")
