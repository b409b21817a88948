"""Delivery of sealed bundles: any number of writers, one reader, no lock between them."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path

from kernelmark.evaluators.campaigns.campaign import now
from kernelmark.evaluators.campaigns.folder import RunFolder
from kernelmark.submissions.bundle import Disclosure, Submission, seal
from kernelmark.submissions.home import Home


def deliver(home: Home, folder: RunFolder, disclosure: Disclosure) -> tuple[Submission, bool]:
    """Seals a run into the inbox. False with it: the same bundle is there, or was ingested."""
    home.inbox.mkdir(parents=True, exist_ok=True)
    staging = home.inbox / f".{uuid.uuid4().hex}"
    try:
        submission = seal(folder, disclosure, staging, now())
        return submission, _move(staging, home, submission.id)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def waiting(home: Home) -> list[Path]:
    """Bundles that wait to be ingested, by name."""
    if not home.inbox.exists():
        return []
    return sorted(path for path in home.inbox.iterdir() if not path.name.startswith("."))


def _move(staging: Path, home: Home, id: str) -> bool:
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
