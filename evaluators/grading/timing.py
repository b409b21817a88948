"""Device time of calls, measured inside a runner process. Device layer.

One call is measured like this, all on the current stream:

    flush the cache | hold | mark | THE CALL | mark | wait for the device

* The *device trace* (CUPTI through torch's Kineto; ROCm's tracer by the same road) gives each
  kernel, copy and fill on every stream with its start and end. What was launched between the two
  marks belongs to the call: the tracer numbers launches in the order in which they are made, so a
  kernel is charged to the call that launched it, on whatever stream and however late it runs.
* A call's device time is its *span*: last end minus first start over all streams. `busy_us` is the
  time in which at least one activity ran.
* The *hold* is a kernel that keeps the stream busy while the host queues the call's launches.
  Without it the gaps between a call's kernels would measure Python, not the device.
* Flush, hold and marks lie outside the span.

What this cannot do: withstand a candidate that rewrites this process. It runs beside foreign code,
so every figure made here is a claim. `latch` and `statistics.agreement` check the claim from
the judge's process.

`EventTimer` is the fallback for back ends without a tracer. It is chosen by name and named in each
`Block`; nothing here falls back by itself.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import torch

Call = Callable[[], object]

#: cold: caches flushed before each call. warm: the same call ran just before. stream: all calls
#: queued back to back, no flush, timed as one; what `latch` times from outside
Mode = Literal["cold", "warm", "stream"]

#: int32 words in one cache line of 128 bytes, the largest in use
LINE_WORDS = 32
#: activities that one `Flush` puts on the device: two in-place element-wise kernels
FLUSH_ACTIVITIES = 2
#: name of the kernel behind `torch.cuda._sleep`: the hold and both marks
MARK_KERNEL = "spin_kernel"
#: an activity may seem to overlap its neighbour by this much: the tracer's rounding, and kernels
#: that are launched to start during the tail of the one before
SLACK_NS = 2_000
#: longest hold; a call that takes the host longer may show its gaps, see `Block.unheld`
MAX_HOLD_US = 20_000.0
#: activity types of Kineto that are work on the device
WORK = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})

CUDA_ERROR_NOT_SUPPORTED = 801


class TimingError(RuntimeError):
    """The measurement is void: the trace is incomplete, or shows what an honest call can't do."""


@dataclass(frozen=True)
class Activity:
    """One kernel, copy or fill on the device. `launch` orders launches within the process.

    `launched_ns` is when the host began to launch it, on the same clock; None: not in the trace.
    """

    name: str
    start_ns: int
    end_ns: int
    launch: int
    stream: int = 0
    launched_ns: int | None = None


@dataclass(frozen=True)
class KernelTime:
    """Activities of one name over all calls of a block: how many, and their summed durations."""

    name: str
    count: int
    total_us: float


@dataclass(frozen=True)
class Block:
    """Calls measured one after another; crosses to the judge by `records.to_json`.

    The tuples have one entry a call, in the order run; in mode "stream" one entry for all. With
    the clock `events` there is no trace: `busy_us`, `activities` and `kernels` are empty and the
    counts None.
    """

    clock: str  #: "cupti", "roctracer" or "events"
    mode: Mode
    device_us: tuple[float, ...]  #: span of each call; stream: span of all over their number
    host_us: tuple[float, ...]  #: host time until each call returned; stream: likewise the mean
    busy_us: tuple[float, ...] = ()
    activities: tuple[int, ...] = ()
    kernels: tuple[KernelTime, ...] = ()
    late: int | None = None  #: activities still running when their call's stream was done
    early: int | None = None  #: activities that did not wait for the stream that they came from
    stray: int | None = None  #: activities launched between calls, by nobody that we know
    unheld: int | None = None  #: calls whose span may hold gaps that the host made, not the device


class Timer(Protocol):
    """Measures blocks of calls. One recording is open at a time.

    `start` and `stop` may cost a tenth of a second, `block` next to nothing beyond its calls:
    record all blocks of a case, or of several cases, between one `start` and one `stop`.
    """

    clock: str

    def start(self, warmup: Sequence[Call]) -> None:
        """Warms up and opens a recording."""
        ...

    def warm(self, warmup: Sequence[Call]) -> None:
        """Runs `warmup` untimed, which also shows how long the holds of later blocks must be.

        At least two calls, on inputs of their own: what is timed later must not have been seen.
        """
        ...

    def block(self, calls: Sequence[Call], mode: Mode = "cold") -> None:
        """Runs each of `calls` once, measured. Exceptions of a call pass through."""
        ...

    def stop(self) -> tuple[Block, ...]:
        """Closes the recording: its blocks, in order. Raises TimingError when they are void."""
        ...


