"""Samples of sealed runs, graded again elsewhere: exported, read back, held against the claim."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from run_making import TIME, Entry, Result, demo_catalogue, make_run
from test_regrading import ENTRY, RESULTS, found

from kernelmark.benchmark.cli import main
from kernelmark.benchmark.errors import UserError
from kernelmark.benchmark.suites import DEMO
from kernelmark.evaluators.campaigns.files import read_json, write_json
from kernelmark.evaluators.grading.__main__ import read_job
from kernelmark.evaluators.grading.records import Verdict, to_json
from kernelmark.submissions.archive import pack
from kernelmark.submissions.board import build
from kernelmark.submissions.bundle import Disclosure, seal
from kernelmark.submissions.home import Home
from kernelmark.submissions.inbox import deliver
from kernelmark.submissions.ingest import ingest
from kernelmark.submissions.regrading import plan, recorded
from kernelmark.submissions.repeats import (
    Claim,
    export_sample,
    find_bundle,
    read_claim,
    repeat,
    results,
)
from kernelmark.submissions.shipped import deliver_shipped


def claim_of(tmp_path: Path, entry: Entry = ENTRY, name: str = "run") -> Claim:
    seal(make_run(tmp_path / name, entry), Disclosure(), tmp_path / f"{name}-bundle", TIME)
    return read_claim(tmp_path / f"{name}-bundle")


def write_results(root: Path, verdicts: Iterable[Verdict]) -> Path:
    for verdict in verdicts:
        write_json(root / "verdicts" / f"{verdict.candidate}.json", to_json(verdict))
    return root


def test_a_sample_is_the_same_each_time_and_of_what_passed(tmp_path: Path) -> None:
    failed = {**RESULTS, DEMO[0]: (Result("wrong_values"),), DEMO[1]: (Result("no_candidate"),)}
    claim = claim_of(tmp_path, replace(ENTRY, results=failed))
    jobs = []
    for name in ("a", "b"):
        assert export_sample([claim], tmp_path / name, 3, pytest.fail) == 3
        jobs.append(read_job(tmp_path / name))
    assert jobs[0].candidates == jobs[1].candidates
    assert (jobs[0].chip, jobs[0].settings.tier) == ("nvidia", "full")
    assert {c.operator for c in jobs[0].candidates} < set(DEMO[2:])
    assert export_sample([claim], tmp_path / "all", None, pytest.fail) == len(DEMO) - 2
    with pytest.raises(UserError, match="not empty"):
        export_sample([claim], tmp_path / "all", None, pytest.fail)


def test_only_the_attempt_that_counts_is_graded_again(tmp_path: Path) -> None:
    twice = {**RESULTS, DEMO[0]: (Result(speedups=(3.0,)), Result(speedups=(1.0,)))}
    last = claim_of(tmp_path, replace(ENTRY, results=twice), "last")
    best = claim_of(tmp_path, replace(ENTRY, results=twice, selection="best"), "best")
    assert len(last.verdicts) == len(DEMO)
    assert len(best.verdicts) == len(DEMO) + 1


def test_several_submissions_make_one_job_of_one_chip(tmp_path: Path) -> None:
    one = claim_of(tmp_path, ENTRY, "one")
    two = claim_of(tmp_path, replace(ENTRY, method="other"), "two")
    assert export_sample([one, two], tmp_path / "job", 2, pytest.fail) == 4
    amd = claim_of(tmp_path, replace(ENTRY, chip="amd"), "amd")
    with pytest.raises(UserError, match="one chip"):
        export_sample([one, amd], tmp_path / "other", 2, pytest.fail)


def test_what_is_defined_otherwise_by_now_is_left_out_and_told(tmp_path: Path) -> None:
    claim = claim_of(tmp_path)
    (key, *_) = claim.verdicts
    changed = replace(claim, unfit={key: "defined differently"})
    told: list[str] = []
    assert export_sample([changed], tmp_path / "job", None, told.append) == len(DEMO) - 1
    assert told == ["folder m: 1 left out, which this version defines otherwise"]
    again = repeat(changed, {key: found(claim.candidates[key])})
    assert again is not None
    assert (again.agreements[0].agrees, again.agreeing) == (None, 0)


def test_shares_lie_within_the_stated_intervals(tmp_path: Path) -> None:
    claim = claim_of(tmp_path)

    def widened(verdict: Verdict, value: float, low: float, high: float) -> Verdict:
        timings = tuple(
            replace(t, speedup=value, speedup_low=low, speedup_high=high) for t in verdict.timings
        )
        return replace(verdict, timings=timings)

    keys = sorted(claim.verdicts)
    stated = {key: widened(claim.verdicts[key], 2.0, 1.9, 2.1) for key in keys}
    claim = replace(claim, verdicts=stated)
    values = [(2.05, 2.0, 2.2), (2.15, 2.09, 2.2), (2.3, 2.2, 2.4), (1.5, 1.45, 1.55)]
    again = {
        key: widened(found(claim.candidates[key]), *value)
        for key, value in zip(keys, values, strict=False)
    }
    again = {
        key: replace(verdict, timings=_as_cases(verdict, stated[key]))
        for key, verdict in again.items()
    }
    again[keys[4]] = found(claim.candidates[keys[4]], status="wrong_values")
    row = repeat(claim, again)
    assert row is not None
    assert (len(row.agreements), row.same_status, row.agreeing) == (5, 4, 3)
    assert (row.timed, row.within, row.meeting, row.close) == (4, 1, 2, 1)
    assert (row.cases, row.cases_within, row.cases_meeting) == (8, 2, 4)
    assert repeat(claim, {}) is None


def _as_cases(verdict: Verdict, like: Verdict):  # type: ignore[no-untyped-def]
    pairs = zip(verdict.timings, like.timings, strict=True)
    return tuple(replace(mine, case=theirs.case) for mine, theirs in pairs)


def test_our_failures_give_way_to_what_is_known(tmp_path: Path) -> None:
    claim = claim_of(tmp_path)
    key = sorted(claim.verdicts)[0]
    good = found(claim.candidates[key])
    bad = replace(good, status="infrastructure_error", timings=())
    first = write_results(tmp_path / "first", [good])
    second = write_results(tmp_path / "second", [bad])
    assert results([first, second])[key].status == "passed"
    assert results([second, first])[key].status == "passed"
    assert results([second])[key].status == "infrastructure_error"
    with pytest.raises(UserError, match="holds no verdicts"):
        results([tmp_path])


def test_a_bundle_is_found_by_its_id(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    submission, _ = deliver(home, make_run(tmp_path / "run", ENTRY), Disclosure())
    ingest(home, demo_catalogue(), processes=1)
    assert find_bundle(home, submission.id[:12]) == home.bundles / submission.id
    with pytest.raises(UserError, match="no bundle"):
        find_bundle(home, "ffffffff0000")
    pack(home.bundles / submission.id, tmp_path / "b.zip")
    assert read_claim(find_bundle(home, str(tmp_path / "b.zip"))).submission.id == submission.id


def test_verdicts_of_another_machine_make_a_regrade(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    submission, _ = deliver(home, make_run(tmp_path / "run", ENTRY), Disclosure())
    ingest(home, demo_catalogue(), processes=1)
    build(home)
    planned = plan(home, submission.id, "", "tests")
    verdicts = {(c.candidate.operator, c.candidate.id): found(c.candidate) for c in planned.claimed}
    grade = recorded(verdicts, planned)
    assert grade(planned.claimed[0].candidate, "full").status == "passed"
    key, *_ = verdicts
    elsewhere = replace(verdicts[key], chip="amd")
    with pytest.raises(UserError, match="graded on amd"):
        recorded({**verdicts, key: elsewhere}, planned)
    del verdicts[key]
    with pytest.raises(UserError, match=f"1 of {len(DEMO)} candidates have no verdict"):
        recorded(verdicts, planned)


def command(monkeypatch: pytest.MonkeyPatch, *words: object) -> int:
    monkeypatch.setattr(sys, "argv", ["kernelmark", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


@pytest.mark.slow
def test_the_whole_way_with_a_real_judge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A run on the interpreter, sealed, a sample of it graded by the command of another machine."""
    home = tmp_path / "home"
    monkeypatch.setenv("KERNELMARK_HOME", str(home))
    run, job, out = tmp_path / "run", tmp_path / "job", tmp_path / "out"
    chosen = "aten::add,cublas::cublasSaxpy_v2"
    request = ["--method", "reference", "--suite", "demo", "--operators", chosen]
    assert command(monkeypatch, "run", *request, "--chip", "interpreter", "--out", run) == 0
    assert command(monkeypatch, "submit", run, "--partial") == 0
    assert command(monkeypatch, "ingest") == 0
    (submission,) = [path.name for path in (home / "bundles").iterdir()]
    export = ["jobs", "export", job, "--submission", submission[:12]]
    assert command(monkeypatch, *export, "--sample", 1) == 0
    assert command(monkeypatch, *export[:2], tmp_path / "whole", *export[3:]) == 0
    capfd.readouterr()
    grading = [sys.executable, "-m", "kernelmark.evaluators.grading"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / ".typing")}
    for folder, target in ((job, out), (tmp_path / "whole", tmp_path / "out-whole")):
        subprocess.run([*grading, folder, target], check=True, env=environment, capture_output=True)
    compare = ["jobs", "compare", out, "--submission", submission[:12]]
    assert command(monkeypatch, *compare, "--json") == 0
    (row,) = json.loads(capfd.readouterr().out)
    assert row["name"] == "reference"
    assert [a["agrees"] for a in row["agreements"]] == [True]
    assert row["timed"] == 0  # the interpreter's times mean nothing, so there are none
    assert command(monkeypatch, *compare) == 0
    assert "1 (100%)" in capfd.readouterr().out
    assert command(monkeypatch, "regrade", submission, "--results", out) == 2
    assert "have no verdict" in capfd.readouterr().err
    whole = ["--results", tmp_path / "out-whole", "--as", "another machine"]
    assert command(monkeypatch, "regrade", submission, *whole) == 0
    assert "agrees: 2 of 2 candidates as claimed" in capfd.readouterr().out


