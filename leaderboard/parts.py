"""Parts that several pages share: the open database, the choice of a board, entries, links."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urlencode

import duckdb
import pandas as pd
import streamlit as st

from kernelmark.leaderboard import data, queries, state, text

HOW_TO_START = (
    "There are no results here yet. Grade something, seal it and ingest it; then reload this page."
)
COMMANDS = """kernelmark run --method reference --suite demo --chip interpreter
kernelmark submit RUN_FOLDER
kernelmark ingest"""


class Done(Exception):
    """A page has said all that it can. Unlike Streamlit's own stop, the URL is still completed."""


def stop() -> NoReturn:
    """Ends the page here; `app` goes on."""
    raise Done


@st.cache_resource(max_entries=2, show_spinner=False)
def _open(path: Path, stamp: float) -> data.Board:
    return data.Board(path)


def board() -> data.Board:
    """The current database; a page without one says how to get one, and stops."""
    link = data.database_path()
    for _ in range(2):  # between the two looks at the link another build may have come
        try:
            path = link.resolve(strict=True)
            return _open(path, path.stat().st_mtime)
        except FileNotFoundError:
            continue
        except duckdb.IOException:
            st.warning("The database is just being replaced. Reload this page in a moment.")
            stop()
    nothing_yet()


def nothing_yet() -> NoReturn:
    """Says how to get results, and stops."""
    st.info(HOW_TO_START)
    st.code(COMMANDS, language=None, wrap_lines=True)
    stop()


def frame(query: str, **parameters: Any) -> pd.DataFrame:
    """Rows of a query of `queries` over the current database, cached."""
    current = board()
    return _frame(str(current.path), current.path.stat().st_mtime, query, parameters, current)


@st.cache_data(max_entries=400, show_spinner=False)
def _frame(
    path: str, stamp: float, query: str, parameters: dict[str, Any], _board: data.Board
) -> pd.DataFrame:
    return _board.frame(query, **parameters)


@st.cache_data(max_entries=200, show_spinner=False)
def ranked(rows: pd.DataFrame, values: pd.DataFrame) -> pd.DataFrame:
    """`data.rank_part`, cached."""
    return data.rank_part(rows, values)


def choose_board() -> dict[str, Any]:
    """Suite and chip, kept in the URL: the parameters of the queries of a board."""
    boards = frame(queries.BOARDS)
    if boards.empty:
        nothing_yet()
    left, right = st.columns(2)
    with left:
        suite = state.one("Suite", list(dict.fromkeys(boards["suite"])), "suite")
    chips = boards[boards["suite"] == suite]
    names = {chip_name(row): row for row in chips.to_dict("records")}
    with right:
        row = names[state.one("Chip", list(names), "chip")]
    return {"suite": row["suite"], "chip": row["chip"], "sku": row["sku"]}


def choose_suite() -> dict[str, Any]:
    """A suite as it is defined now, over all chips."""
    suites = frame(queries.SUITES)
    if suites.empty:
        nothing_yet()
    suite = state.one("Suite", list(suites["suite"]), "suite")
    row = suites[suites["suite"] == suite].iloc[0]
    return {"suite": suite, "suite_digest": row["suite_digest"]}


def choose_part(suite: str) -> dict[str, list[str]]:
    """Sources and families of operators; empty lists: all."""
    parts = frame(queries.PARTS, suite=suite)
    left, right = st.columns(2)
    with left:
        sources = state.many("Source", sorted(parts["source"].unique()), "source")
    if sources:
        parts = parts[parts["source"].isin(sources)]
    with right:
        families = state.many("Family", sorted(parts["family"].unique()), "family")
    return {"sources": sources, "families": families}


def board_rows(chosen: dict[str, Any]) -> pd.DataFrame:
    """Entries of the chosen board, best first, as ranked when the database was built."""
    return frame(queries.BOARD, **chosen)


def part_rows(chosen: dict[str, Any], part: dict[str, list[str]]) -> pd.DataFrame:
    """Entries of the board over a part of its suite; ranks and their intervals are not set."""
    columns = frame(queries.SCORE_COLUMNS)["column_name"]
    query = queries.BOARD_PART.format(columns=", ".join(f"p.{c} AS {c}" for c in columns))
    return frame(query, **chosen, **part)


def chip_name(row: Any) -> str:
    """``nvidia (NVIDIA H200)``."""
    return f"{row['chip']} ({row['sku']})" if row["sku"] else str(row["chip"])


def entry_name(row: Any) -> str:
    """``method · model``, or the method alone; whole, as the submitter wrote it."""
    return f"{row['method']} · {row['model']}" if row["model"] else str(row["method"])


def entry_names(rows: pd.DataFrame, length: int = 40) -> list[str]:
    """Short names, each once: those that would be alike get chip, submitter or the id's start."""
    records = rows.to_dict("records")
    names = [text.short(entry_name(row), length) for row in records]
    for column in ("chip", "submitter", "submission"):
        seen = Counter(names)
        if len(seen) == len(names):
            break
        if column == "submission" or (column in rows and rows[column].nunique() > 1):
            names = [
                f"{name} ({text.short(str(row[column])[:12])})" if seen[name] > 1 else name
                for name, row in zip(names, records, strict=True)
            ]
    return names


def labels_of(rows: pd.DataFrame) -> dict[str, str]:
    """Labels of select boxes by submission, each once."""
    return {
        row["submission"]: f"{text.short(entry_name(row))}, {text.short(chip_name(row), 40)}, "
        f"{row['created_at'][:10]} ({row['submission'][:8]})"
        for row in rows.to_dict("records")
    }


def link(page: str, **parameters: str) -> str:
    """A relative address of another page that opens on the same thing when copied."""
    return f"{page}?{urlencode(parameters)}"


def entry_links(rows: pd.DataFrame) -> list[str]:
    """Links to the pages of entries."""
    return [link("entry", submission=s) for s in rows["submission"]]
