"""The timing gate: full-tier cases against their baseline, and every timed call answerable.

`alternate` has the order of events; here is what the judge does at each: secret inputs, refreshed
before every block in places that nobody foresees; results of timed calls compared like any others;
the runner's reports read as hostile; and what the figures say of the candidate. Device layer.
"""

from __future__ import annotations

import contextlib
import math
import random
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict, astuple, dataclass
from types import ModuleType
from typing import Any

import torch

from kernelmark.evaluators.chips.base import Chip, Peaks
from kernelmark.evaluators.grading import alternate, statistics, wire
from kernelmark.evaluators.grading.arena import aligned, storage_bytes
from kernelmark.evaluators.grading.channel import Garbled, Late, field, printable
from kernelmark.evaluators.grading.correctness import Failed
from kernelmark.evaluators.grading.latch import QUEUE_LIMIT, Latch, LatchError
from kernelmark.evaluators.grading.records import Timing
from kernelmark.evaluators.grading.results import Question
from kernelmark.evaluators.grading.session import Session, room_for
from kernelmark.evaluators.grading.statistics import Role
from kernelmark.evaluators.grading.telemetry import Summary, Telemetry, card_uuid
from kernelmark.evaluators.grading.timing import Block, KernelTime, Mode, is_own
from kernelmark.evaluators.grading.workers import Fault, Infrastructure
from kernelmark.evaluators.languages.base import Language
from kernelmark.operators.draws import Call, draw
from kernelmark.operators.records import Case, Operator

#: share of the free device memory that one runner's input sets and results may take
MEMORY_SHARE = 0.2
#: draws that the input sets are made of; no further ones once they take so many bytes
POOL, POOL_BYTES = 3, 4 << 30
#: results of a block that are checked, any of them: two of small cases, from so many bytes on one.
#: Medians count, so that only who cheats in half the calls of half the blocks gains anything.
CHECKED, LARGE_BYTES = 2, 16 << 20
#: from so many bytes on, share of the blocks of which one is checked, by a secret coin: a runner
#: that cheats in most calls of most blocks, or it gains nothing, is asked in some of them
HUGE_BYTES, CHECKED_BLOCKS = 64 << 20, 0.5
#: single calls that are waited for
LATENCIES = 5
#: more device time than this in kernels that are neither the candidate's nor copies and fills
FOREIGN_LIMIT = 0.2
#: names of device work that moves or fills memory: what host code may ask the framework for
_MOVES = ("memcpy", "memset", "copy_kernel", "fillfunctor", "catarraybatchedcopy")
#: fills of which elements may change places at random
_EXCHANGEABLE = frozenset({"normal", "wide", "uniform", "integers", "bits", "bool"})
_SAME_SIZE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.complex128}


class Disturbed(Exception):
    """The measurement is void, and not known to be so by the candidate's doing."""


@dataclass(frozen=True)
class Inputs:
    """What one input set holds now: a draw, changed as `exchanged` does with `salt`."""

    seed: int
    salt: int | None


