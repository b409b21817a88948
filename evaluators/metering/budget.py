"""Token budgets: reserved before a request is forwarded, settled when its usage is known."""

from __future__ import annotations

import threading
from dataclasses import dataclass


class BudgetExhausted(Exception):
    """A request that the budget does not cover."""


@dataclass(frozen=True)
class Reservation:
    """Tokens set aside for one request."""

    tokens: int


class Budget:
    """A limit on tokens of every class. None: no limit, still counted. Safe for threads."""

    def __init__(self, limit_tokens: int | None, spent_tokens: int = 0) -> None:
        self.limit_tokens = limit_tokens
        self._spent = spent_tokens
        self._reserved = 0
        self._lock = threading.Lock()

    @property
    def spent_tokens(self) -> int:
        """Tokens of settled requests."""
        return self._spent

    def reserve(self, tokens: int) -> Reservation:
        """Sets `tokens` aside. Raises `BudgetExhausted` where they are not there."""
        with self._lock:
            after = self._spent + self._reserved + tokens
            if self.limit_tokens is not None and after > self.limit_tokens:
                left = max(self.limit_tokens - self._spent - self._reserved, 0)
                raise BudgetExhausted(
                    f"budget of {self.limit_tokens} tokens: {left} left, {tokens} needed"
                )
            self._reserved += tokens
        return Reservation(tokens)

    def settle(self, reservation: Reservation, tokens: int) -> None:
        """Replaces a reservation by what was used."""
        with self._lock:
            self._reserved -= reservation.tokens
            self._spent += tokens
