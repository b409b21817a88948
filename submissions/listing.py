"""Submissions, wherever they stand: on the board, waiting in the inbox, refused.

Filtered and exported: rows as dictionaries, CSV, or a Parquet file of one explicit schema.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kernelmark.benchmark.errors import UserError
from kernelmark.submissions.board import open_board
from kernelmark.submissions.bundle import MANIFEST
from kernelmark.submissions.home import Home
from kernelmark.submissions.inbox import waiting
from kernelmark.submissions.validation import MAX_MANIFEST_BYTES

_TEXT, _COUNT, _FLAG = pa.string(), pa.int64(), pa.bool_()

#: what is told of a submission
COLUMNS: dict[str, pa.DataType] = {
    "submission": _TEXT,
    "state": _TEXT,  #: accepted, waiting or refused
    "method": _TEXT,
    "kind": _TEXT,
    "model": _TEXT,
    "suite": _TEXT,
    "chip": _TEXT,
    "sku": _TEXT,
    "trust": _TEXT,
    "trust_reason": _TEXT,
    "regrade_outcome": _TEXT,
    "complete": _FLAG,
    "solved": _COUNT,
    "operators": _COUNT,
    "submitter": _TEXT,
    "organisation": _TEXT,
    "licence": _TEXT,
    "attempts_declared": _COUNT,
    "runs_seen": _COUNT,
    "created_at": _TEXT,
    "ingested_at": _TEXT,
    "problems": _TEXT,  #: of a refused one, as JSON
}

_QUERY = """
SELECT s.*, 'accepted' AS state, t.trust, t.trust_reason, b.* EXCLUDE (submission)
FROM submissions AS s
JOIN v_trust AS t USING (submission)
LEFT JOIN (
    SELECT submission, sku, solved, operators, runs_seen, regrade_outcome
    FROM v_standing WHERE declared
) AS b USING (submission)
ORDER BY s.created_at, s.submission
"""

Row = dict[str, Any]


def list_submissions(home: Home, filters: Mapping[str, str] | None = None) -> list[Row]:
    """One row a submission, of `COLUMNS`; those not yet on the board tell what their manifest says.

    `filters`: values by column of `COLUMNS`; an empty value filters nothing.
    """
    rows: list[Row] = []
    if home.current.exists():
        with open_board(home) as connection:
            result = connection.execute(_QUERY)
            names = [column[0] for column in result.description]
            found = (dict(zip(names, row, strict=True)) for row in result.fetchall())
            rows = [{name: row.get(name) for name in COLUMNS} for row in found]
    on_board = {row["submission"] for row in rows}
    rows += [_waiting_row(path) for path in waiting(home) if path.name not in on_board]
    refused = home.rejected.glob("*.problems.json") if home.rejected.exists() else ()
    for path in sorted(refused):
        told = _empty(path.name.removesuffix(".problems.json"), "refused")
        rows.append({**told, "problems": json.dumps(json.loads(path.read_bytes()))})
    wanted = {name: value for name, value in (filters or {}).items() if value}
    return [row for row in rows if all(row[name] == value for name, value in wanted.items())]


def as_csv(rows: Sequence[Row]) -> str:
    """Rows as CSV with a heading. What a spreadsheet would compute begins with an apostrophe."""
    out = io.StringIO()
    writer = csv.DictWriter(out, list(COLUMNS), lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _cell(value) for name, value in row.items()} for row in rows)
    return out.getvalue()


def write_parquet(rows: Sequence[Row], path: Path) -> None:
    """Rows as a Parquet file."""
    schema = pa.schema(list(COLUMNS.items()))
    try:
        pq.write_table(pa.Table.from_pylist(list(rows), schema), path)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}") from None


def _cell(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value[:1] in "=+-@\t\r" and value else value


def _waiting_row(path: Path) -> Row:
    row = _empty(path.name, "waiting")
    manifest = path / MANIFEST
    try:
        if manifest.is_symlink() or manifest.stat().st_size > MAX_MANIFEST_BYTES:
            return row
        run = json.loads(manifest.read_bytes())["run"]
        named = ("method", "kind", "model", "suite", "chip", "created_at")
        return {**row, **{key: str(run[key]) for key in named}}
    except (OSError, ValueError, RecursionError, LookupError, TypeError):
        return row  # an ingest will say what is wrong with it


def _empty(name: str, state: str) -> Row:
    return {**dict.fromkeys(COLUMNS), "submission": name, "state": state}
