"""This machine: one judge pinned to each of its accelerators, compilers on the CPUs left over.

The interpreter needs no accelerator: it grades in this process, one candidate at a time.
"""

from __future__ import annotations

import os
import queue
import threading
from pathlib import Path

from kernelmark.benchmark.errors import UserError
from kernelmark.evaluators.chips.base import Chip
from kernelmark.evaluators.chips.portability import Compiler
from kernelmark.evaluators.grading.devices import DeviceError, accelerators
from kernelmark.evaluators.grading.pinned import NoDevices, Pool
from kernelmark.evaluators.grading.records import Candidate, Portability, Verdict
from kernelmark.evaluators.grading.settings import Settings
from kernelmark.operators.registry import get_operator

#: helpers that compile one candidate each; a helper that compiles for many targets at a time
#: waits for its last one, one more helper takes memory (0.4 GB)
MOST_HELPERS = 8


class LocalExecutor:
    """An `Executor`. Processes start with the first thing that needs them."""

    def __init__(self, chip: Chip | None, devices: str = "all", cache: Path | None = None) -> None:
        """`chip` to grade on, None where nothing is graded; `devices` as `accelerators` takes
        them; `cache` keeps portability rows. `UserError` where an accelerator is not there."""
        self._chip = chip
        self._pool: Pool | None = None
        self._closed = False
        self._named = devices != "all"
        try:
            self._numbers = accelerators(chip, devices) if chip is not None else []
        except DeviceError as error:
            raise UserError(str(error)) from None
        cpus = len(os.sched_getaffinity(0))
        self.slots = max(len(self._numbers), 1)
        self.compilers = min(cpus, MOST_HELPERS)
        self._lock = threading.Lock()
        processes = -(-cpus // self.compilers)
        self._helpers = [Compiler(cache=cache, processes=processes) for _ in range(self.compilers)]
        self._idle: queue.SimpleQueue[Compiler] = queue.SimpleQueue()
        for helper in self._helpers:
            self._idle.put(helper)

    def grade(self, candidate: Candidate, settings: Settings) -> Verdict:
        """By the judge of a free accelerator; `UserError` where not one can be used."""
        assert self._chip is not None
        if self._chip.attests != "executed":
            from kernelmark.evaluators.grading.judge import grade

            return grade(candidate, get_operator(candidate.operator), self._chip, settings)
        try:
            return self._started(settings).grade(candidate, settings).verdict
        except NoDevices as error:
            raise UserError(str(error)) from None

    def compile(self, candidate: Candidate, targets: tuple[str, ...]) -> tuple[Portability, ...]:
        """By a helper that is free."""
        compiler = self._idle.get()
        try:
            operator = get_operator(candidate.operator)
            return tuple(compiler.portability(candidate, operator, targets))
        finally:
            self._idle.put(compiler)

    def close(self) -> None:
        """Ends judges and compilers."""
        with self._lock:
            self._closed = True
            pool = self._pool
        if pool is not None:
            pool.close()
        for helper in self._helpers:
            helper.kill()
        for _ in self._helpers:
            helper = self._idle.get()  # from whoever waited for it, and has been told
            helper.close()
            self._idle.put(helper)

    def _started(self, settings: Settings) -> Pool:
        """The pool, made when it is first asked for."""
        assert self._chip is not None
        with self._lock:
            if self._closed:
                raise NoDevices("closed")
            if self._pool is None:
                self._pool = Pool(self._chip, self._numbers, settings)
                if self._named:
                    self._pool.wait_ready()
            return self._pool
