"""The build gate without an accelerator: what it compiles, records, forgives and refuses."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import tarfile
import time
from collections.abc import Callable

import pytest
import torch
from compiling import CHIP
from judging import HONEST, KERNEL, QUICK, TWICE, helpers, operator, vanishes

from kernelmark.evaluators.chips.here import device_here
from kernelmark.evaluators.grading import build as grading_build
from kernelmark.evaluators.grading.ahead import Ahead
from kernelmark.evaluators.grading.build import Build, Built, give
from kernelmark.evaluators.grading.builder import Alarm, Idle
from kernelmark.evaluators.grading.isolation import Limits
from kernelmark.evaluators.grading.judge import grade
from kernelmark.evaluators.grading.records import Candidate
from kernelmark.evaluators.grading.session import Memory, Session
from kernelmark.evaluators.grading.workers import Fault, shared_server
from kernelmark.operators.draws import draw
from kernelmark.operators.records import Case, TensorSpec

#: dtypes, an address that is no multiple of 16, sizes that are and are not, one of 1, none at all
CASES = (
    *TWICE.cases(),
    Case("sixteen", (TensorSpec((4, 16)),)),
    Case("one", (TensorSpec((1,)),)),
    Case("misaligned", (TensorSpec((64,), offset=1),)),
    Case("large", (TensorSpec((1 << 24,), torch.float16),), tier="full"),
)
OPERATOR = operator("twice", TWICE.signatures[0], TWICE.oracle, CASES)
AUTOTUNED = HONEST.replace(
    "@triton.jit\ndef double",
    "@triton.autotune([triton.Config({'B': b}, num_warps=w) for b, w in ((64, 2), (128, 4))],"
    " key=['n'])\n@triton.jit\ndef double",
).replace(", B=64)", ")")
READING = KERNEL + (
    "\ndef twice(self):\n"
    "    width = int(self.abs().max().item()) if self.numel() else 1\n"
    "    double[(1,)](self, torch.empty_like(self), self.numel(), B=width * 3)\n"
    "    return self\n"
)
RAISING = HONEST.replace(
    "x = self.contiguous()",
    "assert self.device.type == 'cuda', 'no device'\n    x = self.contiguous()",
)
BROKEN = HONEST.replace(", B=64)", ", B=63)")
TOO_MUCH = KERNEL + (
    "\n@triton.jit\ndef big(x, y, B: tl.constexpr):\n"
    "    i = tl.arange(0, B)\n"
    "    a = tl.load(x + i[:, None] * B + i[None, :])\n"
    "    tl.store(y + i[:, None] * B + i[None, :], tl.dot(a, a))\n"
    "\ndef twice(self):\n"
    "    y = torch.empty_like(self)\n"
    "    big[(1,)](self, y, B=256, num_warps=8)\n"
    "    return y\n"
)
SILENT = KERNEL + "\ndef twice(self):\n    return self\n"
SLOW = HONEST.replace("x = self", "while self.numel() == 1: pass\n    x = self", 1)
HUNG = HONEST.replace("x = self.contiguous()", "while True: pass\n    x = self")


def compiled(source: str, cases=CASES, limit_s: float = 60.0) -> tuple[Build, Built]:
    """The finished build of `source`; to be closed."""
    build = started(limit_s)
    try:
        build.start(Candidate(OPERATOR.id, source), OPERATOR, cases)
        return build, build.finish()
    except BaseException:
        build.close()
        raise


def started(limit_s: float) -> Build:
    server = shared_server(CHIP)
    here = device_here(CHIP)
    assert here is not None
    return Build(lambda: server.spawn("builder", CHIP, Limits()), here, limit_s)


def compiled_by_runner(source: str, caches: list[int]) -> int:
    """Kernels that a runner still compiles in all cases, given these caches."""
    worker = shared_server(CHIP).spawn("candidate", CHIP, Limits())
    memory = Memory(torch.device("cpu"))
    try:
        session = Session(worker, memory, 60.0)
        session.load(source=source, entry="twice", language="triton", disabled=False)
        give(worker, caches, 60.0)
        for case in CASES:
            session.stage(1, draw(OPERATOR, case, "base", 7, torch.device("cpu")))
            session.run(1, OPERATOR.oracle(torch.empty(case.args[0].shape)))
        return int(worker.ask("compiled", 60.0)["compiled"])
    finally:
        worker.end()
        memory.close()


def kernels_in(caches: list[int]) -> int:
    """Different kernels in these archives."""
    found = set()
    for fd in caches:
        with os.fdopen(os.dup(fd), "rb") as file:
            file.seek(0)
            with tarfile.open(fileobj=file) as archive:
                found |= {n.split("/")[0] for n in archive.getnames() if "__grp__" in n}
    return len(found)


def empty_cache() -> int:
    fd = os.memfd_create("empty")
    with os.fdopen(os.dup(fd), "wb") as file, tarfile.open(fileobj=file, mode="w"):
        return fd


@pytest.mark.parametrize("source", [HONEST, AUTOTUNED], ids=["plain", "autotuned"])
def test_a_runner_finds_all_that_was_compiled(source: str) -> None:
    build, built = compiled(source)
    try:
        assert not built.notes
        assert all(b.registers and b.num_warps and not b.error for b in built.builds)
        assert len({b.num_warps for b in built.builds}) == (2 if source is AUTOTUNED else 1)
        assert 4 < compiled_by_runner(source, [empty_cache()]) <= kernels_in(built.caches)
        assert compiled_by_runner(source, built.caches) == 0
    finally:
        build.close()


@pytest.mark.parametrize(
    ("source", "text"),
    [(BROKEN, "power of 2"), (TOO_MUCH, "shared memory")],
    ids=["no power of 2", "too much shared memory"],
)
def test_a_kernel_that_does_not_compile_is_a_build_error(source: str, text: str) -> None:
    with pytest.raises(Fault, match=text) as caught:
        compiled(source, CASES[:1])
    assert caught.value.status == "build_error"


@pytest.mark.parametrize(
    ("source", "text"),
    [(READING, "looked into a tensor"), (RAISING, "no device")],
    ids=["reads a tensor", "asks for the device"],
)
def test_what_the_pretence_cannot_show_is_no_fault(source: str, text: str) -> None:
    build, built = compiled(source, CASES[:1])
    assert any(text in note for note in built.notes)
    build.close()


def test_a_host_that_never_returns_is_left_to_the_runner() -> None:
    shared_server(CHIP).spawn("builder", CHIP, Limits()).end()
    before, begin = helpers(), time.monotonic()
    build, built = compiled(HUNG, CASES[:1], limit_s=1.0)
    assert time.monotonic() - begin < 10
    assert built.notes
    assert not built.caches
    build.close()
    assert vanishes(lambda: helpers() - before)


def test_replies_that_came_together_are_all_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call without a launch is over as soon as the candidate is loaded: both replies are read at
    once, and nothing more comes that could wake the judge."""
    build = started(limit_s=20.0)
    first = iter([True])
    ready = build._ready

    def late() -> list[grading_build._Hand]:
        if next(first, False):
            wait_for_replies(build, 2)
        return ready()

    monkeypatch.setattr(build, "_ready", late)
    try:
        build.start(Candidate(OPERATOR.id, SILENT), OPERATOR, CASES[:1])
        built = build.finish()
        assert built.seconds < 20
        assert not built.notes
        assert len(built.caches) == 1
    finally:
        build.close()


