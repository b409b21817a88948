"""A method over a suite on a chip: produces and grades at once, records everything, resumes.

Producing, grading and compiling run side by side: any number of operators in production, as many
candidates with judges as there are accelerators (none is shared while something is timed), some in
compilers. A single judge works in the thread that called `run`, so that Ctrl-C reaches it and its
processes; several work in threads, and end with `Tools.stop`.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError, Executor, Future, ThreadPoolExecutor
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

_TICK_S = 0.2  # how often the judge's thread looks whether production has ended


@dataclass(frozen=True)
class Event:
    """Something that the run has just established, for whoever shows progress.

    Every attempt, of an earlier sitting too, is `produced`; one with a candidate is then `graded`,
    in any order. `finished`: the method has no more attempts at the operator. Comes from several
    threads.
    """

    what: Literal["produced", "graded", "compiled", "finished"]
    operator: str
    attempt: Attempt | None = None
    verdict: Verdict | None = None
    portability: tuple[Portability, ...] = ()


@dataclass(frozen=True)
class Tools:
    """What a campaign works with. `compile` and `model` are None where the run has none; `grade`
    is None where candidates are only produced, to be graded elsewhere. `check` grades on the calls
    that a method is told; its verdicts are feedback and no part of the run. `slots` grades, and
    `compilers` compilations, are made at once; `stop` breaks off those in progress."""

    grade: Grade | None
    compile: Compile | None = None
    model: ModelAccess | None = None
    workers: int = 1
    notify: Callable[[Event], None] = lambda event: None
    check: Grade | None = None
    slots: int = 1
    compilers: int = 1
    stop: Callable[[], None] = lambda: None


class Campaign:
    """One run, from wherever its folder stands to its end. `run` may be called once."""

    def __init__(self, folder: RunFolder, method: Method, tasks: list[Task], tools: Tools) -> None:
        self._folder = folder
        self._method = method
        self._tasks = tasks
        self._tools = tools
        self._producers = ThreadPoolExecutor(tools.workers, "produce")
        self._compilers = ThreadPoolExecutor(tools.compilers, "compile")
        self._graders = ThreadPoolExecutor(tools.slots, "grade") if tools.slots > 1 else None
        self._to_judge: queue.SimpleQueue[tuple[Grade, Candidate, Future[Verdict]]]
        self._to_judge = queue.SimpleQueue()
        self._checks: set[Future[Verdict]] = set()
        self._verdicts: dict[tuple[str, str], Future[Verdict]] = {}
        self._lock = threading.Lock()
        self._work: set[Future[Any]] = set()
        self._stopping = False

    def run(self) -> None:
        """Does what is missing. On an exception, Ctrl-C too, what has begun ends first."""
        try:
            for task in self._tasks:
                self._start(self._producers, self._produce, task)
            self._judge_all()
        finally:
            self._stop()

    def _judge_all(self) -> None:
        """Judges what comes, until nothing more can come."""
        while True:
            working = self._working()
            try:
                grade, candidate, future = self._to_judge.get(timeout=_TICK_S if working else 0.0)
            except queue.Empty:
                if not working:
                    return
                continue
            if self._graders is None:
                _fulfil(future, grade, candidate)
            else:
                self._start(self._graders, _fulfil, future, grade, candidate)

    def _working(self) -> bool:
        """Whether anything is being produced, compiled, or graded in a thread. Raises what went
        wrong there."""
        with self._lock:
            done = {future for future in self._work if future.done()}
            self._work -= done
            working = bool(self._work)
        for future in done:
            future.result()
        return working

    def _stop(self) -> None:
        with self._lock:
            self._stopping = True
            futures = (*self._verdicts.values(), *self._checks)
            unjudged = [future for future in futures if not future.done()]
        executors = [self._producers, self._compilers]
        if self._graders is not None:
            executors.append(self._graders)
        for executor in executors:
            executor.shutdown(wait=False, cancel_futures=True)
        self._tools.stop()
        for future in unjudged:
            future.cancel()
        for executor in executors:
            executor.shutdown()

    def _start(self, executor: Executor, function: Callable[..., Any], *args: Any) -> None:
        with self._lock:
            if self._stopping:
                raise CancelledError
            self._work.add(executor.submit(function, *args))

    def _produce(self, task: Task) -> None:
        operator = task.operator.id
        recorded = _without_infrastructure_errors(self._folder.production(operator))
        try:
            for attempt in recorded.attempts:
                self._tools.notify(Event("produced", operator, attempt))
                self._judge(attempt)
            if not recorded.complete:
                self._attempts(task, recorded)
        except CancelledError:
            return  # the run is stopping; what is recorded stays
        self._tools.notify(Event("finished", operator))

    def _attempts(self, task: Task, recorded: Production) -> None:
        operator = task.operator.id
        workspace = CampaignWorkspace(
            self._folder.workspace(operator),
            operator,
            self._verify,
            self._tools.model,
            check=self._check,
            stopping=lambda: self._stopping,
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
        if self._tools.grade is not None:
            self._verdict(candidate)
        known = self._folder.portability(candidate.operator, candidate.id)
        if self._tools.compile is not None and known is None:
            self._start(self._compilers, self._compile, candidate)

    def _verify(self, candidate: Candidate) -> Verdict:
        if self._tools.grade is None:
            raise MethodError(
                "candidates are only produced here: there are no verdicts to learn from"
            )
        return self._verdict(candidate).result()

    def _check(self, candidate: Candidate) -> Future[Verdict]:
        """Feedback to be: a verdict on the calls that are told, not recorded."""
        if self._tools.check is None:
            raise MethodError("this run gives no feedback: its candidates are graded elsewhere")
        future: Future[Verdict] = Future()
        with self._lock:
            if self._stopping:
                raise CancelledError
            self._checks.add(future)
            self._to_judge.put((self._tools.check, candidate, future))
        future.add_done_callback(self._checks.discard)
        return future

    def _verdict(self, candidate: Candidate) -> Future[Verdict]:
        """The verdict to be; asks for it once."""
        key = (candidate.operator, candidate.id)
        with self._lock:
            if self._stopping:
                raise CancelledError
            if key not in self._verdicts:
                self._verdicts[key] = Future()
                self._to_judge.put((self._grade, candidate, self._verdicts[key]))
            return self._verdicts[key]

    def _grade(self, candidate: Candidate) -> Verdict:
        verdict = self._folder.verdict(candidate.operator, candidate.id)
        if verdict is None or verdict.status == "infrastructure_error":
            assert self._tools.grade is not None
            verdict = self._tools.grade(candidate)
            self._folder.add_verdict(verdict)
        self._tools.notify(Event("graded", candidate.operator, verdict=verdict))
        return verdict

    def _compile(self, candidate: Candidate) -> None:
        assert self._tools.compile is not None
        rows = self._tools.compile(candidate)
        self._folder.add_portability(candidate.operator, candidate.id, rows)
        self._tools.notify(Event("compiled", candidate.operator, portability=rows))


def _fulfil(future: Future[Verdict], grade: Grade, candidate: Candidate) -> None:
    if not future.set_running_or_notify_cancel():
        return  # nobody waits for it any more
    try:
        future.set_result(grade(candidate))
    except BaseException as error:
        future.set_exception(error)  # for a method that waits for it
        raise


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
