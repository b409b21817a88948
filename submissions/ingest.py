"""From the inbox to the lake: one process, each bundle exactly once.

A bundle's part appears in the lake by one rename; then the bundle moves out of the inbox. Killed
between the two, the next ingest finds the part there and only moves the bundle.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from kernelmark.evaluators.campaigns.campaign import now
from kernelmark.evaluators.campaigns.files import write_json
from kernelmark.submissions.catalogue import Catalogue
from kernelmark.submissions.home import Home
from kernelmark.submissions.inbox import waiting
from kernelmark.submissions.lake import add_part, exclusive, has_part, sweep
from kernelmark.submissions.tables import bundle_tables, to_table
from kernelmark.submissions.validation import Problem, read_bundle

_ID = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Ingested:
    """What became of one bundle: accepted, or refused with every problem found."""

    name: str
    accepted: bool
    problems: tuple[Problem, ...] = ()


def ingest(
    home: Home, catalogue: Catalogue, notify: Callable[[Ingested], None] = lambda _: None
) -> list[Ingested]:
    """Takes everything out of the inbox. Raises `InfrastructureError` if another is at it."""
    with exclusive(home):
        home.lake.mkdir(parents=True, exist_ok=True)
        sweep(home)
        _add_catalogue(home, catalogue)
        done = []
        for result in _take_all(home, catalogue):
            notify(result)
            done.append(result)
        return done


def _take_all(home: Home, catalogue: Catalogue) -> Iterator[Ingested]:
    members = catalogue.members()
    for bundle in waiting(home):
        if not _ID.fullmatch(bundle.name) or bundle.is_symlink():
            yield _refuse(home, bundle, (Problem(".", "the folder is not named by an id"),))
            continue
        if not has_part(home, bundle.name):
            contents = read_bundle(bundle, members)
            submission = contents.submission
            if submission is not None and not contents.problems and submission.id != bundle.name:
                contents.wrong(
                    ".", f"the folder is not named by the submission's id {submission.id}"
                )
            if contents.problems or submission is None:
                yield _refuse(home, bundle, tuple(contents.problems))
                continue
            add_part(home, bundle.name, bundle_tables(contents, now()))
        _move_aside(bundle, home.bundles / bundle.name)
        yield Ingested(bundle.name, accepted=True)


def _refuse(home: Home, bundle: Path, problems: tuple[Problem, ...]) -> Ingested:
    target = home.rejected / bundle.name
    _move_aside(bundle, target)
    write_json(home.rejected / f"{bundle.name}.problems.json", [asdict(p) for p in problems])
    return Ingested(bundle.name, accepted=False, problems=problems)


def _move_aside(bundle: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.is_dir() and not target.is_symlink():
        shutil.rmtree(target)  # the same bundle, moved here before
    elif target.exists() or target.is_symlink():
        target.unlink()
    bundle.rename(target)


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
    add_part(home, name, tables)
