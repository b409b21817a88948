"""A sealed run: what is published, re-graded and ranked.

A bundle is a flat folder of seven files, however many candidates it holds::

    submission.json    the manifest (`Submission`): run, disclosure, sha256 of every other file
    run.json           the run (`Run`)
    attempts.jsonl     one `Production` a line: all attempts at one operator
    candidates.jsonl   one `Candidate` a line; its id is the hash of what is executed
    verdicts.jsonl     one `Verdict` a line
    portability.jsonl  one `CandidatePortability` a line
    ledger.jsonl       one `LedgerRow` a line, as the gateway wrote them

The submission's id is the sha256 of the manifest but its time, so sealing the same run in the same
words gives the same id, and no byte can change after sealing. Workspaces stay behind.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from kernelmark.benchmark.errors import UserError
from kernelmark.evaluators.campaigns.files import write_json
from kernelmark.evaluators.campaigns.folder import RunFolder
from kernelmark.evaluators.campaigns.records import Run
from kernelmark.evaluators.grading.records import Candidate, Portability, from_json, to_json
from kernelmark.submissions.redaction import Redacted, Redactor

BUNDLE_SCHEMA_VERSION = 2
MANIFEST = "submission.json"
RUN = "run.json"
ATTEMPTS = "attempts.jsonl"
CANDIDATES = "candidates.jsonl"
VERDICTS = "verdicts.jsonl"
PORTABILITY = "portability.jsonl"
LEDGER = "ledger.jsonl"

#: files that a manifest must list; the others may be missing where they would be empty
REQUIRED = (RUN, ATTEMPTS)
#: all files but the manifest
FILES = (RUN, ATTEMPTS, CANDIDATES, VERDICTS, PORTABILITY, LEDGER)

Trust = Literal["self_reported", "regraded", "verified", "flagged", "withdrawn"]
Answer = Literal["yes", "no", "unknown"]


@dataclass(frozen=True)
class Disclosure:
    """What the submitter declares. Empty texts: nothing said.

    `attempts_declared`: how many times the run was tried before this one was handed in, itself
    included.
    """

    submitter: str = ""
    organisation: str = ""
    contact: str = ""
    url: str = ""
    notes: str = ""
    licence: str = "Apache-2.0"
    trained_on_benchmark: Answer = "unknown"
    open_weights: Answer = "unknown"
    attempts_declared: int = 1


@dataclass(frozen=True)
class CandidatePortability:
    """A line of ``portability.jsonl``: what compiling one candidate for each target gave."""

    operator: str
    candidate: str  #: `Candidate.id`
    targets: tuple[Portability, ...]


@dataclass(frozen=True)
class Submission:
    """``submission.json``. `files` maps each file's name to its sha256.

    `attempts` and `candidates` count what the bundle holds; `redactions` says what was blanked out
    before sealing, by kind. `complete`: every operator of the suite was attempted and graded.
    """

    id: str
    run: Run
    disclosure: Disclosure
    files: dict[str, str]
    complete: bool
    attempts: int
    candidates: int
    redactions: dict[str, int] = field(default_factory=dict)
    sealed_at: str = ""  #: UTC, ISO 8601; not part of the id
    schema_version: int = BUNDLE_SCHEMA_VERSION
    extra: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Payload:
    """What goes into a bundle beside the manifest: plain JSON values, one a line.

    `graded`: nothing is missing of the operators that the run was asked for.
    """

    run: Run
    attempts: Iterable[Any]
    candidates: Iterable[Any] = ()
    verdicts: Iterable[Any] = ()
    portability: Iterable[Any] = ()
    ledger: Iterable[Any] = ()
    graded: bool = True
    n_attempts: int = 0
    n_candidates: int = 0


def seal(
    folder: RunFolder,
    disclosure: Disclosure,
    destination: Path,
    sealed_at: str,
    redactor: Redactor | None = None,
) -> Submission:
    """Makes the bundle of a run at `destination`, a path that does not exist yet.

    An unfinished run is sealed as it stands and says so (`complete`). Secrets are blanked out by
    `redactor`, which keeps what it found. `UserError` where nothing of the run has been graded, or
    where a candidate holds a secret: its text is what was judged and cannot change.
    """
    redactor = redactor or Redactor()
    if not any((folder.root / "verdicts").glob("*.json")):
        raise UserError(f"{folder.root}: nothing of this run has been graded")
    candidates = _candidates(folder)
    _refuse_secrets(candidates, redactor)
    clean = redactor.clean
    run = from_json(Run, clean(to_json(folder.run), RUN))
    payload = Payload(
        run=run,
        attempts=(clean(to_json(folder.production(o)), ATTEMPTS) for o in _begun(folder)),
        candidates=(to_json(candidate) for candidate in candidates),
        verdicts=_verdicts(folder, candidates, clean),
        portability=_portability(folder, candidates, clean),
        ledger=(clean(row, LEDGER) for row in _ledger(folder.ledger_path)),
        graded=not folder.missing(),
        n_attempts=sum(len(folder.production(o).attempts) for o in _begun(folder)),
        n_candidates=len(candidates),
    )
    disclosure = from_json(Disclosure, clean(to_json(disclosure), MANIFEST))
    return write_bundle(destination, payload, disclosure, sealed_at, redactor.redacted)


def write_bundle(
    destination: Path,
    payload: Payload,
    disclosure: Disclosure,
    sealed_at: str,
    redacted: Redacted | None = None,
) -> Submission:
    """Writes the files of a bundle and the manifest over them, flushed to disk."""
    destination.mkdir(parents=True)
    run = payload.run
    files = {RUN: _write(destination / RUN, [to_json(run)])}
    tables = {
        ATTEMPTS: payload.attempts,
        CANDIDATES: payload.candidates,
        VERDICTS: payload.verdicts,
        PORTABILITY: payload.portability,
        LEDGER: payload.ledger,
    }
    for name, values in tables.items():
        files[name] = _write(destination / name, values)
    submission = Submission(
        id="",
        run=run,
        disclosure=disclosure,
        files=files,
        complete=payload.graded and len(run.operators) == run.suite_size,
        attempts=payload.n_attempts,
        candidates=payload.n_candidates,
        redactions=redacted.counts() if redacted else {},
        sealed_at=sealed_at,
    )
    submission = replace(submission, id=submission_id(to_json(submission)))
    write_json(destination / MANIFEST, to_json(submission))
    return submission


def submission_id(manifest: Mapping[str, Any]) -> str:
    """sha256 over everything in a manifest but its id and the time of sealing, 64 hex digits.

    Over the JSON as it stands, so that a bundle sealed before a field was added keeps its id.
    """
    content = {**manifest, "id": "", "sealed_at": ""}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def file_sha256(path: Path) -> str:
    """sha256 of a file's bytes, 64 hex digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write(path: Path, values: Iterable[Any]) -> str:
    """One JSON value a line; the sha256 of the file."""
    digest = hashlib.sha256()
    with path.open("wb") as file:
        for value in values:
            line = json.dumps(value, sort_keys=True, separators=(",", ":")).encode() + b"\n"
            digest.update(line)
            file.write(line)
        file.flush()
        os.fsync(file.fileno())
    return digest.hexdigest()


