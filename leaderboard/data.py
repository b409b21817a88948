"""The built database, opened read-only: every number that is shown comes from its views.

A connection is kept as long as the link `current.duckdb` points to the same file; each query runs
on a cursor of its own, since a connection must not be shared by threads. Frames are cached by file,
query and parameters: a built database never changes.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd

from kernelmark.benchmark import ranks
from kernelmark.benchmark.scoring import code_sha256

_RANK = ["rank", "rank_high", "value_low", "value_high", "first_share", "critical"]


def database_path() -> Path:
    """The link to the current database."""
    root = os.environ.get("KERNELMARK_HOME") or "~/.kernelmark"
    return Path(root).expanduser() / "current.duckdb"


class Board:
    """One built database, read-only."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connection = duckdb.connect(str(path), read_only=True)

    def frame(self, query: str, **parameters: Any) -> pd.DataFrame:
        """Rows of a query."""
        return self._connection.cursor().execute(query, parameters or None).df()

    def rows(self, query: str, **parameters: Any) -> list[tuple[Any, ...]]:
        """The same as tuples."""
        return self._connection.cursor().execute(query, parameters or None).fetchall()

    def copy(self, table: str, path: Path, file_format: str) -> None:
        """Writes a whole table or view to a file. `table` is one of `tables`."""
        if table not in self.tables():
            raise ValueError(f"no table {table!r}")
        target = str(path).replace("'", "''")
        self._connection.cursor().execute(
            f"COPY (SELECT * FROM {table}) TO '{target}' (FORMAT {file_format})"
        )

    def tables(self) -> list[str]:
        """Names of all tables and views."""
        query = "SELECT table_name FROM information_schema.tables ORDER BY table_name"
        return [name for (name,) in self.rows(query)]

    @property
    def current_code(self) -> bool:
        """Whether the scoring code that built the database is the one installed here."""
        return self.rows("SELECT code_sha256 FROM build") == [(code_sha256(),)]


def rank_part(rows: pd.DataFrame, values: pd.DataFrame) -> pd.DataFrame:
    """`rows` (entries of a board) ranked anew among themselves over the operators of `values`.

    By the function that ranks whole boards, with its seed. `values` has the columns submission,
    operator, value, all operators for each entry; entries without values stay unranked.
    """
    rows = rows.copy()
    for column in _RANK:
        rows[column] = np.nan
    matrix = values[values["submission"].isin(rows["submission"])].pivot(
        index="submission", columns="operator", values="value"
    )
    matrix = matrix.dropna(axis=1, how="all").dropna(axis=0)
    if matrix.empty:
        return rows
    standings = ranks.rank_entries(matrix.to_numpy(dtype=np.float64))
    found = pd.DataFrame([vars(s) for s in standings], index=matrix.index)[_RANK]
    rows = rows.drop(columns=_RANK).merge(found, left_on="submission", right_index=True, how="left")
    order = rows["score"].where(rows["measure"] == "score", rows["solved_share"])
    return (
        rows.assign(_value=order)
        .sort_values(["rank", "_value"], ascending=[True, False], na_position="last")
        .drop(columns="_value")
        .reset_index(drop=True)
    )


def pareto(cost: Sequence[float], quality: Sequence[float]) -> list[bool]:
    """Which points no other point beats: at most the cost, at least the quality, not both equal."""
    points = list(zip(cost, quality, strict=True))
    return [
        not any(c <= cost_ and q >= quality_ and (c, q) != (cost_, quality_) for c, q in points)
        for cost_, quality_ in points
    ]
