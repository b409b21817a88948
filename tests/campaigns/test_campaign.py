"""A run ends the same, however often it is stopped on its way."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import scripted_campaign
from scripted_campaign import OPERATORS, Model, Refiner, judge, open_run, run_all, snapshot

from kernelmark.benchmark.errors import UserError
from kernelmark.evaluators.campaigns.folder import RunFolder
from kernelmark.evaluators.grading.records import Candidate, Verdict
from kernelmark.evaluators.methods.base import MethodError, Proposal, Task, Workspace


def test_everything_is_recorded(tmp_path: Path) -> None:
    folder = open_run(tmp_path / "run")
    model = run_all(folder)
    assert model.asked == 3 * len(OPERATORS)
    assert folder.missing() == []
    attempts = list(folder.attempts())
    assert [a.number for a in attempts] == [1, 2, 3] * len(OPERATORS)
    for attempt in attempts:
        assert folder.candidate(attempt).id == attempt.candidate
        assert folder.verdict(attempt.operator, attempt.candidate) is not None
        assert folder.portability(attempt.operator, attempt.candidate) is not None


def test_a_finished_run_does_nothing_more(tmp_path: Path) -> None:
    folder = open_run(tmp_path / "run")
    run_all(folder)

    def never(candidate: Candidate) -> Verdict:
        raise AssertionError("graded again")

    assert run_all(folder, grade=never).asked == 0


def test_sigkill_at_any_moment(tmp_path: Path) -> None:
    whole = open_run(tmp_path / "whole")
    run_all(whole)
    root = tmp_path / "killed"
    codes = []
    for kill_after in (1, 5, 9, 14):
        command = [sys.executable, scripted_campaign.__file__, str(root), str(kill_after)]
        codes.append(subprocess.run(command, check=False).returncode)
    assert codes[:2] == [-9, -9]  # it was killed, and more than once
    folder = RunFolder.open(root)
    run_all(folder)
    assert snapshot(folder) == snapshot(whole)


def test_ctrl_c_stops_cleanly(tmp_path: Path) -> None:
    folder = open_run(tmp_path / "run")
    graded = 0

    def interrupted(candidate: Candidate) -> Verdict:
        nonlocal graded
        graded += 1
        if graded == 4:
            raise KeyboardInterrupt
        return judge(candidate)

    with pytest.raises(KeyboardInterrupt):
        run_all(folder, grade=interrupted)
    assert not [t for t in threading.enumerate() if t.name.startswith(("produce", "compile"))]
    assert folder.missing()
    run_all(folder)
    assert folder.missing() == []


def test_what_the_infrastructure_failed_is_done_again(tmp_path: Path) -> None:
    whole = open_run(tmp_path / "whole")
    run_all(whole)
    folder = open_run(tmp_path / "run")
    run_all(folder, grade=lambda c: replace(judge(c), status="infrastructure_error"))
    failures = [attempt.failure for attempt in folder.attempts()]
    assert failures == [None, "infrastructure_error"] * len(OPERATORS)
    run_all(folder)
    assert snapshot(folder) == snapshot(whole)


def test_a_method_that_asks_something_else_is_told(tmp_path: Path) -> None:
    folder = open_run(tmp_path / "run")
    run_all(folder, grade=lambda c: replace(judge(c), status="infrastructure_error"))

    @dataclass(frozen=True)
    class Rude(Refiner):
        def propose(self, task: Task, workspace: Workspace) -> Iterator[Proposal]:
            workspace.complete([{"role": "user", "content": "now!"}])
            yield Proposal(failure="no_candidate")

    with pytest.raises(UserError, match="another question"):
        run_all(folder, method=Rude())


@dataclass(frozen=True)
class Failing(Refiner):
    """Hands in one candidate, then fails with `status`."""

    status: str = "method_error"

    def propose(self, task: Task, workspace: Workspace) -> Iterator[Proposal]:
        """One candidate, then the error."""
        yield Proposal(Candidate(task.operator.id, "# 1\n"))
        raise MethodError("out of ideas", self.status)  # type: ignore[arg-type]


def test_a_failing_method_is_recorded_and_the_run_goes_on(tmp_path: Path) -> None:
    folder = open_run(tmp_path / "run")
    run_all(folder, method=Failing())
    assert [a.failure for a in folder.attempts()] == [None, "method_error"] * len(OPERATORS)
    assert folder.missing() == []
    run_all(folder, method=Refiner())  # done: nothing is produced again
    assert len(list(folder.attempts())) == 2 * len(OPERATORS)


def test_unreachable_models_are_asked_again(tmp_path: Path) -> None:
    folder = open_run(tmp_path / "run")
    run_all(folder, method=Failing(status="infrastructure_error"))
    run_all(folder, method=Failing(status="method_error"))
    assert [a.failure for a in folder.attempts()] == [None, "method_error"] * len(OPERATORS)


def test_a_method_that_changed_is_told(tmp_path: Path) -> None:
    folder = open_run(tmp_path / "run")
    run_all(folder, method=Failing(status="infrastructure_error"))

    @dataclass(frozen=True)
    class Other(Failing):
        def propose(self, task: Task, workspace: Workspace) -> Iterator[Proposal]:
            yield Proposal(Candidate(task.operator.id, "# other\n"))

    with pytest.raises(UserError, match="start a new run"):
        run_all(folder, method=Other())


def test_a_bug_in_a_method_stops_the_run(tmp_path: Path) -> None:
    folder = open_run(tmp_path / "run")

    @dataclass(frozen=True)
    class Buggy(Refiner):
        def propose(self, task: Task, workspace: Workspace) -> Iterator[Proposal]:
            raise ZeroDivisionError
            yield

    with pytest.raises(ZeroDivisionError):
        run_all(folder, method=Buggy())


def test_a_folder_with_something_in_it_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine.txt").write_text("precious")
    with pytest.raises(UserError, match="not empty"):
        open_run(tmp_path / "run")


def test_model_is_not_asked_twice_for_what_it_has_answered(tmp_path: Path) -> None:
    folder = open_run(tmp_path / "run")
    model = Model()

    def interrupted(candidate: Candidate) -> Verdict:
        if model.asked >= 4:
            raise KeyboardInterrupt
        return judge(candidate)

    with pytest.raises(KeyboardInterrupt):
        run_all(folder, model=model, grade=interrupted)
    run_all(folder, model=model)
    assert model.asked == 3 * len(OPERATORS)
