"""Whether a bundle is what it says: read, checked, and answered with every problem found.

Nothing in a bundle is executed or followed: links are refused, paths must be those that `bundle`
writes, sizes are bounded, and each file's bytes must have the sha256 that the manifest gives.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

from pydantic import ConfigDict, TypeAdapter, ValidationError

from kernelmark.evaluators.campaigns.files import slug
from kernelmark.evaluators.campaigns.records import Production, Run
from kernelmark.evaluators.grading.records import Candidate, Portability, Verdict
from kernelmark.evaluators.metering.ledger import LedgerRow
from kernelmark.submissions.bundle import (
    BUNDLE_SCHEMA_VERSION,
    MANIFEST,
    Submission,
    file_sha256,
    submission_id,
)

MAX_FILES = 20_000
MAX_FILE_BYTES = 64 << 20
MAX_BUNDLE_BYTES = 1 << 30
_CLOCK_SKEW = timedelta(days=1)

_PATH = re.compile(
    r"run\.json|ledger\.jsonl"
    r"|attempts/[\w.\-]{1,120}\.json"
    r"|candidates/[0-9a-f]{64}\.py"
    r"|(verdicts|portability)/[\w.\-]{1,120}\.[0-9a-f]{16}\.json"
)

T = TypeVar("T")


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong, and where: a path within the bundle, and a field if it is in one."""

    where: str
    what: str


@dataclass
class Contents:
    """A bundle, read. Complete only where `problems` is empty."""

    submission: Submission | None = None
    productions: list[Production] = field(default_factory=list)
    candidates: dict[tuple[str, str], Candidate] = field(default_factory=dict)
    verdicts: list[Verdict] = field(default_factory=list)
    portability: list[tuple[str, str, Portability]] = field(default_factory=list)
    ledger: list[LedgerRow] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def wrong(self, where: str, what: str) -> None:
        """Notes a problem."""
        self.problems.append(Problem(where, what))


def read_bundle(root: Path, known_suites: Mapping[str, set[str]] | None = None) -> Contents:
    """Reads and checks the bundle at `root`.

    `known_suites` maps suite digests to the ids of their operators; a digest that is not among them
    is a problem. None: suites are not checked.
    """
    contents = Contents()
    if not _only_plain_files(root, contents):
        return contents
    data = _load(root / MANIFEST, MANIFEST, contents)
    contents.submission = _parse(Submission, data, MANIFEST, contents)
    if contents.submission is None:
        return contents
    _check_manifest(root, contents.submission, contents)
    if not contents.problems:
        _read_payload(root, contents.submission, contents)
    if not contents.problems:
        _cross_check(contents.submission, contents, known_suites)
    return contents


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    # A tuple of one carries the configuration into the standard library's dataclasses.
    return TypeAdapter(tuple[kind], config=ConfigDict(extra="forbid"))


def _parse(kind: type[T], data: Any, where: str, contents: Contents) -> T | None:
    if data is None:
        return None
    try:
        adapter: TypeAdapter[tuple[T]] = _adapter(cast(Any, kind))
        record = adapter.validate_python((data,))[0]
        return record
    except ValidationError as error:
        for item in error.errors(include_url=False, include_context=False)[:20]:
            path = ".".join(str(part) for part in item["loc"][1:])
            contents.wrong(where, f"{path}: {item['msg']}" if path else item["msg"])
    return None


def _load(path: Path, where: str, contents: Contents) -> Any:
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        contents.wrong(where, "is missing")
    except (ValueError, RecursionError) as error:
        contents.wrong(where, f"is not JSON: {error}")
    return None


def _only_plain_files(root: Path, contents: Contents) -> bool:
    """Looks at names, kinds and sizes before anything is read."""
    total = 0
    for count, (path, info) in enumerate(_walk(root), 1):
        name = path.relative_to(root).as_posix()
        total += info.st_size
        if not stat.S_ISREG(info.st_mode):
            contents.wrong(name, "is not a plain file")
        elif info.st_size > MAX_FILE_BYTES:
            contents.wrong(name, f"has {info.st_size} bytes; at most {MAX_FILE_BYTES}")
        if count > MAX_FILES:
            contents.wrong(".", f"more than {MAX_FILES} files")
            return False
    if total > MAX_BUNDLE_BYTES:
        contents.wrong(".", f"{total} bytes; at most {MAX_BUNDLE_BYTES}")
    return not contents.problems


