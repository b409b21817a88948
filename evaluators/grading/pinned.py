"""Judges in processes of their own, one an accelerator: how one machine grades on all it has.

A worker sees one accelerator (the vendor's variable is set before it starts), holds its lock, and
grades one candidate at a time. `Pool` hands candidates to whichever worker is free, replaces a
worker that dies or whose processes failed, and goes on without an accelerator that no longer
computes. The process that holds the pool touches no device. Device layer.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import queue
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelmark.evaluators.chips.base import Chip
from kernelmark.evaluators.chips.registry import get_chip
from kernelmark.evaluators.grading import devices
from kernelmark.evaluators.grading.channel import Channel, Closed, Garbled, Late
from kernelmark.evaluators.grading.records import Candidate, Verdict, from_json, to_json
from kernelmark.evaluators.grading.settings import Settings

if TYPE_CHECKING:
    from kernelmark.evaluators.grading.ahead import Ahead

PACKAGE = Path(__file__).resolve().parents[2]
START_S = 300.0  #: to import torch and find the device, with a cold disk and many others starting
END_S = 5.0
TRIES = 2  #: for a candidate that our own processes fail
#: a candidate, and how it is graded; None: as the pool grades
Following = tuple[Candidate, Settings | None]
#: what a worker calls: (candidate, chip, settings) to a verdict
JUDGE = "kernelmark.evaluators.grading.pinned:judge"

_BOOTSTRAP = """
import sys, types
fd, parent, package, *path = sys.argv[1:]
sys.path[:] = path
sys.modules["kernelmark"] = module = types.ModuleType("kernelmark")
module.__path__ = [package]
from kernelmark.evaluators.grading import pinned
pinned.main(int(fd), int(parent))
"""


class Lost(RuntimeError):
    """A worker is gone, or never got ready: the machine's fault, not the candidate's."""


class NoDevices(RuntimeError):
    """Not one accelerator is left to grade on."""


@dataclass(frozen=True)
class Graded:
    """A verdict, and where it was made: the accelerator's number and label. `seconds`: how long
    the accelerator was taken up, waiting and start of processes apart."""

    verdict: Verdict
    device: int
    label: str
    seconds: float


class Worker:
    """A judge that sees accelerator `index` alone. Starts at once; `wait_ready` waits for it."""

    def __init__(
        self,
        chip: Chip,
        index: int,
        settings: Settings,
        work: str = JUDGE,
        cpus: Sequence[int] = (),
    ) -> None:
        """`cpus`: those that it and its helpers keep to; empty: all."""
        self.index = index
        self.label = ""
        self._limit_s = settings.longest_s + START_S
        environment = dict(os.environ)
        if chip.visible_variable:
            chip.prepare(environment, index)
        ours, theirs = socket.socketpair()
        parent = os.pidfd_open(os.getpid())
        words = [sys.executable, "-c", _BOOTSTRAP, str(theirs.fileno()), str(parent), str(PACKAGE)]
        try:
            self._process = subprocess.Popen(
                [*words, *(os.path.abspath(p) for p in sys.path)],
                env=environment,
                pass_fds=(theirs.fileno(), parent),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )
        finally:
            theirs.close()
            os.close(parent)
        self._channel = Channel(ours)
        first = {
            "chip": chip.name,
            "settings": asdict(replace(settings, index=0)),
            "work": work,
            "cpus": list(cpus),
        }
        with contextlib.suppress(Closed):  # dead already: `wait_ready` will find out
            self._channel.send(first)

    def wait_ready(self) -> None:
        """Waits until it has its accelerator. Raises `Lost` with the reason where it can't."""
        answer = self._receive(START_S)
        if "ready" not in answer:
            raise Lost(str(answer.get("failed", "it told nonsense")))
        self.label = str(answer["ready"])

    def grade(
        self,
        candidate: Candidate,
        settings: Settings | None = None,
        following: Following | None = None,
    ) -> Verdict:
        """One grade, by other `settings` than its own if given. Raises `Lost`."""
        message: dict[str, Any] = _message(candidate, settings)
        if following is not None:
            message["following"] = _message(*following)
        try:
            self._channel.send(message)
        except (Closed, Late) as error:
            raise Lost(f"a grading process is gone: {error}") from error
        answer = self._receive(self._limit_s)
        if "verdict" not in answer:
            raise Lost(str(answer.get("failed", "it told nonsense")))
        return from_json(Verdict, answer["verdict"])

    def close(self) -> None:
        """Ends it, and with it every process that it has started, before the next takes its place;
        kills it where it does not end in time."""
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(END_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._channel.close()

    def _receive(self, limit_s: float) -> dict[str, Any]:
        try:
            return self._channel.receive(limit_s)[0]
        except (Closed, Late, Garbled, OSError, ValueError) as error:
            raise Lost(f"a grading process is gone: {error}") from error


def _message(candidate: Candidate, settings: Settings | None) -> dict[str, Any]:
    message = {"candidate": to_json(candidate)}
    if settings is not None:
        message["settings"] = asdict(replace(settings, index=0))
    return message


class Pool:
    """One worker an accelerator. `grade` may be called from as many threads as there are."""

    def __init__(
        self, chip: Chip, numbers: Sequence[int], settings: Settings, work: str = JUDGE
    ) -> None:
        """Starts workers for accelerators `numbers` (`devices.accelerators`), and does not wait."""
        self._chip = chip
        self._settings = settings
        self._work = work
        self._cpus = _shares(sorted(os.sched_getaffinity(0)), len(numbers))
        self._places = {index: place for place, index in enumerate(numbers)}
        self._idle: queue.Queue[tuple[int, Worker | None]] = queue.Queue()
        self._lock = threading.Lock()
        self._workers: set[Worker] = set()
        self._closed = False
        self.retired: dict[int, str] = {}  #: accelerators that are no longer used, and why
        for index in numbers:
            self._idle.put((index, self._start(index)))

    def __len__(self) -> int:
        """How many accelerators are in use."""
        return len(self._places) - len(self.retired)

    def wait_ready(self) -> None:
        """Waits until every worker has its accelerator. Raises `NoDevices` where one can't: for
        who has named them, and wants none left out."""
        taken = [self._take(must=True) for _ in self._places]
        for pair in taken:
            self._idle.put(pair)

    def grade(
        self,
        candidate: Candidate,
        settings: Settings | None = None,
        following: Following | None = None,
    ) -> Graded:
        """The verdict of whichever accelerator is free next; waits for one. `settings`: others
        than the pool's. `following`: what the caller will ask for next, if that is known: it is
        compiled meanwhile.

        What our own processes fail is tried `TRIES` times and then is `infrastructure_error`.
        Raises `NoDevices` where no accelerator is left, or the pool is closed.
        """
        why, index, label, begin = "", 0, "", 0.0
        for _ in range(TRIES):
            index, worker = self._take()
            label, begin = worker.label, time.monotonic()
            try:
                verdict = worker.grade(candidate, settings, following)
            except Lost as lost:
                if self._closed:
                    raise NoDevices("closed") from lost
                why = str(lost)
                self._end(worker)
                self._idle.put((index, None))
                continue
            except BaseException:
                self._end(worker)
                self._idle.put((index, None))
                raise
            if verdict.status != "infrastructure_error":
                self._idle.put((index, worker))
                return Graded(verdict, index, label, time.monotonic() - begin)
            why = verdict.message
            self._end(worker)  # whatever ails it may be in its own process
            self._idle.put((index, None))
        failed = Verdict(
            candidate.operator,
            candidate.id,
            self._chip.name,
            self._chip.attests,
            "infrastructure_error",
            why,
            tier=(settings or self._settings).tier,
            dataset=(settings or self._settings).dataset,
        )
        return Graded(failed, index, label, time.monotonic() - begin)

    def close(self) -> None:
        """Ends all workers; who waits for a verdict gets `NoDevices`."""
        with self._lock:
            self._closed = True
            workers = list(self._workers)
        for worker in workers:
            worker.close()
        self._idle.put((-1, None))

    def _take(self, *, must: bool = False) -> tuple[int, Worker]:
        """A worker that is ready, waiting until one is free. `must`: none may be left out."""
        while True:
            index, worker = self._idle.get()
            if self._closed or index < 0:
                self._idle.put((-1, None))  # for the others that wait
                reasons = "; ".join(f"{i}: {why}" for i, why in sorted(self.retired.items()))
                raise NoDevices(f"no accelerator left ({reasons or 'closed'})")
            started = worker or self._start(index)
            try:
                if not started.label:
                    started.wait_ready()
                return index, started
            except Lost as lost:
                self._end(started)
                self._retire(index, str(lost))
                if must:
                    raise NoDevices(f"accelerator {index} cannot be used: {lost}") from lost
            except BaseException:
                self._end(started)
                raise

    def _retire(self, index: int, why: str) -> None:
        with self._lock:
            self.retired[index] = why
            none_left = len(self) == 0
        if none_left:
            self._idle.put((-1, None))

    def _start(self, index: int) -> Worker:
        cpus = self._cpus[self._places[index]]
        worker = Worker(self._chip, index, self._settings, self._work, cpus)
        with self._lock:
            if not self._closed:
                self._workers.add(worker)
                return worker
        worker.close()
        raise NoDevices("closed")

    def _end(self, worker: Worker) -> None:
        with self._lock:
            self._workers.discard(worker)
        worker.close()


class Judge:
    """What workers do: the judge itself, who has what follows compiled meanwhile."""

    def __init__(self) -> None:
        self._ahead: Ahead | None = None

    def __call__(
        self,
        candidate: Candidate,
        chip: Chip,
        settings: Settings,
        following: tuple[Candidate, Settings] | None = None,
    ) -> Verdict:
        from kernelmark.evaluators.grading.ahead import Ahead
        from kernelmark.evaluators.grading.judge import grade
        from kernelmark.operators.registry import get_operator

        build = None if self._ahead is None else self._ahead.take(candidate, settings)
        self._ahead = None
        if following is not None:
            later, by = following
            self._ahead = Ahead(later, get_operator(later.operator), chip, by)
        operator = get_operator(candidate.operator)
        return grade(candidate, operator, chip, settings, build=build, ahead=self._ahead)


judge = Judge()


def main(fd: int, parent: int) -> None:
    """A worker's life: gets its accelerator, then grades until the other side is gone."""
    threading.Thread(target=_die_with, args=(parent,), daemon=True).start()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a grade ends as by Ctrl-C
    channel = Channel(socket.socket(fileno=fd))
    with contextlib.suppress(Closed, KeyboardInterrupt):
        first, _ = channel.receive()
        if first["cpus"]:
            os.sched_setaffinity(0, first["cpus"])
        chip = get_chip(first["chip"])
        settings = from_json(Settings, first["settings"])
        module, _, name = first["work"].partition(":")
        try:
            work = getattr(importlib.import_module(module), name)
            channel.send({"ready": _ready(chip, first["work"], settings)})
            gc.freeze()  # collections that walk through torch take 40 ms, several in a grade
        except Exception as error:  # told to whoever started this, which goes on without it
            channel.send({"failed": f"{type(error).__name__}: {error}"})
            return
        while True:
            message, _ = channel.receive()
            try:
                candidate, asked = _asked(message, settings)
                if "following" in message and work is judge:
                    following = _asked(message["following"], settings)
                    verdict = judge(candidate, chip, asked, following)
                else:
                    verdict = work(candidate, chip, asked)
            except Exception as error:  # a bug of ours: its cause goes into the record
                channel.send({"failed": f"{type(error).__name__}: {error}"})
                raise
            channel.send({"verdict": to_json(verdict)}, timeout_s=START_S)


def _asked(message: dict[str, Any], settings: Settings) -> tuple[Candidate, Settings]:
    if "settings" in message:
        settings = from_json(Settings, message["settings"])
    return from_json(Candidate, message["candidate"]), settings


def _ready(chip: Chip, work: str, settings: Settings) -> str:
    """Takes the accelerator and sees that it computes; its label. The server, which touches no
    device, gets ready meanwhile."""
    if work == JUDGE:
        from kernelmark.evaluators.grading.workers import shared_server

        shared_server(chip, settings.index, settings.baseline_cache)
        importlib.import_module("kernelmark.evaluators.grading.judge")  # not in the first grade
    found = chip.detect()
    if not found.usable:
        raise devices.DeviceError(found.why)
    taken = devices.claim(chip)
    health = chip.health()
    if not health.ok:
        raise devices.DeviceError(f"it does not compute: {health.why}")
    return devices.label(taken) or chip.name


def _die_with(parent: int) -> None:
    """A process must not go on grading for nobody."""
    poller = select.poll()
    poller.register(parent, select.POLLIN)
    poller.poll()
    os.kill(os.getpid(), signal.SIGKILL)


def _shares(cpus: Sequence[int], count: int) -> list[tuple[int, ...]]:
    """The machine's CPUs in `count` parts, in order, so that one worker's compilations do not
    disturb what another measures; nothing (all for everybody) where there are too few."""
    size = len(cpus) // count
    if count == 1 or size < 2:
        return [()] * count
    return [tuple(cpus[i * size : (i + 1) * size]) for i in range(count)]
