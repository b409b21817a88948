"""Whether a bundle is what it says: read, checked, and answered with every problem found.

Nothing in a bundle is executed or followed: it is a flat folder of known names, links are refused,
sizes are bounded, and each file's bytes must have the sha256 that the manifest gives.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, TypeVar, cast, get_args

from pydantic import ConfigDict, TypeAdapter, ValidationError

from kernelmark.benchmark.suites import suite_digest
from kernelmark.evaluators.campaigns.records import Attempt, Production, Run
from kernelmark.evaluators.chips.registry import all_chips
from kernelmark.evaluators.grading.records import Candidate, Verdict
from kernelmark.evaluators.metering.ledger import LedgerRow
from kernelmark.operators.records import Tier
from kernelmark.submissions.bundle import (
    ATTEMPTS,
    BUNDLE_SCHEMA_VERSION,
    CANDIDATES,
    FILES,
    LEDGER,
    MANIFEST,
    PORTABILITY,
    REQUIRED,
    RUN,
    VERDICTS,
    CandidatePortability,
    Submission,
    submission_id,
)
from kernelmark.submissions.redaction import secret_kind

MAX_MANIFEST_BYTES = 1 << 20
MAX_FILE_BYTES = 256 << 20
MAX_BUNDLE_BYTES = 512 << 20
MAX_LINE_BYTES = 16 << 20
MAX_LINES = 200_000
MAX_DEPTH = 64
MAX_PROBLEMS = 200
MAX_NAME = 300
MAX_NOTES = 10_000
_DISCLOSED = ("submitter", "organisation", "contact", "url", "licence")
_RUN_NAMES = ("id", "method", "model", "language", "suite", "chip", "benchmark_version")
_CLOCK_SKEW = timedelta(days=1)

#: what each file of lines holds
LINES: dict[str, Any] = {
    ATTEMPTS: Production,
    CANDIDATES: Candidate,
    VERDICTS: Verdict,
    PORTABILITY: CandidatePortability,
    LEDGER: LedgerRow,
}

T = TypeVar("T")
Suites = Mapping[str, set[str]]


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong, and where: a file of the bundle, with line and field."""

    where: str
    what: str


@dataclass
class Contents:
    """A bundle, read. Complete only where `problems` is empty. `candidates` by operator and id."""

    submission: Submission | None = None
    productions: list[Production] = field(default_factory=list)
    candidates: dict[tuple[str, str], Candidate] = field(default_factory=dict)
    verdicts: list[Verdict] = field(default_factory=list)
    portability: list[CandidatePortability] = field(default_factory=list)
    ledger: list[LedgerRow] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def wrong(self, where: str, what: str) -> None:
        """Notes a problem; after `MAX_PROBLEMS`, only that there are more."""
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(Problem(where, what))
        elif len(self.problems) == MAX_PROBLEMS:
            self.problems.append(Problem(".", "and more"))


def read_bundle(root: Path, known_suites: Suites | None = None) -> Contents:
    """Reads and checks the bundle at `root`.

    `known_suites` maps suite digests to the ids of their operators, each operator's suite of one
    among them (`Catalogue.members`); a digest that is not there is a problem. None: suites are not
    checked.
    """
    contents = Contents()
    present = _plain_files(root, contents)
    if contents.problems:
        return contents
    if MANIFEST not in present:
        contents.wrong(MANIFEST, "is missing")
        return contents
    contents.submission = _manifest((root / MANIFEST).read_bytes(), contents)
    if contents.submission is None:
        return contents
    _check_manifest(contents.submission, present, contents)
    data = _read_files(root, contents.submission, present, contents)
    if contents.problems:
        return contents
    _parse_files(data, contents.submission, contents)
    if not contents.problems:
        _cross_check(contents.submission, contents, known_suites)
    return contents


@cache
def adapter(kind: Any) -> TypeAdapter[tuple[Any]]:
    """Validates one record of class `kind` in a JSON array: exact types, no unknown fields."""
    # A tuple of one carries the configuration into the standard library's dataclasses.
    return TypeAdapter(tuple[kind], config=ConfigDict(extra="forbid", strict=True))