def _walk(root: Path) -> Iterator[tuple[Path, os.stat_result]]:
    for folder, folders, files in os.walk(root, followlinks=False):
        links = [name for name in folders if (Path(folder) / name).is_symlink()]
        for name in (*files, *links):
            path = Path(folder) / name
            yield path, path.lstat()


def _check_manifest(root: Path, submission: Submission, contents: Contents) -> None:
    if submission.schema_version != BUNDLE_SCHEMA_VERSION:
        contents.wrong(MANIFEST, f"schema_version {submission.schema_version} is not known")
        return
    if submission.id != submission_id(submission):
        contents.wrong(MANIFEST, "id: is not the sha256 of the contents")
    _check_time(submission.sealed_at, "sealed_at", contents)
    _check_time(submission.run.created_at, "run.created_at", contents)
    if submission.disclosure.attempts_declared < 1:
        contents.wrong(MANIFEST, "disclosure.attempts_declared: must be at least 1")
    present = {path.relative_to(root).as_posix() for path, _ in _walk(root)} - {MANIFEST}
    for name in sorted(present - set(submission.files)):
        contents.wrong(name, "is not listed in the manifest")
    for name, digest in sorted(submission.files.items()):
        if not _PATH.fullmatch(name):
            contents.wrong(name, "is no path that a bundle may hold")
        elif name not in present:
            contents.wrong(name, "is listed in the manifest and missing")
        elif file_sha256(root / name) != digest:
            contents.wrong(name, "its sha256 is not the manifest's")
    if "run.json" not in submission.files:
        contents.wrong("run.json", "is missing")


def _check_time(text: str, where: str, contents: Contents) -> None:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        contents.wrong(MANIFEST, f"{where}: not a time in ISO 8601")
        return
    if time.tzinfo is None:
        contents.wrong(MANIFEST, f"{where}: has no time zone")
    elif time > datetime.now(UTC) + _CLOCK_SKEW:
        contents.wrong(MANIFEST, f"{where}: lies in the future")


def _read_payload(root: Path, submission: Submission, contents: Contents) -> None:
    for name in sorted(submission.files):
        folder = name.split("/")[0]
        if folder == "attempts":
            data = _load(root / name, name, contents)
            production = _parse(Production, data, name, contents)
            if production is not None:
                contents.productions.append(production)
        elif folder == "verdicts":
            verdict = _parse(Verdict, _load(root / name, name, contents), name, contents)
            if verdict is not None:
                contents.verdicts.append(verdict)
        elif folder == "ledger.jsonl":
            _read_ledger(root / name, name, contents)
    run = _parse(Run, _load(root / "run.json", "run.json", contents), "run.json", contents)
    if run is not None and run != submission.run:
        contents.wrong("run.json", "differs from the manifest's run")
    _read_candidates(root, contents)
    _read_portability(root, submission, contents)


def _read_ledger(path: Path, name: str, contents: Contents) -> None:
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        where = f"{name}:{number}"
        try:
            data = json.loads(line)
        except (ValueError, RecursionError) as error:
            contents.wrong(where, f"is not JSON: {error}")
            continue
        row = _parse(LedgerRow, data, where, contents)
        if row is not None:
            contents.ledger.append(row)


def _read_candidates(root: Path, contents: Contents) -> None:
    for production in contents.productions:
        for attempt in production.attempts:
            name = f"candidates/{attempt.candidate}.py"
            if not attempt.candidate:
                continue
            try:
                source = (root / name).read_bytes().decode()
            except FileNotFoundError:
                contents.wrong(name, f"is missing (attempt {attempt.number}, {attempt.operator})")
                continue
            except UnicodeDecodeError as error:
                contents.wrong(name, f"is not UTF-8: {error}")
                continue
            candidate = Candidate(attempt.operator, source, attempt.language, attempt.entry)
            if candidate.id != attempt.candidate:
                contents.wrong(name, f"is not what attempt {attempt.number} handed in")
            contents.candidates[attempt.operator, candidate.id] = candidate


