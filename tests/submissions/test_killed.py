"""SIGKILL at random moments: nothing lost, nothing doubled, never without a readable database."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path

import killed
import pytest
from killed import ENTRY, begin, do, tools
from run_making import make_run

from kernelmark.benchmark.suites import DEMO
from kernelmark.submissions.board import open_board
from kernelmark.submissions.home import Home
from kernelmark.submissions.inbox import waiting
from kernelmark.submissions.intake import work
from kernelmark.submissions.lake import parts

KINDS = ("submit", "ingest", "build", "intake")


class Reader(threading.Thread):
    """Opens the database again and again and counts; notes any fault."""

    def __init__(self, home: Home) -> None:
        super().__init__()
        self.home, self.done = home, threading.Event()
        self.counts: list[int] = []
        self.faults: list[BaseException] = []

    def run(self) -> None:
        try:
            while not self.done.is_set():
                with open_board(self.home) as connection:
                    row = connection.execute("SELECT count(*) FROM v_standing").fetchone()
                assert row is not None
                self.counts.append(row[0])
                time.sleep(0.1)
        except BaseException as fault:
            self.faults.append(fault)


def kill_one(what: str, home: Home, runs: list[Path], moment_s: float) -> bool:
    """Starts one kind of work and kills it at a moment; whether it was done before that."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([killed.__name__])
    ours, theirs = context.Pipe()
    names = [str(run) for run in runs]
    process = context.Process(target=begin, args=(what, str(home.root), names, theirs))
    process.start()
    theirs.close()  # so that a process that ends too early is noticed
    assert ours.recv() == "ready"
    ours.send("go")
    done = ours.poll(moment_s)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    return done


@pytest.fixture(autouse=True)
def preloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fork server imports what is killed once; of our paths it knows only the environment's."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))


def kill_many(root: Path, times: int) -> None:
    home, dice = Home(root / "home"), random.Random(7)
    runs: list[Path] = []

    def new_run() -> Path:
        number = len(runs)
        runs.append(root / f"run{number}")
        make_run(runs[-1], replace(ENTRY, method=f"m{number}"))
        return runs[-1]

    longest_s = {}
    for what in KINDS:  # how long each takes, undisturbed
        run = new_run() if what in ("submit", "intake") else runs[-1]
        if what == "intake":
            do("submit", home, [run])
        started = time.monotonic()
        do(what, home, [run])
        longest_s[what] = 1.1 * (time.monotonic() - started)
    reader = Reader(home)
    reader.start()
    finished = 0
    for number in range(times):
        what = KINDS[number % len(KINDS)]
        run = new_run()
        if what == "ingest":
            do("submit", home, [run])
        elif what == "build":
            do("submit", home, [run])
            do("ingest", home, [])
        elif what == "intake":
            do("submit", home, [run])
        finished += kill_one(what, home, [run], dice.uniform(0.0, longest_s[what]))
        do("submit", home, [run])  # whoever was killed tries again; most of it is there already
    time.sleep(0.3)  # claims of the dead run out
    work(home, tools())
    reader.done.set()
    reader.join()
    assert reader.faults == []
    assert reader.counts
    assert finished < times
    check_whole(home, len(runs))


def check_whole(home: Home, submissions: int) -> None:
    each = submissions * len(DEMO)
    expected = {
        "submissions": submissions,
        "trust": 2 * submissions,
        "regrades": submissions,
        "run_operators": each,
        "attempts": each,
        "candidates": each,
        "verdicts": each,
        "usage": each,
        "agreements": each,
        "regrade_verdicts": each,
        "timings": 2 * each,
        "samples": 4 * each,
        "regrade_timings": 2 * each,
    }
    with open_board(home) as connection:
        for table, rows in expected.items():
            assert connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (rows,), table
        ids = connection.execute("SELECT count(DISTINCT submission) FROM verdicts").fetchone()
        assert ids == (submissions,)
        levels = connection.execute("SELECT DISTINCT trust FROM v_trust").fetchall()
        assert levels == [("regraded",)]
    held = [event for part in parts(home) for event in part.events]
    assert len(held) == len(set(held))
    assert waiting(home) == []
    assert not home.rejected.exists()
    assert len(list(home.bundles.iterdir())) == submissions
    assert not list(home.lake.glob(".*"))
    assert not list(home.boards.glob(".*"))
    assert not list(home.regrades.iterdir())
    assert not list(home.claims.glob("[!.]*"))


def test_killed_at_eight_moments(tmp_path: Path) -> None:
    kill_many(tmp_path, 8)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_killed_at_fifty_moments(tmp_path: Path) -> None:
    kill_many(tmp_path, 50)
