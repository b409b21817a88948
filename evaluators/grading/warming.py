"""The baseline's runner, made ready while the candidate is compiled and checked.

A baseline may compile for every full case (``torch.compile``), which takes seconds and nothing of
the device. A thread calls it once on each case, over memory of its own. Nothing is measured here,
and a baseline that cannot do a case is left for the timing gate to find.

The first time on a machine a compiler also tunes what it has made, by its own clock, and keeps the
choice (`Tuned`). Beside a candidate at work it would choose badly: the same formulation then took
89 us on one machine and 199 us on another. So the first time several runners compile shares of the
cases at once, what they choose is forgotten, and one that is alone on the device tunes what they
have compiled. From then on several runners make themselves ready, as each case takes a third of a
second of Python. Device layer.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import os
import random
import signal
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from kernelmark.evaluators.grading.session import Memory, Session
from kernelmark.evaluators.grading.sharing import SharingError
from kernelmark.evaluators.grading.workers import Fault, Infrastructure, Worker
from kernelmark.operators.draws import draw
from kernelmark.operators.records import Case, Operator


class Tuned:
    """A mark in the folder of what baselines compile: this one has been tuned here.

    `folder`: `isolation.cache_folder`; empty where nothing is kept, so that nothing is ever tuned.
    """

    def __init__(self, folder: str, operator: Operator, cases: Sequence[Case], sku: str) -> None:
        names = [operator.id, torch.__version__, sku, *(case.name for case in cases)]
        digest = hashlib.sha256("\n".join(names).encode()).hexdigest()[:32]
        self._path = Path(folder, "tuned", digest) if folder else None

    def __bool__(self) -> bool:
        return self._path is not None and self._path.exists()

    def note(self) -> None:
        """From now on it is."""
        if self._path is not None:
            with contextlib.suppress(OSError):  # then it is tuned again next time
                self._path.parent.mkdir(mode=0o700, exist_ok=True)
                self._path.touch()


class Warming:
    """One runner. Begins with `start`; `take` waits for it, `close` ends it at once."""

    def __init__(
        self,
        spawn: Callable[[], Worker],
        operator: Operator,
        cases: Sequence[Case],
        device: torch.device,
        timeout_s: float,
        *,
        tunes: bool = True,
    ) -> None:
        """`timeout_s`: for one case. `tunes`: False compiles for others, and nothing that it
        chooses is kept."""
        self.cases = cases
        self._spawn = spawn
        self._operator = operator
        self._device = device
        self._timeout_s = timeout_s
        self._tunes = tunes
        self._worker: Worker | None = None
        self._pidfd = -1
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self.failure = ""  #: why the runner is not ready; for the evidence
        self.kept = False  #: whether what it compiled outlives it
        self._thread = threading.Thread(target=self._run, name="warming", daemon=True)
        self._started = False
        # Not `Thread.join`: interrupted once, it never waits again.
        self._done = threading.Event()

    def start(self) -> None:
        """Once; `wait` does, where it has not been done."""
        if not self._started:
            self._started = True
            self._thread.start()

    def wait(self) -> int:
        """Until it has nothing more to do; the runner's process, 0 if there is none."""
        if self._stop.is_set():
            return 0
        self.start()
        self._done.wait()
        return 0 if self._worker is None else self._worker.pid

    def take(self) -> Worker | None:
        """The runner, with the baseline loaded and every case called; None if that failed."""
        self.wait()
        worker, self._worker = self._worker, None
        self._release()
        if worker is not None and self.failure:
            worker.end()
            return None
        return worker

    def close(self) -> None:
        """Ends the runner, whatever it is doing, unless it has been taken."""
        self._stop.set()
        with self._lock:
            if self._pidfd >= 0:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        if self._started:
            self._done.wait()
        worker, self._worker = self._worker, None
        self._release()
        if worker is not None:
            worker.end()

    def _release(self) -> None:
        with self._lock:
            if self._pidfd >= 0:
                os.close(self._pidfd)
                self._pidfd = -1

    def _run(self) -> None:
        self.failure = "broken off"
        try:
            worker = self._spawn()
            with self._lock:
                self._worker, self._pidfd = worker, os.dup(worker.pidfd)
            memory = Memory(self._device)
            try:
                self._warm(Session(worker, memory, self._timeout_s))
                self.failure = ""
            finally:
                memory.close()
        except (Fault, Infrastructure, SharingError, torch.OutOfMemoryError) as error:
            self.failure = str(error)
        finally:
            self._done.set()

    def _warm(self, session: Session) -> None:
        if self._stop.is_set():
            return
        self.kept = session.load_baseline(self._operator.id, forget_choices=not self._tunes)
        if not self._tunes and not self.kept:
            raise Infrastructure("nothing that is compiled is kept here")
        for case in self.cases:
            if self._stop.is_set():
                return
            seed = random.getrandbits(63)  # of no consequence: nobody asks for the answer
            session.stage(1, draw(self._operator, case, "base", seed, self._device))
            session.worker.ask("warm", self._timeout_s, slot=1)
        # it may wait for its turn while others are measured
        session.worker.ask("drop", self._timeout_s, slots=[], thoroughly=True)


