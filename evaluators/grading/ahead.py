"""Compiles a candidate before its turn, while another one is on the device.

Compiling takes a second or more of the CPU and nothing of the device, so a judge that knows what
comes next has it compiled while the present candidate is checked. While something is measured the
builders stand still, all of them. Device layer.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from kernelmark.evaluators.chips.base import Chip
from kernelmark.evaluators.chips.here import device_here
from kernelmark.evaluators.grading.build import Build
from kernelmark.evaluators.grading.isolation import Limits
from kernelmark.evaluators.grading.published import as_published
from kernelmark.evaluators.grading.records import Candidate
from kernelmark.evaluators.grading.settings import Settings
from kernelmark.evaluators.grading.workers import Infrastructure, Server, shared_server
from kernelmark.operators.records import Case, Operator

#: seconds for one case to be compiled beforehand; a slower one is left to the runner
MOST_BUILD_S = 30.0


def compiles(candidate: Candidate, chip: Chip) -> bool:
    """Whether a candidate is compiled before it runs."""
    return chip.attests == "executed" and candidate.language == "triton"


def started_build(
    server: Server, candidate: Candidate, operator: Operator, chip: Chip, settings: Settings
) -> Build | None:
    """Processes at work on every case that will be asked; None where the device is no target that
    is known, or no case can run on it."""
    here = device_here(chip)
    cases, _ = asked_cases(operator, chip, settings)
    if here is None or not cases:
        return None
    server.ready_compilers(here.target)
    limits = limits_for(chip, settings)
    limit_s = min(settings.timeout_s, MOST_BUILD_S)
    build = Build(lambda: server.spawn("builder", chip, limits), here, limit_s)
    build.start(candidate, operator, cases)
    return build


def asked_cases(
    operator: Operator, chip: Chip, settings: Settings
) -> tuple[list[Case], dict[str, str]]:
    """The cases that the settings name and the chip can run; why it cannot run others, by name."""
    tiers = ("small",) if settings.tier == "small" else ("small", "full")
    cases = [case for case in operator.cases() if case.tier in tiers]
    if settings.cases:
        cases = [case for case in operator.cases() if case.name in settings.cases]
    left_out = {case.name: why for case in cases if (why := unsupported(case, chip))}
    return [case for case in cases if case.name not in left_out], left_out


def unsupported(case: Case, chip: Chip) -> str:
    """Why the chip cannot run the case; empty where it can."""
    return chip.unsupported(tuple(str(dtype).removeprefix("torch.") for dtype in case.dtypes))


def limits_for(chip: Chip, settings: Settings) -> Limits:
    """Device drivers reserve address space without measure; there is no limit there."""
    return Limits(memory_bytes=settings.memory_bytes if chip.device == "cpu" else None)


class Ahead:
    """The candidate that comes next. `begin` sets its builders to work, once."""

    def __init__(
        self, candidate: Candidate, operator: Operator, chip: Chip, settings: Settings
    ) -> None:
        self.candidate = candidate
        self.settings = settings
        self._operator = operator
        self._chip = chip
        self._begun = False
        self._build: Build | None = None

    def begin(self) -> None:
        """Does not wait. Whatever prevents it is for the candidate's own grade to find."""
        if self._begun or not compiles(self.candidate, self._chip):
            return
        self._begun = True
        server = shared_server(self._chip, self.settings.index, self.settings.baseline_cache)
        operator = as_published(self._operator, self.settings)
        with contextlib.suppress(Infrastructure):
            self._build = started_build(server, self.candidate, operator, self._chip, self.settings)

    def take(self, candidate: Candidate, settings: Settings) -> Build | None:
        """Its builders, if that is what is graded now; the caller closes them. Else they end."""
        build, self._build = self._build, None
        if build is None or (candidate, settings) == (self.candidate, self.settings):
            return build
        build.close()
        return None

    @contextlib.contextmanager
    def resting(self) -> Iterator[None]:
        """While entered, nothing of it runs."""
        with contextlib.nullcontext() if self._build is None else self._build.resting():
            yield

    def close(self) -> None:
        """Ends the builders, unless they were taken."""
        if self._build is not None:
            self._build.close()
            self._build = None
