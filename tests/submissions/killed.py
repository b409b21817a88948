"""What is killed in `test_killed.py`: one kind of work on a home, begun when told to."""

from __future__ import annotations

import sys
from multiprocessing.connection import Connection
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from run_making import Entry, Result, demo_catalogue
from test_regrading import found

from kernelmark.benchmark.suites import DEMO
from kernelmark.evaluators.campaigns.folder import RunFolder
from kernelmark.evaluators.grading.records import Candidate, Verdict
from kernelmark.submissions.board import build
from kernelmark.submissions.bundle import Disclosure
from kernelmark.submissions.home import Home
from kernelmark.submissions.inbox import deliver
from kernelmark.submissions.ingest import ingest
from kernelmark.submissions.intake import Tools, work

RESULTS = {operator: (Result(speedups=(1.0, 2.0), tokens=20),) for operator in DEMO}
ENTRY = Entry(RESULTS, kind="model", model="m")


def grade(candidate: Candidate, tier: str) -> Verdict:
    """Agrees with everything."""
    return found(candidate)


def tools() -> Tools:
    """An intake whose claims are free after a fifth of a second."""
    return Tools(demo_catalogue(), "nvidia", grade, "tests", stale_s=0.2, heartbeat_s=0.05)


def do(what: str, home: Home, runs: list[Path]) -> None:
    """One kind of work, whole."""
    if what == "submit":
        for run in runs:
            deliver(home, RunFolder.open(run), Disclosure(submitter="tester"))
    elif what == "ingest":
        ingest(home, demo_catalogue(), processes=1, wait_s=30)
    elif what == "build":
        build(home, wait_s=30)
    else:
        work(home, tools())


def begin(what: str, root: str, runs: list[str], gate: Connection) -> None:
    """Says that it is ready, waits, works, and says that it is done."""
    home = Home(Path(root))
    gate.send("ready")
    gate.recv()
    do(what, home, [Path(run) for run in runs])
    gate.send("done")
