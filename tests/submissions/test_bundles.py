"""Bundles: sealed, unchangeable, and refused with every problem named when they are not right."""

from __future__ import annotations

import json
import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from run_making import TIME, Entry, Result, make_run

from kernelmark.benchmark.suites import DEMO
from kernelmark.evaluators.campaigns.files import write_json
from kernelmark.evaluators.campaigns.folder import RunFolder
from kernelmark.evaluators.grading.records import to_json
from kernelmark.submissions.bundle import (
    MANIFEST,
    Disclosure,
    Submission,
    file_sha256,
    seal,
    submission_id,
)
from kernelmark.submissions.catalogue import current_catalogue
from kernelmark.submissions.home import Home
from kernelmark.submissions.inbox import deliver, waiting
from kernelmark.submissions.validation import _adapter, read_bundle

ENTRY = Entry(
    {DEMO[0]: (Result(speedups=(2.0,), tokens=50),), DEMO[1]: (Result("no_candidate"),)},
    kind="model",
)


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """A good bundle."""
    seal(make_run(tmp_path / "run", ENTRY), Disclosure(), tmp_path / "bundle", TIME)
    return tmp_path / "bundle"


def problems(bundle: Path) -> str:
    found = read_bundle(bundle, current_catalogue().members()).problems
    return "\n".join(f"{p.where}: {p.what}" for p in found)


def reseal(bundle: Path) -> None:
    """Makes the manifest fit the files again: what is left wrong is not the sealing."""
    data = json.loads((bundle / MANIFEST).read_text())
    present = [p.relative_to(bundle).as_posix() for p in bundle.rglob("*") if p.is_file()]
    data["files"] = {n: file_sha256(bundle / n) for n in present if n != MANIFEST}
    submission: Submission = _adapter(Submission).validate_python((data,))[0]
    write_json(bundle / MANIFEST, {**to_json(submission), "id": submission_id(submission)})


def change(path: Path, *keys: Any, to: Any) -> None:
    """Sets one value inside a JSON file."""
    data = json.loads(path.read_text())
    inner = data
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = to
    write_json(path, data)


def one(bundle: Path, pattern: str) -> Path:
    return next(iter(sorted(bundle.glob(pattern))))


def test_a_good_bundle_reads_whole(bundle: Path) -> None:
    contents = read_bundle(bundle, current_catalogue().members())
    assert contents.problems == []
    assert contents.submission is not None
    assert contents.submission.complete
    assert len(contents.verdicts) == len(contents.candidates) == len(contents.portability) == 1
    assert len(contents.productions) == len(DEMO)
    assert sum(row.usage.total for row in contents.ledger) == 50