def timer_for(device: str, last_level_cache_bytes: int, *, clock: str = "trace") -> Timer:
    """The timer of a device type. `clock`: "trace" (device trace), or "events" by name only."""
    flush = Flush(device, last_level_cache_bytes)
    if clock == "events":
        return EventTimer(device, flush)
    if clock == "trace" and device == "cuda":
        return TraceTimer(flush)
    raise ValueError(f"no clock {clock!r} on {device!r}; use clock='events'")


def measure(
    calls: Sequence[Call], timer: Timer, warmup: Sequence[Call], mode: Mode = "cold"
) -> Block:
    """One recording of one block. Rotation over private input sets is in `calls`."""
    timer.start(warmup)
    try:
        timer.block(calls, mode)
    finally:
        blocks = timer.stop()
    return blocks[0]


def own_share(blocks: Sequence[Block], own: Collection[str]) -> float:
    """Share of device time, 0 to 1, spent in kernels named in `own` (the candidate's kernels).

    A name counts when it equals one of `own`, or is one with a compiler's suffix (``name.kd``,
    ``name_0d1d``). Copies, fills and library kernels are the rest. Raises TimingError without a
    trace.
    """
    kernels = [kernel for block in blocks for kernel in block.kernels]
    total = sum(kernel.total_us for kernel in kernels)
    if total <= 0:
        raise TimingError("no kernels in the trace: the share of device time is unknown")
    return sum(k.total_us for k in kernels if is_own(k.name, own)) / total


def is_own(name: str, own: Collection[str]) -> bool:
    """Whether an activity called `name` is a kernel named in `own`, a compiler's suffix aside."""
    if name in own or name.removesuffix(".kd") in own:
        return True
    stem, _, suffix = name.rpartition("_")
    return stem in own and bool(suffix) and suffix.strip("0123456789cde") == ""


