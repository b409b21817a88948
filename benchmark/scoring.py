"""The views and ranks that everything shown of results is read from, put into a database."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from pathlib import Path

import duckdb
import numpy as np

from kernelmark.benchmark import ranks

VIEWS = Path(__file__).with_name("views.sql")

_RANKS = """
CREATE TABLE ranks (
    submission VARCHAR, suite VARCHAR, suite_digest VARCHAR, chip VARCHAR, sku VARCHAR,
    measure VARCHAR, "rank" INTEGER, rank_high INTEGER, value DOUBLE, value_low DOUBLE,
    value_high DOUBLE, first_share DOUBLE, critical DOUBLE, entries INTEGER, operators INTEGER,
    n_boot INTEGER, seed INTEGER, code_sha256 VARCHAR
)
"""


def code_sha256() -> str:
    """sha256 over the code that decides scores and ranks, 64 hex digits."""
    files = (VIEWS, Path(ranks.__file__), Path(__file__))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def add_scores(connection: duckdb.DuckDBPyConnection) -> None:
    """Creates the views over the lake's tables, and the table `ranks`."""
    connection.execute(_RANKS)
    connection.execute(VIEWS.read_text())
    boards: dict[tuple[str, ...], dict[str, dict[str, float]]] = defaultdict(dict)
    query = "SELECT suite, suite_digest, chip, sku, measure, submission, operator, value"
    for *board, submission, operator, value in connection.execute(
        f"{query} FROM v_rank_value ORDER BY ALL"
    ).fetchall():
        boards[tuple(board)].setdefault(submission, {})[operator] = value
    for names, entries in boards.items():
        _add_board(connection, names, entries)


def _add_board(
    connection: duckdb.DuckDBPyConnection,
    board: tuple[str, ...],
    entries: dict[str, dict[str, float]],
) -> None:
    suite, suite_digest, chip, sku, measure = board
    operators = sorted(next(iter(entries.values())))
    values = np.array([[row[operator] for operator in operators] for row in entries.values()])
    standings = ranks.rank_entries(values)
    for submission, standing in zip(entries, standings, strict=True):
        row: list[object] = [submission, suite, suite_digest, chip, sku, measure]
        row += [standing.rank, standing.rank_high, standing.value, standing.value_low]
        row += [standing.value_high, standing.first_share, standing.critical]
        row += [len(entries), len(operators)]
        row += [ranks.N_BOOT, ranks.SEED, code_sha256()]
        marks = ", ".join("?" * len(row))
        connection.execute(f"INSERT INTO ranks VALUES ({marks})", row)
