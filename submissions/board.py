"""From the lake to a database that readers open: built new each time, swapped in by one rename.

A reader that has the old file open keeps reading it; a reader that opens afterwards gets the new
one; nobody waits and nobody finds half a database.
"""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Sequence
from pathlib import Path

import duckdb

from kernelmark.benchmark.errors import UserError
from kernelmark.benchmark.scoring import add_scores, code_sha256
from kernelmark.evaluators.campaigns.campaign import now
from kernelmark.submissions.home import Home
from kernelmark.submissions.lake import Part, exclusive, parts, shadowed
from kernelmark.submissions.tables import SCHEMAS

#: older boards that stay for readers which opened them by path
_KEPT = 2


def build(home: Home, wait_s: float = 0.0) -> Path:
    """Builds the database of what the lake holds and makes it the current one; its path.

    Does nothing where the current one is built from the same parts by the same code. Waits up to
    `wait_s` for another ingest to end, then raises `InfrastructureError`.
    """
    with exclusive(home, wait_s):
        target = home.boards / f"{_digest(home)}.duckdb"
        if not target.exists():
            home.boards.mkdir(parents=True, exist_ok=True)
            _sweep(home)
            temporary = home.boards / f".{uuid.uuid4().hex}.duckdb"
            try:
                _write(home, temporary)
                temporary.replace(target)
            finally:
                temporary.unlink(missing_ok=True)
        _point(home, target)
        _forget_old(home, target)
    return target


def open_board(home: Home) -> duckdb.DuckDBPyConnection:
    """The current database, read-only. `UserError` where there is none, or one of other views."""
    if not home.current.exists():
        raise UserError(f"no leaderboard under {home.root} yet: kernelmark submit, then ingest")
    connection = duckdb.connect(str(home.current.resolve()), read_only=True)
    built_by = connection.execute("SELECT code_sha256 FROM build").fetchone()
    if built_by != (code_sha256(),):
        connection.close()
        raise UserError(
            f"{home.current} was built by another version: kernelmark ingest builds it anew"
        )
    return connection


def _write(home: Home, path: Path) -> None:
    found = parts(home)
    with duckdb.connect(str(path)) as connection:
        for name, schema in SCHEMAS.items():
            connection.register("empty", schema.empty_table())
            connection.execute(f"CREATE TABLE {name} AS SELECT * FROM empty")
            connection.unregister("empty")
            _fill(connection, name, home, found)
        add_scores(connection)
        connection.execute(
            "CREATE TABLE build AS SELECT ? AS built_at, ? AS parts, ? AS code_sha256",
            [now(), len(found), code_sha256()],
        )
        connection.execute("CHECKPOINT")
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _fill(
    connection: duckdb.DuckDBPyConnection, table: str, home: Home, found: Sequence[Part]
) -> None:
    """Copies a table's rows out of the parts, each event's once."""
    files = [_file(home, part.name, table) for part in found if part.rows.get(table)]
    if not files:
        return
    rows = "read_parquet($files, union_by_name = true, filename = 'part_file')"
    query = f"INSERT INTO {table} BY NAME SELECT * EXCLUDE (part_file) FROM {rows}"
    again = [
        (_file(home, name, table), event)
        for name, twice in shadowed(found).items()
        for event in twice
    ]
    if not again or "submission" not in SCHEMAS[table].names:
        connection.execute(query, {"files": files})
        return
    # Only ingests of two machines can both hold an event, and their events are submissions.
    connection.execute("CREATE TEMP TABLE shadowed (part_file VARCHAR, submission VARCHAR)")
    connection.executemany("INSERT INTO shadowed VALUES (?, ?)", again)
    query += " WHERE (part_file, submission) NOT IN (SELECT (part_file, submission) FROM shadowed)"
    connection.execute(query, {"files": files})
    connection.execute("DROP TABLE shadowed")


def _file(home: Home, part: str, table: str) -> str:
    return str(home.lake / part / f"{table}.parquet")


def _digest(home: Home) -> str:
    schemas = "\n".join(f"{name} {schema}" for name, schema in SCHEMAS.items())
    text = "\n".join([code_sha256(), schemas, *(part.name for part in parts(home))])
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def _point(home: Home, target: Path) -> None:
    link = home.root / f".current.{uuid.uuid4().hex}"
    link.symlink_to(target.relative_to(home.root))
    link.replace(home.current)


def _sweep(home: Home) -> None:
    """Removes databases that a killed build left half done."""
    for path in home.boards.glob(".*"):
        path.unlink(missing_ok=True)


def _forget_old(home: Home, target: Path) -> None:
    others = [path for path in home.boards.glob("[!.]*.duckdb") if path != target]
    others.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    for path in others[_KEPT:]:
        path.unlink(missing_ok=True)
