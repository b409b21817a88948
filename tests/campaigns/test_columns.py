"""One run, all columns: the chip it is graded on, further chips, and compile targets."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest

from kernelmark.evaluators.campaigns.companions import companions
from kernelmark.evaluators.campaigns.folder import RunFolder

SECOND = """
from kernelmark.evaluators.chips.interpreter import Interpreter

CHIP = Interpreter(name="second", vendor="nobody")
"""
OPERATORS = "aten::add,aten::silu"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home folder with the run, made by the command; and a second chip, by entry point."""
    root = tmp_path_factory.mktemp("columns")
    about = root / "site" / "second-1.dist-info"
    about.mkdir(parents=True)
    (root / "site" / "second_chip.py").write_text(SECOND)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: second\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[kernelmark.chips]\nsecond = second_chip:CHIP\n")
    done = kernelmark(
        root,
        *("run", "--method", "reference", "--suite", "demo", "--operators", OPERATORS),
        *("--chip", "interpreter,second,sm_80,gfx942", "--out", str(root / "run"), "--json"),
    )
    (root / "answer.json").write_text(json.dumps(done))
    return root


def kernelmark(root: Path, *words: str) -> Any:
    path = os.pathsep.join([str(root / "site"), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "KERNELMARK_HOME": str(root / "home"), "PYTHONPATH": path}
    command = [sys.executable, "-m", "kernelmark.benchmark.cli", *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout) if "--json" in words else done.stdout


def test_every_column_is_in_the_run_folder(home: Path) -> None:
    folder = RunFolder.open(home / "run")
    (second,) = companions(folder)
    assert (folder.run.chip, folder.run.targets) == ("interpreter", ("sm_80", "gfx942"))
    assert second.run.chip == "second"
    assert second.run.environment["produced_in"] == folder.run.id
    attempts = list(folder.attempts())
    assert len(attempts) == 2
    assert list(second.attempts()) == attempts
    for attempt in attempts:
        here = folder.verdict(attempt.operator, attempt.candidate)
        there = second.verdict(attempt.operator, attempt.candidate)
        assert here is not None
        assert there is not None
        assert (here.chip, here.status) == ("interpreter", "passed")
        assert (there.chip, there.status) == ("second", "passed")
        rows = folder.portability(attempt.operator, attempt.candidate)
        assert rows is not None
        assert [(row.target, row.status) for row in rows] == [
            ("sm_80", "passed"),
            ("gfx942", "passed"),
        ]


def test_the_command_answers_with_every_column(home: Path) -> None:
    answer = json.loads((home / "answer.json").read_text())
    assert [row["compiles"] for row in answer["operators"]] == ["2/2"] * 2
    assert answer["on"]["second"]["solved"] == 2


def test_every_column_is_in_the_store(home: Path) -> None:
    for run in ("run", "run/on/second"):
        kernelmark(home, "submit", str(home / run), "--partial")
    kernelmark(home, "ingest")
    with duckdb.connect(str(home / "home" / "current.duckdb"), read_only=True) as store:
        chips = store.execute("SELECT DISTINCT chip FROM verdicts ORDER BY 1").fetchall()
        targets = store.execute(
            "SELECT target, count(*), count(DISTINCT candidate) FROM portability "
            "WHERE status = 'passed' GROUP BY 1 ORDER BY 1"
        ).fetchall()
    assert chips == [("interpreter",), ("second",)]
    assert targets == [("gfx942", 2, 2), ("sm_80", 2, 2)]


def test_resumed_it_has_nothing_left_to_do(home: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in (home / "run").rglob("*.json")}
    kernelmark(home, "run", "--resume", str(home / "run"))
    after = {path: path.stat().st_mtime_ns for path in (home / "run").rglob("*.json")}
    unchanged = {path for path in before if "verdicts" in path.parts or "portability" in path.parts}
    assert unchanged
    assert all(after[path] == before[path] for path in unchanged)
