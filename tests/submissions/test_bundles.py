"""Bundles: sealed, unchangeable, and refused with every problem named when they are not right."""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from run_making import TIME, Entry, Result, demo_catalogue, make_run

from kernelmark.benchmark.suites import DEMO, get_suite
from kernelmark.evaluators.campaigns.files import write_json
from kernelmark.evaluators.campaigns.folder import RunFolder
from kernelmark.submissions.archive import pack
from kernelmark.submissions.bundle import (
    ATTEMPTS,
    CANDIDATES,
    LEDGER,
    MANIFEST,
    PORTABILITY,
    RUN,
    VERDICTS,
    Disclosure,
    file_sha256,
    seal,
    submission_id,
)
from kernelmark.submissions.catalogue import Catalogue
from kernelmark.submissions.home import Home
from kernelmark.submissions.inbox import deliver, waiting
from kernelmark.submissions.ingest import ingest, read_rows
from kernelmark.submissions.listing import list_submissions
from kernelmark.submissions.validation import read_bundle

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
    """Everything that an ingest says against a bundle."""
    _, found = read_rows(bundle, demo_catalogue().members(), TIME)
    return "\n".join(f"{p.where}: {p.what}" for p in found)


def reseal(bundle: Path) -> None:
    """Makes the manifest fit the files again: what is left wrong is not the sealing."""
    data = json.loads((bundle / MANIFEST).read_text())
    data["files"] = {p.name: file_sha256(p) for p in bundle.iterdir() if p.name != MANIFEST}
    write_json(bundle / MANIFEST, {**data, "id": submission_id(data)})


def change(path: Path, *keys: Any, to: Any) -> None:
    """Sets one value inside a JSON file."""
    data = json.loads(path.read_text())
    inner = data
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = to
    write_json(path, data)


def change_run(bundle: Path, key: str, to: Any) -> None:
    """Sets a field of the run, in both places."""
    change(bundle / MANIFEST, "run", key, to=to)
    change(bundle / RUN, key, to=to)


def digests(bundle: Path) -> dict[str, str]:
    """Digests of the run's operators."""
    found: dict[str, str] = json.loads((bundle / RUN).read_text())["operators"]
    return found


def edit(path: Path, line: int, *keys: Any, to: Any) -> None:
    """Sets one value inside a line of a file of lines."""
    lines = path.read_text().splitlines()
    data = inner = json.loads(lines[line - 1])
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = to
    lines[line - 1] = json.dumps(data)
    path.write_text("".join(f"{text}\n" for text in lines))


def repeat(path: Path, line: int) -> None:
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:line], *lines[line - 1 :]]))


def drop(path: Path, line: int) -> None:
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[: line - 1], *lines[line:]]))


def linked(path: Path, target: str) -> None:
    path.unlink()
    path.symlink_to(target)


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def test_a_good_bundle_reads_whole(bundle: Path) -> None:
    contents = read_bundle(bundle, demo_catalogue().members())
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


Breakage = Callable[[Path], Any]

