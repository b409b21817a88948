"""Budgets: what is reserved and spent by scope, and where they stop."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kernelmark.evaluators.metering.budget import Budget, BudgetExhausted, Limits, Scope
from kernelmark.evaluators.metering.ledger import LedgerRow, Usage

ROW = LedgerRow(
    run="r",
    operator="aten::add",
    attempt=1,
    request="a.1",
    api="chat",
    model_requested="m",
    outcome="ok",
    usage_source="provider",
    usage=Usage(in_uncached=30, out_total=10),
    started_at="2026-01-01T00:00:00.000+00:00",
    ended_at="2026-01-01T00:00:05.000+00:00",
    cost_usd=1.5,
)


def ask(budget: Budget, tokens: int, operator: str = "aten::add", attempt: int = 1) -> None:
    """One request that uses what it reserves."""
    usage = Usage(out_total=tokens)
    budget.settle(budget.reserve(operator, attempt, usage), usage)


def test_what_is_reserved_counts() -> None:
    budget = Budget({"run": Limits(tokens=100)}, [ROW])
    first = budget.reserve("aten::mul", 1, Usage(in_uncached=20, out_total=30))
    with pytest.raises(BudgetExhausted, match="100 tokens for the run: 10 left, 11 needed"):
        budget.reserve("aten::mul", 1, Usage(out_total=11))
    budget.settle(first, Usage(in_uncached=20))
    assert budget.spent_tokens == 60
    budget.reserve("aten::mul", 1, Usage(out_total=40))
    with pytest.raises(BudgetExhausted):
        budget.reserve("aten::mul", 1, Usage(out_total=1))


def test_without_a_limit_everything_is_still_counted() -> None:
    budget = Budget()
    budget.settle(budget.reserve("aten::add", 1, Usage(out_total=10**9)), Usage(out_total=7))
    assert budget.spent_tokens == 7
    assert budget.exhausted("aten::add", 1) is None


@pytest.mark.parametrize(
    ("scope", "others"),
    [
        ("attempt", [("aten::add", 2), ("aten::mul", 1)]),
        ("operator", [("aten::mul", 1)]),
        ("run", []),
    ],
)
def test_a_limit_is_that_of_its_scope(scope: Scope, others: list[tuple[str, int]]) -> None:
    budget = Budget({scope: Limits(tokens=100)})
    ask(budget, 100)
    with pytest.raises(BudgetExhausted) as caught:
        ask(budget, 1)
    stop = caught.value.stop
    assert (stop.scope, stop.limit, stop.spent, stop.needed) == (scope, "tokens", 100, 1)
    assert budget.stops == [stop]
    assert budget.exhausted("aten::add", 1) is not None
    for operator, attempt in others:
        assert budget.exhausted(operator, attempt) is None
        ask(budget, 100, operator, attempt)


@pytest.mark.parametrize(
    ("limits", "usage"),
    [
        (Limits(in_uncached=50), Usage(in_uncached=50)),
        (Limits(in_cache_read=50), Usage(in_cache_read=50)),
        (Limits(in_cache_write=50), Usage(in_cache_write_5m=20, in_cache_write_1h=30)),
        (Limits(out_total=50), Usage(out_total=50)),
        (Limits(requests=1), Usage()),
        (Limits(usd=0.25), Usage()),
    ],
)
def test_every_limit_stops_the_request_after_the_one_that_reached_it(
    limits: Limits, usage: Usage
) -> None:
    budget = Budget({"attempt": limits})
    budget.settle(budget.reserve("aten::add", 1, Usage(), 0.0), usage, 0.25)
    with pytest.raises(BudgetExhausted):
        budget.reserve("aten::add", 1, Usage(), 0.0)


def test_a_dollar_limit_refuses_what_has_no_price() -> None:
    budget = Budget({"run": Limits(usd=10)})
    with pytest.raises(BudgetExhausted, match="no known price"):
        budget.reserve("aten::add", 1, Usage(out_total=1), None)
    budget.settle(budget.reserve("aten::add", 1, Usage(), 4), Usage(), 4)
    with pytest.raises(BudgetExhausted, match="6 left, 7 needed"):
        budget.reserve("aten::add", 1, Usage(), 7)
    budget.settle(budget.reserve("aten::add", 1, Usage(), 1), Usage(), None)
    with pytest.raises(BudgetExhausted, match="1 requests of unknown cost"):
        budget.reserve("aten::add", 1, Usage(), 1)


def test_time_runs_from_the_first_request_and_over_sittings() -> None:
    now = [100.0]
    rows = [ROW, replace(ROW, request="b.1", attempt=2)]
    budget = Budget({"attempt": Limits(wall_s=8), "run": Limits(wall_s=30)}, rows, lambda: now[0])
    now[0] = 1000.0  # nobody has asked yet
    ask(budget, 1)
    now[0] += 2.9
    ask(budget, 1)
    now[0] += 0.1
    stop = budget.exhausted("aten::add", 1)
    assert stop is not None
    assert (stop.scope, stop.limit, stop.spent) == ("attempt", "wall_s", pytest.approx(8))
    assert budget.exhausted("aten::add", 3) is None
    now[0] += 17
    stop = budget.exhausted("aten::add", 3)
    assert stop is not None
    assert stop.scope == "run"


def test_what_the_ledger_holds_counts_once() -> None:
    denied = replace(ROW, outcome="budget_denied", usage=Usage(), request="a.2")
    free = replace(ROW, api="count_tokens", usage=Usage(), request="a.3")
    missing = replace(ROW, usage_source="missing", usage=Usage(), cost_usd=None, request="a.4")
    limits = Limits(requests=3, usd=2, tokens=50)
    budget = Budget({"run": limits}, [ROW, denied, free, missing])
    assert budget.spent_tokens == 40
    budget.reserve("aten::add", 1, Usage(out_total=10), 0.5)
    with pytest.raises(BudgetExhausted, match="budget of 50 tokens for the run"):
        budget.reserve("aten::add", 1, Usage(out_total=1), 0)