class Draws:
    """Secret inputs of one case. A few full draws are kept; the rest are changes to them."""

    def __init__(self, operator: Operator, case: Case, device: torch.device, dice: random.Random):
        self.operator, self.case, self.device, self.dice = operator, case, device, dice
        fills = [spec.fill for spec in case.tensors]
        self.changeable = [fill in _EXCHANGEABLE for fill in fills]
        self._room = 0
        self._kept: dict[int, Call] = {}
        if operator.prepare is None and any(self.changeable):
            kept_bytes = 0
            while len(self._kept) < POOL and kept_bytes < POOL_BYTES:
                seed = dice.getrandbits(63)
                self._kept[seed] = call = draw(operator, case, "base", seed, device)
                kept_bytes += sum(storage_bytes(tensor).numel() for tensor in call.tensors())

    def fresh(self) -> Inputs:
        """Inputs that were never used before."""
        if not self._kept:
            return Inputs(self.dice.getrandbits(63), None)
        return Inputs(self.dice.choice(list(self._kept)), self.dice.getrandbits(62))

    def base(self, inputs: Inputs) -> Call:
        """The draw behind `inputs`; not to be written to."""
        kept = self._kept.get(inputs.seed)
        return kept or draw(self.operator, self.case, "base", inputs.seed, self.device)

    def room(self) -> int:
        """Bytes of the results of one call."""
        self._room = self._room or room_for(self.question(self.fresh()).expected)
        return self._room

    def exchange(self, inputs: Inputs, flats: Sequence[torch.Tensor]) -> None:
        """Makes copies of the draw's storages (`flats`, bytes) into those of `inputs`."""
        if inputs.salt is None:
            return
        specs = zip(self.case.tensors, self.changeable, flats, strict=True)
        for number, (spec, changeable, flat) in enumerate(specs):
            if changeable:
                exchange(flat, spec.dtype.itemsize, inputs.salt + number)

    def question(self, inputs: Inputs) -> Question:
        """`inputs` made again, privately, and their answer."""
        call = self.base(inputs).clone()
        flats = [storage_bytes(tensor) for tensor in call.tensors()]
        self.exchange(inputs, flats)
        return Question(self.operator, self.case, "timed", call)