def wait_for_replies(build: Build, count: int) -> None:
    """Until so many whole replies of the only builder lie in its socket, unread."""
    (hand,) = build._hands
    for _ in range(600):
        with contextlib.suppress(BlockingIOError):
            data = hand.worker.channel.socket.recv(1 << 16, socket.MSG_PEEK)
            if data.count(b'"ok": true') >= count:
                return
        time.sleep(0.05)
    pytest.fail("the builder did not answer")


def test_a_call_that_compiles_nothing_for_long_is_left_to_the_runner() -> None:
    begin = time.monotonic()
    build, built = compiled(SLOW, limit_s=60.0)
    try:
        assert time.monotonic() - begin < 40
        assert built.notes == ["case 'one': its host code compiled nothing for 5 s"]
        assert len(built.caches) == built.processes  # what the builder has compiled is kept
        assert len(built.builds) > 1
    finally:
        build.close()


def test_cases_that_nobody_came_to_are_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grading_build, "MOST_PROCESSES", 2)
    build, built = compiled(HUNG, limit_s=1.0)
    build.close()
    left = len(CASES) - built.processes
    assert built.notes[-1] == f"{left} cases that no builder came to"


def test_the_alarm_is_quiet_while_something_is_compiled() -> None:
    before = signal.getsignal(signal.SIGALRM)
    try:
        alarm = Alarm(0.2)
        with alarm, alarm.compiling():
            wait_s(0.5)
        begin = time.monotonic()
        with pytest.raises(Idle):
            compile_and_dawdle(alarm)
        assert 0.45 < time.monotonic() - begin < 5
        wait_s(0.4)  # it is off
    finally:
        signal.signal(signal.SIGALRM, before)