#: what is done to the files before they are sealed again; what must be said
FORGED: dict[str, tuple[Breakage, str]] = {
    "future": (
        lambda b: change(b / MANIFEST, "sealed_at", to="2999-01-01T00:00:00+00:00"),
        "submission.json: sealed_at: lies in the future",
    ),
    "no time zone": (
        lambda b: change(b / MANIFEST, "sealed_at", to="2026-01-01"),
        "has no time zone",
    ),
    "no time": (lambda b: change(b / MANIFEST, "sealed_at", to="soon"), "not a time"),
    "no attempts declared": (
        lambda b: change(b / MANIFEST, "disclosure", "attempts_declared", to=0),
        "attempts_declared: must be at least 1",
    ),
    "attempts miscounted": (
        lambda b: change(b / MANIFEST, "attempts", to=1),
        "submission.json: attempts: 1, the bundle holds 2",
    ),
    "candidates miscounted": (
        lambda b: change(b / MANIFEST, "candidates", to=7),
        "candidates: 7, the bundle holds 1",
    ),
    "stranger file": (lambda b: (b / "run.sh").write_text("rm"), "run.sh: is no file of a bundle"),
    "no run": (lambda b: (b / RUN).unlink(), "run.json: is missing"),
    "empty run": (lambda b: (b / RUN).write_text(""), "run.json: "),
    "other run": (lambda b: change(b / RUN, "method", to="x"), "run.json: differs from"),
    "unknown suite": (
        lambda b: change_run(b, "suite_digest", to="0" * 64),
        "is not known",
    ),
    "wrong suite": (
        lambda b: change_run(b, "suite_digest", to=get_suite("aten::mm").digest),
        "run.json: operators: not all belong to suite demo",
    ),
    "suite made smaller": (
        lambda b: change_run(b, "suite_size", to=2),
        "suite_size: suite demo has 8",
    ),
    "no operators": (lambda b: change_run(b, "operators", to={}), "operators: is empty"),
    "verdict alone": (
        lambda b: edit(b / VERDICTS, 1, "candidate", to="f" * 64),
        "verdicts.jsonl:1: no attempt handed in",
    ),
    "verdict twice": (lambda b: repeat(b / VERDICTS, 1), "verdicts.jsonl:2: is there twice"),
    "other chip": (lambda b: edit(b / VERDICTS, 1, "chip", to="amd"), "not the run's"),
    "unknown status": (
        lambda b: edit(b / VERDICTS, 1, "status", to="perfect"),
        "verdicts.jsonl:1: status: Input should",
    ),
    "timed failure": (
        lambda b: edit(b / VERDICTS, 1, "status", to="rejected"),
        "carries no timings",
    ),
    "negative time": (
        lambda b: edit(b / VERDICTS, 1, "timings", 0, "device_us", to=-1.0),
        "verdicts.jsonl:1: case case0: has a time that is not positive",
    ),
    "no number": (
        lambda b: edit(b / VERDICTS, 1, "timings", 0, "speedup", to=math.nan),
        "has a time that is not positive",
    ),
    "speedup of nothing": (
        lambda b: edit(b / VERDICTS, 1, "timings", 0, "speedup", to=9.0),
        "speedup is not that of its times",
    ),
    "number as text": (
        lambda b: edit(b / VERDICTS, 1, "timings", 0, "device_us", to="10"),
        "verdicts.jsonl:1: timings.0.device_us: Input should be a valid number",
    ),
    "passed with a wrong value": (
        lambda b: edit(b / VERDICTS, 1, "comparisons", 0, "status", to="wrong_values"),
        "passed, with a comparison that failed",
    ),
    "passed with a failed gate": (
        lambda b: edit(
            *(b / VERDICTS, 1, "gates"),
            to=[{"name": "scan", "passed": False, "seconds": 0.1, "detail": ""}],
        ),
        "passed, with a gate that failed",
    ),
    "unknown field": (
        lambda b: edit(b / VERDICTS, 1, "timings", 0, "bonus", to=1),
        "verdicts.jsonl:1: timings.0.bonus: Unexpected keyword",
    ),
    "nested to death": (
        lambda b: edit(b / VERDICTS, 1, "evidence", to={"x": nested(80)}),
        "evidence: nested deeper",
    ),
    "nested to the sky": (
        lambda b: (b / VERDICTS).write_text("[" * 100_000 + "\n"),
        "verdicts.jsonl:1: Invalid JSON: recursion limit",
    ),
    "number of no width": (
        lambda b: edit(b / VERDICTS, 1, "comparisons", 0, "total", to=2**80),
        ".: comparisons.total: ",
    ),
    "other source": (
        lambda b: edit(b / CANDIDATES, 1, "source", to="x = 1"),
        "no attempt handed it in",
    ),
    "candidate gone": (
        lambda b: (b / CANDIDATES).write_bytes(b""),
        "is missing (attempt 1 at aten::add)",
    ),
    "candidate twice": (lambda b: repeat(b / CANDIDATES, 1), "candidates.jsonl:2: aten::add"),
    "broken text": (
        lambda b: (b / CANDIDATES).write_bytes(b'{"source":"\xff\xfe"}\n'),
        "candidates.jsonl:1: is not UTF-8",
    ),
    "half a letter": (
        lambda b: (b / CANDIDATES).write_bytes(b'{"source":"\\ud800"}\n'),
        "candidates.jsonl:1: Invalid JSON",
    ),
    "attempt numbers": (
        lambda b: edit(b / ATTEMPTS, 1, "attempts", 0, "number", to=2),
        "attempts.jsonl:1: attempts are numbered [2]",
    ),
    "foreign operator": (
        lambda b: edit(b / ATTEMPTS, 1, "operator", to="aten::nope"),
        "aten::nope is no operator of the run",
    ),
    "operator twice": (lambda b: repeat(b / ATTEMPTS, 1), "is there twice"),
    "attempt at another": (
        lambda b: edit(b / ATTEMPTS, 1, "attempts", 0, "operator", to="aten::mm"),
        "holds an attempt at another operator",
    ),
    "candidate and failure": (
        lambda b: edit(b / ATTEMPTS, 1, "attempts", 0, "failure", to="rejected"),
        "candidate or failure",
    ),
    "other language": (
        lambda b: edit(b / ATTEMPTS, 1, "attempts", 0, "language", to="cuda"),
        "language or entry is not that of attempt 1",
    ),
    "no attempts": (lambda b: drop(b / ATTEMPTS, 1), "is not finished, in a complete run"),
    "unfinished": (
        lambda b: edit(b / ATTEMPTS, 1, "complete", to=False),
        "is not finished, in a complete run",
    ),
    "no verdict": (lambda b: drop(b / VERDICTS, 1), "has none, in a complete run"),
    "portability of nothing": (
        lambda b: edit(b / PORTABILITY, 1, "operator", to="aten::mm"),
        "portability.jsonl:1: no attempt handed in",
    ),
    "portability twice": (lambda b: repeat(b / PORTABILITY, 1), "portability.jsonl:2: is there tw"),
    "ledger of another run": (
        lambda b: edit(b / LEDGER, 1, "run", to="run-other"),
        "ledger.jsonl:1: belongs to run run-other",
    ),
    "ledger torn": (
        lambda b: (b / LEDGER).write_text('{"run": "a'),
        "ledger.jsonl: its last line is torn",
    ),
    "ledger no JSON": (
        lambda b: (b / LEDGER).write_text('{"run": \n'),
        "ledger.jsonl:1: Invalid JSON",
    ),
    "request twice": (lambda b: repeat(b / LEDGER, 1), "request aten::add-1 is there twice"),
    "tokens below zero": (
        lambda b: edit(b / LEDGER, 1, "usage", "in_uncached", to=-40),
        "token counts make no sense",
    ),
    "paid to be used": (lambda b: edit(b / LEDGER, 1, "cost_usd", to=-5.0), "cost_usd: makes no"),
    "key in a note": (
        lambda b: edit(b / ATTEMPTS, 1, "attempts", 0, "note", to="use sk-ant-" + "a1B2" * 12),
        "attempts.jsonl:1: holds what looks like a secret (provider key)",
    ),
    "passed with nothing compared": (
        lambda b: edit(b / VERDICTS, 1, "comparisons", to=[]),
        "verdicts.jsonl:1: passed, with nothing compared",
    ),
    "other cases": (
        lambda b: edit(b / VERDICTS, 1, "dataset", to="0" * 64),
        "verdicts.jsonl:1: dataset: its cases are not those of the run",
    ),
    "interpreted on an accelerator": (
        lambda b: edit(b / VERDICTS, 1, "attests", to="interpreted"),
        "verdicts.jsonl:1: attests: interpreted on nvidia",
    ),
    "smaller cases": (
        lambda b: edit(b / VERDICTS, 1, "tier", to="small"),
        "verdicts.jsonl:1: tier small is not the run's (full)",
    ),
    "no tier": (lambda b: change_run(b, "tier", to="easy"), "run.json: tier: easy is none"),
    "made-up definition": (
        lambda b: change_run(b, "operators", to={**digests(b), DEMO[0]: "0" * 64}),
        "run.json: operators: aten::add is not defined like that",
    ),
    "name with a command": (
        lambda b: change(b / MANIFEST, "disclosure", "submitter", to="\x1b[31mroot"),
        "submission.json: disclosure.submitter: not one line",
    ),
    "method without end": (
        lambda b: change_run(b, "method", to="m" * 9999),
        "submission.json: run.method: not one line",
    ),
    "notes with a command": (
        lambda b: change(b / MANIFEST, "disclosure", "notes", to="fine\n\x1b]0;x"),
        "submission.json: disclosure.notes: not text",
    ),
    "no licence": (
        lambda b: change(b / MANIFEST, "disclosure", "licence", to=" "),
        "submission.json: disclosure.licence: is empty",
    ),
    "redacted less than nothing": (
        lambda b: change(b / MANIFEST, "redactions", to={"x": -1}),
        "submission.json: redactions: counts make no sense",
    ),
    "key on a line of its own": (
        lambda b: edit(b / ATTEMPTS, 1, "attempts", 0, "note", to="key:\nsk-ant-" + "a1B2" * 12),
        "attempts.jsonl:1: holds what looks like a secret (provider key)",
    ),
    "key in quotes": (
        lambda b: edit(b / ATTEMPTS, 1, "attempts", 0, "note", to="\u201csk-ant-" + "a1B2" * 12),
        "attempts.jsonl:1: holds what looks like a secret (provider key)",
    ),
    "key in what else": (
        lambda b: change(b / MANIFEST, "extra", to={"x": "sk-ant-" + "a1B2" * 12}),
        "holds what looks like a secret (provider key)",
    ),
    "lines without end": (
        lambda b: (b / LEDGER).write_bytes(b"\n" * 200_001),
        "ledger.jsonl: has 200001 lines; at most 200000",
    ),
    "token in a candidate": (
        lambda b: edit(b / CANDIDATES, 1, "source", to="# hf_" + "aB3" * 12),
        "candidates.jsonl:1: holds what looks like a secret (Hugging Face token)",
    ),
    "key in the disclosure": (
        lambda b: change(b / MANIFEST, "disclosure", "notes", to="AKIA" + "ABCD" * 4),
        "holds what looks like a secret (AWS key)",
    ),
}