class Warmings:
    """The runners of one grade's baselines; each serves its share of the cases."""

    def __init__(
        self,
        make: Callable[[Sequence[Case]], Warming],
        shares: Sequence[Sequence[Case]],
        first: Warmings | None = None,
    ) -> None:
        """`first`: those that must be done, and gone, before these begin."""
        self._first = first
        self._make = make
        self._all = [make(share) for share in shares]
        self._taken: list[Warming] = []
        self.failures: list[str] = []  #: why runners were not ready, for the evidence

    def start(self) -> None:
        """All of them, or those that come first."""
        for warming in self._all if self._first is None else self._first._all:
            warming.start()

    def serves(self, case: Case) -> bool:
        """Whether the runner that was taken last has been made ready for the case."""
        return bool(self._taken) and case in self._taken[-1].cases

    def take(self, case: Case) -> Warming:
        """What made a runner ready for the case and the others of its share; at each further call
        another one. None is at work from here on, as something is to be measured."""
        self.wait()
        found = [each for each in self._all if case in each.cases]
        if found[-1] in self._taken:
            found.append(self._make(found[-1].cases))
            self._all.append(found[-1])
        warming = found[-1]
        self._taken.append(warming)
        warming.wait()
        self.failures += [warming.failure] if warming.failure else []
        return warming

    def wait(self) -> set[int]:
        """Until none is at work; the processes of those that stand by."""
        if self._first is not None:
            self._first.wait()
            self.failures += [each.failure for each in self._first._all if each.failure]
            self._first.close()
            self._first = None
        return {warming.wait() for warming in self._all} - {0}

    def close(self) -> None:
        """Ends those that were not taken, whatever they are doing."""
        for warming in [*(self._first._all if self._first else []), *self._all]:
            warming.close()


def of_compiled(
    make: Callable[..., Warming], cases: Sequence[Case], tuned: bool, kept: bool, most: int
) -> Warmings:
    """The runners of a baseline that compiles, `most` at once.

    make: a `Warming` of a share of the cases. tuned: whether choices are kept from earlier; kept:
    whether anything is, so that one can compile for another.
    """
    if tuned:
        return Warmings(make, shares(cases, most))
    first = Warmings(functools.partial(make, tunes=False), shares(cases, most)) if kept else None
    return Warmings(make, [cases], first)


def shares(cases: Sequence[Case], most: int) -> list[Sequence[Case]]:
    """The cases in their order, cut into `most` shares at the most that differ by one in length."""
    count = max(1, min(most, len(cases)))
    ends = [len(cases) * i // count for i in range(count + 1)]
    return [cases[begin:end] for begin, end in itertools.pairwise(ends)]
