"""What a run has established, as a table or JSON: one row an operator, sums, where it stopped."""

from __future__ import annotations

from collections import Counter
from typing import Any

from kernelmark.benchmark import rendering
from kernelmark.evaluators.campaigns.companions import companions
from kernelmark.evaluators.campaigns.folder import RunFolder
from kernelmark.evaluators.campaigns.outcome import outcome
from kernelmark.evaluators.campaigns.usage import spent
from kernelmark.evaluators.metering.ledger import read_ledger
from kernelmark.evaluators.methods._standing import speedup


def report(folder: RunFolder, as_json: bool) -> None:
    """Prints the table, or JSON; then those of further chips (in JSON: under `on`)."""
    others = companions(folder)
    if as_json:
        on = {other.run.chip: _value(other) for other in others}
        rendering.print_json({**_value(folder), **({"on": on} if on else {})})
        return
    for each in (folder, *others):
        if others:
            rendering.out().print(rendering.plain(f"on {each.run.chip}"))
        _print(each)


def _value(folder: RunFolder) -> dict[str, Any]:
    rows = [_row(folder, operator) for operator in folder.run.operators]
    used = spent(read_ledger(folder.ledger_path))
    return {
        "run": str(folder.root),
        "solved": sum(row["status"] == "passed" for row in rows),
        "tokens": used.usage.total,
        "usd": used.usd,
        "stopped_by_budget": budget_stops(folder),
        "operators": rows,
    }


def _print(folder: RunFolder) -> None:
    rows = [_row(folder, operator) for operator in folder.run.operators]
    solved = sum(row["status"] == "passed" for row in rows)
    used = spent(read_ledger(folder.ledger_path))
    stops = budget_stops(folder)
    columns = {"operator": "operator", "status": "status", "attempts": "attempts"}
    if any(row["speedup"] is not None for row in rows):
        columns["speedup"] = "speedup"
    if folder.run.targets:
        columns["compiles"] = "compiles"
    cost = "" if used.usd is None else f", ${used.usd:.4f}"
    tokens = f"; {used.usage.total:,} tokens{cost}" if used.requests else ""
    caption = f"{solved} of {len(rows)} solved{tokens}; kernelmark submit {folder.root}"
    rendering.print_rows(rows, {**columns, "message": ""}, caption=caption)
    for stop, count in stops.items():
        text = f"stopped at {count} operators by the {stop}"
        rendering.out().print(rendering.plain(text, rendering.BAD))
    if stops:
        text = f"go on with more: kernelmark run --resume {folder.root} --budget-tokens N"
        rendering.out().print(rendering.plain(text))


def infrastructure_errors(folder: RunFolder) -> list[str]:
    """Operators that our own infrastructure failed; --resume tries them again."""
    failed = [operator for other in companions(folder) for operator in infrastructure_errors(other)]
    for operator in folder.run.operators:
        attempts = folder.production(operator).attempts
        unfinished = bool(attempts) and attempts[-1].failure == "infrastructure_error"
        if unfinished or outcome(folder, operator).status == "infrastructure_error":
            failed.append(operator)
    return failed


def budget_stops(folder: RunFolder) -> dict[str, int]:
    """What the budgets said that ended the method's work, and at how many operators."""
    notes: Counter[str] = Counter()
    for attempt in folder.attempts():
        if attempt.failure == "budget_exhausted":
            notes[attempt.note] += 1
    return dict(notes)


def _row(folder: RunFolder, operator: str) -> dict[str, Any]:
    found = outcome(folder, operator)
    verdict, attempt = found.verdict, found.attempt
    row: dict[str, Any] = {
        "operator": operator,
        "status": found.status,
        "attempts": found.attempts,
        "speedup": None,
        "compiles": None,
        "message": attempt.note if attempt else "",
    }
    if verdict is None or attempt is None:
        return row
    rows = folder.portability(operator, attempt.candidate)
    compiled = sum(r.status == "passed" for r in rows or ())
    return {
        **row,
        "speedup": speedup(verdict),
        "compiles": None if rows is None else f"{compiled}/{len(rows)}",
        "message": "" if found.solved else verdict.message,
    }
