"""From the inbox to the lake: one process commits, each bundle exactly once.

Bundles are validated and turned into rows in batches, by several processes where there is much to
do; only the process that holds the lock puts parts into the lake, by one rename each. Then the
bundles move out of the inbox. Killed between the two, the next ingest finds the events there and
only moves the bundles.
"""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow as pa

from kernelmark.benchmark.errors import InfrastructureError
from kernelmark.evaluators.campaigns.campaign import now
from kernelmark.evaluators.campaigns.files import write_json
from kernelmark.submissions.archive import unpack
from kernelmark.submissions.bundle import MANIFEST
from kernelmark.submissions.catalogue import Catalogue
from kernelmark.submissions.home import Home
from kernelmark.submissions.inbox import new_staging, place, waiting
from kernelmark.submissions.lake import (
    add_part,
    commit_part,
    events,
    exclusive,
    has_part,
    part_name,
    stage_part,
    sweep,
)
from kernelmark.submissions.tables import bundle_tables, to_table
from kernelmark.submissions.validation import Problem, Suites, read_bundle, shown

#: ends the name of the file that says why a bundle was refused
REASONS = ".problems.json"

_ID = re.compile(r"[0-9a-f]{64}")

#: bytes of bundles that make a part
_BATCH_BYTES = 48 << 20


@dataclass(frozen=True)
class Ingested:
    """What became of one bundle: accepted, or refused with every problem found."""

    name: str
    accepted: bool
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True)
class _Taken:
    """A batch that a process has dealt with. `staging`: the part to commit, if any is accepted."""

    results: tuple[Ingested, ...]
    part: str = ""
    staging: Path | None = None


def ingest(
    home: Home,
    catalogue: Catalogue,
    notify: Callable[[Ingested], None] = lambda _: None,
    processes: int | None = None,
    wait_s: float = 0.0,
) -> list[Ingested]:
    """Takes everything out of the inbox.

    Up to `processes` at once (None: one a core). Waits up to `wait_s` for another ingest to end,
    then raises `InfrastructureError`.
    """
    with exclusive(home, wait_s):
        home.lake.mkdir(parents=True, exist_ok=True)
        sweep(home)
        _add_catalogue(home, catalogue)
        done = []
        for result in _take_all(home, catalogue.members(), processes or os.cpu_count() or 1):
            notify(result)
            done.append(result)
        return done


def _take_all(home: Home, suites: Suites, processes: int) -> Iterator[Ingested]:
    known = events(home)
    bundles = []
    for path in waiting(home):
        bundle = path
        if path.suffix == ".zip" and path.is_file() and not path.is_symlink():
            unpacked = _unpack(home, path)
            if isinstance(unpacked, Ingested):
                yield unpacked
                continue
            bundle = unpacked
        if bundle.name in known:
            yield _accept(home, bundle.name)
        elif not _ID.fullmatch(bundle.name) or bundle.is_symlink():
            yield _refuse(home, bundle, (Problem(".", "the folder is not named by an id"),))
        elif bundle not in bundles:
            bundles.append(bundle)
    for taken in _in_batches(home, bundles, suites, processes):
        if taken.staging is not None:
            commit_part(home, taken.staging, taken.part)
        for result in taken.results:
            if result.accepted:
                yield _accept(home, result.name)
            else:
                yield _refuse(home, home.inbox / result.name, result.problems)


def _in_batches(
    home: Home, bundles: Sequence[Path], suites: Suites, processes: int
) -> Iterator[_Taken]:
    batches = list(_batches(bundles))
    if processes == 1 or len(batches) <= 1:
        for batch in batches:
            yield _take(home, batch, suites, now())
        return
    context = multiprocessing.get_context("spawn")
    workers = min(processes, len(batches))
    with ProcessPoolExecutor(workers, context, initializer=_end_with_the_parent) as pool:
        futures: list[Future[_Taken]] = [
            pool.submit(_take, home, batch, suites, now()) for batch in batches
        ]
        try:
            while futures:
                yield futures.pop(0).result()
        except BrokenProcessPool as error:
            raise InfrastructureError(f"a process that validates bundles died: {error}") from None
        finally:
            for future in futures:
                future.cancel()