def test_a_bundle_is_packed_as_those_that_ship(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    home = Home(tmp_path / "home")
    monkeypatch.setenv("KERNELMARK_HOME", str(home.root))
    submission, _ = deliver(home, make_run(tmp_path / "run", ENTRY), Disclosure())
    ingest(home, demo_catalogue(), processes=1)
    shipped = tmp_path / "shipped"
    assert command(monkeypatch, "submissions", "pack", submission.id[:12], shipped) == 0
    (path,) = shipped.iterdir()
    assert path.name == f"{submission.id}.zip"
    other = Home(tmp_path / "other")
    assert deliver_shipped(other, shipped) == 1
    assert [result.accepted for result in ingest(other, demo_catalogue(), processes=1)] == [True]
    assert command(monkeypatch, "submissions", "pack", path, shipped) == 2
    assert "is packed already" in capfd.readouterr().err


def test_verdicts_of_nothing_that_was_stated_are_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    claim = claim_of(tmp_path)
    key = sorted(claim.verdicts)[0]
    out = write_results(tmp_path / "out", [found(claim.candidates[key])])
    assert command(monkeypatch, "jobs", "compare", out) == 2
    assert "none of these verdicts" in capfd.readouterr().err
    assert read_json(next((out / "verdicts").iterdir()))["status"] == "passed"