def _read_portability(root: Path, submission: Submission, contents: Contents) -> None:
    for operator, id in contents.candidates:
        name = f"portability/{slug(operator)}.{id[:16]}.json"
        if name not in submission.files:
            continue
        rows = _load(root / name, name, contents)
        if not isinstance(rows, list):
            contents.wrong(name, "is not a list")
            continue
        for row in rows:
            parsed = _parse(Portability, row, name, contents)
            if parsed is not None:
                contents.portability.append((operator, id, parsed))


def _cross_check(
    submission: Submission, contents: Contents, known_suites: Mapping[str, set[str]] | None
) -> None:
    run = submission.run
    _check_suite(submission, contents, known_suites)
    seen: set[str] = set()
    for production in contents.productions:
        where = f"attempts/{slug(production.operator)}.json"
        if production.operator not in run.operators:
            contents.wrong(where, f"{production.operator} is no operator of the run")
        if production.operator in seen:
            contents.wrong(where, f"{production.operator} is there twice")
        seen.add(production.operator)
        numbers = [attempt.number for attempt in production.attempts]
        if numbers != list(range(1, len(numbers) + 1)):
            contents.wrong(where, f"attempts are numbered {numbers}")
        if any(attempt.operator != production.operator for attempt in production.attempts):
            contents.wrong(where, "holds an attempt at another operator")
    _check_verdicts(submission, contents)
    for number, row in enumerate(contents.ledger, 1):
        if row.run != run.id:
            contents.wrong(f"ledger.jsonl:{number}", f"belongs to run {row.run}")
        if min(vars(row.usage).values()) < 0 or row.usage.out_reasoning > row.usage.out_total:
            contents.wrong(f"ledger.jsonl:{number}", "token counts make no sense")


def _check_verdicts(submission: Submission, contents: Contents) -> None:
    judged: set[tuple[str, str]] = set()
    for verdict in contents.verdicts:
        where = f"verdicts/{slug(verdict.operator)}.{verdict.candidate[:16]}.json"
        key = (verdict.operator, verdict.candidate)
        if key not in contents.candidates:
            contents.wrong(where, "no attempt handed in this candidate")
        if key in judged:
            contents.wrong(where, "is there twice")
        judged.add(key)
        if verdict.chip != submission.run.chip:
            contents.wrong(where, f"chip {verdict.chip} is not the run's ({submission.run.chip})")
        if any(timing.device_us <= 0 or timing.baseline_us <= 0 for timing in verdict.timings):
            contents.wrong(where, "has a time that is not positive")
    if submission.complete:
        for operator, id in sorted(set(contents.candidates) - judged):
            contents.wrong("verdicts", f"{operator} {id[:16]} has none, in a complete run")
        produced = {production.operator for production in contents.productions}
        for operator in sorted(set(submission.run.operators) - produced):
            contents.wrong("attempts", f"{operator} has none, in a complete run")


def _check_suite(
    submission: Submission, contents: Contents, known_suites: Mapping[str, set[str]] | None
) -> None:
    run = submission.run
    if not run.operators:
        contents.wrong("run.json", "operators: is empty")
    if known_suites is None:
        return
    members = known_suites.get(run.suite_digest)
    if members is None:
        contents.wrong("run.json", f"suite {run.suite} at {run.suite_digest[:12]} is not known")
    elif not set(run.operators) <= members:
        contents.wrong("run.json", f"operators: not all belong to suite {run.suite}")
    elif run.suite_size != len(members):
        contents.wrong("run.json", f"suite_size: suite {run.suite} has {len(members)}")
    elif submission.complete and set(run.operators) != members:
        contents.wrong(MANIFEST, "complete: operators of the suite are missing")