def test_sealing_twice_gives_the_same_id(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", ENTRY)
    first = seal(folder, Disclosure(), tmp_path / "a", TIME)
    again = seal(folder, Disclosure(), tmp_path / "b", "2026-05-05T00:00:00+00:00")
    other = seal(folder, Disclosure(notes="other words"), tmp_path / "c", TIME)
    assert first.id == again.id != other.id


BROKEN: dict[str, tuple[Callable[[Path], Any], bool, str]] = {
    # what is done to the bundle; whether it is sealed again afterwards; what must be said
    "no manifest": (lambda b: (b / MANIFEST).unlink(), False, "submission.json: is missing"),
    "not JSON": (lambda b: (b / MANIFEST).write_text("{"), False, "is not JSON"),
    "not an object": (lambda b: (b / MANIFEST).write_text("[1]"), False, MANIFEST),
    "unknown field": (lambda b: change(b / MANIFEST, "x", to=1), False, "x: Unexpected keyword"),
    "missing field": (
        lambda b: change(b / MANIFEST, "run", to={}),
        False,
        "run.method: Field required",
    ),
    "schema": (lambda b: change(b / MANIFEST, "schema_version", to=99), False, "schema_version 99"),
    "wrong id": (lambda b: change(b / MANIFEST, "id", to="0" * 64), False, "id: is not the sha256"),
    "other words": (
        lambda b: change(b / MANIFEST, "disclosure", "notes", to="x"),
        False,
        "is not the sha256",
    ),
    "future": (
        lambda b: change(b / MANIFEST, "sealed_at", to="2999-01-01T00:00:00+00:00"),
        True,
        "lies in the future",
    ),
    "no time zone": (
        lambda b: change(b / MANIFEST, "sealed_at", to="2026-01-01"),
        True,
        "no time zone",
    ),
    "no time": (lambda b: change(b / MANIFEST, "sealed_at", to="soon"), True, "not a time"),
    "attempts": (
        lambda b: change(b / MANIFEST, "disclosure", "attempts_declared", to=0),
        True,
        "at least 1",
    ),
    "byte changed": (
        lambda b: one(b, "candidates/*").write_text("evil"),
        False,
        "its sha256 is not",
    ),
    "file missing": (lambda b: one(b, "verdicts/*").unlink(), False, "is listed in the manifest"),
    "file too many": (
        lambda b: (b / "attempts" / "x.json").write_text("{}"),
        False,
        "x.json: is not listed",
    ),
    "strange path": (lambda b: (b / "run.sh").write_text("rm"), True, "no path that a bundle may"),
    "traversal": (
        lambda b: change(b / MANIFEST, "files", "../../evil", to="0" * 64),
        False,
        "../../evil: is no path",
    ),
    "absolute path": (
        lambda b: change(b / MANIFEST, "files", "/etc/passwd", to="0" * 64),
        False,
        "/etc/passwd",
    ),
    "link": (
        lambda b: (b / "attempts" / "l.json").symlink_to("/etc/passwd"),
        False,
        "not a plain file",
    ),
    "linked folder": (lambda b: (b / "more").symlink_to("/etc"), False, "not a plain file"),
    "pipe": (lambda b: os.mkfifo(b / "attempts" / "p.json"), False, "not a plain file"),
    "huge file": (lambda b: os.truncate(one(b, "candidates/*"), 65 << 20), False, "bytes; at most"),
    "verdict alone": (
        lambda b: change(one(b, "verdicts/*"), "candidate", to="f" * 64),
        True,
        "no attempt handed",
    ),
    "other chip": (lambda b: change(one(b, "verdicts/*"), "chip", to="amd"), True, "not the run's"),
    "unknown status": (
        lambda b: change(one(b, "verdicts/*"), "status", to="perfect"),
        True,
        "status: Input should",
    ),
    "timed failure": (
        lambda b: change(one(b, "verdicts/*"), "status", to="rejected"),
        True,
        "carries no timings",
    ),
    "negative time": (
        lambda b: change(one(b, "verdicts/*"), "timings", 0, "device_us", to=-1.0),
        True,
        "not positive",
    ),
    "nested unknown": (
        lambda b: change(one(b, "verdicts/*"), "timings", 0, "bonus", to=1),
        True,
        "timings.0.bonus",
    ),
    "other source": (
        lambda b: one(b, "candidates/*").write_text("x = 1"),
        True,
        "is not what attempt 1 handed",
    ),
    "broken text": (
        lambda b: one(b, "candidates/*").write_bytes(b"\xff\xfe"),
        True,
        "is not UTF-8",
    ),
    "candidate gone": (lambda b: one(b, "candidates/*").unlink(), True, "is missing (attempt 1"),
    "attempt numbers": (
        lambda b: change(one(b, "attempts/aten.add*"), "attempts", 0, "number", to=2),
        True,
        "attempts are numbered [2]",
    ),
    "foreign operator": (
        lambda b: change(one(b, "attempts/aten.add*"), "operator", to="aten::nope"),
        True,
        "is no operator of the run",
    ),
    "candidate and failure": (
        lambda b: change(one(b, "attempts/aten.add*"), "attempts", 0, "failure", to="rejected"),
        True,
        "candidate or failure",
    ),
    "no attempts": (lambda b: one(b, "attempts/*").unlink(), True, "in a complete run"),
    "no verdict": (lambda b: one(b, "verdicts/*").unlink(), True, "has none, in a complete run"),
    "unknown suite": (
        lambda b: [
            change(b / name, *keys, "suite_digest", to="0" * 64)
            for name, keys in ((MANIFEST, ("run",)), ("run.json", ()))
        ],
        True,
        "is not known",
    ),
    "other run": (lambda b: change(b / "run.json", "method", to="x"), True, "differs from"),
    "ledger of another run": (
        lambda b: (b / "ledger.jsonl").write_text(
            (b / "ledger.jsonl").read_text().replace("run-run", "run-other")
        ),
        True,
        "belongs to run run-other",
    ),
    "ledger torn": (
        lambda b: (b / "ledger.jsonl").write_text('{"run": "a'),
        True,
        "ledger.jsonl:1: is not JSON",
    ),
    "tokens below zero": (
        lambda b: (b / "ledger.jsonl").write_text(
            (b / "ledger.jsonl").read_text().replace('"in_uncached": 40', '"in_uncached": -40')
        ),
        True,
        "make no sense",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_wrong_is_named(bundle: Path, name: str) -> None:
    breakage, sealed_again, expected = BROKEN[name]
    breakage(bundle)
    if sealed_again:
        reseal(bundle)
    assert expected in problems(bundle)


def test_an_unfinished_run_says_so(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", ENTRY)
    next((folder.root / "attempts").glob("*Saxpy*")).unlink()
    assert not seal(folder, Disclosure(), tmp_path / "bundle", TIME).complete
    assert problems(tmp_path / "bundle") == ""


def _deliver(root: Path, home: Path) -> None:
    for run in sorted(root.glob("run*")):
        deliver(Home(home), RunFolder.open(run), Disclosure())


def test_many_writers_one_inbox(tmp_path: Path) -> None:
    for number in range(4):
        make_run(tmp_path / f"run{number}", ENTRY)
    context = multiprocessing.get_context("spawn")
    home = tmp_path / "home"
    writers = [context.Process(target=_deliver, args=(tmp_path, home)) for _ in range(2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    found = waiting(Home(home))
    assert len(found) == 4
    assert not list((home / "inbox").glob(".*"))
    for bundle in found:
        assert problems(bundle) == ""