def parse(kind: type[T], text: bytes, where: str, contents: Contents) -> T | None:
    """The record that the JSON `text` holds; None, with problems noted, where it holds none."""
    checker = cast("TypeAdapter[tuple[T]]", adapter(cast(Any, kind)))
    try:
        return checker.validate_json(b"[" + text + b"]")[0]
    except ValidationError as error:
        for item in error.errors(include_url=False, include_context=False)[:20]:
            path = ".".join(shown(part) for part in item["loc"][1:])
            said = shown(item["msg"], 400)
            contents.wrong(where, f"{path}: {said}" if path else said)
    return None


def shown(part: object, most: int = 100) -> str:
    """Foreign text for a message: ASCII, on one line, without control characters, short."""
    return str(part).encode("unicode_escape").decode("ascii")[:most]


def _plain_files(root: Path, contents: Contents) -> set[str]:
    """Names of the files. Looks at names, kinds and sizes before anything is read."""
    if root.is_symlink() or not root.is_dir():
        contents.wrong(".", "is not a folder")
        return set()
    present, total = set(), 0
    for entry in _entries(root, contents):
        name = shown(entry.name)
        info = entry.stat(follow_symlinks=False)
        limit = MAX_MANIFEST_BYTES if entry.name == MANIFEST else MAX_FILE_BYTES
        if not stat.S_ISREG(info.st_mode):
            contents.wrong(name, "is not a plain file")
        elif entry.name != MANIFEST and entry.name not in FILES:
            contents.wrong(name, "is no file of a bundle")
        elif info.st_size > limit:
            contents.wrong(name, f"has {info.st_size} bytes; at most {limit}")
        else:
            present.add(entry.name)
            total += info.st_size
    if total > MAX_BUNDLE_BYTES:
        contents.wrong(".", f"has {total} bytes in all; at most {MAX_BUNDLE_BYTES}")
    return present


def _entries(root: Path, contents: Contents) -> Iterator[os.DirEntry[str]]:
    with os.scandir(root) as entries:
        for entry in entries:
            if len(contents.problems) > MAX_PROBLEMS:
                return
            yield entry