def _end_with_the_parent() -> None:
    """Without this, killing the ingest would leave its processes waiting for work for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _batches(bundles: Iterable[Path]) -> Iterator[list[Path]]:
    batch: list[Path] = []
    total = 0
    for bundle in bundles:
        size = _size(bundle)
        if batch and total + size > _BATCH_BYTES:
            yield batch
            batch, total = [], 0
        batch.append(bundle)
        total += size
    if batch:
        yield batch


def _size(bundle: Path) -> int:
    if not bundle.is_dir():
        return 0
    with os.scandir(bundle) as entries:
        return sum(entry.stat(follow_symlinks=False).st_size for entry in entries)


def _take(home: Home, batch: Sequence[Path], suites: Suites, time: str) -> _Taken:
    """Validates a batch and stages the rows of what is right."""
    with _without_collector():
        return _take_batch(home, batch, suites, time)


@contextmanager
def _without_collector() -> Iterator[None]:
    """Millions of records that form no cycles: looking for cycles would take a quarter longer."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _take_batch(home: Home, batch: Sequence[Path], suites: Suites, time: str) -> _Taken:
    results = []
    tables: dict[str, list[pa.Table]] = {}
    for bundle in batch:
        rows, problems = read_rows(bundle, suites, time)
        id = rows["submissions"]["submission"][0].as_py() if rows else bundle.name
        if id != bundle.name:
            named = f"the folder is not named by the submission's id {id}"
            rows, problems = {}, (Problem(".", named),)
        results.append(Ingested(bundle.name, not problems, problems))
        for name, table in rows.items():
            tables.setdefault(name, []).append(table)
    accepted = [result.name for result in results if result.accepted]
    if not accepted:
        return _Taken(tuple(results))
    part = part_name("submissions", accepted)
    joined = {name: pa.concat_tables(several) for name, several in tables.items()}
    staging = stage_part(home, part, "submissions", accepted, joined)
    return _Taken(tuple(results), part, staging)


def read_rows(
    bundle: Path, suites: Suites, time: str
) -> tuple[dict[str, pa.Table], tuple[Problem, ...]]:
    """The rows that a bundle gives, or every problem with it. `time`: that of the ingest."""
    contents = read_bundle(bundle, suites)
    if contents.problems:
        return {}, tuple(contents.problems)
    try:
        return bundle_tables(contents, time), ()
    except ValueError as error:
        return {}, (Problem(".", str(error)),)


def _unpack(home: Home, archive: Path) -> Path | Ingested:
    """The bundle of an archive, in the inbox; or what is wrong with it."""
    staging = new_staging(home)
    try:
        problems = unpack(archive, staging)
        id = "" if problems else _claimed_id(staging)
        if not problems and not _ID.fullmatch(id):
            problems = [Problem(MANIFEST, "holds no id of a submission")]
        if not problems and not place(home, staging, id):
            before = next(p for p in (home.inbox / id, home.bundles / id) if p.exists())
            if not _same_manifest(before, staging):
                problems = [Problem(".", f"another bundle was delivered as {id} before")]
        if problems:
            return _refuse(home, archive, tuple(problems))
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    archive.unlink()
    return home.inbox / id if (home.inbox / id).exists() else Ingested(archive.name, True)


def _same_manifest(one: Path, other: Path) -> bool:
    texts = [path / MANIFEST for path in (one, other)]
    return all(t.is_file() for t in texts) and texts[0].read_bytes() == texts[1].read_bytes()


def _claimed_id(bundle: Path) -> str:
    try:
        id = json.loads((bundle / MANIFEST).read_bytes())["id"]
    except (OSError, ValueError, RecursionError, TypeError, LookupError):
        return ""
    return id if isinstance(id, str) else ""


def _accept(home: Home, name: str) -> Ingested:
    target = home.bundles / name
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.exists():
        target = _free(target)  # delivered again, perhaps changed: kept beside the first
    (home.inbox / name).rename(target)
    return Ingested(name, accepted=True)


def _refuse(home: Home, bundle: Path, problems: tuple[Problem, ...]) -> Ingested:
    """Keeps a refused bundle, with the reasons, which are there before it is."""
    name = _refused_name(bundle.name)
    target = _free(home.rejected / name)
    reasons = target.with_name(f"{target.name}{REASONS}")
    write_json(reasons, [asdict(problem) for problem in problems])
    bundle.rename(target)
    return Ingested(name, accepted=False, problems=problems)


def _refused_name(name: str) -> str:
    """A name to keep it under, whatever it came as: short, printable, not that of any reasons."""
    plain = shown(name)
    return f"{plain}.bundle" if plain.endswith(REASONS) else plain


def _free(target: Path) -> Path:
    """`target`, or where that is taken, the first free name of its kind."""
    path, number = target, 1
    while path.exists() or path.is_symlink():
        number += 1
        path = target.with_name(f"{target.name}.{number}")
    return path


def _add_catalogue(home: Home, catalogue: Catalogue) -> None:
    name = f"catalogue-{catalogue.digest[:32]}"
    if has_part(home, name):
        return
    time = now()
    tables = {
        "operators": to_table("operators", catalogue.operator_rows(time)),
        "cases": to_table("cases", catalogue.case_rows(time)),
        "suites": to_table("suites", catalogue.suite_rows(time)),
    }
    add_part(home, name, "catalogue", [catalogue.digest], tables)
