"""The device trace is cut into calls by its marks, and a trace that lies is void."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from kernelmark.evaluators.grading import records, timing
from kernelmark.evaluators.grading.timing import Activity, Block, KernelTime, TimingError

MARK = "at::cuda::(anonymous namespace)::spin_kernel(long)"


class Trace:
    """Builds a trace as the device makes it; times in microseconds."""

    def __init__(self) -> None:
        self.activities: list[Activity] = []
        self.now_us = 100.0

    def add(self, name: str, us: float, *, at: float | None = None, **more: Any) -> None:
        start = self.now_us if at is None else at
        launched = more.pop("launched_us", 0.0)
        self.activities.append(
            Activity(
                name,
                round(start * 1000),
                round((start + us) * 1000),
                launch=len(self.activities) + 1,
                launched_ns=None if launched is None else round(launched * 1000),
                **more,
            )
        )
        if at is None:
            self.now_us = start + us + 1

    def flush(self) -> None:
        for _ in range(timing.FLUSH_ACTIVITIES):
            self.add("xor", 50)

    def call(self, *kernels: tuple[str, float]) -> None:
        self.flush()
        self.add(MARK, 40)
        for name, us in kernels:
            self.add(name, us)
        self.add(MARK, 1)

    def blocks(self, counts: Sequence[int], mode: timing.Mode = "cold") -> list[Block]:
        parts = timing.split(self.activities, counts)
        return [
            timing.summarise(part, "cupti", mode, [5.0] * len(part), len(part)) for part in parts
        ]


def test_a_call_is_what_lies_between_its_marks() -> None:
    trace = Trace()
    for us in (10, 12, 11):
        trace.call(("mine", us), ("other", 2))
    (block,) = trace.blocks([3])
    assert block.device_us == (13, 15, 14)  # the gap of 1 between the two counts
    assert block.busy_us == (12, 14, 13)
    assert block.activities == (2, 2, 2)
    assert block.kernels == (KernelTime("mine", 3, 33), KernelTime("other", 3, 6))
    assert (block.late, block.early, block.stray, block.unheld) == (0, 0, 0, 0)


def test_blocks_of_one_recording_are_told_apart() -> None:
    trace = Trace()
    for us in (1, 2, 3, 4, 5):
        trace.call(("k", us))
    assert [b.device_us for b in trace.blocks([2, 3])] == [(1, 2), (3, 4, 5)]


def test_side_streams_are_in_the_span_and_overlap_counts_once() -> None:
    trace = Trace()
    trace.flush()
    trace.add(MARK, 40)
    start = trace.now_us
    trace.add("main", 10, at=start)
    trace.add("side", 10, at=start + 4, stream=9)
    trace.now_us = start + 20
    trace.add(MARK, 1)
    (block,) = trace.blocks([1])
    assert block.device_us == (14,)
    assert block.busy_us == (14,)
    assert block.late == 0


def test_work_left_running_is_late_and_charged_in_full() -> None:
    trace = Trace()
    trace.flush()
    trace.add(MARK, 40)
    trace.add("deferred", 500, at=trace.now_us, stream=9)
    trace.add(MARK, 1)
    (block,) = trace.blocks([1])
    assert block.late == 1
    assert block.device_us == (500,)


def test_work_that_does_not_wait_for_its_stream_is_early() -> None:
    trace = Trace()
    trace.flush()
    trace.add(MARK, 40)
    trace.add("eager", 10, at=trace.now_us - 30, stream=9)
    trace.add(MARK, 1)
    assert trace.blocks([1])[0].early == 1


def test_work_launched_between_calls_is_stray() -> None:
    trace = Trace()
    trace.call(("k", 5))
    trace.add("smuggled", 30)
    trace.call(("k", 5))
    assert trace.blocks([2])[0].stray == 1


def test_what_the_caller_prepares_before_a_block_is_not_stray() -> None:
    trace = Trace()
    trace.call(("k", 5))
    trace.add("poison", 30)
    trace.call(("k", 5))
    assert [b.stray for b in trace.blocks([1, 1])] == [0, 0]


@pytest.mark.parametrize("launched_us", [10_000.0, None])
def test_a_gap_that_the_host_may_have_made_is_counted(launched_us: float | None) -> None:
    trace = Trace()
    trace.flush()
    trace.add(MARK, 40)
    trace.add("first", 5)
    trace.add("second", 5, launched_us=launched_us)
    trace.add(MARK, 1)
    assert trace.blocks([1])[0].unheld == 1


def test_a_lost_or_an_extra_mark_voids_the_trace() -> None:
    trace = Trace()
    trace.call(("k", 5), (MARK, 5))
    with pytest.raises(TimingError, match="3 marks where 2"):
        trace.blocks([1])
    trace = Trace()
    trace.call(("k", 5))
    with pytest.raises(TimingError, match="2 marks where 4"):
        trace.blocks([2])
    with pytest.raises(TimingError, match="0 marks"):
        timing.split([], [1])


def test_a_call_without_device_work_is_no_measurement() -> None:
    trace = Trace()
    trace.call(("k", 5))
    trace.call()
    with pytest.raises(TimingError, match=r"\[1\]"):
        trace.blocks([2])


def test_a_stream_is_one_window_shared_out() -> None:
    trace = Trace()
    trace.add(MARK, 400)
    for _ in range(4):
        trace.add("k", 9)
    trace.add(MARK, 1)
    (part,) = timing.split(trace.activities, [1])
    block = timing.summarise(part, "cupti", "stream", [80.0], 4)
    assert block.device_us == ((4 * 9 + 3) / 4,)
    assert block.host_us == (20.0,)
    assert block.activities == (4,)


def test_own_share_is_of_device_time_and_by_exact_name() -> None:
    kernels = (
        KernelTime("softmax_kernel", 20, 60.0),
        KernelTime("softmax_kernel_0d1d2", 20, 20.0),
        KernelTime("softmax_kernel_cublas", 20, 15.0),
        KernelTime("Memcpy DtoD (Device -> Device)", 20, 5.0),
    )
    block = Block("cupti", "cold", (5.0,), (1.0,), kernels=kernels)
    assert timing.own_share([block], {"softmax_kernel"}) == pytest.approx(0.8)
    assert timing.own_share([block, block], {"nothing"}) == 0
    with pytest.raises(TimingError):
        timing.own_share([Block("events", "cold", (5.0,), (1.0,))], {"softmax_kernel"})


def test_a_block_crosses_the_wire_unchanged() -> None:
    trace = Trace()
    trace.call(("k", 5))
    (block,) = trace.blocks([1])
    assert records.from_json(Block, records.to_json(block)) == block


class FakeEvent:
    """A raw event of Kineto."""

    def __init__(self, name: str, device: str, launch: int, start: int, kind: str = "") -> None:
        self._name, self._launch, self._start = name, launch, start
        self._device = getattr(torch._C._autograd.DeviceType, device)
        if kind:
            self.activity_type = lambda: kind

    def name(self) -> str:
        return self._name

    def device_type(self) -> Any:
        return self._device

    def correlation_id(self) -> int:
        return self._launch

    def start_ns(self) -> int:
        return self._start

    def duration_ns(self) -> int:
        return 10

    def device_resource_id(self) -> int:
        return 7

    def is_user_annotation(self) -> bool:
        return self._name == "note"


@pytest.mark.parametrize("kinds", [True, False], ids=["torch 2.13", "torch 2.8"])
def test_activities_are_read_in_the_order_of_their_launch(kinds: bool) -> None:
    def event(name: str, device: str, launch: int, start: int, kind: str) -> FakeEvent:
        return FakeEvent(name, device, launch, start, kind if kinds else "")

    events = [
        event("Activity Buffer Request", "CPU", 0, 0, "overhead"),
        event("cudaLaunchKernel", "CPU", 5, 100, "cuda_runtime"),
        event("cuLaunchKernelEx", "CPU", 6, 200, "cuda_driver"),
        event("second", "CUDA", 6, 300, "kernel"),
        event("first", "CUDA", 5, 400, "kernel"),
        event("Memset (Device)", "CUDA", 8, 500, "gpu_memset"),
        event("note", "CUDA", 9, 600, "gpu_user_annotation"),
        event("Stream Sync", "CUDA", 10, 700, "cuda_sync"),
    ]
    found = timing.read_activities(events)
    assert [(a.name, a.launched_ns) for a in found] == [
        ("first", 100),
        ("second", 200),
        ("Memset (Device)", None),
    ]
    assert found[0].end_ns - found[0].start_ns == 10


def test_flush_covers_more_than_twice_the_cache_and_changes() -> None:
    cache = 1 << 20
    flush = timing.Flush("cpu", cache)
    touched = []
    for _ in range(4):
        flush._buffer = flush._allocate()
        flush()
        changed = (flush._buffer != 0).all(dim=1)
        touched.append(changed)
        assert int(changed.sum()) * 4 * timing.LINE_WORDS >= 2 * cache
        assert torch.equal(changed, (flush._buffer != 0).any(dim=1)), "whole lines"
    assert any(not torch.equal(touched[0], other) for other in touched[1:])


def test_flush_needs_to_know_the_cache() -> None:
    with pytest.raises(ValueError, match="last-level cache"):
        timing.Flush("cpu", 0)


def test_a_clock_is_chosen_by_name_or_refused() -> None:
    with pytest.raises(ValueError, match="clock='events'"):
        timing.timer_for("cpu", 1 << 20)
    if torch.profiler.ProfilerActivity.CUDA not in torch.profiler.supported_activities():
        with pytest.raises(TimingError, match="no device tracer"):
            timing.TraceTimer(timing.Flush("cpu", 1 << 20))
