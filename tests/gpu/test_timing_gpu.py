"""What the clocks must do on a CUDA device. Skipped without one."""

from __future__ import annotations

import statistics
import threading
import time

import pytest
import torch

if not torch.cuda.is_available() or torch.version.hip is not None:
    pytest.skip("needs an NVIDIA GPU", allow_module_level=True)

from timing_probe import LARGE, SMALL, read_kernel, softmax

from kernelmark.evaluators.grading import statistics as judge
from kernelmark.evaluators.grading import timing
from kernelmark.evaluators.grading.latch import DeviceLatch, Latch
from kernelmark.evaluators.grading.sharing import SharedMemory


@pytest.fixture(scope="module")
def cache() -> int:
    return int(torch.cuda.get_device_properties(0).L2_cache_size)


@pytest.fixture(scope="module")
def timer(cache: int) -> timing.Timer:
    return timing.timer_for("cuda", cache)


def inputs(shape: tuple[int, int], sets: int) -> list[torch.Tensor]:
    return [torch.randn(shape, device="cuda", dtype=torch.float16) for _ in range(sets)]


@pytest.mark.parametrize("shape", [LARGE, SMALL])
def test_every_call_is_traced_and_nothing_else(timer: timing.Timer, shape: tuple[int, int]) -> None:
    calls = [lambda x=x: softmax(x) for x in inputs(shape, 20)]
    block = timing.measure(calls, timer, calls[:4])
    assert block.activities == (1,) * 20
    assert (block.late, block.early, block.stray, block.unheld) == (0, 0, 0, 0)
    assert timing.own_share([block], {"softmax_kernel"}) == 1
    assert sum(k.total_us for k in block.kernels) == pytest.approx(sum(block.device_us), rel=0.01)


def test_several_kernels_leave_no_gap_of_the_hosts(timer: timing.Timer) -> None:
    def call() -> None:
        for _ in range(8):
            softmax(x)

    (x,) = inputs(SMALL, 1)
    block = timing.measure([call] * 20, timer, [call] * 4)
    assert block.activities == (8,) * 20
    assert statistics.median(block.device_us) < 8 * 5


def test_work_left_on_a_side_stream_is_seen(timer: timing.Timer) -> None:
    def call() -> None:
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            softmax(x)

    side, (x,) = torch.cuda.Stream(), inputs(LARGE, 1)
    block = timing.measure([call] * 20, timer, [call] * 4)
    assert block.late is not None
    assert block.late >= 15
    assert statistics.median(block.device_us) > 10


def test_no_device_work_is_an_error(timer: timing.Timer) -> None:
    with pytest.raises(timing.TimingError, match="no work"):
        timing.measure([lambda: None] * 3, timer, [lambda: None] * 2)


@pytest.mark.parametrize("pinned", [False, True])
def test_the_flush_evicts(timer: timing.Timer, cache: int, pinned: bool) -> None:
    words, block = cache // 12, 1024
    x = torch.ones(words, dtype=torch.int32, device="cuda")
    y = torch.empty(-(-words // block), dtype=torch.int32, device="cuda")

    def call() -> None:
        read_kernel[(y.numel(),)](x, y, words, PINNED=pinned, BLOCK=block)

    warm = statistics.median(timing.measure([call] * 20, timer, [call] * 4, "warm").device_us)
    cold = min(timing.measure([call] * 20, timer, [call] * 4, "cold").device_us)
    assert cold > 1.4 * warm


@pytest.mark.parametrize(("shape", "count"), [(LARGE, 40), (SMALL, 150)])
def test_the_second_clock_agrees(timer: timing.Timer, shape: tuple[int, int], count: int) -> None:
    calls = [lambda x=x: softmax(x) for x in inputs(shape, count)]
    cold = statistics.median(timing.measure(calls, timer, calls[:4]).device_us)
    stream = timing.measure(calls, timer, calls[:4], "stream").device_us[0]
    ours = Latch()
    theirs = DeviceLatch(ours.fd)
    spans = []
    for _ in range(3):
        ticket = ours.next_ticket()
        theirs.queue([], calls, ticket, torch.cuda.current_stream().cuda_stream)
        ours.release(ticket)
        spans.append(ours.span_us(ticket, 5))
    torch.cuda.synchronize()
    wall = judge.per_call_us(spans, count)
    assert judge.agreement(stream, wall, cold).agree
    assert judge.agreement(0.3 * stream - 2, wall, cold).finding == "claimed_too_short"
    theirs.close()
    ours.close()


def test_nothing_runs_before_the_judge_lets_it() -> None:
    ours = Latch()
    theirs = DeviceLatch(ours.fd)
    memory = SharedMemory.allocate(1 << 20)
    seen = torch.zeros(1 << 20, dtype=torch.uint8, device="cuda")
    ticket = ours.next_ticket()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        copy = [lambda: seen.copy_(memory.bytes[: 1 << 20])]
        theirs.queue([], copy, ticket, side.cuda_stream)
    time.sleep(0.02)
    other = torch.cuda.Stream()
    with torch.cuda.stream(other):
        memory.bytes.fill_(7)
    other.synchronize()
    threading.Timer(0.01, ours.release, [ticket]).start()
    ours.span_us(ticket, 5)
    assert int(seen.min()) == 7
    torch.cuda.synchronize()
    theirs.close()
    memory.close()
