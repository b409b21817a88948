"""A chip and a timer that run on the CPU, so that the timing gate is tested end to end.

Interpreted kernels are timed by the host's clock, which says nothing of any device: the point is
what the judge asks, checks and concludes.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from kernelmark.evaluators.chips.base import Peaks
from kernelmark.evaluators.chips.interpreter import Interpreter
from kernelmark.evaluators.grading.timing import Block, Call, KernelTime, Mode


class HostTimer:
    """`timing.Timer` by the host's clock. Kernels bear the name that the candidates here use."""

    clock = "events"

    def start(self, warmup: Sequence[Call]) -> None:
        self.warm(warmup)
        self.blocks: list[Block] = []

    def warm(self, warmup: Sequence[Call]) -> None:
        for call in warmup:
            call()

    def block(self, calls: Sequence[Call], mode: Mode = "cold") -> None:
        times = []
        for call in calls:
            begin = time.perf_counter_ns()
            call()
            times.append((time.perf_counter_ns() - begin) / 1e3)
        kernels = (KernelTime("double", len(times), sum(times)),)
        self.blocks.append(
            Block(
                self.clock,
                mode,
                tuple(times),
                tuple(times),
                (),
                (1,) * len(times),
                kernels,
                0,
                0,
                0,
            )
        )

    def stop(self) -> tuple[Block, ...]:
        return tuple(self.blocks)


class Stepping(Interpreter):
    """The interpreter, with a timer."""

    def timer(self) -> Any:
        return HostTimer()

    def peaks(self, sku: str) -> Peaks:
        return Peaks(1e15, {"float32": 1e15}, 1 << 20, "none")


CHIP = Stepping(name="stepping")
