"""Delivery of sealed bundles: any number of writers, one reader, no lock between them."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kernelmark.evaluators.campaigns.campaign import now
from kernelmark.evaluators.campaigns.folder import RunFolder
from kernelmark.submissions.bundle import Disclosure, Submission, seal
from kernelmark.submissions.home import Home
from kernelmark.submissions.redaction import Redactor


def deliver(
    home: Home, folder: RunFolder, disclosure: Disclosure, redactor: Redactor | None = None
) -> tuple[Submission, bool]:
    """Seals a run into the inbox. False with it: the same bundle is there, or was ingested."""
    with sealed(home, folder, disclosure, redactor) as (submission, staging):
        return submission, place(home, staging, submission.id)


@contextmanager
def sealed(
    home: Home, folder: RunFolder, disclosure: Disclosure, redactor: Redactor | None = None
) -> Iterator[tuple[Submission, Path]]:
    """Seals a run at a path that is gone afterwards, unless it was moved."""
    staging = new_staging(home)
    try:
        yield seal(folder, disclosure, staging, now(), redactor), staging
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def new_staging(home: Home) -> Path:
    """A path in the inbox, not there yet, that whoever looks into the inbox passes over."""
    home.inbox.mkdir(parents=True, exist_ok=True)
    return home.inbox / f".{uuid.uuid4().hex}"


def place(home: Home, staging: Path, id: str) -> bool:
    """Renames a bundle into the inbox. False: the same one is there, or was ingested."""
    if (home.bundles / id).exists():
        return False
    try:
        staging.rename(home.inbox / id)
    except OSError:
        # Another writer delivered the same bundle first; anything else is a fault.
        if not (home.inbox / id).is_dir():
            raise
        return False
    return True


def waiting(home: Home) -> list[Path]:
    """What waits to be ingested, by name."""
    if not home.inbox.exists():
        return []
    return sorted(path for path in home.inbox.iterdir() if not path.name.startswith("."))
