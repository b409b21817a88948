"""What a method works in: its folder, its model, its judge; and the memory that makes it resumable.

Every answer is on disk before the method sees it. A run that was killed calls the method again from
the start; questions that have been asked before are answered from here, for nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Protocol

from kernelmark.benchmark.errors import UserError
from kernelmark.evaluators.campaigns.files import read_json, write_json
from kernelmark.evaluators.grading.records import Candidate, Verdict, from_json, to_json
from kernelmark.evaluators.methods.base import Line, Message, MethodError, Reply


class ModelAccess(Protocol):
    """A model, reached through the gateway."""

    def complete(
        self,
        operator: str,
        attempt: int,
        ask: int,
        messages: Sequence[Message],
        parameters: dict[str, Any],
    ) -> Reply:
        """One request for one attempt. `ask` numbers the operator's questions from 1. Raises
        `MethodError`."""
        ...

    def line(self, operator: str, attempt: int) -> Line:
        """A line for programs that make the requests of one attempt themselves."""
        ...


class CampaignWorkspace:
    """The `Workspace` that campaigns give to methods. Used by one thread."""

    def __init__(
        self,
        root: Path,
        operator: str,
        verify: Callable[[Candidate], Verdict],
        model: ModelAccess | None,
        *,
        check: Callable[[Candidate], Future[Verdict]] | None = None,
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self.root = root
        self.attempt = 1  #: number of the attempt being worked on
        self._operator = operator
        self._verify = verify
        self._model = model
        self._check = check
        self.stopping = stopping
        self._asked = 0

    def complete(self, messages: Sequence[Message], **parameters: Any) -> Reply:
        """Asks the run's model, or answers from memory."""
        if self._model is None:
            raise MethodError("the run has no model (--model)")
        self._asked += 1
        path = self.root / "replies" / f"{self._asked:04d}.json"
        question = _digest(messages, parameters)
        if path.exists():
            return _remembered(path, question)
        reply = self._model.complete(
            self._operator, self.attempt, self._asked, messages, parameters
        )
        write_json(path, {"question": question, "reply": to_json(reply)})
        return reply

    def verify(self, candidate: Candidate) -> Verdict:
        """Asks the judge, or answers with the verdict that the run already holds.

        Where our own infrastructure failed there is nothing to learn: the method ends here, and
        goes on when the run is resumed.
        """
        verdict = self._verify(candidate)
        if verdict.status == "infrastructure_error":
            raise MethodError(f"not graded: {verdict.message}", "infrastructure_error")
        return verdict

    def line(self) -> Line:
        """A line to the run's model for a program of the attempt being worked on."""
        if self._model is None:
            raise MethodError("the run has no model (--model)")
        return self._model.line(self._operator, self.attempt)

    def check(self, candidate: Candidate) -> Future[Verdict]:
        """Asks the judge for feedback. Not remembered: a method that asks keeps the answers."""
        if self._check is None:
            raise MethodError("there is no feedback here")
        return self._check(candidate)


def _remembered(path: Path, question: str) -> Reply:
    stored = read_json(path)
    if stored["question"] != question:
        raise UserError(f"{path}: the method asks another question than before; start a new run")
    return from_json(Reply, stored["reply"])


def _digest(messages: Sequence[Message], parameters: dict[str, Any]) -> str:
    text = json.dumps([list(messages), parameters], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
