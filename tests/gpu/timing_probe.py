"""Measures the clocks themselves on an NVIDIA GPU and prints what it finds.

    PYTHONPATH=.typing python tests/gpu/timing_probe.py [--seconds 90] [--out FILE.json]

The parent plays the judge, children play runners; every section prints one table. It asserts
nothing: it is how the constants of `timing` and `statistics` were chosen, and how to choose them
for another card. `tests/gpu/test_timing_gpu.py` holds what must be true.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import sys
import time
import traceback
from collections.abc import Callable
from multiprocessing import reduction
from typing import Any

import torch
import triton
import triton.language as tl

from kernelmark.evaluators.grading import records, timing
from kernelmark.evaluators.grading import statistics as judge
from kernelmark.evaluators.grading.latch import DeviceLatch, Latch
from kernelmark.evaluators.grading.sharing import SharedMemory
from kernelmark.evaluators.grading.telemetry import Telemetry

LARGE, SMALL = (4096, 4096), (256, 1024)


@triton.jit
def softmax_kernel(x, y, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    inside = offsets < columns
    values = tl.load(x + row * columns + offsets, mask=inside, other=-float("inf")).to(tl.float32)
    values = tl.exp(values - tl.max(values, 0))
    result = values / tl.sum(values, 0)
    tl.store(y + row * columns + offsets, result.to(y.dtype.element_ty), mask=inside)


@triton.jit
def read_kernel(x, y, words, PINNED: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    policy: tl.constexpr = "evict_last" if PINNED else ""
    values = tl.load(x + offsets, mask=offsets < words, other=0, eviction_policy=policy)
    tl.store(y + tl.program_id(0), tl.sum(values, 0))


def softmax(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    rows, columns = x.shape
    warps = 8 if columns > 2048 else 4
    block = triton.next_power_of_2(columns)
    softmax_kernel[(rows,)](x, y, columns, BLOCK=block, num_warps=warps)
    return y


class Worker:
    """A runner: obeys the parent, one method a command."""

    def __init__(self, fd: int, connection: Any) -> None:
        self.connection = connection
        begin = time.perf_counter()
        torch.zeros(1, device="cuda")
        self.context_s = time.perf_counter() - begin
        self.cache = torch.cuda.get_device_properties(0).L2_cache_size
        self.timer = timing.timer_for("cuda", self.cache)
        self.fd = fd
        self.latch: DeviceLatch | None = None

    def setup(self, shape: tuple[int, int], sets: int, what: str = "triton") -> float:
        self.inputs = [torch.randn(shape, device="cuda", dtype=torch.float16) for _ in range(sets)]
        self.outputs: list[Any] = [None] * sets
        function = softmax if what == "triton" else lambda x: torch.softmax(x, -1)

        def call(i: int) -> Callable[[], object]:
            def run() -> None:
                self.outputs[i] = function(self.inputs[i])

            return run

        self.calls = [call(i) for i in range(sets)]
        for one in self.calls:
            one()
        torch.cuda.synchronize()
        return self.context_s

    def start(self) -> float:
        begin = time.perf_counter()
        self.timer.start(self.calls[:4])
        return (time.perf_counter() - begin) * 1e3

    def block(self, mode: timing.Mode, count: int) -> float:
        begin = time.perf_counter()
        self.timer.block((self.calls * (count // len(self.calls) + 1))[:count], mode)
        return (time.perf_counter() - begin) * 1e3

    def stop(self) -> tuple[list[Any], float]:
        begin = time.perf_counter()
        blocks = self.timer.stop()
        return [records.to_json(b) for b in blocks], (time.perf_counter() - begin) * 1e3

    def events(self, count: int) -> float:
        timer = timing.timer_for("cuda", self.cache, clock="events")
        block = timing.measure(self.calls[:count], timer, self.calls[:4])
        return statistics.median(block.device_us)

    def raw(self) -> list[str]:
        """What a trace of one cold call holds, event by event."""
        with torch.autograd.profiler.profile(
            use_device="cuda", use_cpu=False, use_kineto=True
        ) as profiler:
            self.timer._flush()  # type: ignore[attr-defined]
            torch.cuda._sleep(10_000)
            self.calls[0]()
            torch.cuda._sleep(1)
            torch.cuda.synchronize()
        events = profiler.kineto_results.events()
        first = min(e.start_ns() for e in events)
        return [
            f"{e.device_type()!s:18} {getattr(e, 'activity_type', lambda: '?')():14} "
            f"corr {e.correlation_id():6} link {e.linked_correlation_id():6} "
            f"stream {e.device_resource_id():4} {(e.start_ns() - first) / 1e3:10.2f} "
            f"+{e.duration_ns() / 1e3:9.2f} us  {e.name()[:70]}"
            for e in sorted(events, key=lambda e: e.start_ns())
        ]

    def map_latch(self) -> str:
        self.latch = DeviceLatch(self.fd)
        return "latch mapped"

    def queue(self, count: int, ticket: int, side: bool) -> float:
        """Returns the host's time per call, microseconds."""
        assert self.latch is not None
        stream = torch.cuda.Stream() if side else torch.cuda.current_stream()
        calls = (self.calls * (count // len(self.calls) + 1))[:count]
        with torch.cuda.stream(stream):
            begin = time.perf_counter_ns()
            self.latch.queue([], calls, ticket, stream.cuda_stream)
            return (time.perf_counter_ns() - begin) / 1e3 / len(calls)

    def plain(self, count: int) -> float:
        """End to end, calls one by one, device waited for after each; microseconds a call."""
        begin = time.perf_counter_ns()
        for call in self.calls[:count]:
            call()
            torch.cuda.synchronize()
        return (time.perf_counter_ns() - begin) / 1e3 / count

    def flush_probe(self) -> list[str]:
        """A read of a third of the cache: warm, after the flush, after a far longer flush."""
        words = self.cache // 12
        block = 1024
        x = torch.ones(words, dtype=torch.int32, device="cuda")
        y = torch.empty(triton.cdiv(words, block), dtype=torch.int32, device="cuda")
        big = timing.Flush("cuda", 4 * self.cache)
        rows = []
        for pinned in (False, True):

            def read(pinned: bool = pinned) -> None:
                read_kernel[(y.numel(),)](x, y, words, PINNED=pinned, BLOCK=block)

            calls = [read] * 20
            warm = timing.measure(calls, self.timer, calls[:4], "warm")
            cold = timing.measure(calls, self.timer, calls[:4], "cold")
            usual = self.timer._flush  # type: ignore[attr-defined]
            self.timer._flush = big  # type: ignore[attr-defined]
            colder = timing.measure(calls, self.timer, calls[:4], "cold")
            self.timer._flush = usual  # type: ignore[attr-defined]
            medians = [statistics.median(b.device_us) for b in (warm, cold, colder)]
            least = min(cold.device_us)
            rows.append(
                f"pinned={pinned}: warm {medians[0]:.2f}, flush {medians[1]:.2f} "
                f"(least {least:.2f}), flush of 4x the size {medians[2]:.2f} us"
            )
        return rows

    def stream_probe(self) -> list[str]:
        """Calls that use a side stream: joined (honest), left running, started unordered."""
        side = torch.cuda.Stream()
        x = self.inputs[0]

        def joined() -> None:
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                softmax(x)
            torch.cuda.current_stream().wait_stream(side)

        def left() -> None:
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                softmax(x)

        def unordered() -> None:
            with torch.cuda.stream(side):
                softmax(x)

        def two() -> None:
            softmax(x)
            softmax(x)

        rows = []
        for call in (joined, left, unordered, two):
            block = timing.measure([call] * 20, self.timer, [call] * 4)
            rows.append(
                f"{call.__name__:10} span {statistics.median(block.device_us):7.2f} "
                f"busy {statistics.median(block.busy_us):7.2f} late {block.late} "
                f"early {block.early} stray {block.stray} unheld {block.unheld} "
                f"activities {sorted(set(block.activities))}"
            )
        return rows

    def adopt_handle(self, parts: list[Any]) -> float:
        """Reads memory that the parent shared by a CUDA IPC handle."""
        storage = torch.UntypedStorage._new_shared_cuda(*parts)
        return float(torch.empty(0, dtype=torch.uint8, device="cuda").set_(storage)[:8].sum())

    def adopt_descriptor(self, nbytes: int) -> float:
        """Reads memory that the parent shared by a descriptor, which follows the message."""
        fd = reduction.recv_handle(self.connection)
        self.shared = SharedMemory.adopt(fd, nbytes)
        os.close(fd)
        return float(self.shared.bytes[:8].sum())

    def queue_shared(self, ticket: int) -> None:
        """Queues a copy from the first half of the shared memory to the second."""
        assert self.latch is not None
        half = self.shared.nbytes // 2
        x, y = self.shared.bytes[:half], self.shared.bytes[half:]
        stream = torch.cuda.current_stream().cuda_stream
        self.latch.queue([], [lambda: y.copy_(x)], ticket, stream)


def confine() -> None:
    """Own namespaces, user nobody, no more rights to come: much as a runner is."""
    os.unshare(os.CLONE_NEWIPC | os.CLONE_NEWNET | os.CLONE_NEWNS)
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)


def serve(connection: Any, fd: Any, confined: bool) -> None:
    descriptor = fd.detach()
    if confined:
        confine()
    worker = Worker(descriptor, connection)
    connection.send(("ok", None))
    while True:
        name, arguments = connection.recv()
        if name == "quit":
            return
        try:
            connection.send(("ok", getattr(worker, name)(*arguments)))
        except Exception:
            connection.send(("error", traceback.format_exc()))


class Runner:
    """The parent's handle of a worker."""

    def __init__(self, context: Any, latch: Latch, confined: bool) -> None:
        begin = time.perf_counter()
        self.connection, theirs = context.Pipe()
        self.process = context.Process(
            target=serve, args=(theirs, reduction.DupFd(latch.fd), confined), daemon=True
        )
        self.process.start()
        theirs.close()
        self.answer(60)
        self.start_s = time.perf_counter() - begin

    def answer(self, timeout_s: float = 60) -> Any:
        if not self.connection.poll(timeout_s):
            raise TimeoutError("the runner does not answer")
        kind, value = self.connection.recv()
        if kind == "error":
            raise RuntimeError(value)
        return value

    def tell(self, name: str, *arguments: Any) -> None:
        self.connection.send((name, arguments))

    def ask(self, name: str, *arguments: Any) -> Any:
        self.tell(name, *arguments)
        return self.answer()

    def quit(self) -> None:
        self.tell("quit")
        self.process.join(10)


def wall_us(runner: Runner, latch: Latch, count: int, side: bool = False) -> tuple[float, float]:
    """One queue: the judge's wall time in microseconds, and the host time per call."""
    ticket = latch.next_ticket()
    runner.tell("queue", count, ticket, side)
    try:
        host_us = runner.answer(5)
    except Exception:
        latch.release(ticket)
        raise
    time.sleep(0.0005)
    latch.release(ticket)
    return latch.span_us(ticket, 5), host_us


class Probe:
    """The sections; what they find is also kept for the JSON file."""

    def __init__(self, seconds: float) -> None:
        self.deadline = time.monotonic() + seconds
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(["torch", "triton", "numpy"])
        self.latch = Latch()
        self.found: dict[str, Any] = {}

    def section(self, name: str, body: Callable[[], Any]) -> None:
        if time.monotonic() > self.deadline:
            print(f"\n## {name}: no time left")
            return
        print(f"\n## {name}", flush=True)
        begin = time.monotonic()
        try:
            self.found[name] = body()
        except Exception:
            traceback.print_exc(file=sys.stdout)
        print(f"   ({time.monotonic() - begin:.1f} s)", flush=True)

    def runner(self, confined: bool = False) -> Runner:
        return Runner(self.context, self.latch, confined)

    def trace(self) -> None:
        runner = self.runner()
        print(
            "runner ready in",
            round(runner.start_s, 2),
            "s; context",
            round(runner.ask("setup", SMALL, 20), 3),
            "s",
        )
        runner.ask("start")
        runner.ask("block", "cold", 2)
        runner.ask("stop")
        print("\n".join(runner.ask("raw")))
        runner.quit()

    def repeatability(self) -> list[dict[str, Any]]:
        rows = []
        for shape in (LARGE, SMALL):
            for _ in range(5):
                runner = self.runner()
                runner.ask("setup", shape, 20)
                costs = []
                for _ in range(2):
                    start = runner.ask("start")
                    spent = [runner.ask("block", "cold", 20) for _ in range(5)]
                    warm = runner.ask("block", "warm", 20)
                    runner.ask("block", "stream", 20)
                    blocks, stop = runner.ask("stop")
                    costs.append((start, statistics.median(spent), warm, stop))
                cold = [b for b in blocks if b["mode"] == "cold"]
                row = {
                    "shape": shape,
                    "cold": judge.typical_us([b["device_us"] for b in cold]),
                    "busy": judge.typical_us([b["busy_us"] for b in cold]),
                    "spread": max(judge.block_medians([b["device_us"] for b in cold]))
                    - min(judge.block_medians([b["device_us"] for b in cold])),
                    "warm": statistics.median(blocks[5]["device_us"]),
                    "stream": blocks[6]["device_us"][0],
                    "events": runner.ask("events", 20),
                    "host": statistics.median(cold[0]["host_us"]),
                    "odd": [sum(b[k] for b in blocks) for k in ("late", "early", "stray")],
                    "unheld": [b["unheld"] for b in blocks],
                    "ms": costs,
                }
                rows.append(row)
                runner.quit()
                print(
                    {
                        k: round(v, 2) if isinstance(v, float) else v
                        for k, v in row.items()
                        if k != "ms"
                    }
                )
            print(
                "   ms (start, cold block of 20, warm block, stop), first and second recording:",
                [[round(x, 2) for x in c] for c in costs],
                flush=True,
            )
            times = [r["cold"] for r in rows if r["shape"] == shape]
            cv = statistics.stdev(times) / statistics.mean(times)
            print(f"   {shape}: coefficient of variation over processes {100 * cv:.2f}%")
        return rows

    def clocks(self) -> list[Any]:
        memory = SharedMemory.allocate(64 << 20)  # the parent has a context too, as the judge
        memory.bytes.fill_(1)
        rows = []
        for nobody in (False, True):
            runner = self.runner(nobody)
            print(
                "confined:",
                nobody,
                runner.ask("map_latch"),
                "descriptor read:",
                self.adopted(runner, memory),
                "queued copy saw data written after it was queued:",
                self.late_data(runner, memory),
            )
            for shape, sets, count in ((LARGE, 32, 40), (SMALL, 150, 150)):
                runner.ask("setup", shape, sets)
                runner.ask("start")
                for mode in ("cold", "stream", "stream", "stream"):
                    runner.ask("block", mode, min(sets, count))
                blocks, _ = runner.ask("stop")
                claimed = statistics.median(b["device_us"][0] for b in blocks[1:])
                cold = statistics.median(blocks[0]["device_us"])
                for side in (False, True):
                    walls: dict[int, list[float]] = {0: [], count // 2: [], count: []}
                    hosts: list[float] = []
                    for _ in range(7):
                        for n in walls:
                            wall, host = wall_us(runner, self.latch, n, side)
                            walls[n].append(wall)
                            hosts.append(host if n else 0.0)
                    per_call = judge.per_call_us(walls[count], count)
                    verdict = judge.agreement(claimed, per_call, cold)
                    rows.append((shape, side, claimed, per_call, cold))
                    spread = [
                        f"{n}: {min(w):.1f} {statistics.median(w):.1f} {max(w):.1f}"
                        for n, w in walls.items()
                    ]
                    print(
                        f"{shape} side={side} cold {cold:.2f} stream {claimed:.2f} judge "
                        f"{per_call:.2f} us a call; host {max(hosts):.1f}; {verdict.finding}; "
                        f"walls (least, median, most) {spread}"
                    )
                print(
                    "   end to end, one by one:",
                    round(runner.ask("plain", sets), 2),
                    "unheld",
                    [b["unheld"] for b in blocks],
                )
            runner.quit()
        return rows

    def adopted(self, runner: Runner, memory: SharedMemory) -> Any:
        runner.tell("adopt_descriptor", memory.nbytes)
        assert memory.fd is not None
        reduction.send_handle(runner.connection, memory.fd, runner.process.pid)
        return runner.answer()

    def late_data(self, runner: Runner, memory: SharedMemory) -> Any:
        half = memory.nbytes // 2
        ticket = self.latch.next_ticket()
        runner.ask("queue_shared", ticket)
        memory.bytes[:half].random_(0, 255)
        memory.bytes[half:].zero_()
        torch.cuda.synchronize()
        self.latch.release(ticket)
        wall = self.latch.span_us(ticket, 5)
        return torch.equal(memory.bytes[:half], memory.bytes[half:]), f"{wall:.1f} us"

    def handles(self) -> None:
        """CUDA IPC handles: opened by root, by root in namespaces of its own, by nobody."""
        tensor = torch.ones(1 << 20, dtype=torch.uint8, device="cuda")
        for confined in (False, True):
            runner = self.runner(confined)
            try:
                parts = list(tensor.untyped_storage()._share_cuda_())
                print("confined:", confined, runner.ask("adopt_handle", parts))
                runner.quit()
            except (RuntimeError, EOFError) as error:
                print("confined:", confined, str(error).strip().splitlines()[-6:])

    def flush(self) -> None:
        runner = self.runner()
        print("\n".join(runner.ask("flush_probe")))
        runner.ask("setup", LARGE, 20)
        print("\n".join(runner.ask("stream_probe")))
        runner.quit()

    def twins(self) -> list[Any]:
        """A/A: the same function in two processes, blocks interleaved."""
        results: list[Any] = []
        for shape in (LARGE, SMALL):
            trials = []
            for _ in range(6):
                pair = {"A": self.runner(), "B": self.runner()}
                for _ in range(10):
                    for runner in pair.values():
                        runner.ask("setup", shape, 20, "aten")
                        runner.ask("start")
                    for side in judge.abba(6):
                        pair[side].ask("block", "cold", 20)
                    a, b = ([x["device_us"] for x in r.ask("stop")[0]] for r in pair.values())
                    interval = judge.speedup(a, b)
                    won = judge.differs(interval, judge.typical_us(a))
                    trials.append((interval.value, interval.low, interval.high, won))
                for runner in pair.values():
                    runner.quit()
                if time.monotonic() > self.deadline:
                    break
            values = sorted(abs(t[0] - 1) for t in trials)
            apart = sum(t[1] > 1 or t[2] < 1 for t in trials)
            print(
                f"{shape}: {len(trials)} trials, |ratio - 1| median {values[len(values) // 2]:.4f}"
                f" most {values[-1]:.4f}; intervals without 1: {apart}; wins claimed: "
                f"{sum(t[3] for t in trials)}"
            )
            print("   ", [tuple(round(x, 4) for x in t[:3]) for t in trials], flush=True)
            results.append((shape, trials))
        return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=90, help="start no section after this")
    parser.add_argument("--out", help="write what was found to this file")
    options = parser.parse_args()
    probe = Probe(options.seconds)
    with Telemetry() as telemetry:
        probe.section("trace", probe.trace)
        probe.section("repeatability, five fresh processes", probe.repeatability)
        probe.section("flush and streams", probe.flush)
        probe.section("two clocks", probe.clocks)
        probe.section("CUDA IPC handles", probe.handles)
        probe.section("A/A", probe.twins)
    summary = telemetry.summary
    print(
        "\n## telemetry\n",
        summary.source,
        summary.sku,
        summary.driver,
        summary.device,
        "SM MHz",
        sorted(set(summary.sm_clock_mhz)),
        "throttled",
        summary.throttle_reasons,
        "others",
        summary.other_processes,
        "errors",
        summary.errors,
        "readings",
        len(summary.readings),
        summary.readings[-1:],
    )
    print("torch", torch.__version__, "triton", triton.__version__)
    if options.out:
        with open(options.out, "w") as file:
            json.dump(probe.found, file)


if __name__ == "__main__":
    main()
