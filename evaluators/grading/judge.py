"""`grade`: what the judge says of one candidate on one chip. The one judge there is.

The judge runs no foreign code. Gates run cheapest first and stop at the first that fails; each
leaves one `Gate` record. A candidate's failure of any kind is a verdict. A failure of our own
processes is tried once more with fresh ones and then is `infrastructure_error`. Device layer.
"""

from __future__ import annotations

import contextlib
import math
import os
import platform
import random
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

import torch

from kernelmark.evaluators.chips.base import Chip
from kernelmark.evaluators.grading import integrity
from kernelmark.evaluators.grading.ahead import (
    Ahead,
    asked_cases,
    compiles,
    limits_for,
    started_build,
    unsupported,
)
from kernelmark.evaluators.grading.build import Build, give
from kernelmark.evaluators.grading.correctness import Correctness, Failed, describe
from kernelmark.evaluators.grading.hints import autotuned_in_place
from kernelmark.evaluators.grading.hostwork import MOST_READS
from kernelmark.evaluators.grading.isolation import cache_folder
from kernelmark.evaluators.grading.published import as_published
from kernelmark.evaluators.grading.records import (
    GATES,
    Candidate,
    Comparison,
    Finding,
    Gate,
    KernelBuild,
    Status,
    Timing,
    Verdict,
)
from kernelmark.evaluators.grading.results import Question
from kernelmark.evaluators.grading.session import Memory, Session
from kernelmark.evaluators.grading.settings import Settings as Settings  # `grade` takes them
from kernelmark.evaluators.grading.speed import (
    MEMORY_SHARE,
    Speed,
    Timekeeper,
    own_kernels_of,
    time_cases,
)
from kernelmark.evaluators.grading.warming import Tuned, Warming, Warmings, of_compiled
from kernelmark.evaluators.grading.workers import (
    Fault,
    Infrastructure,
    KilledFromOutside,
    Server,
    Waking,
    Worker,
    claim_accelerator,
    discard,
    end_all,
    shared_server,
)
from kernelmark.evaluators.languages.base import Language
from kernelmark.evaluators.languages.registry import get_language
from kernelmark.operators.calling import baseline_name
from kernelmark.operators.records import Case, Operator

Progress = Callable[[str, str], None]  #: called with a gate's name and a few words


@dataclass
class Grade:
    """A grade in the making; what each gate adds becomes the verdict."""

    candidate: Candidate
    operator: Operator
    chip: Chip
    settings: Settings
    progress: Progress
    gates: list[Gate] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    builds: list[KernelBuild] = field(default_factory=list)
    comparisons: list[Comparison] = field(default_factory=list)
    timings: list[Timing] = field(default_factory=list)
    evidence: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    message: str = ""
    sku: str = ""
    began: float = field(default_factory=time.monotonic)

    def verdict(self, status: Status, message: str) -> Verdict:
        """The record."""
        return Verdict(
            operator=self.operator.id,
            candidate=self.candidate.id,
            chip=self.chip.name,
            attests=self.chip.attests,
            status=status,
            message=message,
            sku=self.sku,
            gates=tuple(self.gates),
            findings=tuple(self.findings),
            builds=tuple(self.builds),
            comparisons=tuple(self.comparisons),
            timings=tuple(self.timings) if status in _TIMED else (),
            evidence=self.evidence,
            environment=self.environment,
            baseline=baseline_name(self.operator, torch.device(self.chip.device)),
            tier=self.settings.tier,
            dataset=self.settings.dataset,
            seconds=time.monotonic() - self.began,
            created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        )


#: for a baseline to be compiled for one case, seconds; CPUs for each runner that does
MOST_COMPILE_S, CPUS_EACH = 300.0, 2
_TIMED = ("passed", "implausible", "tampered")


class Stopped(Exception):
    """A gate that did not pass."""

    def __init__(self, status: Status, message: str) -> None:
        super().__init__(message)
        self.status: Status = status
        self.message = message


