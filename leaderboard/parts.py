"""Parts that several pages share: the open database, links, tables, the choice of a board."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pandas as pd
import streamlit as st

from kernelmark.leaderboard import data

HOW_TO_START = (
    "There are no results here yet. Grade something, seal it and ingest it; then reload this page."
)
COMMANDS = """kernelmark run --method reference --suite demo --chip interpreter
kernelmark submit RUN_FOLDER
kernelmark ingest"""


@st.cache_resource(max_entries=2, show_spinner=False)
def _open(path: Path, stamp: float) -> data.Board:
    return data.Board(path)


def board() -> data.Board:
    """The current database; a page without one says how to get one, and stops."""
    link = data.database_path()
    if not link.exists():
        st.info(HOW_TO_START)
        st.code(COMMANDS, language="bash")
        st.stop()
    path = link.resolve()
    return _open(path, path.stat().st_mtime)


def choose_board() -> dict[str, str]:
    """Suite and chip, kept in the URL: the parameters of the queries of a board."""
    boards = board().frame(data.BOARDS)
    if boards.empty:
        st.info(HOW_TO_START)
        st.code(COMMANDS, language="bash")
        st.stop()
    suites = list(dict.fromkeys(boards["suite"]))
    left, right = st.columns(2)
    with left:
        suite = st.selectbox("Suite", suites, key="suite", bind="query-params")
    chips = boards[boards["suite"] == suite]
    names = [_chip_name(row) for _, row in chips.iterrows()]
    with right:
        name = st.selectbox("Chip", names, key="chip", bind="query-params")
    row = chips.iloc[names.index(str(name)) if name in names else 0]
    return {"suite": str(row["suite"]), "chip": str(row["chip"]), "sku": str(row["sku"])}


def _chip_name(row: pd.Series) -> str:
    return f"{row['chip']} ({row['sku']})" if row["sku"] else str(row["chip"])


def link(page: str, **parameters: str) -> str:
    """A relative address of another page that opens on the same thing when copied."""
    return f"{page}?{urlencode(parameters)}"


def _any_value(column: pd.Series) -> bool:
    return bool((column.notna() & (column.astype(str) != "")).any())


def table(frame: pd.DataFrame, columns: dict[str, Any], key: str, name: str) -> None:
    """A sortable table of the named columns (label or column configuration), with a download."""
    present = {c: config for c, config in columns.items() if c in frame and _any_value(frame[c])}
    plain = st.toggle("Plain table", key=f"{key}-plain", help="For keyboards and screen readers.")
    shown = frame[list(present)]
    if plain:
        labels = {c: c.replace("_", " ") for c in present}
        st.table(shown.rename(columns=labels).reset_index(drop=True))
    else:
        st.dataframe(shown, column_config=present, hide_index=True, alt=name)
    st.download_button("CSV", frame.to_csv(index=False), f"{key}.csv", "text/csv", key=f"{key}-csv")
