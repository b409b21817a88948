"""Who is at work on what: claims that one of many takes, keeps by a heartbeat, and loses by dying.

A claim is a file that only one can make (a hard link to a name that is not there, which is atomic
on network file systems too). Its owner touches it every few seconds; one that nobody has touched
for `STALE_S` belongs to a process that died, and whoever renames it away first may claim anew. The
work itself must be safe to be done twice at once, for the moment that a stalled owner takes to
notice: results are committed once, by name (`submissions.lake.add_part`).
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

HEARTBEAT_S = 5.0
STALE_S = 60.0


class ClaimLost(Exception):
    """Another took the claim over, as no heartbeat had been seen."""


@dataclass
class Claim:
    """One's own claim: `check` before each step that only its owner may take."""

    path: Path
    owner: str
    lost: threading.Event = field(default_factory=threading.Event)

    def check(self) -> None:
        """Raises `ClaimLost` where it is another's now."""
        if self.lost.is_set() or _owner(self.path) != self.owner:
            self.lost.set()
            raise ClaimLost(str(self.path))


@contextmanager
def claim(
    folder: Path, name: str, stale_s: float = STALE_S, heartbeat_s: float = HEARTBEAT_S
) -> Iterator[Claim | None]:
    """Holds the claim `name`; None where somebody else, who is alive, has it."""
    folder.mkdir(parents=True, exist_ok=True)
    path, owner = folder / name, uuid.uuid4().hex
    if not _take(path, owner, stale_s):
        yield None
        return
    mine = Claim(path, owner)
    stop = threading.Event()
    beat = threading.Thread(target=_beat, args=(mine, stop, heartbeat_s), daemon=True)
    beat.start()
    try:
        yield mine
    finally:
        stop.set()
        beat.join()
        if not mine.lost.is_set() and _owner(path) == owner:
            path.unlink(missing_ok=True)


def _take(path: Path, owner: str, stale_s: float) -> bool:
    mine = path.with_name(f".{path.name}.{owner}")
    mine.write_text(f"{owner}\n{os.uname().nodename} {os.getpid()}\n")
    try:
        if _link(mine, path):
            return True
        if not _stale(path, stale_s):
            return False
        _set_aside(path, stale_s)
        return _link(mine, path)
    finally:
        mine.unlink()


def _link(mine: Path, path: Path) -> bool:
    try:
        os.link(mine, path)
    except FileExistsError:
        return False
    return True


def _set_aside(path: Path, stale_s: float) -> None:
    """Removes a dead owner's claim. Of several that try, one gets it by the rename; should that be
    a claim which another has made anew in the meantime, it is put back."""
    aside = path.with_name(f".{path.name}.{uuid.uuid4().hex}.stale")
    try:
        path.rename(aside)
    except FileNotFoundError:
        return
    if not _stale(aside, stale_s):
        _link(aside, path)
    aside.unlink()


def _stale(path: Path, stale_s: float) -> bool:
    try:
        return time.time() - path.stat().st_mtime > stale_s
    except FileNotFoundError:
        return True


def _owner(path: Path) -> str:
    try:
        return path.read_text().split("\n")[0]
    except FileNotFoundError:
        return ""


def _beat(mine: Claim, stop: threading.Event, heartbeat_s: float) -> None:
    while not stop.wait(heartbeat_s):
        if _owner(mine.path) != mine.owner:
            mine.lost.set()
            return
        try:
            os.utime(mine.path)
        except FileNotFoundError:
            mine.lost.set()
            return