def grade(
    candidate: Candidate,
    operator: Operator,
    chip: Chip,
    settings: Settings | None = None,
    progress: Progress | None = None,
    *,
    build: Build | None = None,
    ahead: Ahead | None = None,
) -> Verdict:
    """Grades `candidate` as an implementation of `operator` on `chip`. Never raises for what a
    candidate does. KeyboardInterrupt passes through, with every runner dead.

    `build`: its compilation, where that has begun; `ahead`: what is compiled during this grade.
    """
    settings = settings or Settings()
    operator = as_published(operator, settings)
    last = ""
    for attempt in range(2):
        work = Grade(candidate, operator, chip, settings, progress or (lambda gate, text: None))
        work.evidence["attempts"] = attempt + 1
        cascade = _Cascade(work, build, ahead)
        build = None
        try:
            return _healthy(cascade.run(), chip, settings)
        except torch.OutOfMemoryError as error:
            # The judge's own allocation: its device is the runner's too.
            text = str(error).split("\n")[0]
            return work.verdict("out_of_memory", f"no room for the judge's copies: {text}")
        except KilledFromOutside as error:
            last = str(error)
            if attempt:
                message = f"{error} twice in a row: most likely the machine is out of memory"
                return work.verdict("out_of_memory", message)
        except Infrastructure as error:
            last = str(error)
            cascade.discard()
    return work.verdict("infrastructure_error", last)


def _healthy(verdict: Verdict, chip: Chip, settings: Settings) -> Verdict:
    """`verdict`, if the accelerator survived it: a runner that died may have left it unusable."""
    if chip.device != "cpu" and verdict.status in ("timed_out", "runtime_error"):
        health = chip.health(settings.index)
        if not health.ok:
            raise Infrastructure(f"{chip.name} does not compute any more: {health.why}")
    return verdict


