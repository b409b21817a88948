"""Ingest and build: each submission once, whatever happens, and never without a database."""

from __future__ import annotations

import json
import multiprocessing
import threading
import time
from pathlib import Path

import pytest
from run_making import Entry, Result, demo_catalogue, submit_run

from kernelmark.benchmark.errors import InfrastructureError, UserError
from kernelmark.benchmark.suites import DEMO
from kernelmark.evaluators.campaigns.folder import RunFolder
from kernelmark.submissions.board import build, open_board
from kernelmark.submissions.bundle import Disclosure
from kernelmark.submissions.home import Home
from kernelmark.submissions.inbox import deliver, waiting
from kernelmark.submissions.ingest import ingest
from kernelmark.submissions.lake import exclusive, parts
from kernelmark.submissions.listing import list_submissions
from kernelmark.submissions.tables import SCHEMAS, to_table

RESULTS = {operator: (Result(speedups=(1.0, 2.0), tokens=20),) for operator in DEMO}
ENTRY = Entry(RESULTS, kind="model", model="m")


def count(home: Home, table: str) -> int:
    with open_board(home) as connection:
        row = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
    assert row is not None
    return int(row[0])


def test_rows_of_every_table(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    submit_run(home, tmp_path / "run", ENTRY)
    (result,) = ingest(home, demo_catalogue())
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
    ingest(home, demo_catalogue())
    assert waiting(home) == []
    folder = RunFolder.open(tmp_path / "run")
    assert deliver(home, folder, Disclosure(submitter="tester"))[1] is False
    # Delivered again behind our back: the part is there, so the bundle is only moved.
    (home.bundles / id).rename(home.inbox / id)
    assert [r.accepted for r in ingest(home, demo_catalogue())] == [True]
    build(home)
    assert count(home, "submissions") == 1


def test_a_bad_bundle_is_set_aside_and_the_rest_goes_in(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    bad = submit_run(home, tmp_path / "bad", ENTRY)
    submit_run(home, tmp_path / "good", Entry(RESULTS, method="other"))
    (home.inbox / bad / "verdicts.jsonl").write_text("{}")
    (home.inbox / "stray").mkdir()
    results = {result.name: result for result in ingest(home, demo_catalogue())}
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
        ingest(home, demo_catalogue())


def test_a_board_is_built_once_for_the_same_parts(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    submit_run(home, tmp_path / "run", ENTRY)
    ingest(home, demo_catalogue())
    first = build(home)
    stamp = first.stat().st_mtime_ns
    assert build(home) == first
    assert first.stat().st_mtime_ns == stamp
    submit_run(home, tmp_path / "run2", Entry(RESULTS, method="b"))
    ingest(home, demo_catalogue())
    assert build(home) != first


def test_the_schema_is_enforced_when_written() -> None:
    row = dict.fromkeys(SCHEMAS["trust"].names, "x")
    assert to_table("trust", [row]).num_rows == 1
    with pytest.raises(ValueError, match="columns"):
        to_table("trust", [{**row, "more": 1}])
    with pytest.raises(Exception, match="Expected bytes"):
        to_table("trust", [{**row, "trust": 1}])


def test_a_reader_never_finds_the_database_gone(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    submit_run(home, tmp_path / "run0", ENTRY)
    ingest(home, demo_catalogue())
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
        ingest(home, demo_catalogue())
        build(home)
    done.set()
    reader.join()
    assert faults == []
    assert seen == sorted(seen)
    assert seen[-1] >= 5


def _deliver_three(root: str, home: str, writer: int) -> None:
    for number in range(3):
        submit_run(
            Home(Path(home)),
            Path(root) / f"run{writer}{number}",
            Entry(RESULTS, method=f"m{writer}"),
        )


def test_eight_writers_and_a_reader_do_not_wait_for_an_ingest(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    submit_run(home, tmp_path / "first", ENTRY)
    ingest(home, demo_catalogue(), processes=1)
    build(home)
    context = multiprocessing.get_context("spawn")
    writers = [
        context.Process(target=_deliver_three, args=(str(tmp_path), str(home.root), writer))
        for writer in range(8)
    ]
    with exclusive(home):  # an ingest that takes as long as all of them together
        for writer in writers:
            writer.start()
        while any(writer.is_alive() for writer in writers):
            assert count(home, "submissions") == 1
            time.sleep(0.05)
        assert [writer.exitcode for writer in writers] == [0] * 8
        with pytest.raises(InfrastructureError):
            ingest(home, demo_catalogue(), processes=1)
    assert len(waiting(home)) == 24
    assert sum(r.accepted for r in ingest(home, demo_catalogue(), processes=2)) == 24
    build(home)
    assert count(home, "submissions") == 25
    assert count(home, "verdicts") == 25 * len(DEMO)


def test_batches_by_several_processes_hold_each_bundle_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(tmp_path / "home")
    for number in range(6):
        submit_run(home, tmp_path / f"run{number}", Entry(RESULTS, method=f"m{number}"))
    monkeypatch.setattr("kernelmark.submissions.ingest._BATCH_BYTES", 60_000)
    bad = waiting(home)[2]
    (bad / "verdicts.jsonl").write_text("{}")
    results = ingest(home, demo_catalogue(), processes=2)
    assert sorted(r.name for r in results if not r.accepted) == [bad.name]
    held = [part for part in parts(home) if part.kind == "submissions"]
    assert len(held) > 1
    assert sum(len(part.events) for part in held) == 5
    build(home)
    assert count(home, "verdicts") == 5 * len(DEMO)


def test_one_machine_killed_between_lake_and_inbox(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    id = submit_run(home, tmp_path / "run", ENTRY)
    ingest(home, demo_catalogue(), processes=1)
    (home.bundles / id).rename(home.inbox / id)  # as if it had not been moved out yet
    (home.lake / ".half").mkdir()
    assert [r.accepted for r in ingest(home, demo_catalogue(), processes=1)] == [True]
    build(home)
    assert count(home, "submissions") == 1
    assert not list(home.lake.glob(".*"))
