"""The lake: immutable parts, each a folder of Parquet files that appears whole or not at all.

A part is one file a table beside ``part.json``, which names the events that its rows come from:
submissions of one ingest, a catalogue, a re-grade, a decision about trust. It is written beside the
lake and renamed into it, so whoever reads sees all of it or nothing, and an event is added once.
Parts come from other machines too (`submissions.sync`), so an event may be in two of them: readers
take it from the first by name (`shadowed`).
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from kernelmark.benchmark.errors import InfrastructureError
from kernelmark.evaluators.campaigns.files import read_json, write_json
from kernelmark.evaluators.grading.records import to_json
from kernelmark.submissions.home import Home

PART_SCHEMA_VERSION = 1
MANIFEST = "part.json"
_RETRY_S = 0.05


@dataclass(frozen=True)
class Part:
    """``part.json``. `kind`: submissions, catalogue, regrade or trust; `files`: sha256 by name."""

    name: str
    kind: str
    events: tuple[str, ...]
    rows: dict[str, int]
    files: dict[str, str]
    schema_version: int = PART_SCHEMA_VERSION


def parts(home: Home) -> list[Part]:
    """All parts, by name."""
    if not home.lake.exists():
        return []
    names = sorted(path.name for path in home.lake.iterdir() if not path.name.startswith("."))
    return [read_part(home.lake / name) for name in names]


def read_part(folder: Path) -> Part:
    """The part at `folder`. `InfrastructureError` where its manifest is not one."""
    try:
        data = read_json(folder / MANIFEST)
        return Part(**{**data, "events": tuple(data["events"])})
    except Exception as error:
        raise InfrastructureError(f"{folder}: not a part of the lake ({error})") from None


def events(home: Home) -> set[str]:
    """Every event that the lake holds."""
    return {event for part in parts(home) for event in part.events}


def shadowed(found: Iterable[Part]) -> dict[str, list[str]]:
    """Events that parts hold though an earlier one has them already: by name of the later part."""
    seen: set[str] = set()
    again: dict[str, list[str]] = {}
    for part in found:
        twice = [event for event in part.events if event in seen]
        if twice:
            again[part.name] = twice
        seen.update(part.events)
    return again


def has_part(home: Home, name: str) -> bool:
    """Whether the part is there."""
    return (home.lake / name).is_dir()


def part_name(kind: str, events: Iterable[str]) -> str:
    """A name that the same events always give."""
    digest = hashlib.sha256("\n".join(sorted(events)).encode()).hexdigest()
    return f"{kind}-{digest[:32]}"


def add_part(
    home: Home, name: str, kind: str, events: Iterable[str], tables: Mapping[str, pa.Table]
) -> bool:
    """Adds a part; False where it is there already. The caller holds the lock."""
    if has_part(home, name):
        return False
    staging = stage_part(home, name, kind, events, tables)
    commit_part(home, staging, name)
    return True


def stage_part(
    home: Home, name: str, kind: str, events: Iterable[str], tables: Mapping[str, pa.Table]
) -> Path:
    """Writes a part beside the lake's others, under a name that nobody reads."""
    staging = home.lake / f".{name}.{uuid.uuid4().hex[:8]}"
    staging.mkdir(parents=True)
    files = {}
    for table, rows in tables.items():
        path = staging / f"{table}.parquet"
        pq.write_table(rows, path, compression="zstd")
        files[path.name] = _flush(path)
    counts = {table: rows.num_rows for table, rows in tables.items()}
    part = Part(name, kind, tuple(events), counts, files)
    write_json(staging / MANIFEST, to_json(part))
    return staging


def commit_part(home: Home, staging: Path, name: str) -> None:
    """Puts a staged part into the lake, by one rename. The caller holds the lock."""
    staging.rename(home.lake / name)
    descriptor = os.open(home.lake, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sweep(home: Home) -> None:
    """Removes what a killed writer left half done. The caller holds the lock."""
    for path in home.lake.glob(".*"):
        shutil.rmtree(path)


@contextmanager
def exclusive(home: Home, wait_s: float = 0.0) -> Iterator[None]:
    """Holds the lock of whoever writes the lake or builds.

    Waits up to `wait_s` for it. `InfrastructureError` where another still has it then.
    """
    home.root.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + wait_s
    with home.ingest_lock.open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    held = f"another ingest holds {home.ingest_lock}"
                    raise InfrastructureError(held) from None
            time.sleep(_RETRY_S)
        yield


def _flush(path: Path) -> str:
    """Forces a file to disk; its sha256."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        return hashlib.file_digest(file, "sha256").hexdigest()
