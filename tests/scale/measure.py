"""Measures what a home of a million verdicts takes to ingest and to build, on this machine.

    python tests/scale/generate.py HOME --scale large --no-ingest
    python tests/scale/measure.py HOME

Prints seconds on the clock and of processor time (two processes share the validation), and how many
rows there are. Processor time over cores is what the clock shows on a machine that does nothing
else. Measured again on the same home, bundles are put back into the inbox and the lake is emptied.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

from kernelmark.submissions.board import build, open_board
from kernelmark.submissions.catalogue import current_catalogue
from kernelmark.submissions.home import Home
from kernelmark.submissions.ingest import ingest


def timed(name: str, what: Callable[[], object]) -> None:
    """Runs `what` and prints what it took."""
    before, start = os.times(), time.monotonic()
    what()
    seconds, after = time.monotonic() - start, os.times()
    cpu = sum(after[:4]) - sum(before[:4])
    sys.stdout.write(f"{name}: {seconds:.1f} s, {cpu:.1f} s of processor time\n")


def reset(home: Home) -> None:
    """Puts the home back to where nothing has been ingested."""
    if home.bundles.exists():
        for bundle in home.bundles.iterdir():
            bundle.rename(home.inbox / bundle.name)
    shutil.rmtree(home.lake, ignore_errors=True)
    shutil.rmtree(home.boards, ignore_errors=True)
    home.current.unlink(missing_ok=True)


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("home", type=Path)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    home = Home(options.home.absolute())
    reset(home)
    catalogue = current_catalogue()
    catalogue.members()
    timed("ingest", lambda: ingest(home, catalogue, processes=options.processes))
    timed("build", lambda: build(home))
    with open_board(home) as connection:
        for table in ("submissions", "verdicts", "timings", "comparisons", "usage"):
            row = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
            sys.stdout.write(f"{table}: {row[0] if row else 0}\n")
        row = connection.execute("SELECT sum(len(device_us)) FROM samples").fetchone()
        sys.stdout.write(f"samples: {row[0] if row else 0}\n")


if __name__ == "__main__":
    main()
