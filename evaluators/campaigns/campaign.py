"""A method over a suite on a chip: produces and grades at once, records everything, resumes.

Producing, grading and compiling run side by side: any number of operators in production, one
candidate at a time in the judge (the chip is not shared while it is timed), one in the compiler.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import (
    FIRST_COMPLETED,
    CancelledError,
    Executor,
    Future,
    ThreadPoolExecutor,
    wait,
)
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal

from kernelmark.benchmark.errors import UserError
from kernelmark.evaluators.campaigns.folder import RunFolder
from kernelmark.evaluators.campaigns.records import Attempt, Production
from kernelmark.evaluators.campaigns.workspace import CampaignWorkspace, ModelAccess
from kernelmark.evaluators.grading.records import Candidate, Portability, Verdict
from kernelmark.evaluators.methods.base import Method, MethodError, Proposal, Task

Grade = Callable[[Candidate], Verdict]
Compile = Callable[[Candidate], tuple[Portability, ...]]


@dataclass(frozen=True)
class Event:
    """Something that the run has just established, for whoever shows progress."""

    what: Literal["produced", "graded", "compiled", "finished"]
    operator: str
    attempt: Attempt | None = None
    verdict: Verdict | None = None
    portability: tuple[Portability, ...] = ()


@dataclass(frozen=True)
class Tools:
    """What a campaign works with. `compile` and `model` are None where the run has none."""

    grade: Grade
    compile: Compile | None = None
    model: ModelAccess | None = None
    workers: int = 1
    notify: Callable[[Event], None] = lambda event: None


class Campaign:
    """One run, from wherever its folder stands to its end. `run` may be called once."""

    def __init__(self, folder: RunFolder, method: Method, tasks: list[Task], tools: Tools) -> None:
        self._folder = folder
        self._method = method
        self._tasks = tasks
        self._tools = tools
        self._producers = ThreadPoolExecutor(tools.workers, "produce")
        self._graders = ThreadPoolExecutor(1, "grade")
        self._compilers = ThreadPoolExecutor(1, "compile")
        self._lock = threading.Lock()
        self._work: set[Future[Any]] = set()
        self._verdicts: dict[tuple[str, str], Future[Verdict]] = {}
        self._stopping = threading.Event()

    def run(self) -> None:
        """Does what is missing. On an exception (Ctrl-C too) waits for work begun, then raises."""
        try:
            for task in self._tasks:
                self._start(self._producers, self._produce, task)
            while work := self._pending():
                done, _ = wait(work, timeout=1.0, return_when=FIRST_COMPLETED)
                for future in done:
                    future.result()
        finally:
            self._stopping.set()
            executors = (self._producers, self._graders, self._compilers)
            for executor in executors:
                executor.shutdown(wait=False, cancel_futures=True)
            for executor in executors:
                executor.shutdown()

    def _pending(self) -> set[Future[Any]]:
        with self._lock:
            self._work = {f for f in self._work if not (f.done() and f.exception() is None)}
            return set(self._work)

    def _start(
        self, executor: Executor, function: Callable[..., Any], *args: Any
    ) -> Future[Any]:
        with self._lock:
            if self._stopping.is_set():
                raise CancelledError
            future = executor.submit(function, *args)
            self._work.add(future)
        return future

    def _produce(self, task: Task) -> None:
        operator = task.operator.id
        recorded = _without_infrastructure_errors(self._folder.production(operator))
        try:
            for attempt in recorded.attempts:
                self._judge(attempt)
            if not recorded.complete:
                self._attempts(task, recorded)
        except CancelledError:
            return  # the run is stopping; what is recorded stays
        self._tools.notify(Event("finished", operator))

    def _attempts(self, task: Task, recorded: Production) -> None:
        operator = task.operator.id
        workspace = CampaignWorkspace(
            self._folder.workspace(operator), operator, self._verify, self._tools.model
        )
        proposals = self._method.propose(task, workspace)
        attempts = list(recorded.attempts)
        while True:
            started = time.monotonic()
            proposal = _next(proposals)
            if proposal is None:
                break
            attempt = self._attempt(task, workspace.attempt, proposal, started)
            workspace.attempt += 1
            if attempt.number <= len(recorded.attempts):
                _same(recorded.attempts[attempt.number - 1], attempt)
                continue
            attempts.append(attempt)
            self._folder.record(Production(operator, tuple(attempts)))
            self._tools.notify(Event("produced", operator, attempt))
            self._judge(attempt)
        if not attempts:
            failure: Proposal = Proposal(failure="no_candidate", note="the method yielded nothing")
            attempts.append(self._attempt(task, 1, failure, started))
        self._folder.record(Production(operator, tuple(attempts), complete=True))

    def _attempt(self, task: Task, number: int, proposal: Proposal, started: float) -> Attempt:
        attempt = Attempt(
            operator=task.operator.id,
            number=number,
            failure=proposal.failure or "no_candidate",
            note=proposal.note,
            seconds=round(time.monotonic() - started, 3),
            created_at=now(),
        )
        candidate = proposal.candidate
        if candidate is None:
            return attempt
        self._folder.add_candidate(candidate)
        return replace(
            attempt,
            candidate=candidate.id,
            failure=None,
            language=candidate.language,
            entry=candidate.entry,
        )

    def _judge(self, attempt: Attempt) -> None:
        """Sees to it that the attempt's candidate has a verdict and portability rows."""
        if not attempt.candidate:
            return
        candidate = self._folder.candidate(attempt)
        self._verdict(candidate)
        known = self._folder.portability(candidate.operator, candidate.id)
        if self._tools.compile is not None and known is None:
            self._start(self._compilers, self._compile, candidate)

    def _verify(self, candidate: Candidate) -> Verdict:
        return self._verdict(candidate).result()

    def _verdict(self, candidate: Candidate) -> Future[Verdict]:
        key = (candidate.operator, candidate.id)
        with self._lock:
            known = self._verdicts.get(key)
        if known is not None:
            return known
        future = self._start(self._graders, self._grade, candidate)
        with self._lock:
            return self._verdicts.setdefault(key, future)

    def _grade(self, candidate: Candidate) -> Verdict:
        verdict = self._folder.verdict(candidate.operator, candidate.id)
        if verdict is None or verdict.status == "infrastructure_error":
            verdict = self._tools.grade(candidate)
            self._folder.add_verdict(verdict)
        self._tools.notify(Event("graded", candidate.operator, verdict=verdict))
        return verdict

    def _compile(self, candidate: Candidate) -> None:
        assert self._tools.compile is not None
        rows = self._tools.compile(candidate)
        self._folder.add_portability(candidate.operator, candidate.id, rows)
        self._tools.notify(Event("compiled", candidate.operator, portability=rows))


def now() -> str:
    """The time, UTC, ISO 8601, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _next(proposals: Any) -> Proposal | None:
    """The next proposal; None at the end; a method's own failure as a proposal that ends it."""
    try:
        proposal: Proposal | None = next(proposals, None)
        return proposal
    except MethodError as error:
        return Proposal(failure=error.status, note=str(error))


def _without_infrastructure_errors(production: Production) -> Production:
    """A production cut before its first infrastructure error, so that work is done again."""
    for index, attempt in enumerate(production.attempts):
        if attempt.failure == "infrastructure_error":
            return Production(production.operator, production.attempts[:index])
    return production


def _same(recorded: Attempt, attempt: Attempt) -> None:
    if recorded.candidate != attempt.candidate:
        raise UserError(
            f"{attempt.operator}: attempt {attempt.number} is not what it was when the run began; "
            "start a new run"
        )
