"""All accelerators of a machine are used, each by one grade at a time, whatever goes wrong."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import simulated_chip
from simulated_chip import CHIP, SLEEP, VARIABLE

from kernelmark.evaluators.chips.registry import all_chips
from kernelmark.evaluators.grading import devices
from kernelmark.evaluators.grading.__main__ import Job, main, run
from kernelmark.evaluators.grading.pinned import NoDevices, Pool, _shares
from kernelmark.evaluators.grading.records import Candidate, Verdict, from_json
from kernelmark.evaluators.grading.settings import Settings


@pytest.fixture(autouse=True)
def machine(tmp_path, monkeypatch):
    """A machine of its own for every test: accelerators that no other test has."""
    for path in simulated_chip.install(tmp_path / "site").split(":"):
        monkeypatch.syspath_prepend(path)
    monkeypatch.setenv(VARIABLE, ",".join(f"{tmp_path.name}-{n}" for n in range(8)))
    all_chips.cache_clear()
    yield
    devices.release_all()
    all_chips.cache_clear()


def candidates(count: int, *orders: str) -> tuple[Candidate, ...]:
    source = "".join(f"# {order}\n" for order in orders)
    return tuple(Candidate("aten::neg", f"{source}# number {n}\n") for n in range(count))


def graded(tmp_path: Path, job: Job, numbers: str, capfd) -> dict:
    """Runs the job; the summary of its last line."""
    assert run(job, tmp_path / f"out-{numbers}", numbers, SLEEP) == 0
    return json.loads(capfd.readouterr().out.splitlines()[-1])


def job_of(found: tuple[Candidate, ...]) -> Job:
    return Job("simulated", Settings(), found)


def log_of(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def assert_never_shared(log: list[dict]) -> None:
    for device in {entry["device"] for entry in log}:
        spans = sorted((e["begin"], e["end"]) for e in log if e["device"] == device)
        for (_, end), (begin, _) in itertools.pairwise(spans):
            assert end <= begin, device


def test_throughput_grows_with_accelerators(tmp_path, capfd):
    log = tmp_path / "log"
    rates = {}
    for numbers, count in (("0", 8), ("0,1", 24), ("0,1,2,3,4,5,6,7", 128)):
        job = job_of(candidates(count, "sleep 0.4", f"log {log}"))
        summary = graded(tmp_path, job, numbers, capfd)
        assert summary["grades"] == count
        assert len(summary["devices"]) == len(numbers.split(","))
        rates[len(summary["devices"])] = summary["grades_per_hour"]
    assert rates[2] >= 1.8 * rates[1], rates
    assert rates[8] >= 7 * rates[1], rates
    assert_never_shared(log_of(log))


def test_all_are_used_unless_some_are_named(tmp_path, capfd):
    summary = graded(tmp_path, job_of(candidates(16, "sleep 0.5")), "all", capfd)
    assert [row["device"] for row in summary["devices"]] == list(range(8))
    assert len({row["accelerator"] for row in summary["devices"]}) == 8
    summary = graded(tmp_path, job_of(candidates(4, "sleep 0.5")), "5,2", capfd)
    assert [row["device"] for row in summary["devices"]] == [2, 5]


@pytest.mark.parametrize(
    ("wanted", "words"), [("8", "no number 8"), ("one", "write all"), ("-1", "no number -1")]
)
def test_accelerators_that_are_not_there_are_refused(wanted, words):
    with pytest.raises(devices.DeviceError, match=words):
        devices.accelerators(CHIP, wanted)


def test_what_has_a_verdict_is_not_graded_again(tmp_path, capfd):
    log, found = tmp_path / "log", candidates(6, f"log {tmp_path}/log")
    graded(tmp_path, job_of(found[:4]), "0,1", capfd)
    summary = graded(tmp_path, job_of(found), "0,1", capfd)
    assert (summary["grades"], len(log_of(log))) == (2, 6)


def test_a_worker_that_is_killed_costs_one_grade_again(tmp_path, capfd):
    found = candidates(6, "sleep 0.1", f"die {tmp_path}/died", f"log {tmp_path}/log")
    summary = graded(tmp_path, job_of(found), "0,1", capfd)
    assert (summary["grades"], summary["infrastructure_errors"]) == (6, 0)
    assert len(log_of(tmp_path / "log")) == 6
    statuses = Counter(
        from_json(Verdict, json.loads(path.read_text())).status
        for path in (tmp_path / "out-0,1/verdicts").iterdir()
    )
    assert statuses == {"passed": 6}


def test_what_fails_every_time_is_an_infrastructure_error_and_is_done_again(tmp_path, capfd):
    bad = candidates(1, "die /nowhere/at/all")  # the note cannot be written: an exception
    failing = candidates(1, "status infrastructure_error", f"log {tmp_path}/log")
    job = job_of((*failing, *bad, *candidates(2)))
    assert run(job, tmp_path / "out", "0,1", SLEEP) == 3
    summary = json.loads(capfd.readouterr().out.splitlines()[-1])
    assert (summary["grades"], summary["infrastructure_errors"]) == (4, 2)
    assert len(log_of(tmp_path / "log")) == 2  # two tries
    run(job, tmp_path / "out", "0,1", SLEEP)
    assert len(log_of(tmp_path / "log")) == 4


def test_a_sick_accelerator_is_left_out(tmp_path, monkeypatch, capfd):
    monkeypatch.setenv(VARIABLE, f"{tmp_path.name}-a,{tmp_path.name}-sick")
    assert run(job_of(candidates(4)), tmp_path / "out", "all", SLEEP) == 0
    out, errors = capfd.readouterr()
    assert [row["device"] for row in json.loads(out.splitlines()[-1])["devices"]] == [0]
    assert "accelerator 1 is not used" in errors
    assert "does not compute" in errors
    # An accelerator that was asked for by its number must work.
    with pytest.raises(NoDevices, match=r"accelerator 1 cannot be used: .*does not compute"):
        run(job_of(candidates(5)), tmp_path / "out", "0,1", SLEEP)


def test_no_accelerator_left_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, f"{tmp_path.name}-sick")
    with pytest.raises(NoDevices, match="does not compute"):
        run(job_of(candidates(4)), tmp_path / "out", "all", SLEEP)
    assert not list((tmp_path / "out/verdicts").iterdir())


HOLD = """
import sys
from simulated_chip import CHIP
from kernelmark.evaluators.grading import devices
devices.claim(CHIP, 1)
print("held", flush=True)
sys.stdin.read()
"""


def test_an_accelerator_that_somebody_grades_on_is_not_shared(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(devices, "WAIT_S", 0.2)
    holder = subprocess.Popen(
        [sys.executable, "-c", f"import sys; sys.path[:] = {sys.path!r}\n{HOLD}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(devices.DeviceError, match=f"in use by process {holder.pid}"):
            devices.claim(CHIP, 1, wait_s=0.2)
        devices.claim(CHIP, 0)
        devices.release_all()
        summary = graded(tmp_path, job_of(candidates(3)), "all", capfd)
        assert 1 not in [row["device"] for row in summary["devices"]]
    finally:
        holder.kill()
        holder.wait()
    devices.claim(CHIP, 1, wait_s=5)  # the kernel has let go of it


def test_a_lock_that_cannot_be_had_is_no_leave_to_grade(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(devices, "LOCKS", tmp_path / "file" / "locks")
    with pytest.raises(devices.DeviceError, match="no lock"):
        devices.claim(CHIP)


def test_a_closed_pool_grades_no_more():
    pool = Pool(CHIP, [0], Settings(), SLEEP)
    pool.close()
    with pytest.raises(NoDevices):
        pool.grade(candidates(1)[0])


def test_workers_share_the_cpus_out():
    assert _shares(range(32), 2) == [tuple(range(16)), tuple(range(16, 32))]
    assert _shares(range(32), 1) == [()]
    assert _shares(range(2), 8) == [()] * 8


def test_the_command_grades_for_real(tmp_path, capfd):
    from judging import KERNEL

    source = KERNEL.replace("v * 2", "-v") + (
        "\n\ndef neg(self):\n    x = self.contiguous()\n    return launch(x, torch.empty_like(x))\n"
    )
    found = [Candidate("aten::neg", source + f"# {n}\n") for n in range(2)]
    (tmp_path / "job").mkdir()
    for n, candidate in enumerate(found):
        (tmp_path / f"job/{n}.py").write_text(candidate.source)
    job = {
        "chip": "simulated",
        "tier": "small",
        "candidates": [{"operator": "aten::neg", "file": f"{n}.py"} for n in range(2)],
        "settings": {"cases": ["int64"], "timeout_s": 60},
    }
    (tmp_path / "job/job.json").write_text(json.dumps(job))
    assert main([str(tmp_path / "job"), str(tmp_path / "out"), "--devices", "3,4"]) == 0
    summary = json.loads(capfd.readouterr().out.splitlines()[-1])
    verdicts = [
        from_json(Verdict, json.loads(path.read_text()))
        for path in (tmp_path / "out/verdicts").iterdir()
    ]
    assert [v.status for v in verdicts] == ["passed"] * 2
    assert {v.environment["accelerator"] for v in verdicts} == {
        row["accelerator"] for row in summary["devices"]
    }
