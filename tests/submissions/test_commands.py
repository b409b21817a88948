"""The commands about submissions, in this process and with a real judge."""

from __future__ import annotations

import csv
import io
import json
import os
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from run_making import Entry, Result, demo_catalogue, make_run, submit_run

from kernelmark.benchmark.cli import main
from kernelmark.benchmark.suites import DEMO
from kernelmark.submissions.board import build
from kernelmark.submissions.home import Home
from kernelmark.submissions.ingest import ingest
from kernelmark.submissions.listing import COLUMNS

RESULTS = {operator: (Result(speedups=(1.0, 2.0)),) for operator in DEMO}


class Command:
    """Runs a command on a home: status, output and errors."""

    def __init__(
        self, home: Home, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.home, self.capfd, self.monkeypatch = home, capfd, monkeypatch
        monkeypatch.setenv("KERNELMARK_HOME", str(home.root))

    def __call__(self, *arguments: object) -> tuple[int, str, str]:
        self.monkeypatch.setattr(sys, "argv", ["kernelmark", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        output, errors = self.capfd.readouterr()
        return int(ended.value.code or 0), output, errors

    def json(self, *arguments: object) -> Any:
        status, output, errors = self(*arguments, "--json")
        assert status == 0, errors
        return json.loads(output)


@pytest.fixture
def run(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Command:
    return Command(Home(tmp_path / "home"), capfd, monkeypatch)


@pytest.fixture
def board(run: Command, tmp_path: Path) -> Command:
    """Two submissions on the board, one that waits, one that was refused."""
    home = run.home
    submit_run(home, tmp_path / "one", Entry(RESULTS, method="=1+1", model="x"))
    submit_run(home, tmp_path / "two", Entry(RESULTS, method="second", chip="amd"))
    bad = submit_run(home, tmp_path / "bad", Entry(RESULTS, method="bad"))
    (home.inbox / bad / "run.json").write_text("{}")
    ingest(home, demo_catalogue(), processes=1)
    build(home)
    submit_run(home, tmp_path / "late", Entry(RESULTS, method="late"))
    (home.inbox / "broken").mkdir()
    (home.inbox / "broken" / "submission.json").write_text("[" * 100_000)
    return run


def test_lists_wherever_they_stand(board: Command) -> None:
    rows = board.json("submissions")
    assert sorted(row["state"] for row in rows) == [
        *("accepted", "accepted", "refused", "waiting", "waiting"),
    ]
    assert all(list(row) == list(COLUMNS) for row in rows)
    refused = next(row for row in rows if row["state"] == "refused")
    assert "sha256" in refused["problems"]


def test_filters_narrow(board: Command) -> None:
    assert [r["method"] for r in board.json("submissions", "--chip", "amd")] == ["second"]
    rows = board.json("submissions", "--trust", "self_reported")
    assert {row["method"] for row in rows} == {"=1+1", "second"}
    assert board.json("submissions", "--chip", "amd", "--state", "refused") == []
    assert board("submissions", "--chip", "amd")[0] == 0


def test_exports_hold_the_same_rows(board: Command, tmp_path: Path) -> None:
    rows = board.json("submissions")
    _, text, _ = board("submissions", "--csv")
    read = list(csv.DictReader(io.StringIO(text)))
    assert [row["submission"] for row in read] == [row["submission"] for row in rows]
    assert "'=1+1" in [row["method"] for row in read]  # no formula
    path = tmp_path / "out.parquet"
    assert board("submissions", "--parquet", path)[0] == 0
    assert pq.read_table(path).to_pylist() == rows
    status, _, errors = board("submissions", "--parquet", tmp_path / "none" / "out.parquet")
    assert (status, errors.count("\n")) == (2, 1)


def test_withdrawn_stays_with_its_reason(board: Command) -> None:
    id = board.json("submissions", "--method", "second")[0]["submission"]
    assert board("submissions", "withdraw", id[:12], "--reason", "a leak", "--by", "ann")[0] == 0
    (row,) = board.json("submissions", "--trust", "withdrawn")
    assert (row["submission"], row["trust_reason"]) == (id, "a leak")
    told = board.json("submissions", "show", id[:12])
    assert [d["trust"] for d in told["trust"]] == ["self_reported", "withdrawn"]
    assert told["trust"][1]["decided_by"] == "ann"
    assert board("submissions", "show", id)[0] == 0
    status, _, errors = board("submissions", "trust", id, "perfect", "--reason", "x")
    assert status == 2
    assert "no level of trust" in errors
    status, _, errors = board("submissions", "withdraw", "ffffffff", "--reason", "x")
    assert status == 2
    assert "no submission ffffffff" in errors


def test_submit_says_what_it_blanked_out(run: Command, tmp_path: Path) -> None:
    make_run(tmp_path / "run", Entry(RESULTS))
    run.monkeypatch.setenv("SOME_API_KEY", "zebra-crossing-42")
    status, output, errors = run("submit", tmp_path / "run", "--notes", "by zebra-crossing-42")
    assert status == 0, errors
    assert "blanked out in submission.json: value of an environment variable" in errors
    assert os.environ["SOME_API_KEY"] not in output + errors
    (bundle,) = run.home.inbox.iterdir()
    assert bundle.name == output.split()[0]
    assert "[redacted]" in (bundle / "submission.json").read_text()
    again = run("submit", tmp_path / "run", "--notes", "by zebra-crossing-42")
    assert "delivered before" in again[1]


def test_submit_does_not_deliver_what_would_be_refused(run: Command, tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", Entry(RESULTS))
    verdict = next((folder.root / "verdicts").iterdir())
    data = json.loads(verdict.read_text())
    data["timings"][0]["speedup"] = 50.0
    verdict.write_text(json.dumps(data))
    status, _, errors = run("submit", folder.root)
    assert status == 2
    assert "speedup is not that of its times" in errors
    assert not list(run.home.inbox.iterdir())


def test_schemas_can_be_had(run: Command, tmp_path: Path) -> None:
    status, output, _ = run("submissions", "schema")
    assert status == 0
    assert "verdicts.jsonl" in json.loads(output)
    assert run("submissions", "schema", "--out", tmp_path / "s")[0] == 0
    assert len(list((tmp_path / "s").iterdir())) == 7


@pytest.mark.slow
def test_a_real_run_is_graded_again_by_command_and_by_intake(run: Command, tmp_path: Path) -> None:
    for name in ("one", "two"):
        out = tmp_path / name
        asked = ("--method", "reference", "--suite", "aten::add", "--chip", "interpreter")
        assert run("run", *asked, "--out", out)[0] == 0
    assert run("submit", tmp_path / "one")[0] == 0
    assert run("ingest")[0] == 0
    (row,) = run.json("submissions")
    told = run.json("regrade", row["submission"][:12])
    assert told["conclusion"]["outcome"] == "agrees"
    assert told["trust"] == "regraded"
    assert run("submit", tmp_path / "two")[0] == 0
    status, _, errors = run("intake", "--chip", "interpreter")
    assert status == 0
    assert "agrees: regraded" in errors
    rows = run.json("submissions", "--trust", "regraded")
    assert [row["regrade_outcome"] for row in rows] == ["agrees", "agrees"]
    status, _, errors = run("intake", "--chip", "interpreter")
    assert (status, errors) == (0, "")