def _begun(folder: RunFolder) -> list[str]:
    made = (folder.production(id) for id in sorted(folder.run.operators))
    return [
        production.operator for production in made if production.attempts or production.complete
    ]


def _candidates(folder: RunFolder) -> list[Candidate]:
    """Every candidate that was handed in, once an operator."""
    found: dict[tuple[str, str], Candidate] = {}
    for attempt in folder.attempts():
        if attempt.candidate:
            found[attempt.operator, attempt.candidate] = folder.candidate(attempt)
    return [found[key] for key in sorted(found)]


def _refuse_secrets(candidates: Iterable[Candidate], redactor: Redactor) -> None:
    for candidate in candidates:
        for number, line in enumerate(candidate.source.splitlines(), 1):
            kind = redactor.secret_in(line)
            if kind is not None:
                raise UserError(
                    f"{candidate.operator} {candidate.id[:16]}, line {number}: holds what looks "
                    f"like a secret ({kind}); a candidate cannot change after it was judged: hand "
                    "in one without it"
                )
            redactor.note_private(line, f"{CANDIDATES}: {candidate.operator}, line {number}")


def _verdicts(
    folder: RunFolder, candidates: Iterable[Candidate], clean: Callable[[Any, str], Any]
) -> Iterator[Any]:
    """Verdicts of what was handed in; a method's own questions to the judge stay behind."""
    for candidate in candidates:
        verdict = folder.verdict(candidate.operator, candidate.id)
        if verdict is not None:
            yield clean(to_json(verdict), VERDICTS)


def _portability(
    folder: RunFolder, candidates: Iterable[Candidate], clean: Callable[[Any, str], Any]
) -> Iterator[Any]:
    for candidate in candidates:
        rows = folder.portability(candidate.operator, candidate.id)
        if rows is not None:
            line = CandidatePortability(candidate.operator, candidate.id, rows)
            yield clean(to_json(line), PORTABILITY)


def _ledger(path: Path) -> Iterator[Any]:
    if not path.exists():
        return
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        try:
            yield json.loads(line)
        except ValueError as error:
            raise UserError(f"{path}:{number}: not a ledger row ({error})") from None
