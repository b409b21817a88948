"""Budgets: reserved before a request is forwarded, settled when its usage is known.

Each scope (an attempt, an operator, the run) may be limited in tokens, tokens of a class, dollars,
requests and time. What a request will use is known only after it: the reservation is an estimate,
so a limit is overspent by at most one answer for each request that is under way. Input by class
can't be told before, so those limits stop the request after the one that reached them.

A dollar limit needs prices: a request whose model has none is refused.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from kernelmark.evaluators.metering.ledger import LedgerRow, Usage, charged

Scope = Literal["attempt", "operator", "run"]
SCOPES: tuple[Scope, ...] = ("attempt", "operator", "run")


@dataclass(frozen=True)
class Limits:
    """What one scope may use; None: as much as it likes. `tokens` are those of all classes."""

    tokens: int | None = None
    in_uncached: int | None = None
    in_cache_read: int | None = None
    in_cache_write: int | None = None
    out_total: int | None = None
    usd: float | None = None
    requests: int | None = None
    wall_s: float | None = None


@dataclass(frozen=True)
class Stop:
    """Where a budget stopped a request, and why. `limit`: the field of `Limits`."""

    scope: Scope
    operator: str
    attempt: int
    limit: str
    allowed: float
    spent: float
    reserved: float
    needed: float
    reason: str = ""

    @property
    def for_now(self) -> bool:
        """Requests under way may leave room for this one when they are settled."""
        fits = self.spent + self.needed <= self.allowed and self.spent < self.allowed
        return fits and self.reserved > 0 and not self.reason

    def __str__(self) -> str:
        where = {
            "run": "the run",
            "operator": self.operator,
            "attempt": f"attempt {self.attempt} at {self.operator}",
        }[self.scope]
        left = max(self.allowed - self.spent - self.reserved, 0)
        reason = self.reason or f"{left:.10g} left, {self.needed:.10g} needed"
        return f"budget of {self.allowed:.10g} {self.limit} for {where}: {reason}"


class BudgetExhausted(Exception):
    """A request that the budget does not cover."""

    def __init__(self, stop: Stop) -> None:
        super().__init__(str(stop))
        self.stop = stop


@dataclass(frozen=True)
class Reservation:
    """What is set aside for one request, by field of `Limits`."""

    operator: str
    attempt: int
    amounts: Mapping[str, float]


@dataclass
class _Account:
    """One scope's spending. `unpriced`: requests whose cost nobody knows."""

    spent: dict[str, float] = field(default_factory=dict)
    reserved: dict[str, float] = field(default_factory=dict)
    unpriced: int = 0
    earlier_s: float = 0.0  #: wall time of earlier sittings
    began_s: float | None = None  #: of this one