#: what is done to a sealed bundle; what must be said
TAMPERED: dict[str, tuple[Breakage, str]] = {
    "no manifest": (lambda b: (b / MANIFEST).unlink(), "submission.json: is missing"),
    "not JSON": (lambda b: (b / MANIFEST).write_text("{"), "submission.json: is not JSON"),
    "not UTF-8": (lambda b: (b / MANIFEST).write_bytes(b"\xff{}"), "submission.json: is not JSON"),
    "not an object": (lambda b: (b / MANIFEST).write_text("[1]"), MANIFEST),
    "manifest nested": (lambda b: (b / MANIFEST).write_text("[" * 200_000), "is not JSON"),
    "manifest huge": (lambda b: os.truncate(b / MANIFEST, 2 << 20), "bytes; at most 1048576"),
    "key twice": (
        lambda b: (b / MANIFEST).write_text('{"id": "a", "id": "b"}'),
        "a key is there twice",
    ),
    "unknown key": (lambda b: change(b / MANIFEST, "x", to=1), "x: Unexpected keyword"),
    "missing fields": (lambda b: change(b / MANIFEST, "run", to={}), "run.method: Field required"),
    "unknown schema": (
        lambda b: change(b / MANIFEST, "schema_version", to=99),
        "schema_version 99 is not known",
    ),
    "no schema": (lambda b: change(b / MANIFEST, "schema_version", to=None), "None is not known"),
    "wrong id": (lambda b: change(b / MANIFEST, "id", to="0" * 64), "id: is not the sha256"),
    "other words": (
        lambda b: change(b / MANIFEST, "disclosure", "notes", to="x"),
        "id: is not the sha256",
    ),
    "made complete": (
        lambda b: change(b / MANIFEST, "candidates", to=5),
        "id: is not the sha256",
    ),
    "byte changed": (
        lambda b: edit(b / CANDIDATES, 1, "source", to="evil"),
        "candidates.jsonl: its sha256 is not the manifest's",
    ),
    "ledger tampered": (
        lambda b: edit(b / LEDGER, 1, "usage", "in_uncached", to=0),
        "ledger.jsonl: its sha256 is not the manifest's",
    ),
    "ledger gone": (lambda b: (b / LEDGER).unlink(), "ledger.jsonl: is listed in the manifest and"),
    "file too many": (lambda b: (b / "x.json").write_text("{}"), "x.json: is no file of a bundle"),
    "program too many": (lambda b: (b / "setup.py").write_text("1/0"), "setup.py: is no file"),
    "traversal": (
        lambda b: change(b / MANIFEST, "files", "../../evil", to="0" * 64),
        "files: ../../evil is no file of a bundle",
    ),
    "absolute path": (
        lambda b: change(b / MANIFEST, "files", "/etc/passwd", to="0" * 64),
        "files: /etc/passwd is no file of a bundle",
    ),
    "link": (lambda b: linked(b / LEDGER, "/etc/passwd"), "ledger.jsonl: is not a plain file"),
    "link inside": (lambda b: linked(b / LEDGER, VERDICTS), "ledger.jsonl: is not a plain file"),
    "folder": (lambda b: (b / "more").mkdir(), "more: is not a plain file"),
    "linked folder": (lambda b: (b / "more").symlink_to("/etc"), "more: is not a plain file"),
    "pipe": (lambda b: [(b / LEDGER).unlink(), os.mkfifo(b / LEDGER)], "not a plain file"),
    "huge file": (lambda b: os.truncate(b / CANDIDATES, 1 << 40), "bytes; at most"),
    "huge in all": (
        lambda b: [os.truncate(b / name, 200 << 20) for name in (CANDIDATES, LEDGER, VERDICTS)],
        ".: has ",
    ),
    "many files": (
        lambda b: [(b / f"{i}.json").touch() for i in range(3000)],
        ".: and more",
    ),
    "strange name": (
        lambda b: Path(os.fsdecode(bytes(b) + b"/\xff\x1b[31m")).touch(),
        "is no file of a bundle",
    ),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_bundle_sealed_over_something_wrong(bundle: Path, name: str) -> None:
    breakage, expected = FORGED[name]
    breakage(bundle)
    reseal(bundle)
    assert expected in problems(bundle)


@pytest.mark.parametrize("name", TAMPERED)
def test_a_bundle_changed_after_sealing(bundle: Path, name: str) -> None:
    breakage, expected = TAMPERED[name]
    breakage(bundle)
    assert expected in problems(bundle)


def zipped(archive: Path, entries: Mapping[str, bytes], **fields: Any) -> None:
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as opened:
        for name, data in entries.items():
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED
            for key, value in fields.items():
                setattr(info, key, value)
            opened.writestr(info, data)


def patched(archive: Path, old: bytes, new: bytes) -> None:
    archive.write_bytes(archive.read_bytes().replace(old, new))


def lying(archive: Path) -> None:
    """A file that says it has one byte and unpacks to a million."""
    zipped(archive, {LEDGER: os.urandom(1000) * 100})
    patched(archive, (100_000).to_bytes(4, "little"), (1).to_bytes(4, "little"))


ARCHIVES: dict[str, tuple[Breakage, str]] = {
    "no archive": (lambda z: z.write_text("hello"), "is no zip archive"),
    "empty": (lambda z: zipped(z, {}), "submission.json"),
    "traversal": (lambda z: zipped(z, {"../../evil": b"x"}), "../../evil: is no file of a bundle"),
    "absolute": (lambda z: zipped(z, {"/etc/evil": b"x"}), "/etc/evil: is no file of a bundle"),
    "bomb": (lambda z: zipped(z, {LEDGER: bytes(100 << 20)}), "compressed more than 200 times"),
    "nested archive": (lambda z: zipped(z, {"more.zip": b"PK"}), "more.zip: is no file"),
    "link": (
        lambda z: zipped(z, {LEDGER: b"/etc/passwd"}, external_attr=0o120777 << 16),
        "is not a plain file",
    ),
    "lying": (lying, "ledger.jsonl: "),
    "encrypted": (
        lambda z: [
            zipped(z, {LEDGER: b"x"}),
            patched(z, b"PK\x01\x02\x14\x03\x14\x00\x00", b"PK\x01\x02\x14\x03\x14\x00\x01"),
        ],
        "is encrypted",
    ),
    "torn": (
        lambda z: [zipped(z, {LEDGER: os.urandom(5000)}), os.truncate(z, 3000)],
        "is no zip archive",
    ),
    "damaged": (
        lambda z: [
            zipped(z, {LEDGER: b"abc" * 9}),
            patched(z, b"ledger.jsonlKLJ", b"ledger.jsonl???"),
        ],
        "ledger.jsonl: cannot be unpacked",
    ),
}


@pytest.mark.parametrize("name", ARCHIVES)
def test_an_archive_that_is_no_bundle(tmp_path: Path, name: str) -> None:
    breakage, expected = ARCHIVES[name]
    home = Home(tmp_path / "home")
    home.inbox.mkdir(parents=True)
    breakage(home.inbox / "in.zip")
    (result,) = ingest(home, Catalogue((), ()), processes=1)
    assert expected in "\n".join(f"{p.where}: {p.what}" for p in result.problems)
    assert (home.rejected / "in.zip").is_file()
    assert (home.rejected / "in.zip.problems.json").is_file()
    assert waiting(home) == []
    found = {path.relative_to(tmp_path).parts[:2] for path in tmp_path.rglob("*")}
    assert found == {
        ("home",),
        *(("home", n) for n in ("inbox", "rejected", "lake", "ingest.lock")),
    }


#: names that something in the inbox may have, none of which may stop an ingest or a listing
NAMES = (b"in.problems.json", b"\xff\x1b[31m", b"n" * 250, b"back\\slash", b"in.problems.json.zip")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("folder", [True, False])
def test_whatever_it_is_called_it_is_refused_and_listed(
    tmp_path: Path, name: bytes, folder: bool
) -> None:
    home = Home(tmp_path / "home")
    home.inbox.mkdir(parents=True)
    for text in (name, b"in"):  # whose reasons stand under the first of the names
        path = home.inbox / os.fsdecode(text)
        if folder:
            path.mkdir()
        else:
            path.write_text("no JSON")
        (result,) = ingest(home, Catalogue((), ()), processes=1)
        assert not result.accepted
        assert result.name.isascii()
        assert result.name.isprintable()
    listed = list_submissions(home)
    assert [row["state"] for row in listed] == ["refused", "refused"]
    assert all(json.loads(row["problems"]) for row in listed)
    assert waiting(home) == []


def test_an_archive_is_ingested_like_its_folder(bundle: Path, tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.inbox.mkdir(parents=True)
    pack(bundle, home.inbox / "mine.zip")
    pack(bundle, home.inbox / "again.zip")
    results = ingest(home, demo_catalogue(), processes=1)
    assert all(result.accepted for result in results)
    (kept,) = home.bundles.iterdir()
    assert {p.name: p.read_bytes() for p in kept.iterdir()} == {
        p.name: p.read_bytes() for p in bundle.iterdir()
    }
    assert waiting(home) == []


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