class Flush:
    """Evicts what a candidate may have left in the last-level cache.

    Two passes that read and write: every 2nd to 8th line of a buffer of 4 times the cache, then a
    contiguous range of 2 to 3 times the cache. Range, offset and stride are drawn anew each time
    from the operating system's entropy, so that no fixed set of lines survives. On NVIDIA, lines
    marked as persisting are first reset to normal. Holds 4 times the cache in memory.

    Both passes write, on purpose: the cache is left full of lines that are yet to be written back,
    so a call pays for as many write-backs as it makes, as it would in a longer program. After a
    flush that only reads, a call's results could stay in the cache beyond its end, unpaid. The
    contiguous pass comes last, so that every call finds the same kind of lines to write back.
    """

    def __init__(self, device: str, last_level_cache_bytes: int) -> None:
        if last_level_cache_bytes <= 0:
            raise ValueError("the size of the last-level cache is needed to flush it")
        self.device = device
        self.cache_lines = max(1, last_level_cache_bytes // (4 * LINE_WORDS))
        self._rng = np.random.default_rng()
        self._buffer: torch.Tensor | None = None
        nvidia = device == "cuda" and torch.version.hip is None
        self._reset = _persistence_reset() if nvidia else None

    def __call__(self) -> None:
        """Enqueues the flush on the current stream: `FLUSH_ACTIVITIES` kernels, no waiting."""
        if self._buffer is None:
            self._buffer = self._allocate()
        if self._reset is not None:
            self._reset()
        lines = self._draw(2 * self.cache_lines, 3 * self.cache_lines)
        first = self._draw(0, 4 * self.cache_lines - lines)
        stride = self._draw(2, 8)
        spread = self._buffer[self._draw(0, stride - 1) :: stride]
        for part in (spread, self._buffer[first : first + lines]):
            part.bitwise_xor_(self._draw(1, 2**31 - 1))  # the same twice would undo itself

    def _allocate(self) -> torch.Tensor:
        shape = (4 * self.cache_lines, LINE_WORDS)
        return torch.zeros(shape, dtype=torch.int32, device=self.device)

    def _draw(self, low: int, high: int) -> int:
        return int(self._rng.integers(low, high, endpoint=True))


def _persistence_reset() -> Callable[[], None]:
    """cuCtxResetPersistingL2Cache (CUDA driver API): persisting lines become normal ones.

    Chips older than Ampere have no persisting lines and answer so; any other error is raised.
    """
    reset = ctypes.CDLL("libcuda.so.1").cuCtxResetPersistingL2Cache
    reset.argtypes, reset.restype = [], ctypes.c_int

    def call() -> None:
        code = reset()
        if code not in (0, CUDA_ERROR_NOT_SUPPORTED):
            raise TimingError(f"cuCtxResetPersistingL2Cache failed with CUDA error {code}")

    return call


@dataclass
class _Run:
    """What the host knows of a block while it is recorded: one host time a window of the trace."""

    mode: Mode
    calls: int
    host_us: list[float]


class TraceTimer:
    """Device time from the device's activity trace: every stream, kernels, copies and fills."""

    def __init__(self, flush: Flush) -> None:
        if torch.profiler.ProfilerActivity.CUDA not in torch._C._autograd._supported_activities():
            raise TimingError("this torch has no device tracer; use the clock 'events' by name")
        self.clock = "cupti" if torch.version.hip is None else "roctracer"
        self._flush = flush
        self._profiler: Any = None
        self._runs: list[_Run] = []
        self._cycles_per_us = 0.0
        self._hold_us = 0.0

    def start(self, warmup: Sequence[Call]) -> None:
        """Opens a recording. The first in a process also starts the tracer, 0.1 s or more."""
        if self._profiler is not None:
            raise RuntimeError("a recording is already open")
        self.warm(warmup)
        self._cycles_per_us = _spin_rate()
        self._runs = []
        self._profiler = torch.autograd.profiler.profile(
            use_device="cuda", use_cpu=False, use_kineto=True
        )
        self._profiler.__enter__()

    def warm(self, warmup: Sequence[Call]) -> None:
        """Runs `warmup` untimed; sets the hold of the blocks that follow."""
        self._hold_us = 2 * _host_us(warmup) + 10

    def block(self, calls: Sequence[Call], mode: Mode = "cold") -> None:
        """Runs and records `calls`.

        Garbage collection is off. "stream" takes at most `latch.QUEUE_LIMIT` launches.
        """
        if self._profiler is None:
            raise RuntimeError("no recording is open: call start first")
        run = _Run(mode, len(calls), [])
        with _no_garbage_collection():
            if mode == "stream":
                run.host_us.append(self._marked(_all(calls), self._hold_us * len(calls)))
            for call in calls if mode != "stream" else ():
                if mode == "cold":
                    self._flush()
                else:
                    call()
                run.host_us.append(self._marked(call, self._hold_us))
        self._runs.append(run)

    def stop(self) -> tuple[Block, ...]:
        """Closes the recording and splits its trace into blocks."""
        profiler, self._profiler = self._profiler, None
        if profiler is None:
            raise RuntimeError("no recording is open: call start first")
        profiler.__exit__(None, None, None)
        activities = read_activities(profiler.kineto_results.events())
        parts = split(activities, [len(run.host_us) for run in self._runs])
        return tuple(
            summarise(part, self.clock, run.mode, run.host_us, run.calls)
            for run, part in zip(self._runs, parts, strict=True)
        )

    def _marked(self, call: Call, hold_us: float) -> float:
        """Hold, call, end mark, wait. Returns the host's time in the call, microseconds."""
        _spin(int(min(hold_us, MAX_HOLD_US) * self._cycles_per_us))
        begin = time.perf_counter_ns()
        call()
        elapsed = time.perf_counter_ns() - begin
        _spin(1)
        torch.cuda.synchronize()
        return elapsed / 1e3


def _all(calls: Sequence[Call]) -> Call:
    def run() -> None:
        for call in calls:
            call()

    return run


def _host_us(warmup: Sequence[Call]) -> float:
    """Median host time of a call until it returns; the first, which may compile, left out."""
    if len(warmup) < 2:
        raise ValueError("two calls at least are needed to warm up")
    times = []
    for call in warmup:
        torch.cuda.synchronize()
        begin = time.perf_counter_ns()
        call()
        times.append((time.perf_counter_ns() - begin) / 1e3)
    torch.cuda.synchronize()
    return statistics.median(times[1:])


def _spin(cycles: int) -> None:
    """Keeps the current stream busy for some cycles of the SM clock, at least."""
    torch.cuda._sleep(cycles)  # type: ignore[no-untyped-call]


def _spin_rate() -> float:
    """Cycles that `torch.cuda._sleep` counts in a microsecond, by events, at the present clock."""
    cycles = 200_000
    rates = []
    for _ in range(5):
        begin, end = _events(torch.cuda)
        begin.record()
        _spin(cycles)
        end.record()
        end.synchronize()
        rates.append(cycles / (begin.elapsed_time(end) * 1e3))
    return statistics.median(rates)


def _events(module: Any) -> tuple[Any, Any]:
    """Two events of a device module (`torch.cuda`, ...) that take the time."""
    return module.Event(enable_timing=True), module.Event(enable_timing=True)


@contextlib.contextmanager
def _no_garbage_collection() -> Iterator[None]:
    enabled = gc.isenabled()
    gc.disable()  # without a collection first: with torch loaded, one takes 40 ms
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def read_activities(events: Sequence[Any]) -> list[Activity]:
    """Device work among Kineto's raw events (`_KinetoEvent`, torch 2.8 to 2.13), by launch."""
    launched = {e.correlation_id(): e.start_ns() for e in events if _is_on_host(e)}
    found = [
        Activity(
            name=event.name(),
            start_ns=event.start_ns(),
            end_ns=event.start_ns() + event.duration_ns(),
            launch=event.correlation_id(),
            stream=event.device_resource_id(),
            launched_ns=launched.get(event.correlation_id()),
        )
        for event in events
        if _is_work(event)
    ]
    return sorted(found, key=lambda activity: (activity.launch, activity.start_ns))


def _is_on_host(event: Any) -> bool:
    return bool(event.device_type() == torch._C._autograd.DeviceType.CPU)


def _is_work(event: Any) -> bool:
    if _is_on_host(event):
        return False
    if hasattr(event, "activity_type"):  # newer than torch 2.8
        return event.activity_type() in WORK
    return not event.is_user_annotation() and not event.name().endswith(" Sync")


@dataclass(frozen=True)
class Window:
    """One call in the trace: what lay before its hold (flush), the hold, its work, its end mark."""

    before: tuple[Activity, ...]
    hold: Activity
    work: tuple[Activity, ...]
    end: Activity


def split(activities: Sequence[Activity], counts: Sequence[int]) -> list[list[Window]]:
    """Cuts a trace, ordered by launch, at its marks: `counts[i]` calls for block i.

    Raises TimingError unless there are exactly two marks a call: a lost or an extra mark means that
    nothing in the trace can be attributed.
    """
    marks = [i for i, activity in enumerate(activities) if MARK_KERNEL in activity.name]
    if len(marks) != 2 * sum(counts):
        raise TimingError(
            f"the device trace has {len(marks)} marks where {2 * sum(counts)} were made: "
            "it is incomplete, or something else made marks"
        )
    windows, previous = [], -1
    for hold, end in zip(marks[::2], marks[1::2], strict=True):
        windows.append(
            Window(
                before=tuple(activities[previous + 1 : hold]),
                hold=activities[hold],
                work=tuple(activities[hold + 1 : end]),
                end=activities[end],
            )
        )
        previous = end
    ends = np.cumsum(counts).tolist()
    return [windows[e - n : e] for e, n in zip(ends, counts, strict=True)]


def summarise(
    windows: Sequence[Window], clock: str, mode: Mode, host_us: Sequence[float], calls: int
) -> Block:
    """The block that `windows` make. Raises TimingError on a window without activity."""
    empty = [i for i, window in enumerate(windows) if not window.work]
    if empty:
        raise TimingError(f"calls {empty} put no work on the device")
    each = calls / len(windows)  # calls in a window: 1, or all of a stream
    return Block(
        clock=clock,
        mode=mode,
        device_us=tuple(span_us(window.work) / each for window in windows),
        host_us=tuple(host / each for host in host_us),
        busy_us=tuple(busy_us(window.work) / each for window in windows),
        activities=tuple(len(window.work) for window in windows),
        kernels=_totals(windows),
        late=sum(a.end_ns > w.end.start_ns + SLACK_NS for w in windows for a in w.work),
        early=sum(a.start_ns < w.hold.end_ns - SLACK_NS for w in windows for a in w.work),
        # before a block's first hold lies what the caller did to prepare it
        stray=sum(len(w.before) - FLUSH_ACTIVITIES for w in windows[1:]) if mode == "cold" else 0,
        unheld=sum(_is_unheld(window) for window in windows),
    )


def _is_unheld(window: Window) -> bool:
    """Whether the host was still launching when the hold ended, so that a gap may be the host's.

    The first activity's launch opens no gap. A launch that is not in the trace counts as late.
    """
    rest = sorted(window.work, key=lambda a: a.start_ns)[1:]
    return any(a.launched_ns is None or a.launched_ns > window.hold.end_ns for a in rest)


def span_us(work: Sequence[Activity]) -> float:
    """Last end minus first start, over all streams."""
    return (max(a.end_ns for a in work) - min(a.start_ns for a in work)) / 1e3


def busy_us(work: Sequence[Activity]) -> float:
    """Time in which at least one activity ran: the length of the union of their intervals."""
    total, reached = 0, 0
    for activity in sorted(work, key=lambda a: a.start_ns):
        total += max(0, activity.end_ns - max(activity.start_ns, reached))
        reached = max(reached, activity.end_ns)
    return total / 1e3


def _totals(windows: Sequence[Window]) -> tuple[KernelTime, ...]:
    durations: dict[str, list[float]] = defaultdict(list)
    for window in windows:
        for activity in window.work:
            durations[activity.name].append((activity.end_ns - activity.start_ns) / 1e3)
    totals = [KernelTime(name, len(each), sum(each)) for name, each in durations.items()]
    return tuple(sorted(totals, key=lambda kernel: (-kernel.total_us, kernel.name)))


class EventTimer:
    """Device time between two events on the current stream: the named fallback.

    Blind to other streams, and 2 to 3 microseconds too long (the events themselves). For back ends
    whose torch offers `Event(enable_timing=True)` but no device trace.
    """

    clock = "events"

    def __init__(self, device: str, flush: Flush) -> None:
        self._module = torch.get_device_module(device)
        self._sleep = getattr(self._module, "_sleep", None)
        self._flush = flush
        self._blocks: list[Block] | None = None

    def start(self, warmup: Sequence[Call]) -> None:
        """Runs `warmup`, opens a recording."""
        if self._blocks is not None:
            raise RuntimeError("a recording is already open")
        self.warm(warmup)
        self._blocks = []

    def warm(self, warmup: Sequence[Call]) -> None:
        """Runs `warmup` untimed."""
        for call in warmup:
            call()
        self._module.synchronize()

    def block(self, calls: Sequence[Call], mode: Mode = "cold") -> None:
        """Runs each call between two events, behind a hold where the back end has one."""
        if self._blocks is None:
            raise RuntimeError("no recording is open: call start first")
        if mode == "stream":
            raise ValueError("the clock 'events' has no mode 'stream'")
        with _no_garbage_collection():
            samples = [self._one(call, mode == "cold") for call in calls]
        device_us, host_us = zip(*samples, strict=True)
        self._blocks.append(Block(self.clock, mode, device_us, host_us))

    def stop(self) -> tuple[Block, ...]:
        """Closes the recording."""
        if self._blocks is None:
            raise RuntimeError("no recording is open: call start first")
        blocks, self._blocks = tuple(self._blocks), None
        return blocks

    def _one(self, call: Call, cold: bool) -> tuple[float, float]:
        begin, end = _events(self._module)
        if cold:
            self._flush()
        else:
            call()
        if self._sleep:
            self._sleep(400_000)
        begin.record()
        start = time.perf_counter_ns()
        call()
        host_us = (time.perf_counter_ns() - start) / 1e3
        end.record()
        self._module.synchronize()
        return begin.elapsed_time(end) * 1e3, host_us
