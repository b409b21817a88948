"""The runner's part of timing: input sets in private memory, recorded blocks, queues.

Works for candidate and baseline alike. What it says is a claim; `alternate` has the order of events
and `speed` the judge's side of each request. Device layer.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import torch

from kernelmark.evaluators.grading.latch import DeviceLatch
from kernelmark.evaluators.grading.records import to_json
from kernelmark.evaluators.grading.timing import Mode, Timer, TimingError


class Stopwatch:
    """Calls of one function on numbered input sets, and what each last returned.

    `fill(n)` copies set n's inputs out of the arena, on the current stream; `call(n)` runs the
    function on set n and gives what it returns.
    """

    def __init__(
        self,
        timer: Timer,
        fill: Callable[[int], None],
        call: Callable[[int], Any],
        synchronize: Callable[[], None],
    ) -> None:
        self.timer = timer
        self.fill = fill
        self.call = call
        self.synchronize = synchronize
        self.sets: Sequence[int] = ()
        self.returned: dict[int, Any] = {}
        self.latch: DeviceLatch | None = None
        self._recording = False

    def use(self, sets: Sequence[int]) -> None:
        """The sets to measure from now on."""
        self.sets = tuple(sets)
        self.returned = {}

    def start(self) -> None:
        """Warm-up on what the arena holds; opens a recording."""
        self._refill()
        twice = [*self.sets, *self.sets[:1]]  # of a very large case there is one set
        self.timer.start([self._closure(n) for n in twice[:4]])
        self._recording = True

    def block(self, mode: Mode, calls: int) -> None:
        """One recorded call on each of the first `calls` sets, on what the arena holds."""
        self._refill()
        self.timer.block([self._closure(n) for n in self.sets[:calls]], mode)

    def stop(self) -> list[Any]:
        """Closes the recording; its blocks as plain values."""
        self._recording = False
        return [to_json(block) for block in self.timer.stop()]

    def open_latch(self, fd: int) -> None:
        """Maps the judge's page."""
        self.latch = DeviceLatch(fd)

    def close(self) -> None:
        """Forgets sets, results and latch; the timer stays for the next case.

        A measurement that was given up leaves its recording open; nobody asks for it any more.
        """
        self.synchronize()
        if self._recording:
            with contextlib.suppress(TimingError):
                self.stop()
        self.sets, self.returned = (), {}
        if self.latch is not None:
            self.latch.close()
            self.latch = None

    def queue(self, calls: int, ticket: int) -> None:
        """Queues copies of the first `calls` sets' inputs and a call on each, behind the latch."""
        assert self.latch is not None
        self.returned = {}
        sets = self.sets[:calls]
        stream = torch.cuda.current_stream().cuda_stream
        copies = [*(self._copier(n) for n in sets), _first_kernel]
        self.latch.queue(copies, [self._closure(n) for n in sets], ticket, stream)

    def single(self) -> None:
        """One call on the first set, waited for."""
        self.returned[self.sets[0]] = self.call(self.sets[0])
        self.synchronize()

    def _refill(self) -> None:
        self.returned = {}
        for number in self.sets:
            self.fill(number)
        self.synchronize()

    def _closure(self, number: int) -> Callable[[], object]:
        def run() -> None:
            self.returned[number] = self.call(number)

        return run

    def _copier(self, number: int) -> Callable[[], object]:
        return lambda: self.fill(number)


def _first_kernel() -> None:
    """A kernel before those that are timed, also where no inputs are copied."""
    torch.cuda._sleep(1)  # type: ignore[no-untyped-call]