def compile_and_dawdle(alarm: Alarm) -> None:
    with alarm:
        with alarm.compiling():
            wait_s(0.3)
        wait_s(10.0)


def wait_s(seconds: float) -> None:
    """Until then, in small steps."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.01)


def test_builders_stand_still_while_something_is_measured() -> None:
    """They use no processor, however long it takes, and lose none of their time."""
    build = started(limit_s=8.0)
    try:
        build.start(Candidate(OPERATOR.id, AUTOTUNED), OPERATOR, CASES)
        until(lambda: len(build._hands) == min(len(CASES), os.cpu_count() or 1))
        with build.resting():
            pids = [hand.worker.pid for hand in build._hands]
            wait_s(0.3)
            before = [ticks(pid) for pid in pids]
            wait_s(9.0)  # longer than a case may take, and than host code may idle
            assert [ticks(pid) for pid in pids] == before
            assert any(before)
        built = build.finish()
        assert not built.notes
        assert len(built.caches) == len(pids)
    finally:
        build.close()


def test_builders_that_rest_can_be_ended() -> None:
    before = helpers()
    build = started(limit_s=60.0)
    build.start(Candidate(OPERATOR.id, HUNG), OPERATOR, CASES)
    until(lambda: bool(build._hands))
    with build.resting():
        pass
    begin = time.monotonic()
    build.close()
    assert time.monotonic() - begin < 10
    assert vanishes(lambda: helpers() - before - {shared_server(CHIP).pid})


def until(done: Callable[[], bool]) -> None:
    for _ in range(600):
        if done():
            return
        time.sleep(0.05)
    pytest.fail("it did not come to that")


def ticks(pid: int) -> int:
    """Processor time that a process has used."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def test_what_comes_next_is_compiled_meanwhile() -> None:
    """The second grade finds its kernels made; another candidate than was foretold compiles its
    own, and the builders of the one that did not come are gone."""
    first, second, third = (Candidate(TWICE.id, f"{HONEST}# {n}\n") for n in range(3))
    ahead = Ahead(second, TWICE, CHIP, QUICK)
    assert grade(first, TWICE, CHIP, QUICK, ahead=ahead).status == "wrong_values"  # nothing ran
    build = ahead.take(second, QUICK)
    assert build is not None
    verdict = grade(second, TWICE, CHIP, QUICK, build=build)
    assert verdict.builds
    assert not build._hands
    ahead = Ahead(third, TWICE, CHIP, QUICK)
    ahead.begin()
    assert ahead.take(first, QUICK) is None
    assert grade(first, TWICE, CHIP, QUICK).builds


def test_the_gate_records_what_was_compiled() -> None:
    verdict = grade(Candidate(OPERATOR.id, HONEST), TWICE, CHIP, QUICK)
    gate = next(gate for gate in verdict.gates if gate.name == "build")
    assert gate.passed
    assert "kernels for sm_90" in gate.detail
    assert verdict.builds
    assert verdict.evidence["build"]["target"] == "sm_90"
    assert verdict.status == "wrong_values"  # nothing ran


def test_the_gate_refuses_what_does_not_compile() -> None:
    verdict = grade(Candidate(OPERATOR.id, BROKEN), TWICE, CHIP, QUICK)
    assert verdict.status == "build_error"
    assert "power of 2" in verdict.message
    assert [gate.name for gate in verdict.gates] == ["scan", "build"]
    assert any(build.error for build in verdict.builds)