class Budget:
    """Limits by scope, and what was spent of them. Safe for threads.

    `rows`: what the run's ledger already holds; it counts. `clock`: seconds, monotonic.
    """

    def __init__(
        self,
        limits: Mapping[Scope, Limits] | None = None,
        rows: Iterable[LedgerRow] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limits = dict(limits or {})
        self.stops: list[Stop] = []  #: every refusal that is not for now, oldest first
        self._accounts: dict[tuple[object, ...], _Account] = {}
        self._clock = clock
        self._lock = threading.Lock()
        rows = charged(rows)
        for row in rows:
            for _, account in self._of(row.operator, row.attempt):
                _spend(account, row.usage, cost_of(row), 1)
        self._add_earlier(rows)

    @property
    def spent_tokens(self) -> int:
        """Tokens of the run's settled requests."""
        return int(self._account("run", "", 0).spent.get("tokens", 0))

    @property
    def spent_usd(self) -> float | None:
        """Dollars of the run's settled requests; None where the cost of one is not known."""
        account = self._account("run", "", 0)
        return None if account.unpriced else account.spent.get("usd", 0.0)

    def reserve(
        self, operator: str, attempt: int, expected: Usage, usd: float | None = None
    ) -> Reservation:
        """Sets aside what a request is expected to use, or raises `BudgetExhausted`; where that
        is `for_now`, it may be tried again when another request is settled.

        `usd`: what that costs; None where nobody knows.
        """
        needed = _amounts(expected, usd, 1)
        # Which class input will fall into is known only after.
        needed.update(in_uncached=0, in_cache_read=0, in_cache_write=0)
        with self._lock:
            stop = self._stop(operator, attempt, needed, usd is None)
            if stop is not None:
                if not stop.for_now:
                    self.stops.append(stop)
                raise BudgetExhausted(stop)
            for _, account in self._of(operator, attempt):
                if account.began_s is None:
                    account.began_s = self._clock()
                _add(account.reserved, needed)
        return Reservation(operator, attempt, needed)

    def settle(self, reservation: Reservation, usage: Usage, usd: float | None = None) -> None:
        """Replaces a reservation by what was used. `usd` None: nobody knows."""
        freed = {name: -amount for name, amount in reservation.amounts.items()}
        with self._lock:
            for _, account in self._of(reservation.operator, reservation.attempt):
                _add(account.reserved, freed)
                _spend(account, usage, usd, 1)

    def exhausted(self, operator: str, attempt: int) -> Stop | None:
        """The limit that leaves no room for any request; None where there is some."""
        with self._lock:
            return self._stop(operator, attempt, {}, False)

    def _stop(
        self, operator: str, attempt: int, needed: Mapping[str, float], unpriced: bool
    ) -> Stop | None:
        for scope, account in self._of(operator, attempt):
            for name, allowed in _given(self.limits.get(scope, Limits())):
                want = needed.get(name, 0.0)
                spent, reserved = account.spent.get(name, 0.0), account.reserved.get(name, 0.0)
                if name == "wall_s":
                    spent = self._wall_s(account)
                over = spent + reserved + want > allowed or spent >= allowed
                reason = _unknown_cost(account, unpriced) if name == "usd" else ""
                if over or reason:
                    return Stop(
                        scope, operator, attempt, name, allowed, spent, reserved, want, reason
                    )
        return None

    def _wall_s(self, account: _Account) -> float:
        now = 0.0 if account.began_s is None else self._clock() - account.began_s
        return account.earlier_s + now

    def _of(self, operator: str, attempt: int) -> list[tuple[Scope, _Account]]:
        return [(scope, self._account(scope, operator, attempt)) for scope in SCOPES]

    def _account(self, scope: Scope, operator: str, attempt: int) -> _Account:
        key = {"run": (), "operator": (operator,), "attempt": (operator, attempt)}[scope]
        return self._accounts.setdefault((scope, *key), _Account())

    def _add_earlier(self, rows: list[LedgerRow]) -> None:
        """Wall time of earlier sittings: first request to last answer of each."""
        spans: dict[tuple[int, str], tuple[_Account, list[datetime]]] = {}
        for row in rows:
            times = [datetime.fromisoformat(t) for t in (row.started_at, row.ended_at) if t]
            for _, account in self._of(row.operator, row.attempt):
                sitting = row.request.partition(".")[0]
                spans.setdefault((id(account), sitting), (account, []))[1].extend(times)
        for account, times in spans.values():
            if times:
                account.earlier_s += (max(times) - min(times)).total_seconds()


def cost_of(row: LedgerRow) -> float | None:
    """Dollars that a row counts for: none where its usage is missing, None where unknown."""
    return 0.0 if row.usage_source == "missing" else row.cost_usd


def _given(limits: Limits) -> list[tuple[str, float]]:
    values = ((f.name, getattr(limits, f.name)) for f in dataclasses.fields(limits))
    return [(name, value) for name, value in values if value is not None]


def _unknown_cost(account: _Account, unpriced: bool) -> str:
    if unpriced:
        return "the model has no known price"
    return f"{account.unpriced} requests of unknown cost" if account.unpriced else ""


def _amounts(usage: Usage, usd: float | None, requests: int) -> dict[str, float]:
    return {
        "tokens": usage.total,
        "in_uncached": usage.in_uncached,
        "in_cache_read": usage.in_cache_read,
        "in_cache_write": usage.in_cache_write_5m + usage.in_cache_write_1h,
        "out_total": usage.out_total,
        "usd": usd or 0.0,
        "requests": requests,
    }


def _spend(account: _Account, usage: Usage, usd: float | None, requests: int) -> None:
    _add(account.spent, _amounts(usage, usd, requests))
    account.unpriced += usd is None


def _add(to: dict[str, float], amounts: Mapping[str, float]) -> None:
    for name, amount in amounts.items():
        to[name] = to.get(name, 0.0) + amount
