"""What `verify` is answered: verdicts on the calls that are told, so many times; and a record."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import CancelledError, Future
from pathlib import Path

from kernelmark.evaluators.campaigns.feedback import feedback
from kernelmark.evaluators.campaigns.files import write_bytes
from kernelmark.evaluators.grading.records import Candidate, Verdict
from kernelmark.evaluators.methods.base import MethodError, Task, Workspace
from kernelmark.evaluators.sandbox.judge_socket import Answer

_TICK_S = 0.2


class Checks:
    """Answers one attempt's checks, `allowed` of them. What was asked is kept in `folder`."""

    def __init__(self, task: Task, workspace: Workspace, allowed: int, folder: Path) -> None:
        self.made = 0
        self._task = task
        self._workspace = workspace
        self._allowed = allowed
        self._folder = folder

    def answer(self, source: str, closing: threading.Event) -> Answer:
        """What `verify` prints about `source`."""
        if self.made >= self._allowed:
            return {"error": f"all {self._allowed} checks have been made"}
        began = time.monotonic()
        candidate = Candidate(self._task.operator.id, source, self._task.language)
        try:
            verdict = _wait(self._workspace.check(candidate), closing)
        except (MethodError, CancelledError) as error:
            return {"error": str(error) or "the attempt is over"}
        if verdict.status != "infrastructure_error":
            self.made += 1
        self._record(candidate, verdict, time.monotonic() - began)
        left = self._allowed - self.made
        text = f"{feedback(verdict, self._task.operator)}\n{left} checks left"
        return {"status": verdict.status, "text": text, "checks_left": left}

    def _record(self, candidate: Candidate, verdict: Verdict, seconds: float) -> None:
        source = self._folder / "checked" / f"{candidate.id}.py"
        if not source.exists():
            write_bytes(source, candidate.source.encode())
        line = {
            "check": self.made,
            "candidate": candidate.id,
            "status": verdict.status,
            "seconds": round(seconds, 3),
        }
        with (self._folder / "checks.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def _wait(future: Future[Verdict], closing: threading.Event) -> Verdict:
    """The verdict; `CancelledError` where nobody waits any more and it has not been begun."""
    while True:
        try:
            return future.result(_TICK_S)
        except TimeoutError:
            if closing.is_set():
                future.cancel()
