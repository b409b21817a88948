"""Filters of a board's entries: chosen in the URL, applied to rows."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd
import streamlit as st

from kernelmark.leaderboard import state

#: how a kind of method is marked on the board
MARKS = {
    "human": "expert-made",
    "compiler": "compiler, no model",
    "library": "library, no model",
    "agent": "agent",
    "model": "model",
}
_NAMES = ("source", "family", "kind", "trust", "weights", "metering", "since", "until", "tokens")


@dataclass(frozen=True)
class Wanted:
    """What to keep; empty: everything. Dates as ISO 8601, both inclusive."""

    kinds: tuple[str, ...] = ()
    trusts: tuple[str, ...] = ()
    weights: tuple[str, ...] = ()
    metering: tuple[str, ...] = ()
    since: str = ""
    until: str = ""
    tokens: int | None = None  #: at most so many an operator; what has no model uses none


def any_given() -> bool:
    """Whether the URL filters anything."""
    return any(name in st.query_params for name in _NAMES)


def choose(rows: pd.DataFrame) -> Wanted:
    """Draws the filters, offering what occurs in `rows`."""
    left, right = st.columns(2)
    with left:
        kinds = state.many("Kind of method", _options(rows["kind"]), "kind", shown=_marked)
        weights = state.many("Open weights", _options(rows["open_weights"]), "weights")
        since = state.day("From", "since")
        tokens = state.whole(
            "At most tokens an operator", "tokens", step=10_000,
            help="Entries whose metering is not complete are left out: they may use more.",
        )  # fmt: skip
    with right:
        trusts = state.many("Trust", _options(rows["trust"]), "trust")
        metering = state.many("Metering", _options(rows["metering"]), "metering")
        until = state.day("Until", "until")
    chosen = (tuple(kinds), tuple(trusts), tuple(weights), tuple(metering))
    return Wanted(*chosen, since, until, tokens)


def apply(rows: pd.DataFrame, wanted: Wanted) -> pd.DataFrame:
    """The rows that pass."""
    keep = pd.Series(True, index=rows.index)
    for column, values in (
        ("kind", wanted.kinds),
        ("trust", wanted.trusts),
        ("open_weights", wanted.weights),
        ("metering", wanted.metering),
    ):
        if values:
            keep &= rows[column].isin(values)
    if wanted.since:
        keep &= rows["created_at"].str[:10] >= wanted.since
    if wanted.until:
        keep &= rows["created_at"].str[:10] <= wanted.until
    if wanted.tokens is not None:
        known = (rows["metering"] == "complete") & (rows["tokens_per_operator"] <= wanted.tokens)
        keep &= known | (rows["metering"] == "not applicable")
    return rows[keep].reset_index(drop=True)


def _options(column: pd.Series) -> list[str]:
    return sorted(column.dropna().unique())


def _marked(kind: str) -> str:
    return MARKS.get(kind, kind)