def exchange(flat: torch.Tensor, itemsize: int, salt: int) -> None:
    """Overwrites elements, spread over all of `flat` (bytes), by others of its elements.

    About one in a thousand, at least 64, starting at a secret place: what was computed for the
    old contents is wrong, and looking at a few elements does not show it. Same salt, same result.
    """
    items = flat[: flat.numel() // itemsize * itemsize].view(_SAME_SIZE[itemsize])
    if items.numel() < 2:
        return
    count = min(max(64, items.numel() >> 10), items.numel() // 2, 1 << 18)
    step = items.numel() // count
    generator = torch.Generator(flat.device).manual_seed(salt)
    target = items[salt % step :: step][:count]
    source = torch.randint(
        items.numel(), (target.numel(),), generator=generator, device=flat.device
    )
    target.copy_(items[source])


class TimedSide:
    """`alternate.Side` over a session: the candidate's, or the baseline's.

    Results of the baseline are not checked. Whatever goes wrong in its runner is ours: `Disturbed`.
    """

    def __init__(self, session: Session, draws: Draws, role: Role) -> None:
        self.session = session
        self.draws = draws
        self.role = role
        self.dice = draws.dice
        self._layouts: list[list[wire.Layout]] = []
        self._inputs: list[Inputs] = []
        self._region = (0, 0)
        self._mode: Mode | None = None
        self._calls: list[int] = []  #: of each block of the recording
        self._late = 0

    def open(self, sets: int, latch: Latch | None) -> None:
        """Makes `sets` input sets in the runner, in place of those that it had."""
        example = self.draws.base(self.draws.fresh())
        start = 0
        self._layouts = []
        for _ in range(sets):
            self._layouts.append(wire.lay_out(example.tensors(), start))
            start = wire.end_of(self._layouts[-1]) if self._layouts[-1] else start
        self._region = (start, start + self.draws.room())
        self.session.need(self._region[1])
        fds = [] if latch is None else [latch.fd]
        self._ask(
            "time_open",
            fds,
            sets=sets,
            tree=wire.encode(example),
            layouts=[[astuple(layout) for layout in layouts] for layouts in self._layouts],
        )

    def refresh(self) -> None:
        """Fresh secret inputs for every set, in the arena; the runner takes them from there."""
        self._inputs = [self.draws.fresh() for _ in self._layouts]
        arena = self.session.memory.arena.bytes
        for inputs, layouts in zip(self._inputs, self._layouts, strict=True):
            flats = [arena[x.at : x.at + x.nbytes] for x in layouts]
            for flat, tensor in zip(flats, self.draws.base(inputs).tensors(), strict=True):
                flat.copy_(storage_bytes(tensor))
            self.draws.exchange(inputs, flats)
        self.session.synchronize()

    def start(self) -> None:
        """Warm-up on inputs of its own; opens a recording."""
        self.refresh()
        self._calls = []
        self._ask("time_start")

    def block(self, mode: Mode, calls: int) -> None:
        """One recorded call on each of the first `calls` sets."""
        self._mode = mode
        self._calls.append(1 if mode == "stream" else calls)
        self._ask("time_block", mode=mode, calls=calls)

    def check(self, calls: int) -> None:
        """Compares results of some of the last block's `calls`. Raises `Failed`."""
        if self.role == "baseline" or (self._mode == "warm" and self._mutates()):
            return  # warm calls run twice on the same arguments
        for number in self._chosen(calls):
            question = self.draws.question(self._inputs[number])
            outcome = self.session.collect(
                "time_collect", number, self._layouts[number], self._region
            )
            for comparison in question.judge(outcome):
                if comparison.status != "passed":
                    raise Failed(comparison)

    def stop(self) -> Callable[[], tuple[Block, ...]]:
        """Has the recording closed and does not wait; what it returns waits, and gives it."""
        number, failure = 0, None
        try:
            with self._ours():
                number = self.session.worker.post("time_stop")
        except Disturbed as error:  # told when the other side's answer has been read
            failure = error
        return lambda: self._recording(number, failure)

    def _recording(self, number: int, failure: Disturbed | None) -> tuple[Block, ...]:
        if failure is not None:
            raise failure
        with self._ours():
            reply = self.session.worker.answer(number, self.session.timeout_s)
        try:
            items = _items(reply, len(self._calls))
            return tuple(map(parse_block, items, self._calls))
        except Garbled as error:
            raise self.session.worker.garbled(error) from error

    def queue_limit(self, activities: int) -> int:
        """Calls that fit into a stream's queue, each with the copies of its inputs."""
        return QUEUE_LIMIT // (max(1, activities) + len(self._layouts[0]))

    def queue(self, calls: int, ticket: int, timeout_s: float) -> bool:
        """Queues calls behind the latch; False if the runner did not get there in time."""
        self._mode = "stream"
        with self._ours():
            self._late = self.session.worker.post("time_queue", calls=calls, ticket=ticket)
            try:
                self.session.worker.answer(self._late, timeout_s, patient=True)
            except Late:
                return False
        return True

    def unqueue(self) -> None:
        """Receives the answer that `queue` did not wait for."""
        with self._ours():
            self.session.worker.answer(self._late, self.session.timeout_s)

    def stuck(self, error: LatchError) -> Exception:
        """A device that does not get through its queue; the runner's end frees it."""
        self.session.worker.end()
        if self.role == "baseline":
            return Disturbed(f"the baseline: {error}")
        return Fault("timed_out", f"calls that were queued do not end: {error}")

    def latencies_us(self) -> tuple[float, ...]:
        """Wall time of single calls by the judge's clock; the last one's result is checked."""
        times = []
        for _ in range(LATENCIES + 1):
            begin = time.perf_counter_ns()
            self._ask("time_single")
            times.append((time.perf_counter_ns() - begin) / 1e3)
        self._mode = "warm"  # several calls on the same arguments
        self.check(1)
        return tuple(times[1:])

    def close(self) -> None:
        """Lets go of the input sets, and of a recording that was given up."""
        self._ask("time_close")

    def _ask(self, op: str, fds: Sequence[int] = (), **fields: Any) -> dict[str, Any]:
        with self._ours():
            return self.session.worker.ask(op, self.session.timeout_s, fds, **fields)

    @contextlib.contextmanager
    def _ours(self) -> Iterator[None]:
        try:
            yield
        except Fault as fault:
            if self.role == "candidate":
                raise
            raise Disturbed(f"the baseline: {fault.message}") from fault

    def _mutates(self) -> bool:
        parameters = self.draws.operator.parameters(self.draws.case.overload)
        return any(parameter.mutable for parameter in parameters)

    def _chosen(self, calls: int) -> list[int]:
        case_bytes = sum(layout.nbytes for layout in self._layouts[0])
        if case_bytes >= HUGE_BYTES and self.dice.random() >= CHECKED_BLOCKS:
            return []
        count = CHECKED if case_bytes < LARGE_BYTES else 1
        return self.dice.sample(range(calls), min(count, calls))


@dataclass(frozen=True)
class Speed:
    """What the gate found of one case."""

    timing: Timing
    evidence: dict[str, Any]
    least_us: float | None  #: by the chip's fastest arithmetic; None where its peaks are unknown

    @property
    def impossible(self) -> str:
        """Why the time cannot be true, one line; empty if it can."""
        timing = self.timing
        if statistics.plausibility(timing.device_us, self.least_us) != "implausible":
            return ""
        return (
            f"case {timing.case!r}: {timing.device_us:.2f} us, "
            f"where the chip needs {self.least_us:.2f} us"
        )


class Timekeeper:
    """Times cases of one operator: a runner of the candidate against one of the baseline."""

    def __init__(
        self,
        operator: Operator,
        chip: Chip,
        sku: str,
        dice: random.Random,
        candidate: Session,
        baseline: Session,
        own_kernels: frozenset[str] | None,
        index: int = 0,
        standing_by: Collection[int] = (),
    ) -> None:
        """`standing_by`: processes of ours that have the accelerator open, and do nothing."""
        self.operator = operator
        self.chip = chip
        self.peaks: Peaks | None = chip.peaks(sku)
        self.dice = dice
        self.candidate = candidate
        self.baseline = baseline
        self.own_kernels = own_kernels
        self.index = index
        self.standing_by = standing_by
        self.device = torch.device(chip.device)

    def time(self, case: Case, *, last: bool) -> Speed:
        """One case.

        Raises `Failed` on a wrong result, `Fault` on what an honest candidate can't do, and
        `Disturbed` where the measurement is void. Not before the `last` try is a candidate whose
        claim the judge's clock contradicts called `tampered`.
        """
        draws = Draws(self.operator, case, self.device, self.dice)
        first = TimedSide(self.candidate, draws, "candidate")
        second = TimedSide(self.baseline, draws, "baseline")
        ours = {self.candidate.worker.pid, self.baseline.worker.pid, *self.standing_by}
        sets = self._sets(case, draws)
        latch = Latch() if self._has_latch() else None
        try:
            for side in (first, second):
                side.open(sets, latch)
            with Telemetry(card_uuid(self.device), ours=ours) as telemetry:
                measured = alternate.alternate(first, second, sets, latch)
        except Disturbed:
            first.close()  # the baseline's runner is replaced
            raise
        except Fault as fault:
            if last or fault.status != "implausible":
                raise
            first.close()  # a trace with holes: once may be the tracer's fault
            raise Disturbed(fault.message) from fault
        finally:
            if latch is not None:
                latch.close()
        for side in (first, second):
            side.close()
        self._plausible(*measured, last=last, others=telemetry.summary.other_processes or 0)
        return self._speed(case, measured, sets, telemetry.summary)

    def _speed(
        self,
        case: Case,
        measured: tuple[alternate.Measured, alternate.Measured],
        sets: int,
        summary: Summary,
    ) -> Speed:
        share = self._attribution(measured[0])
        timing = alternate.timing_record(
            case.name,
            *measured,
            floor_us=self._floor_us(case),
            telemetry=summary,
            seed=self.dice.getrandbits(31),
        )
        evidence = {
            "sets": sets,
            "clocks": {
                side.role: asdict(side.agreement) | {"correction": side.correction}
                for side in measured
            },
            "own_share": share,
            "other_processes": summary.other_processes,
            "telemetry": summary.source,
            "kernels": [[k.name, k.count, k.total_us] for k in _kernels(measured[0].cold)][:12],
        }
        cost = self.operator.cost(case)
        least_us = None if self.peaks is None else self.peaks.least_us(cost.nbytes, cost.flops)
        return Speed(timing, evidence, least_us)

    def _floor_us(self, case: Case) -> float | None:
        return None if self.peaks is None else floor_us(self.operator, case, self.peaks)

    def _has_latch(self) -> bool:
        return self.device.type == "cuda" and torch.version.hip is None

    def _sets(self, case: Case, draws: Draws) -> int:
        tensors = draws.base(draws.fresh()).tensors()
        inputs = sum(aligned(t.untyped_storage().nbytes()) for t in tensors)
        nbytes = inputs + draws.room()
        self.candidate.memory.leave_free(round(alternate.SHORT_SETS * nbytes / MEMORY_SHARE))
        memory = self.chip.memory(self.index)
        spend = (memory.free_bytes if memory else 4 << 30) * MEMORY_SHARE
        try:
            return alternate.sets_for(nbytes, self._floor_us(case), int(spend))
        except ValueError as error:
            raise Disturbed(str(error)) from error

    def _plausible(
        self,
        candidate: alternate.Measured,
        baseline: alternate.Measured,
        *,
        last: bool,
        others: int = 0,
    ) -> None:
        """Raises `Fault` or `Disturbed` where the clocks, or the trace itself, allow no figure.

        Where `others`, processes that are not ours, use the accelerator, contradiction proves
        nothing against anybody: `Infrastructure` at the `last` try.
        """
        if last and others and (candidate.void or baseline.void):
            raise Infrastructure(
                f"{others} other processes use this accelerator, and the clocks contradict each "
                "other; grade again when it is free"
            )
        if baseline.void:
            detail = baseline.agreement.detail
            raise Disturbed(f"the clocks contradict each other on the baseline: {detail}")
        if candidate.void:
            text = f"takes longer than its runner says: {candidate.agreement.detail}"
            raise Fault("tampered", text) if last else Disturbed(text)
        for what in ("late", "stray"):
            count = sum(getattr(block, what) or 0 for block in candidate.blocks)
            if count:
                text = f"{count} device activities go on after the call has returned ({what})"
                raise Fault("tampered", text)

    def _attribution(self, side: alternate.Measured) -> float | None:
        """Share of device time in own kernels; too much in foreign ones raises `Fault`."""
        kernels = _kernels(side.cold)
        total = sum(kernel.total_us for kernel in kernels)
        if self.own_kernels is None or not total:
            return None
        own = [k for k in kernels if is_own(k.name, self.own_kernels)]
        foreign = [
            k for k in kernels if k not in own and not any(m in k.name.lower() for m in _MOVES)
        ]
        foreign_share = sum(k.total_us for k in foreign) / total
        if foreign_share > FOREIGN_LIMIT:
            name = max(foreign, key=lambda k: k.total_us).name
            text = f"{foreign_share:.0%} of its device time is in kernels of others ({name})"
            raise Fault("tampered", text)
        return sum(k.total_us for k in own) / total


def time_cases(
    cases: Sequence[Case],
    keeper: Callable[[Case, bool], Timekeeper],
    record: Callable[[Speed], None],
    progress: Callable[[Case], None],
) -> dict[str, str]:
    """Times every case and hands each result to `record`. Names of those that no measurement could
    be made of, with the reason.

    A disturbed case is measured once more after the others, so that what disturbed it may be over.
    `keeper` gives the `Timekeeper` for a case; after a disturbance, whose cause may be the old one,
    one over a fresh baseline runner is asked for (True).
    """
    why: dict[str, str] = {}
    pending = list(cases)
    disturbed = False
    for last in (False, True):
        again = []
        for case in pending:
            progress(case)
            current = keeper(case, disturbed)
            disturbed = False
            try:
                record(current.time(case, last=last))
            except Disturbed as error:
                why[case.name] = str(error)
                again.append(case)
                disturbed = True
        pending = again
    return {case.name: why[case.name] for case in pending}


def floor_us(operator: Operator, case: Case, peaks: Peaks) -> float:
    """The least time that the chip's peaks allow in the case's dtypes, microseconds. No candidate
    is held against it: a float32 product can be made of several of bfloat16."""
    cost = operator.cost(case)
    names = [str(dtype).removeprefix("torch.") for dtype in case.dtypes]
    return peaks.least_us(cost.nbytes, cost.flops, names)


def own_kernels_of(language: Language, source: str) -> frozenset[str] | None:
    """Names of the candidate's kernels, read from its text; None if that is not asked for."""
    if not language.own_kernels:
        return None
    with tempfile.NamedTemporaryFile("w", suffix=language.suffix, encoding="utf-8") as file:
        file.write(source)
        file.flush()
        module = ModuleType("candidate")
        module.__file__ = file.name
        return language.kernel_names(module)


def parse_block(item: Any, calls: int) -> Block:
    """A block of `calls` times as a runner reports it; every field is checked. Raises `Garbled`."""
    if not isinstance(item, dict):
        raise Garbled("a block is no object")
    mode = field(item, "mode", str)
    if mode not in ("cold", "warm", "stream"):
        raise Garbled(f"a block in mode {printable(mode, 20)!r}")
    counts = {name: item.get(name) for name in ("late", "early", "stray", "unheld")}
    if any(v is not None and not (type(v) is int and v >= 0) for v in counts.values()):
        raise Garbled("a block's counts are no counts")
    activities = field(item, "activities", list)
    if any(type(n) is not int or not 0 <= n < 1 << 31 for n in activities):
        raise Garbled("a block's activities are no counts")
    return Block(
        clock=printable(field(item, "clock", str), 20),
        mode=mode,  # type: ignore[arg-type]
        device_us=_times(item, "device_us", calls),
        host_us=_times(item, "host_us", calls),
        busy_us=_times(item, "busy_us", None),
        activities=tuple(activities),
        kernels=tuple(_kernel(kernel) for kernel in field(item, "kernels", list)[:1000]),
        **counts,
    )


def _times(item: dict[str, Any], name: str, length: int | None) -> tuple[float, ...]:
    values = field(item, name, list)
    if length is not None and len(values) != length:
        raise Garbled(f"{len(values)} times, not {length}")
    if any(type(v) not in (int, float) or not math.isfinite(v) or v < 0 for v in values):
        raise Garbled(f"{name} holds what is no time")
    if name == "device_us" and any(v <= 0 for v in values):
        raise Garbled("a call that took no time on the device")
    return tuple(float(v) for v in values)


def _kernel(item: Any) -> KernelTime:
    if not isinstance(item, dict):
        raise Garbled("a kernel's time is no object")
    (total,) = _times({"total": [item.get("total_us")]}, "total", 1)
    return KernelTime(printable(field(item, "name", str), 300), field(item, "count", int), total)


def _items(reply: dict[str, Any], blocks: int) -> list[Any]:
    items = field(reply, "blocks", list)
    if len(items) != blocks:
        raise Garbled(f"{len(items)} blocks, not {blocks}")
    return items


def _kernels(blocks: Sequence[Block]) -> list[KernelTime]:
    found: dict[str, KernelTime] = {}
    for kernel in (kernel for block in blocks for kernel in block.kernels):
        before = found.get(kernel.name, KernelTime(kernel.name, 0, 0.0))
        found[kernel.name] = KernelTime(
            kernel.name, before.count + kernel.count, before.total_us + kernel.total_us
        )
    return sorted(found.values(), key=lambda kernel: -kernel.total_us)
