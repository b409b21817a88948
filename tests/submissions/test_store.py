"""Ingest and build: each submission once, whatever happens, and never without a database."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from run_making import Entry, Result, submit_run

from kernelmark.benchmark.errors import InfrastructureError, UserError
from kernelmark.benchmark.suites import DEMO
from kernelmark.evaluators.campaigns.folder import RunFolder
from kernelmark.submissions.board import build, open_board
from kernelmark.submissions.bundle import Disclosure
from kernelmark.submissions.catalogue import current_catalogue
from kernelmark.submissions.home import Home
from kernelmark.submissions.inbox import deliver, waiting
from kernelmark.submissions.ingest import ingest
from kernelmark.submissions.lake import exclusive
from kernelmark.submissions.listing import list_submissions
from kernelmark.submissions.tables import SCHEMAS, to_table

RESULTS = {operator: (Result(speedups=(1.0, 2.0), tokens=20),) for operator in DEMO}
ENTRY = Entry(RESULTS, kind="model", model="m")

_WORK = """
import sys
from pathlib import Path
from kernelmark.submissions.board import build
from kernelmark.submissions.catalogue import current_catalogue
from kernelmark.submissions.home import Home
from kernelmark.submissions.ingest import ingest
home, catalogue = Home(Path(sys.argv[1])), current_catalogue()
print("ready", flush=True)
sys.stdin.readline()
ingest(home, catalogue)
build(home)
"""


def count(home: Home, table: str) -> int:
    with open_board(home) as connection:
        row = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
    assert row is not None
    return int(row[0])


def test_rows_of_every_table(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    submit_run(home, tmp_path / "run", ENTRY)
    (result,) = ingest(home, current_catalogue())
    assert result.accepted
    build(home)
    expected = {
        "submissions": 1,
        "run_operators": len(DEMO),
        "attempts": len(DEMO),
        "candidates": len(DEMO),
        "verdicts": len(DEMO),
        "comparisons": len(DEMO),
        "timings": 2 * len(DEMO),
        "samples": 4 * len(DEMO),
        "portability": len(DEMO),
        "usage": len(DEMO),
        "trust": 1,
    }
    assert {table: count(home, table) for table in expected} == expected
    with open_board(home) as connection:
        row = connection.execute(
            "SELECT device_p05_us, device_p50_us, device_p95_us, roofline FROM timings LIMIT 1"
        ).fetchone()
    assert row == pytest.approx((5.0, 50.0, 95.0, 0.5))


def test_nothing_is_ingested_twice(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    id = submit_run(home, tmp_path / "run", ENTRY)
    ingest(home, current_catalogue())
    assert waiting(home) == []
    folder = RunFolder.open(tmp_path / "run")
    assert deliver(home, folder, Disclosure(submitter="tester"))[1] is False
    # Delivered again behind our back: the part is there, so the bundle is only moved.
    (home.bundles / id).rename(home.inbox / id)
    assert [r.accepted for r in ingest(home, current_catalogue())] == [True]
    build(home)
    assert count(home, "submissions") == 1


def test_a_bad_bundle_is_set_aside_and_the_rest_goes_in(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    bad = submit_run(home, tmp_path / "bad", ENTRY)
    submit_run(home, tmp_path / "good", Entry(RESULTS, method="other"))
    (home.inbox / bad / "verdicts.jsonl").write_text("{}")
    (home.inbox / "stray").mkdir()
    results = {result.name: result for result in ingest(home, current_catalogue())}
    assert [results[n].accepted for n in sorted(results)] == [
        n not in (bad, "stray") for n in sorted(results)
    ]
    assert "sha256" in results[bad].problems[0].what
    problems = json.loads((home.rejected / f"{bad}.problems.json").read_text())
    assert problems[0]["where"] == "verdicts.jsonl"
    build(home)
    states = sorted(row["state"] for row in list_submissions(home))
    assert states == ["accepted", "refused", "refused"]


def test_an_empty_home_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="kernelmark submit"):
        open_board(Home(tmp_path))


def test_one_ingest_at_a_time(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    with exclusive(home), pytest.raises(InfrastructureError, match="another ingest"):
        ingest(home, current_catalogue())


def test_a_board_is_built_once_for_the_same_parts(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    submit_run(home, tmp_path / "run", ENTRY)
    ingest(home, current_catalogue())
    first = build(home)
    stamp = first.stat().st_mtime_ns
    assert build(home) == first
    assert first.stat().st_mtime_ns == stamp
    submit_run(home, tmp_path / "run2", Entry(RESULTS, method="b"))
    ingest(home, current_catalogue())
    assert build(home) != first


def test_the_schema_is_enforced_when_written() -> None:
    row = dict.fromkeys(SCHEMAS["trust"].names, "x")
    assert to_table("trust", [row]).num_rows == 1
    with pytest.raises(ValueError, match="columns"):
        to_table("trust", [{**row, "more": 1}])
    with pytest.raises(Exception, match="Expected bytes"):
        to_table("trust", [{**row, "trust": 1}])


def test_killed_at_random_moments_nothing_is_lost_or_doubled(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    dice = random.Random(7)
    submitted = 0
    for round_ in range(4):
        for i in range(2):
            entry = Entry(RESULTS, method=f"m{round_}{i}", kind="model")
            submit_run(home, tmp_path / f"run{round_}{i}", entry)
            submitted += 1
        worker = subprocess.Popen(
            [sys.executable, "-c", _WORK, str(home.root)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert worker.stdin is not None
        assert worker.stdout is not None
        worker.stdout.readline()
        worker.stdin.write("go\n")
        worker.stdin.flush()
        time.sleep(dice.uniform(0.0, 0.5))
        os.kill(worker.pid, signal.SIGKILL)
        worker.communicate()
        if home.current.exists():
            count(home, "v_rank")
    ingest(home, current_catalogue())
    build(home)
    assert count(home, "submissions") == submitted
    assert count(home, "verdicts") == submitted * len(DEMO)
    assert count(home, "timings") == 2 * submitted * len(DEMO)
    assert not list(home.lake.glob(".*"))
    assert not list(home.boards.glob(".*"))


def test_a_reader_never_finds_the_database_gone(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    submit_run(home, tmp_path / "run0", ENTRY)
    ingest(home, current_catalogue())
    build(home)
    done = threading.Event()
    seen: list[int] = []
    faults: list[BaseException] = []

    def read() -> None:
        try:
            with open_board(home) as held:
                while not done.is_set():
                    seen.append(count(home, "v_standing WHERE suite = 'demo'"))
                    assert held.execute("SELECT count(*) FROM submissions").fetchone() == (1,)
        except BaseException as fault:
            faults.append(fault)

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(1, 6):
        submit_run(home, tmp_path / f"run{number}", Entry(RESULTS, method=f"m{number}"))
        ingest(home, current_catalogue())
        build(home)
    done.set()
    reader.join()
    assert faults == []
    assert seen == sorted(seen)
    assert seen[-1] >= 5
