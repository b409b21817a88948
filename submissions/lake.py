"""The lake: immutable parts, each a folder of Parquet files that appears whole or not at all.

A part is everything that one event brought (a submission, a catalogue, a decision about trust), one
file a table. It is written beside the lake and renamed into it: whoever reads sees all of it or
nothing, and an event that comes twice finds its part there.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from kernelmark.benchmark.errors import InfrastructureError
from kernelmark.submissions.home import Home


def parts(home: Home) -> list[str]:
    """Names of all parts, sorted."""
    if not home.lake.exists():
        return []
    return sorted(path.name for path in home.lake.iterdir() if not path.name.startswith("."))


def has_part(home: Home, name: str) -> bool:
    """Whether the part is there."""
    return (home.lake / name).is_dir()


def add_part(home: Home, name: str, tables: Mapping[str, pa.Table]) -> bool:
    """Adds a part; False where it is there already. The caller holds the lock."""
    if has_part(home, name):
        return False
    staging = home.lake / f".{name}.{uuid.uuid4().hex[:8]}"
    staging.mkdir(parents=True)
    try:
        for table, rows in tables.items():
            path = staging / f"{table}.parquet"
            pq.write_table(rows, path, compression="zstd")
            _flush(path)
        _flush(staging)
        staging.rename(home.lake / name)
        _flush(home.lake)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return True


def sweep(home: Home) -> None:
    """Removes what a killed writer left half done. The caller holds the lock."""
    for path in home.lake.glob(".*"):
        shutil.rmtree(path)


@contextmanager
def exclusive(home: Home) -> Iterator[None]:
    """Holds the lock of whoever ingests or builds. `InfrastructureError` where another has it."""
    home.root.mkdir(parents=True, exist_ok=True)
    with home.ingest_lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InfrastructureError(f"another ingest holds {home.ingest_lock}") from None
        yield


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
