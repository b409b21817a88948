"""What a run used: its ledger, added up by operator, attempt or model, and set against what it
solved."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

from kernelmark.evaluators.campaigns.folder import RunFolder
from kernelmark.evaluators.campaigns.outcome import outcome
from kernelmark.evaluators.metering.ledger import LedgerRow, Usage, charged, read_ledger

#: tokens by class: disjoint, but for reasoning, which is part of output
CLASSES = (
    "in_uncached", "in_cache_read", "in_cache_write_5m", "in_cache_write_1h", "out_total",
    "out_reasoning",
)  # fmt: skip


@dataclass(frozen=True)
class Spent:
    """Sums over some requests that may cost. `usd` is None where the cost of one is not known.

    `estimated` and `missing` count requests whose usage the provider did not tell.
    """

    requests: int
    usage: Usage
    usd: float | None
    unpriced: int
    estimated: int
    missing: int

    def as_row(self) -> dict[str, Any]:
        """Flat, for tables."""
        tokens = {name: getattr(self.usage, name) for name in CLASSES}
        return {
            "requests": self.requests,
            **tokens,
            "tokens": self.usage.total,
            "usd": self.usd,
            "unpriced": self.unpriced,
            "estimated": self.estimated,
            "missing": self.missing,
        }


def spent(rows: Iterable[LedgerRow]) -> Spent:
    """The sum over `rows`; those that cost nothing (refused, free) are left out."""
    rows = charged(rows)
    known = [row for row in rows if row.usage_source != "missing"]
    costs = [row.cost_usd for row in known if row.usage.total]  # none: refused, nothing charged
    priced = [cost for cost in costs if cost is not None]
    return Spent(
        requests=len(rows),
        usage=reduce(add, (row.usage for row in rows), Usage()),
        usd=sum(priced) if len(priced) == len(costs) else None,
        unpriced=len(costs) - len(priced),
        estimated=sum(row.usage_source == "estimated" for row in rows),
        missing=len(rows) - len(known),
    )


def by(rows: Iterable[LedgerRow], key: Callable[[LedgerRow], Any]) -> dict[Any, Spent]:
    """`spent` of each group of rows with one key, in the order of first appearance."""
    groups: dict[Any, list[LedgerRow]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return {name: spent(group) for name, group in groups.items()}


def model_of(row: LedgerRow) -> str:
    """The model as served, or as asked for where no answer told."""
    return row.model_served or row.model_requested


def usage_report(folder: RunFolder) -> dict[str, Any]:
    """Everything that `kernelmark usage` prints, as plain values."""
    rows = read_ledger(folder.ledger_path)
    total = spent(rows)
    outcomes = {id: outcome(folder, id) for id in folder.run.operators}
    solved = sum(o.solved for o in outcomes.values())
    operators = by(rows, lambda row: row.operator)
    attempts = by(rows, lambda row: (row.operator, row.attempt))
    return {
        "run": folder.run.id,
        "solved": solved,
        "operators": [
            {
                "operator": id,
                "status": outcomes[id].status,
                "attempts": outcomes[id].attempts,
                **operators.get(id, spent(())).as_row(),
            }
            for id in outcomes
        ],
        "attempts": [
            {"operator": operator, "attempt": attempt, **sums.as_row()}
            for (operator, attempt), sums in sorted(attempts.items())
        ],
        "models": [{"model": name, **s.as_row()} for name, s in by(rows, model_of).items()],
        "total": total.as_row(),
        "tokens_per_solved": total.usage.total / solved if solved else None,
        "usd_per_solved": total.usd / solved if solved and total.usd is not None else None,
        "refused": sum(row.outcome == "budget_denied" for row in rows),
    }