class _Cascade:
    """The gates, in order, over the processes and the memory that they share."""

    def __init__(self, work: Grade, build: Build | None, ahead: Ahead | None) -> None:
        self.work = work
        self.build = build
        self.ahead = ahead
        self.chip = work.chip
        self.settings = work.settings
        self.operator = work.operator
        self.device = torch.device(work.chip.device)
        self.dice = random.Random(
            secrets.randbits(256) if self.settings.seed is None else self.settings.seed
        )
        self.language: Language = get_language(work.candidate.language)
        self.server: Server | None = None
        self.memory: Memory
        self.workers: list[Worker] = []  #: of candidate and baseline, whatever became of them
        self.spare: Waking | None = None  #: the runner that the integrity gate will ask first
        self.warmings: Warmings
        self.excused_s = 0.0  #: of the grade's time, spent on what is ours
        self.tuned: Tuned
        self.session: Session

    def run(self) -> Verdict:
        """All gates; the verdict."""
        with contextlib.ExitStack() as stack:
            if self.build is not None:
                stack.callback(self.build.close)
            return self._run(stack)

    def _run(self, stack: contextlib.ExitStack) -> Verdict:
        work = self.work
        detection = self.chip.detect()
        work.sku = detection.sku
        if not detection.usable:
            return work.verdict("unsupported", f"{self.chip.name}: {detection.why}")
        self.server = shared_server(self.chip, self.settings.index, self.settings.baseline_cache)
        self._claim_accelerator()
        if self.device.type != "cpu":
            torch.get_device_module(self.device.type).set_device(self.settings.index)
        try:
            for name in GATES:
                work.progress(name, "")
                self._gate(name, getattr(self, f"_{name}"), stack)
        except Stopped as stop:
            return work.verdict(stop.status, stop.message)
        finally:
            end_all(self.workers)
        return work.verdict("passed", work.message)

    def _claim_accelerator(self) -> None:
        """No other process of this machine may grade on it meanwhile."""
        if taken := claim_accelerator(self.chip, self.settings.index):
            self.work.environment["accelerator"] = taken

    def discard(self) -> None:
        """Ends the server that failed this grade."""
        if self.server is not None:
            discard(self.server)

    def _gate(
        self, name: str, gate: Callable[[contextlib.ExitStack], str], stack: contextlib.ExitStack
    ) -> None:
        """Runs one gate, records it, and turns a candidate's failure into `Stopped`."""
        begin = time.monotonic()

        def record(passed: bool, detail: str) -> None:
            seconds = time.monotonic() - begin
            self.work.gates.append(Gate(name, passed, seconds, detail))

        try:
            record(True, gate(stack))
        except Fault as fault:
            late = fault.status == "timed_out" and self._late()
            message = late or fault.message
            record(False, message)
            raise Stopped(fault.status, message) from fault
        except Stopped as stop:
            record(False, stop.message)
            raise

    def _scan(self, stack: contextlib.ExitStack) -> str:
        candidate = self.work.candidate
        findings = self.language.scan(candidate.source, candidate.entry_point, self.operator)
        self.work.findings.extend(findings)
        if findings:
            first = findings[0]
            more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
            raise Stopped("rejected", f"line {first.line}: {first.reason}{more}")
        return "only the candidate's own kernels compute"

    def _build(self, stack: contextlib.ExitStack) -> str:
        waking = self._waking("candidate")
        build = self._started_build(stack)
        self._warm_baseline(stack)
        self.memory = Memory(self.device)
        stack.callback(self.memory.close)
        self.session = self._loaded(waking)
        self.work.environment |= _environment(self.chip, self.session, self.memory)
        loaded = f"loaded {self.work.candidate.entry_point}"
        return loaded if build is None else f"{loaded}; {self._built(build)}"

    def _started_build(self, stack: contextlib.ExitStack) -> Build | None:
        """Processes that compile for the device while a runner is made ready for it; None where
        nothing is compiled, or the device is no target that is known."""
        if self.build is not None or not compiles(self.work.candidate, self.chip):
            return self.build
        assert self.server is not None
        build = started_build(
            self.server, self.work.candidate, self.operator, self.chip, self.settings
        )
        if build is None:
            self.work.evidence["build"] = {"target": ""}
        else:
            stack.callback(build.close)
        return build

    def _built(self, build: Build) -> str:
        """What came of it, recorded; the kernels are the runner's from here on."""
        try:
            built = build.finish()
        finally:
            self.work.builds += build.built.builds
            self.work.evidence["build"] = build.built.evidence(build.here.target)
        give(self.session.worker, built.caches, self.settings.timeout_s)
        build.close()
        return built.describe(build.here.target)

    def _correctness(self, stack: contextlib.ExitStack) -> str:
        if self._is_replayed():
            self.spare = self._waking("candidate")
        if self.ahead is not None:
            self.ahead.begin()
        cases = self._cases()
        patience = self.settings.patience_s
        if self.chip.attests == "executed":
            patience = self.settings.grade_timeout_s
        gate = Correctness(self.operator, self.session, self.device, self.dice, patience)
        self.gate = gate
        done = iter(range(1, len(cases) + 1))

        def progress(case: Case) -> None:
            self.work.progress("correctness", f"{next(done)}/{len(cases)} {case.name}")
            self._check_time()
            self._little_host_work()  # soon: who computes on the host is slow

        try:
            gate.check(cases, self.settings.draws, progress)
        except Failed as failed:
            raise self._wrong(failed) from failed
        finally:
            report = gate.report
            self.work.comparisons += report.comparisons
            self.work.evidence["calls"] = report.calls
            self.work.evidence["repeats"] = report.repeats
            self.work.evidence["repeats_differing"] = report.repeats_differing
        if self.work.builds:
            reply = self.session.worker.ask("compiled", self.settings.timeout_s)
            self.work.evidence["build"]["compiled_by_runner"] = reply.get("compiled")
        return f"{len(cases)} cases, {report.calls} calls, {len(report.comparisons)} results right"

    def _integrity(self, stack: contextlib.ExitStack) -> str:
        self._little_host_work()
        if not self._is_replayed():
            return f"not asked for: {self.language.name} candidate, {self.operator.kind} operator"

        def open_session() -> Session:
            waking, self.spare = self.spare or self._waking("candidate"), None
            return self._loaded(waking, disabled=True)

        def question(case: Case) -> Question:
            self._check_time()
            return self.gate.question(case, case.draws[0])

        seen = integrity.replay(open_session, self._replayable(), question)
        if self.spare is not None:  # nobody else may be on the device when it is timed
            self.spare.worker.end()
        self._check_time()  # a runner that had no time left was not wrong without its kernels
        self.work.evidence["replayed_without_kernels"] = list(seen.replayed)
        self.work.evidence["right_without_kernels"] = list(seen.right_without)
        if seen.right_without:
            raise Stopped(
                "tampered",
                "the answer does not come from the candidate's own kernels: with them disabled, "
                f"case {seen.right_without[0]!r} is still right",
            )
        if seen.replayed:
            count = len(seen.replayed)
            return f"{count} cases without kernels, all of them wrong, as they should be"
        if seen.excuse:
            return f"nothing to replay: every answer is {seen.excuse}, which host code may make"
        self.work.evidence["silent_cases"] = {name: list(why) for name, why in seen.silent.items()}
        text = f"no case of {self.operator.id} can show that kernels gave the answer"
        raise Stopped("infrastructure_error", text)

    def _is_replayed(self) -> bool:
        """Whether the integrity gate has something to show."""
        return self.language.own_kernels and self.operator.kind == "compute"

    def _little_host_work(self) -> None:
        """The host may read a length or a factor, not what an answer is computed from; and it may
        not have torch compute."""
        if not self.language.own_kernels or self.operator.kind == "metadata":
            return
        reads, computed = self.session.most_reads, sorted(self.session.computed)
        self.work.evidence["host_reads"] = reads
        self.work.evidence["host_computed"] = computed
        if computed:
            raise Stopped(
                "tampered",
                f"host code computed with {', '.join(computed[:3])}: it may make, view and move "
                "tensors; to compute is for the candidate's own kernels",
            )
        if reads > MOST_READS:
            raise Stopped(
                "tampered",
                f"host code read {reads} elements of tensors in one call; up to {MOST_READS} may "
                "be sizes and factors: what an answer is made of is for kernels to read",
            )

    def _replayable(self) -> list[Case]:
        """Small cases in a random order, those that were asked for first."""
        asked = [case for case in self._cases() if case.tier == "small"]
        small = [c for c in self.operator.tier("small") if not unsupported(c, self.chip)]
        others = [case for case in small if case not in asked]
        for cases in (asked, others):
            self.dice.shuffle(cases)
        return [*asked, *others] or self._cases()

    def _timing(self, stack: contextlib.ExitStack) -> str:
        if not self.settings.timing:
            self.work.message = "right; not timed: switched off"
            return "not timed: switched off"
        if self.chip.timer() is None:
            self.work.message = f"right; not timed: {self.chip.name}"
            return f"not timed: {self.chip.name}"
        cases = [case for case in self._cases() if case.tier == "full"]
        if not cases:
            self.work.message = "right; not timed: no full-tier case was asked for"
            return "not timed: no full-tier case was asked for"
        keeper_now: Timekeeper | None = None
        own_kernels = own_kernels_of(self.language, self.work.candidate.source)
        done = iter(range(1, 2 * len(cases) + 1))

        def keeper(case: Case, fresh: bool) -> Timekeeper:
            nonlocal keeper_now
            if keeper_now is not None and not fresh and self.warmings.serves(case):
                return keeper_now
            if keeper_now is not None:
                keeper_now.baseline.worker.end()
            keeper_now = Timekeeper(
                self.operator,
                self.chip,
                self.work.sku,
                self.dice,
                self.session,
                self._opened_baseline(case),
                own_kernels,
                self.settings.index,
                standing_by=self.warmings.wait(),
            )
            return keeper_now

        def progress(case: Case) -> None:
            self.work.progress("timing", f"{next(done)}/{len(cases)} {case.name}")
            self._check_time()

        try:
            with contextlib.nullcontext() if self.ahead is None else self.ahead.resting():
                untimed = time_cases(cases, keeper, self._record, progress)
        except Failed as failed:
            self.work.comparisons.append(failed.comparison)
            raise self._wrong(failed) from failed
        return self._speed(cases, untimed)

    def _record(self, speed: Speed) -> None:
        self.work.timings.append(speed.timing)
        self.work.evidence.setdefault("timing", {})[speed.timing.case] = speed.evidence
        if speed.impossible:
            raise Stopped("implausible", speed.impossible)

    def _speed(self, cases: Sequence[Case], untimed: dict[str, str]) -> str:
        """The headline: the geometric mean over the cases that could be timed, half at the least.

        A case is left untimed only where the measurement failed twice by no doing of the
        candidate's (`speed.time_cases`); the message and the evidence name it.
        """
        if untimed:
            self.work.evidence["untimed"] = untimed
        if 2 * len(untimed) > len(cases):
            name, why = next(iter(untimed.items()))
            count = f"{len(untimed)} of {len(cases)} cases"
            raise Infrastructure(f"{count} could not be timed; {name!r}: {why}")
        ratios = [math.log(timing.speedup) for timing in self.work.timings]
        speedup = math.exp(sum(ratios) / len(ratios))
        left_out = "".join(f"; {name!r} not timed: {why}" for name, why in untimed.items())
        over = f" over {len(ratios)} of {len(cases)} cases" if untimed else ""
        against = baseline_name(self.operator, self.device)
        self.work.message = f"right; {speedup:.2f}x {against}{over}{left_out}"
        return f"{len(ratios)} cases, {speedup:.2f}x in the geometric mean{left_out}"

    def _wrong(self, failed: Failed) -> Stopped:
        """What the comparison says, and a hint where the reason is likely to be a known one."""
        status, text = failed.comparison.status, describe(failed.comparison)
        if status == "nondeterministic":
            hint = autotuned_in_place(self.work.candidate.source)
            text = f"{text}; {hint}" if hint else text
        return Stopped(status, text)

    def _warm_baseline(self, stack: contextlib.ExitStack) -> None:
        """Starts the runners of the baseline, which the timing gate takes."""
        full = [case for case in self._cases() if case.tier == "full"]
        server, limits = self.server, limits_for(self.chip, self.settings)
        if not full or not self.settings.timing or self.chip.timer() is None:
            return
        assert server is not None
        compiled = "torch.compile" in baseline_name(self.operator, self.device)
        timeout_s = MOST_COMPILE_S if compiled else self.settings.timeout_s

        def warming(share: Sequence[Case], *, tunes: bool = True) -> Warming:
            return Warming(
                lambda: server.spawn("baseline", self.chip, limits),
                self.operator,
                share,
                self.device,
                timeout_s,
                tunes=tunes,
            )

        cache = cache_folder(self.settings.baseline_cache)
        self.tuned = Tuned(cache, self.operator, full, self.work.sku)
        if compiled:
            server.ready_inductor()
            most = self._room(full)
            self.warmings = of_compiled(warming, full, bool(self.tuned), bool(cache), most)
        else:
            self.warmings = Warmings(warming, [full])
        stack.callback(self.warmings.close)
        if cache or not compiled:  # else it is tuned in each grade, alone on the device
            self.warmings.start()

    def _room(self, cases: Sequence[Case]) -> int:
        """How many baselines may be at work at once: each has some CPUs, and all of them, with
        their inputs, copies and contexts, a small share of the device's memory."""
        most = len(os.sched_getaffinity(0)) // CPUS_EACH
        memory = self.chip.memory(self.settings.index)
        if memory is None:
            return most
        nbytes = max(
            max(self.operator.cost(case).nbytes, sum(spec.nbytes for spec in case.tensors))
            for case in cases
        )
        return min(most, int(memory.free_bytes * MEMORY_SHARE / (4 * nbytes + (1 << 30))))

    def _opened_baseline(self, case: Case) -> Session:
        """A runner that was warmed for the case; a fresh one where that failed."""
        begin = time.monotonic()
        warming = self.warmings.take(case)
        worker = warming.take()
        if worker is not None:
            self.workers.append(worker)
        self._excuse(time.monotonic() - begin)
        if self.warmings.failures:
            self.work.evidence["baseline_not_warmed"] = list(self.warmings.failures)
        if worker is not None:
            if warming.kept:
                self.tuned.note()
            return self._session(worker)
        session = self._session(self._waking("baseline").awake(self.settings.timeout_s))
        session.load_baseline(self.operator.id)
        return session

    def _excuse(self, waited_s: float) -> None:
        """What our own compilers take is at nobody's expense, for as long as a grade may take."""
        self.excused_s += waited_s
        self.session.ends_at += waited_s
        if self.excused_s > self.settings.grade_timeout_s:
            raise Infrastructure(f"the baseline compiled for {self.excused_s:.0f} s")

    def _cases(self) -> list[Case]:
        supported, left_out = asked_cases(self.operator, self.chip, self.settings)
        if left_out:
            self.work.evidence["cases_left_out"] = left_out
        if not supported:
            why = next(iter(left_out.values()), "no case of this name or tier")
            raise Stopped("unsupported", f"no case can run on {self.chip.name}: {why}")
        return supported

    def _waking(self, role: str) -> Waking:
        """A fresh runner, which gets its device ready while the judge goes on."""
        assert self.server is not None
        worker = self.server.spawn(role, self.chip, limits_for(self.chip, self.settings))
        self.workers.append(worker)
        return Waking(worker)

    def _loaded(self, waking: Waking, *, disabled: bool = False) -> Session:
        """The runner with the candidate loaded."""
        session = self._session(waking.awake(self.settings.timeout_s))
        session.load(
            source=self.work.candidate.source,
            entry=self.work.candidate.entry_point,
            language=self.work.candidate.language,
            disabled=disabled,
        )
        return session

    def _session(self, worker: Worker) -> Session:
        """`worker`, with what is left of the grade's time for all that it is asked."""
        ends_at = self.work.began + self.excused_s + self.settings.grade_timeout_s
        return Session(worker, self.memory, self.settings.timeout_s, ends_at)

    def _check_time(self) -> None:
        if late := self._late():
            raise Stopped("timed_out", late)

    def _late(self) -> str:
        """What to say if the grade has taken longer than it may; else empty."""
        limit = self.settings.grade_timeout_s
        if time.monotonic() - self.work.began - self.excused_s < limit:
            return ""
        call = self.settings.timeout_s
        return f"the grade took longer than {limit:g} s in all (each call may take {call:g} s)"


def _environment(chip: Chip, session: Session, memory: Memory) -> dict[str, str]:
    return {
        "isolation": session.worker.isolation,
        "transport": memory.note,
        "torch": torch.__version__,
        "triton": version("triton"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "machine": platform.machine(),
        "driver": chip.detect().driver,
    }
