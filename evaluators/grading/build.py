"""The build gate's work: compiles a candidate for all of its cases, in parallel on the CPU.

Builders (`builder`) share the cases out among themselves; what they compiled goes, unread, to the
candidate's own runner, which then has nothing left to compile. A kernel that does not compile is
the candidate's failure, unless its host code had looked into tensors, whose contents are not the
real ones here. Everything else that goes wrong under the pretence is noted, and the runner shows
what there is to it. Device layer.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass, field, replace
from typing import Any

import torch

from kernelmark.evaluators.chips._calls import make_call
from kernelmark.evaluators.chips.here import Here
from kernelmark.evaluators.grading import wire
from kernelmark.evaluators.grading.arena import storage_bytes
from kernelmark.evaluators.grading.channel import Garbled, printable
from kernelmark.evaluators.grading.channel import field as field_of
from kernelmark.evaluators.grading.records import Candidate, KernelBuild
from kernelmark.evaluators.grading.workers import Fault, Worker, end_all
from kernelmark.operators.records import Case, Operator, TensorSpec

MOST_PROCESSES = 16
#: requests that a builder has at a time: one to do, one to go on with
_AHEAD = 2
_MAX_NOTES = 8
_LOOK_MS = 50  #: how often time limits and an end from outside are looked at
_NUMBERS = ("registers", "spilled_bytes", "shared_bytes", "num_warps", "matrix_instructions")


@dataclass
class Built:
    """What came of it. `caches`: descriptors of archives for the runner, to be closed."""

    builds: list[KernelBuild] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  #: what could not be compiled, and why
    caches: list[int] = field(default_factory=list)
    processes: int = 0
    seconds: float = 0.0

    def evidence(self, target: str) -> dict[str, Any]:
        """For the verdict."""
        return {
            "target": target,
            "processes": self.processes,
            "seconds": round(self.seconds, 3),
            "notes": list(self.notes),
        }

    def describe(self, target: str) -> str:
        """One line for a person."""
        made = [b for b in self.builds if not b.error]
        registers = max((b.registers or 0 for b in made), default=0)
        spilling = sum(bool(b.spilled_bytes) for b in made)
        text = f"{len(made)} kernels for {target} in {self.seconds:.1f} s by {self.processes}"
        text += f" processes, up to {registers} registers, {spilling} spill"
        return text + (f"; left to the runner: {self.notes[0]}" if self.notes else "")


@dataclass
class _Request:
    """What a builder was asked; `case` is empty where it was nothing about a case."""

    number: int
    op: str
    case: str
    fields: dict[str, Any]


@dataclass
class _Hand:
    """A builder and the requests that it has not answered."""

    worker: Worker
    pending: deque[_Request] = field(default_factory=deque)
    since: float = field(default_factory=time.monotonic)
    cache: int = -1


class Build:
    """One candidate's compilation, in a thread: `start` sets it going, `finish` waits. `close` in
    any case."""

    def __init__(self, spawn: Callable[[], Worker], here: Here, limit_s: float) -> None:
        self.spawn = spawn
        self.here = here
        self.limit_s = limit_s  #: for one case
        self.built = Built()
        self._hands: list[_Hand] = []
        self._dying: list[Worker] = []
        self._jobs: deque[tuple[str, dict[str, Any]]] = deque()
        self._began = time.monotonic()
        self._step = threading.Lock()  #: held by the thread while it does something
        self._closed = False
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=lambda: None)

    def start(self, candidate: Candidate, operator: Operator, cases: Sequence[Case]) -> None:
        """Returns at once."""
        self._thread = threading.Thread(
            target=self._run, args=(candidate, operator, cases), name="build", daemon=True
        )
        self._thread.start()

    def finish(self) -> Built:
        """Waits for all. Raises `Fault` (``build_error``) for a kernel that does not compile, and
        `Infrastructure`."""
        self._thread.join()
        if self._failure is not None:
            raise self._failure
        return self.built

    @contextlib.contextmanager
    def resting(self) -> Iterator[None]:
        """While entered, builders stand still: something is measured."""
        with self._step:
            began = time.monotonic()
            for hand in self._hands:
                hand.worker.signal(signal.SIGSTOP)
            try:
                yield
            finally:
                rested = time.monotonic() - began
                self._began += rested
                for hand in self._hands:
                    hand.since += rested
                    hand.worker.signal(signal.SIGCONT)

    def close(self) -> None:
        """Ends what runs and lets go of the caches."""
        self._closed = True
        for hand in list(self._hands):
            hand.worker.kill()
        if self._thread.is_alive():
            self._thread.join()
        for hand in list(self._hands):
            self._dismiss(hand)
        end_all(self._dying)
        self._dying.clear()
        for fd in self.built.caches:
            os.close(fd)
        self.built.caches.clear()

    def _run(self, candidate: Candidate, operator: Operator, cases: Sequence[Case]) -> None:
        try:
            self._begin(candidate, operator, cases)
            while self._hands and not self._closed:
                ready = self._ready()
                with self._step:
                    for hand in ready:
                        self._hear(hand)
        except BaseException as error:  # told to whoever waits for the end
            self._failure = error
        if self._jobs:
            self._note(f"{len(self._jobs)} cases that no builder came to")
        self.built.seconds = time.monotonic() - self._began

    def _begin(self, candidate: Candidate, operator: Operator, cases: Sequence[Case]) -> None:
        """Forks the builders and gives each its first cases."""
        described = list(_describe(operator, cases))
        contents = _contents([tensors for _, _, tensors in described])
        self._jobs = deque((name, job) for name, job, _ in described)
        load = {
            "here": self.here.as_message(),
            "source": candidate.source,
            "entry": candidate.entry_point,
            "language": candidate.language,
        }
        try:
            for _ in range(min(len(os.sched_getaffinity(0)), MOST_PROCESSES, len(cases))):
                with self._step:
                    if self._closed:
                        return
                    hand = _Hand(self.spawn())
                    self._hands.append(hand)
                    self._post(hand, "load", "", contents, **load)
                    self._feed(hand)
        finally:
            for fd in contents:
                os.close(fd)
        self.built.processes = len(self._hands)

    def _post(
        self, hand: _Hand, op: str, case: str, fds: Sequence[int] = (), **fields: Any
    ) -> None:
        number = hand.worker.post(op, fds, **fields)
        hand.pending.append(_Request(number, op, case, fields))

    def _feed(self, hand: _Hand) -> None:
        """Keeps a builder busy; with no case left, asks it for its cache."""
        while self._jobs and len(hand.pending) < _AHEAD:
            name, job = self._jobs[0]
            self._post(hand, "compile", name, **job)
            self._jobs.popleft()
        if not hand.pending:
            hand.cache = os.memfd_create("kernelmark-cache", os.MFD_CLOEXEC)
            self._post(hand, "pack", "", [hand.cache])

    def _ready(self) -> list[_Hand]:
        """Builders that have something to say, that have died, or whose time is over."""
        if early := [hand for hand in self._hands if hand.worker.channel.holds()]:
            return early
        poller = select.poll()
        for hand in self._hands:
            poller.register(hand.worker.channel.socket.fileno(), select.POLLIN)
            poller.register(hand.worker.pidfd, select.POLLIN)
        told = {fd for fd, _ in poller.poll(_LOOK_MS)}
        now = time.monotonic()
        return [
            hand
            for hand in self._hands
            if {hand.worker.channel.socket.fileno(), hand.worker.pidfd} & told
            or now - hand.since >= self.limit_s
        ]

    def _hear(self, hand: _Hand) -> None:
        request = hand.pending.popleft()
        left = max(0.0, hand.since + self.limit_s - time.monotonic())
        try:
            reply = hand.worker.answer(request.number, left)
            hand.since = time.monotonic()
            if request.op == "compile":
                self._take(hand.worker, request.case, reply)
        except Fault as fault:
            if fault.status == "tampered" or (
                fault.status == "build_error" and request.op == "compile"
            ):
                raise
            self._give_up(hand, request, fault)
            return
        if request.op == "pack":
            self.built.caches.append(hand.cache)
            hand.cache = -1
            self._dismiss(hand)
            return
        try:
            self._feed(hand)
        except Fault as fault:  # it has died since it answered
            self._give_up(hand, hand.pending.popleft() if hand.pending else request, fault)

    def _give_up(self, hand: _Hand, request: _Request, fault: Fault) -> None:
        """Ends a builder. What it compiled is lost, and compiled again by the runner; the cases
        that it had not begun go back to the others."""
        late = fault.status == "timed_out"
        why = f"no answer within {self.limit_s:g} s" if late else fault.message
        about = f"case {request.case!r}" if request.case else request.op
        self._note(f"{about}: {why}")
        behind = [left for left in hand.pending if left.op == "compile"]
        self._jobs.extendleft((left.case, left.fields) for left in reversed(behind))
        self._dismiss(hand)

    def _take(self, worker: Worker, case: str, reply: dict[str, Any]) -> None:
        try:
            outcome, error = field_of(reply, "outcome", str), field_of(reply, "error", str)
            read = field_of(reply, "read", bool)
            kernels = [_build_of(item) for item in field_of(reply, "kernels", list)]
        except Garbled as garbled:
            raise worker.garbled(garbled) from garbled
        # Specialisations that differ in nothing that is recorded count as one.
        self.built.builds += [b for b in kernels if b not in self.built.builds]
        if outcome == "build_error" and not read:
            raise Fault("build_error", printable(error))
        if outcome != "passed":
            why = " after it looked into a tensor" if read else ""
            self._note(f"case {case!r}: {printable(error, 300)}{why}")

    def _note(self, text: str) -> None:
        if len(self.built.notes) < _MAX_NOTES:
            self.built.notes.append(text)

    def _dismiss(self, hand: _Hand) -> None:
        self._hands.remove(hand)
        if hand.cache >= 0:
            os.close(hand.cache)
        hand.worker.kill()
        self._dying.append(hand.worker)


def give(worker: Worker, caches: Sequence[int], timeout_s: float) -> None:
    """Hands what was compiled to the candidate's runner."""
    for fd in caches:
        worker.ask("cache", timeout_s, [fd])


