"""Budgets as a run states them: ``operator.tokens=20000``, a limit of one scope."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, cast

from kernelmark.benchmark.errors import UserError
from kernelmark.evaluators.campaigns.records import Run
from kernelmark.evaluators.metering.budget import SCOPES, Limits, Scope
from kernelmark.operators.registry import UnknownName

#: what may be limited, in each scope
LIMITS = tuple(field.name for field in dataclasses.fields(Limits))
_FRACTIONS = ("usd", "wall_s")


def parse_budgets(texts: Iterable[str]) -> dict[str, float]:
    """``SCOPE.LIMIT=N`` texts by ``SCOPE.LIMIT``. `UnknownName`, or `UserError` for the number."""
    budgets: dict[str, float] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        scope, dot, limit = name.strip().partition(".")
        if not equals or not dot:
            raise UserError(f"--budget {text}: write SCOPE.LIMIT=N, e.g. operator.tokens=20000")
        if scope not in SCOPES:
            raise UnknownName("scope of a budget", scope, list(SCOPES))
        if limit not in LIMITS:
            raise UnknownName("limit of a budget", limit, list(LIMITS))
        budgets[f"{scope}.{limit}"] = _number(text, limit, value)
    return budgets


def limits_of(run: Run) -> dict[Scope, Limits]:
    """A run's budgets as the gateway takes them."""
    return limits(run.budgets)


def limits(budgets: Mapping[str, float]) -> dict[Scope, Limits]:
    """Budgets by scope."""
    by_scope: dict[str, dict[str, Any]] = {}
    for name, value in budgets.items():
        scope, _, limit = name.partition(".")
        by_scope.setdefault(scope, {})[limit] = value if limit in _FRACTIONS else int(value)
    return {cast(Scope, scope): Limits(**given) for scope, given in by_scope.items()}


def _number(text: str, limit: str, value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        raise UserError(f"--budget {text}: {value!r} is not a number") from None
    if not 0 <= number < float("inf") or (limit not in _FRACTIONS and number != int(number)):
        kind = "a number" if limit in _FRACTIONS else "a whole number"
        raise UserError(f"--budget {text}: must be {kind}, 0 or more")
    return number
