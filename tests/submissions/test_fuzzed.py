"""Fuzzed bundles: whatever comes, a list of what is wrong and where, and nothing else happens."""

from __future__ import annotations

import contextlib
import copy
import json
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from run_making import TIME, Entry, Result, demo_catalogue, make_run

from kernelmark.benchmark.suites import DEMO
from kernelmark.submissions.bundle import MANIFEST, Disclosure, file_sha256, seal, submission_id
from kernelmark.submissions.ingest import read_rows

ENTRY = Entry(
    {
        DEMO[0]: (Result(speedups=(2.0,), tokens=50), Result("wrong_values")),
        DEMO[1]: (Result("no_candidate"),),
        DEMO[2]: (Result(speedups=(0.5, 1.5)),),
    },
    kind="model",
)
_WEIRD = [
    *(None, True, False, 0, -1, 1, 2**31, 2**63, 2**200, -(2**63), 0.0, -0.0, 1e308, 5e-324),
    *(float("nan"), float("inf"), -float("inf"), "", "x", "\x00", "\ud7ff\U0010ffff", "../..", "/"),
    *("9" * 400, "a" * 5000, [], {}, [[]], {"": {}}, ["x"], [0.5], {"operator": "aten::add"}),
    *("2999-01-01T00:00:00+00:00", "passed", "aten::add", "sk-" + "a1" * 20, "\u202e", "'; DROP"),
]

_watching: list[Path] = []
_seen: list[str] = []


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    """Notes what must not happen while a bundle is read: programs, network, code, writing."""
    if not _watching:
        return
    if event in ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "socket.connect"):
        _seen.append(event)
    elif event in ("exec", "compile", "import", "os.remove", "os.rename", "os.mkdir", "os.link"):
        _seen.append(f"{event} {arguments[:1]}")
    elif event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
        _seen.append(f"{event} {arguments[0]}")


sys.addaudithook(_watch)


@contextlib.contextmanager
def watched(root: Path) -> Iterator[None]:
    _seen.clear()
    _watching.append(root)
    try:
        yield
    finally:
        _watching.clear()


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of a good bundle."""
    root = tmp_path_factory.mktemp("good")
    seal(make_run(root / "run", ENTRY), Disclosure(), root / "bundle", TIME)
    suites = demo_catalogue().members()
    tables, problems = read_rows(root / "bundle", suites, TIME)  # imports what is imported late
    assert not problems
    assert tables
    return {path.name: path.read_bytes() for path in (root / "bundle").iterdir()}


def bytes_changed(data: bytes, dice: random.Random) -> bytes:
    """Flipped, cut, doubled or inserted bytes."""
    place = dice.randrange(len(data) + 1)
    end = min(len(data), place + dice.choice([1, 1, 4, 64, 4096]))
    what = dice.randrange(5)
    if what == 0 and place < len(data):
        return data[:place] + bytes([dice.randrange(256)]) + data[place + 1 :]
    if what == 1:
        return data[:place] + data[end:]
    if what == 2:
        return data[:end] + data[place:]
    if what == 3:
        return data[:place] + dice.randbytes(end - place) + data[place:]
    return data[:place]


def lines_changed(data: bytes, dice: random.Random) -> bytes:
    """A line doubled, dropped or moved."""
    lines = data.split(b"\n")
    line = lines.pop(dice.randrange(len(lines)))
    for _ in range(dice.choice([0, 1, 2])):
        lines.insert(dice.randrange(len(lines) + 1), line)
    return b"\n".join(lines)


def values_changed(data: bytes, dice: random.Random) -> bytes:
    """A value somewhere in the JSON of a line made another, dropped, or given a neighbour."""
    lines = data.split(b"\n")
    number = dice.randrange(len(lines))
    try:
        value = json.loads(lines[number])
    except ValueError:
        return data
    holder: Any = [value]
    key: Any = 0
    while isinstance(holder[key], dict | list) and holder[key] and dice.random() < 0.85:
        holder = holder[key]
        key = dice.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
    what = dice.randrange(4)
    if what == 0 and isinstance(holder, dict):
        holder[dice.choice(["x", "", "id", "operator", "\x00"])] = copy.deepcopy(holder[key])
    elif what == 1 and isinstance(holder, dict):
        del holder[key]
    elif what == 2 and isinstance(holder, list):
        holder.insert(0, copy.deepcopy(holder[key]))
    else:
        holder[key] = dice.choice(_WEIRD)
    lines[number] = json.dumps(value).encode()
    return b"\n".join(lines)


CHANGES: list[Callable[[bytes, random.Random], bytes]] = [
    bytes_changed,
    lines_changed,
    values_changed,
    values_changed,
    values_changed,
]


def reseal(bundle: Path) -> None:
    """Makes the manifest fit the files again, where there is anything to be made of it."""
    try:
        data = json.loads((bundle / MANIFEST).read_bytes())
        files = data["files"] = {}
        for path in bundle.iterdir():
            if path.name != MANIFEST:
                files[path.name] = file_sha256(path)
        (bundle / MANIFEST).write_text(json.dumps({**data, "id": submission_id(data)}))
    except (ValueError, TypeError, KeyError):
        return


def check(good: dict[str, bytes], seed: int, suites: dict[str, set[str]]) -> bool:
    """Whether the bundle changed by `seed` is accepted; asserts what must hold either way."""
    dice = random.Random(seed)
    files = dict(good)
    for _ in range(dice.choice([1, 1, 1, 2, 5])):
        name = dice.choice(sorted(files))
        files[name] = dice.choice(CHANGES)(files[name], dice)
    root = Path(tempfile.mkdtemp(prefix="fuzzed"))
    try:
        bundle = root / "bundle"
        bundle.mkdir()
        for name, data in files.items():
            (bundle / name).write_bytes(data)
        if dice.random() < 0.8:
            reseal(bundle)
        before = {path.name: path.read_bytes() for path in bundle.iterdir()}
        with watched(bundle):
            tables, problems = read_rows(bundle, suites, TIME)
        assert _seen == []
        assert {path.name: path.read_bytes() for path in bundle.iterdir()} == before
        assert [path.name for path in root.iterdir()] == ["bundle"]
        assert bool(tables) != bool(problems)
        for problem in problems:
            assert problem.where
            assert problem.what
            assert len(problem.where) + len(problem.what) < 2000
            json.dumps([problem.where, problem.what]).encode()
        return not problems
    finally:
        shutil.rmtree(root)


_SETTINGS = {
    "deadline": None,
    "database": None,
    "derandomize": True,
    "suppress_health_check": [HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
}


def test_three_hundred_fuzzed_bundles(good: dict[str, bytes]) -> None:
    suites = demo_catalogue().members()

    @settings(max_examples=300, **_SETTINGS)  # type: ignore[arg-type]
    @given(st.integers(0, 2**63))
    def fuzz(seed: int) -> None:
        check(good, seed, suites)

    fuzz()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_ten_thousand_fuzzed_bundles(good: dict[str, bytes]) -> None:
    suites = demo_catalogue().members()
    accepted = []

    @settings(max_examples=10_000, **_SETTINGS)  # type: ignore[arg-type]
    @given(st.integers(0, 2**63))
    def fuzz(seed: int) -> None:
        accepted.append(check(good, seed, suites))

    fuzz()
    assert len(accepted) >= 9_000
    # Some changes mean nothing (a note, a blank); most must be seen.
    assert 0 < sum(accepted) < len(accepted) / 3