def _describe(
    operator: Operator, cases: Sequence[Case]
) -> Iterator[tuple[str, dict[str, Any], list[torch.Tensor]]]:
    """(case, its ``compile`` request, its tensors); places count through all cases, and are -1
    for tensors that are not drawn."""
    end = 0
    for case in cases:
        call = make_call(operator, case, _without_memory)
        tensors = call.tensors()
        drawn = all(tensor.device.type == "cpu" for tensor in tensors)
        layouts = wire.lay_out(tensors, end)
        if drawn:
            end = max(end, wire.end_of(layouts))
        else:
            layouts = [replace(layout, at=-1) for layout in layouts]
        job = {"tree": wire.encode(call), "layouts": [astuple(layout) for layout in layouts]}
        yield case.name, job, tensors if drawn else []


def _without_memory(spec: TensorSpec) -> torch.Tensor:
    flat = torch.empty(spec.storage_numel, dtype=spec.dtype, device="meta")
    strides = spec.strides or torch.empty(spec.shape, device="meta").stride()
    return flat.as_strided(spec.shape, strides, spec.offset)


def _contents(cases: Sequence[Sequence[torch.Tensor]]) -> list[int]:
    """A descriptor with the bytes of all drawn tensors where `_describe` placed them, if any."""
    tensors = [tensor for case in cases for tensor in case]
    layouts = wire.lay_out(tensors)
    if not wire.end_of(layouts):
        return []
    fd = os.memfd_create("kernelmark-contents", os.MFD_CLOEXEC)
    os.ftruncate(fd, wire.end_of(layouts))
    for tensor, layout in zip(tensors, layouts, strict=True):
        os.pwrite(fd, storage_bytes(tensor).numpy().tobytes(), layout.at)
    return [fd]


def _build_of(item: Any) -> KernelBuild:
    """A record from foreign values. Raises `Garbled`."""
    if not isinstance(item, dict):
        raise Garbled("a kernel is not described")
    numbers = {name: item.get(name) for name in _NUMBERS}
    if any(not (v is None or type(v) is int) for v in numbers.values()):
        raise Garbled("a kernel's figures are no numbers")
    occupancy = item.get("occupancy")
    return KernelBuild(
        printable(field_of(item, "kernel", str), 300),
        config=printable(field_of(item, "config", str), 600),
        occupancy=occupancy if isinstance(occupancy, float) else None,
        error=printable(field_of(item, "error", str), 700),
        **numbers,
    )