def _manifest(text: bytes, contents: Contents) -> Submission | None:
    """The manifest. Its version is looked at first: of another one, nothing else can be said."""
    try:
        data = json.loads(text, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        contents.wrong(MANIFEST, f"is not JSON: {shown(error)}")
        return None
    version = data.get("schema_version") if isinstance(data, dict) else None
    if isinstance(data, dict) and version != BUNDLE_SCHEMA_VERSION:
        known = f"this version reads {BUNDLE_SCHEMA_VERSION}"
        contents.wrong(MANIFEST, f"schema_version {shown(version)} is not known; {known}")
        return None
    submission = parse(Submission, text, MANIFEST, contents)
    if submission is not None and submission.id != submission_id(data):
        contents.wrong(MANIFEST, "id: is not the sha256 of the contents")
    return submission


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is there twice")
    return found


def _check_manifest(submission: Submission, present: set[str], contents: Contents) -> None:
    _check_time(submission.sealed_at, "sealed_at", contents)
    _check_time(submission.run.created_at, "run.created_at", contents)
    _check_texts(submission, contents)
    if submission.disclosure.attempts_declared < 1:
        contents.wrong(MANIFEST, "disclosure.attempts_declared: must be at least 1")
    for name in sorted(present - {MANIFEST} - set(submission.files)):
        contents.wrong(name, "is not listed in the manifest")
    for name in sorted(submission.files):
        if name not in FILES:
            contents.wrong(MANIFEST, f"files: {shown(name)} is no file of a bundle")
        elif name not in present:
            contents.wrong(name, "is listed in the manifest and missing")
    for name in REQUIRED:
        if name not in submission.files:
            contents.wrong(name, "is missing")


def _check_texts(submission: Submission, contents: Contents) -> None:
    """What a board shows: names on one line, nothing that a terminal or page would obey."""
    said, run = submission.disclosure, submission.run
    named = {f"disclosure.{name}": getattr(said, name) for name in _DISCLOSED}
    named |= {f"run.{name}": getattr(run, name) for name in _RUN_NAMES}
    for where, text in named.items():
        if len(text) > MAX_NAME or not text.isprintable():
            contents.wrong(MANIFEST, f"{where}: not one line of at most {MAX_NAME} characters")
    plain = said.notes.replace("\n", "").replace("\t", "")
    if len(said.notes) > MAX_NOTES or not plain.isprintable():
        contents.wrong(MANIFEST, f"disclosure.notes: not text of at most {MAX_NOTES} characters")
    if not said.licence.strip():
        contents.wrong(MANIFEST, "disclosure.licence: is empty")
    if any(count < 0 for count in submission.redactions.values()):
        contents.wrong(MANIFEST, "redactions: counts make no sense")


def _check_time(text: str, where: str, contents: Contents) -> None:
    try:
        time = datetime.fromisoformat(text)
        future = time.tzinfo is not None and time > datetime.now(UTC) + _CLOCK_SKEW
    except (ValueError, OverflowError):
        contents.wrong(MANIFEST, f"{where}: not a time in ISO 8601")
        return
    if time.tzinfo is None:
        contents.wrong(MANIFEST, f"{where}: has no time zone")
    elif future:
        contents.wrong(MANIFEST, f"{where}: lies in the future")


def _read_files(
    root: Path, submission: Submission, present: set[str], contents: Contents
) -> dict[str, bytes]:
    """Bytes of the files that are what the manifest says, in UTF-8 and without secrets."""
    data = {}
    for name in sorted(set(submission.files) & present):
        raw = (root / name).read_bytes()
        if hashlib.sha256(raw).hexdigest() != submission.files[name]:
            contents.wrong(name, "its sha256 is not the manifest's")
            continue
        lines = raw.count(b"\n")
        if lines > MAX_LINES:
            contents.wrong(name, f"has {lines} lines; at most {MAX_LINES}")
            continue
        data[name] = raw
        try:
            text = raw.decode()
        except UnicodeDecodeError as error:
            line = raw.count(b"\n", 0, error.start) + 1
            contents.wrong(f"{name}:{line}", f"is not UTF-8: {error.reason}")
            continue
        _check_secrets(text, name, contents)
    _check_secrets((root / MANIFEST).read_text(encoding="utf-8"), MANIFEST, contents)
    return data


def _check_secrets(text: str, name: str, contents: Contents) -> None:
    if secret_kind(text) is None:
        return
    for number, line in enumerate(text.split("\n"), 1):
        kind = secret_kind(line)
        if kind is not None:
            contents.wrong(f"{name}:{number}", f"holds what looks like a secret ({kind})")


def _parse_files(data: Mapping[str, bytes], submission: Submission, contents: Contents) -> None:
    run = parse(Run, data[RUN], RUN, contents)
    if run is not None and run != submission.run:
        contents.wrong(RUN, "differs from the manifest's run")
    contents.productions = _records(Production, data, ATTEMPTS, contents)
    for number, candidate in enumerate(_records(Candidate, data, CANDIDATES, contents), 1):
        key = (candidate.operator, candidate.id)
        if key in contents.candidates:
            contents.wrong(f"{CANDIDATES}:{number}", f"{shown(key[0])} {key[1][:16]} twice")
        contents.candidates[key] = candidate
    contents.verdicts = _records(Verdict, data, VERDICTS, contents)
    contents.portability = _records(CandidatePortability, data, PORTABILITY, contents)
    contents.ledger = _records(LedgerRow, data, LEDGER, contents)


def _records(kind: type[T], data: Mapping[str, bytes], name: str, contents: Contents) -> list[T]:
    lines = data.get(name, b"").split(b"\n")
    if lines.pop() != b"":
        contents.wrong(name, "its last line is torn")
        return []
    records = []
    for number, line in enumerate(lines, 1):
        if len(line) > MAX_LINE_BYTES:
            contents.wrong(f"{name}:{number}", f"has {len(line)} bytes; at most {MAX_LINE_BYTES}")
            continue
        record = parse(kind, line, f"{name}:{number}", contents)
        if record is not None:
            records.append(record)
        if len(contents.problems) > MAX_PROBLEMS:
            break
    return records


def _cross_check(submission: Submission, contents: Contents, known_suites: Suites | None) -> None:
    _check_suite(submission, contents, known_suites)
    _check_attempts(submission, contents)
    _check_candidates(contents)
    _check_verdicts(submission, contents)
    _check_portability(contents)
    _check_ledger(submission.run, contents)
    if submission.complete:
        _check_complete(submission, contents)


def _check_suite(submission: Submission, contents: Contents, known_suites: Suites | None) -> None:
    run = submission.run
    if run.tier not in get_args(Tier):
        contents.wrong(RUN, f"tier: {shown(run.tier)} is none")
    if not run.operators:
        contents.wrong(RUN, "operators: is empty")
    if known_suites is None:
        return
    members = known_suites.get(run.suite_digest)
    if members is None:
        name, digest = shown(run.suite), shown(run.suite_digest[:12])
        contents.wrong(RUN, f"suite {name} at {digest} is not known")
    elif not set(run.operators) <= members:
        contents.wrong(RUN, f"operators: not all belong to suite {shown(run.suite)}")
    elif run.suite_size != len(members):
        contents.wrong(RUN, f"suite_size: suite {shown(run.suite)} has {len(members)}")
    elif submission.complete and set(run.operators) != members:
        contents.wrong(MANIFEST, "complete: operators of the suite are missing")
    for operator, digest in run.operators.items():
        # Each operator is a suite of one; a made-up definition could never be graded again.
        if operator in (members or ()) and _digest_alone(operator, digest) not in known_suites:
            contents.wrong(RUN, f"operators: {shown(operator)} is not defined like that")


@lru_cache(4096)
def _digest_alone(operator: str, digest: str) -> str:
    """The digest of the suite that is only this operator; the same few come again and again."""
    return suite_digest({operator: digest})


def _check_attempts(submission: Submission, contents: Contents) -> None:
    seen: set[str] = set()
    for line, production in enumerate(contents.productions, 1):
        where = f"{ATTEMPTS}:{line}"
        operator = production.operator
        if operator not in submission.run.operators:
            contents.wrong(where, f"{shown(operator)} is no operator of the run")
        if operator in seen:
            contents.wrong(where, f"{shown(operator)} is there twice")
        seen.add(operator)
        numbers = [attempt.number for attempt in production.attempts]
        if numbers != list(range(1, len(numbers) + 1)):
            contents.wrong(where, f"attempts are numbered {shown(numbers)}")
        if any(attempt.operator != operator for attempt in production.attempts):
            contents.wrong(where, "holds an attempt at another operator")
    counted = sum(len(production.attempts) for production in contents.productions)
    if counted != submission.attempts:
        contents.wrong(MANIFEST, f"attempts: {submission.attempts}, the bundle holds {counted}")


def _handed_in(contents: Contents) -> Iterator[Attempt]:
    for production in contents.productions:
        for attempt in production.attempts:
            if attempt.candidate:
                yield attempt


def _check_candidates(contents: Contents) -> None:
    handed_in = set()
    for attempt in _handed_in(contents):
        key = (attempt.operator, attempt.candidate)
        handed_in.add(key)
        where = f"attempt {attempt.number} at {shown(attempt.operator)}"
        candidate = contents.candidates.get(key)
        if candidate is None:
            contents.wrong(CANDIDATES, f"{shown(attempt.candidate[:16])} is missing ({where})")
        elif (candidate.language, candidate.entry) != (attempt.language, attempt.entry):
            contents.wrong(CANDIDATES, f"{key[1][:16]}: language or entry is not that of {where}")
    for operator, id in contents.candidates.keys() - handed_in:
        contents.wrong(CANDIDATES, f"{shown(operator)} {id[:16]}: no attempt handed it in")
    submission = contents.submission
    if submission is not None and submission.candidates != len(contents.candidates):
        found = len(contents.candidates)
        contents.wrong(MANIFEST, f"candidates: {submission.candidates}, the bundle holds {found}")


def _check_verdicts(submission: Submission, contents: Contents) -> None:
    judged: set[tuple[str, str]] = set()
    chip = submission.run.chip
    for number, verdict in enumerate(contents.verdicts, 1):
        where = f"{VERDICTS}:{number}"
        key = (verdict.operator, verdict.candidate)
        if key not in contents.candidates:
            contents.wrong(where, "no attempt handed in this candidate")
        if key in judged:
            contents.wrong(where, "is there twice")
        judged.add(key)
        if verdict.chip != chip:
            contents.wrong(where, f"chip {shown(verdict.chip)} is not the run's ({shown(chip)})")
        _check_circumstances(submission.run, verdict, where, contents)
        _check_verdict(verdict, where, contents)


def _check_circumstances(run: Run, verdict: Verdict, where: str, contents: Contents) -> None:
    """A verdict is of the run's cases and tier, and attests what its chip can; a chip that is not
    known here (it came by an entry point, elsewhere) can do either."""
    if verdict.dataset != run.dataset:
        contents.wrong(where, "dataset: its cases are not those of the run")
    known = all_chips().get(verdict.chip)
    if known is not None and verdict.attests != known.attests:
        contents.wrong(where, f"attests: {verdict.attests} on {shown(verdict.chip)}")
    if verdict.status == "passed" and verdict.tier != run.tier:
        contents.wrong(where, f"tier {shown(verdict.tier)} is not the run's ({shown(run.tier)})")


def _check_verdict(verdict: Verdict, where: str, contents: Contents) -> None:
    for timing in verdict.timings:
        times = [timing.device_us, timing.baseline_us, timing.speedup]
        times += [timing.speedup_low, timing.speedup_high]
        if not all(0 < time < math.inf for time in times):
            contents.wrong(where, f"case {shown(timing.case)}: has a time that is not positive")
        elif not 0.5 < timing.speedup * timing.device_us / timing.baseline_us < 2:
            contents.wrong(where, f"case {shown(timing.case)}: speedup is not that of its times")
    if verdict.status == "passed":
        if not all(gate.passed for gate in verdict.gates):
            contents.wrong(where, "passed, with a gate that failed")
        if not verdict.comparisons:
            contents.wrong(where, "passed, with nothing compared")
        if not all(comparison.status == "passed" for comparison in verdict.comparisons):
            contents.wrong(where, "passed, with a comparison that failed")
    if _depth(verdict.evidence) > MAX_DEPTH:
        contents.wrong(where, f"evidence: nested deeper than {MAX_DEPTH}")


def _depth(value: Any) -> int:
    depth, level = 0, [value]
    while level and depth <= MAX_DEPTH:
        inner: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                inner += item.values()
            elif isinstance(item, list | tuple):
                inner += item
        depth, level = depth + 1, inner
    return depth


def _check_portability(contents: Contents) -> None:
    seen = set()
    for number, line in enumerate(contents.portability, 1):
        where = f"{PORTABILITY}:{number}"
        key = (line.operator, line.candidate)
        if key not in contents.candidates:
            contents.wrong(where, "no attempt handed in this candidate")
        targets = [row.target for row in line.targets]
        if key in seen or len(targets) != len(set(targets)):
            contents.wrong(where, "is there twice")
        seen.add(key)


def _check_ledger(run: Run, contents: Contents) -> None:
    requests = set()
    for number, row in enumerate(contents.ledger, 1):
        where = f"{LEDGER}:{number}"
        if row.run != run.id:
            contents.wrong(where, f"belongs to run {shown(row.run)}")
        if row.operator not in run.operators:
            contents.wrong(where, f"{shown(row.operator)} is no operator of the run")
        if row.request in requests:
            contents.wrong(where, f"request {shown(row.request)} is there twice")
        requests.add(row.request)
        usage = row.usage
        if min(vars(usage).values()) < 0 or usage.out_reasoning > usage.out_total:
            contents.wrong(where, "token counts make no sense")
        if row.cost_usd is not None and not 0 <= row.cost_usd < math.inf:
            contents.wrong(where, "cost_usd: makes no sense")


def _check_complete(submission: Submission, contents: Contents) -> None:
    judged = {(verdict.operator, verdict.candidate) for verdict in contents.verdicts}
    for operator, id in sorted(set(contents.candidates) - judged):
        contents.wrong(VERDICTS, f"{shown(operator)} {id[:16]} has none, in a complete run")
    done = {production.operator for production in contents.productions if production.complete}
    for operator in sorted(set(submission.run.operators) - done):
        contents.wrong(ATTEMPTS, f"{shown(operator)} is not finished, in a complete run")
