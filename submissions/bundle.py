"""A sealed run: what is published, re-graded and ranked.

A bundle is a folder: ``submission.json`` beside the files of the run folder that make the run
(workspaces stay behind). `submission.json` lists every file with its sha256; the submission's id is
the sha256 of the list and of what the submitter declares, so sealing the same run in the same words
gives the same id, and no byte can change after sealing.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from kernelmark.benchmark.errors import UserError
from kernelmark.evaluators.campaigns.files import write_json
from kernelmark.evaluators.campaigns.folder import RunFolder
from kernelmark.evaluators.campaigns.records import Run
from kernelmark.evaluators.grading.records import to_json

BUNDLE_SCHEMA_VERSION = 1
MANIFEST = "submission.json"

#: folders and files of a run folder that a bundle holds
_PARTS = (
    "run.json",
    "ledger.jsonl",
    "attempts/*.json",
    "candidates/*",
    "verdicts/*.json",
    "portability/*.json",
)

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
class Submission:
    """``submission.json``. `files` maps each path, relative to the bundle, to its sha256."""

    id: str
    run: Run
    disclosure: Disclosure
    files: dict[str, str]
    complete: bool  #: every operator of the suite was attempted and graded
    sealed_at: str = ""  #: UTC, ISO 8601; not part of the id
    schema_version: int = BUNDLE_SCHEMA_VERSION
    extra: dict[str, str] = field(default_factory=dict)


def seal(
    folder: RunFolder, disclosure: Disclosure, destination: Path, sealed_at: str
) -> Submission:
    """Makes the bundle of a run at `destination`, a path that does not exist yet.

    An unfinished run is sealed as it stands and says so (`complete`). `UserError` where nothing of
    it has been graded.
    """
    if not any((folder.root / "verdicts").glob("*.json")):
        raise UserError(f"{folder.root}: nothing of this run has been graded")
    destination.mkdir(parents=True)
    files: dict[str, str] = {}
    for path in _files(folder.root):
        relative = path.relative_to(folder.root)
        target = destination / relative
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
        files[relative.as_posix()] = file_sha256(target)
    run = folder.run
    complete = not folder.missing() and len(run.operators) == run.suite_size
    submission = Submission("", run, disclosure, files, complete, sealed_at)
    submission = replace(submission, id=submission_id(submission))
    write_json(destination / MANIFEST, to_json(submission))
    return submission


def submission_id(submission: Submission) -> str:
    """sha256 over everything but the id and the time of sealing, 64 hex digits."""
    content = to_json(replace(submission, id="", sealed_at=""))
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def file_sha256(path: Path) -> str:
    """sha256 of a file's bytes, 64 hex digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _files(root: Path) -> list[Path]:
    found = [path for pattern in _PARTS for path in root.glob(pattern)]
    return sorted(path for path in found if path.is_file() and not path.name.startswith("."))
