"""The helper that compiles: imports torch and Triton once, then forks for each target.

It runs no foreign code itself. Each fork is isolated like a runner of the judge
(`grading.isolation`), compiles one candidate for one target, tells what came of it, and is killed
at its limit. A compiler that crashes costs one target, not the rest. Device layer.

A job goes in (`portability` sends it), one message with the results of every target comes out.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import importlib.util
import itertools
import os
import select
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from kernelmark.evaluators.chips.base import Chip
from kernelmark.evaluators.chips.registry import all_chips, get_chip
from kernelmark.evaluators.chips.targets import CompileTarget
from kernelmark.evaluators.grading import isolation
from kernelmark.evaluators.grading.channel import Channel, Closed, Garbled, Late
from kernelmark.evaluators.grading.records import KernelBuild, Status, from_json, to_json

PACKAGE = Path(__file__).resolve().parents[2]

#: what a new interpreter runs to become this helper: finds our package wherever it is installed
BOOTSTRAP = """
import sys, types
fd, package, rooted, *path = sys.argv[1:]
sys.path[:] = path
sys.modules["kernelmark"] = module = types.ModuleType("kernelmark")
module.__path__ = [package]
from kernelmark.evaluators.chips import _compile_worker
_compile_worker.main(int(fd), rooted == "rooted")
"""

#: imported once, so that no fork has to
_NEEDED = (
    *("torch", "triton", "triton.language", "kernelmark.evaluators.chips._compiling"),
    *("kernelmark.evaluators.chips._drivers", "kernelmark.evaluators.languages.triton"),
)
#: not in every Triton
_HELPFUL = (
    *("triton.backends.nvidia.compiler", "triton.backends.amd.compiler"),
    *("triton.compiler.code_generator", "triton.experimental.gluon"),
    *("triton.tools.tensor_descriptor", "triton.language.extra.libdevice"),
)

#: a kernel, as Triton's compiler begins with it
_NOTHING = """
module {
  tt.func public @nothing(%place: !tt.ptr<f32>) {
    %value = arith.constant 1.0 : f32
    tt.store %place, %value : !tt.ptr<f32>
    tt.return
  }
}
"""

_OPERATORS = str(PACKAGE / "operators")  #: hidden from candidates
_MAX_MESSAGES = 4096
_STALLED_S = 5.0


def command(fd: int) -> list[str]:
    """Argument vector of this helper, in bubblewrap where that works."""
    wrap = isolation.bubblewrap(isolation.visible_paths(PACKAGE, _libraries()))
    rooted = "rooted" if wrap else "bare"
    words = [sys.executable, "-I", "-c", BOOTSTRAP, str(fd), str(PACKAGE), rooted]
    return [*wrap, *words, *(os.path.abspath(p) for p in sys.path if p)]


def _libraries() -> list[str]:
    """Folders that torch, triton and numpy are imported from; found without importing them."""
    specs = [importlib.util.find_spec(name) for name in ("torch", "triton", "numpy")]
    return [str(Path(s.origin).parents[1]) for s in specs if s is not None and s.origin]


def main(fd: int, rooted: bool) -> None:
    """Serves jobs until the other side closes the channel."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    isolation.die_with_parent(0)
    channel = Channel(socket.socket(fileno=fd))
    namespace = isolation.Isolation()
    if not rooted and os.geteuid() != 0:
        namespace.attempt("user namespace", isolation.become_root_of_namespace)
    gc.disable()  # imports make much, and little of it garbage
    for module in _NEEDED:
        importlib.import_module(module)
    for module in _HELPFUL:
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    from kernelmark.evaluators.chips import _compiling

    _compiling.never_hash_triton()
    _compiling.keep_only_code()
    _compiling.dump_nothing()
    all_chips()  # found once, for all forks
    gc.freeze()  # or every collection would visit all of this
    gc.enable()
    with contextlib.suppress(Closed):
        for number in itertools.count():
            job, _ = channel.receive()
            if number == 1:  # for one candidate alone it would not pay
                warm_up(c for c in all_chips().values() if isinstance(c, CompileTarget))
            channel.send({"results": [to_json(r) for r in Job(job, rooted, namespace).run()]})


def warm_up(targets: Iterable[CompileTarget]) -> None:
    """Does once what each fork would otherwise make ready for itself: compilers, their versions."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler.compiler import make_backend

    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.dict(os.environ, {"TRITON_CACHE_DIR": folder}),
    ):
        source = Path(folder) / "nothing.ttir"
        source.write_text(_NOTHING)
        for chip in targets:
            if chip.detect().usable:
                target = GPUTarget(chip.backend, chip.arch, chip.warp_size)
                make_backend(target).hash()  # asks the assembler for its version
                with contextlib.suppress(Exception):  # a Triton that reads other text: no matter
                    triton.compile(str(source), target=target)
    gc.freeze()


@dataclass
class Result:
    """What one fork told: builds, outcome of each call, and how it ended."""

    target: str
    kernels: list[KernelBuild] = field(default_factory=list)
    calls: list[tuple[str, Status, str]] = field(default_factory=list)
    compiling: str = ""  #: the kernel that was being compiled at the end
    ended: str = ""  #: why it ended before it was done; empty where it was done
    timed_out: bool = False
    seconds: float = 0.0


@dataclass
class Fork:
    """A running fork."""

    pid: int
    channel: Channel
    result: Result
    started: float
    log: int  #: descriptor of what it prints
    done: bool = False
    messages: int = 0


class Job:
    """One candidate, all of its targets."""

    def __init__(self, job: dict[str, Any], rooted: bool, namespace: isolation.Isolation) -> None:
        from kernelmark.evaluators.chips import _calls
        from kernelmark.evaluators.languages.registry import get_language
        from kernelmark.operators.registry import get_operator

        self.job = job
        self.rooted = rooted
        self.namespace = namespace
        self.language = get_language(job["language"])
        operator = get_operator(job["operator"])
        self.calls = _calls.make(operator, job["cases"])
        self.paths = isolation.visible_paths(PACKAGE)  # torch and triton are imported by now
        self.waiting = list(job["targets"].items())
        self.running: list[Fork] = []
        self.results: list[Result] = []

    def run(self) -> list[Result]:
        """Compiles for all targets, `processes` at a time."""
        while self.waiting or self.running:
            while self.waiting and len(self.running) < self.job["processes"]:
                self._fork(*self.waiting.pop(0))
            self._watch()
        return self.results

    def _fork(self, name: str, cases: list[str]) -> None:
        ours, theirs = socket.socketpair()
        log = os.memfd_create("log")
        scratch = tempfile.mkdtemp() if not self.rooted and os.geteuid() != 0 else ""
        report = isolation.Isolation(list(self.namespace.parts))
        parent = os.getpid()
        with isolation.child_in_new_pid_namespace(report):
            pid = os.fork()
            if pid == 0:
                ours.close()
                self._become_compiler(get_chip(name), cases, theirs, log, report, parent, scratch)
        theirs.close()
        self.running.append(Fork(pid, Channel(ours), Result(name), time.monotonic(), log))

    def _become_compiler(
        self,
        chip: Chip,
        cases: list[str],
        sock: socket.socket,
        log: int,
        report: isolation.Isolation,
        parent: int,
        scratch: str,
    ) -> None:
        """In the fork: isolates it, compiles, tells; never returns."""
        from kernelmark.evaluators.chips import _compiling

        try:
            os.setsid()
            isolation.close_other_descriptors({sock.fileno(), log})
            os.dup2(log, 1)
            os.dup2(log, 2)
            isolation.enter(report, isolation.Limits(), self.paths, _OPERATORS, rooted=self.rooted)
            isolation.die_with_parent(parent)
            folder = isolation.SCRATCH if "private scratch" in report.parts else scratch
            os.chdir(folder)
            for variable in ("HOME", "TMPDIR", "TRITON_HOME"):
                os.environ[variable] = folder
            os.environ["TRITON_CACHE_DIR"] = f"{folder}/triton"
            tempfile.tempdir = None
            gc.disable()  # it ends soon
            os.environ["TRITON_DISABLE_LINE_INFO"] = "1"  # the code is the same without
            channel = Channel(sock)
            assert isinstance(chip, CompileTarget)
            calls = [call for call in self.calls if call[0] in cases]
            _compiling.compile_calls(chip, self._load, calls, channel.send)
            channel.send({"done": True})
        finally:
            os._exit(0)

    def _load(self) -> Any:
        path = os.path.abspath(f"candidate{self.language.suffix}")
        Path(path).write_text(self.job["source"])
        return self.language.load(path, self.job["entry"])

    def _watch(self) -> None:
        """Waits until a fork tells something, ends or is late."""
        deadline = min(f.started for f in self.running) + self.job["limit_s"]
        poller = select.poll()
        for fork in self.running:
            poller.register(fork.channel.socket.fileno(), select.POLLIN)
        ready = {fd for fd, _ in poller.poll(max(0.0, deadline - time.monotonic()) * 1000)}
        now = time.monotonic()
        for fork in list(self.running):
            if fork.channel.socket.fileno() in ready:
                self._listen(fork)
            elif now - fork.started >= self.job["limit_s"]:
                fork.result.timed_out = True
                self._bury(fork, f"not done after {self.job['limit_s']:g} s")

    def _listen(self, fork: Fork) -> None:
        """Takes one message; whatever is not of the protocol ends the fork."""
        try:
            message, _ = fork.channel.receive(timeout_s=_STALLED_S)
            fork.messages += 1
            _take(fork, message)
            if fork.messages > _MAX_MESSAGES:
                raise Garbled("too many messages")
        except Closed:
            self._bury(fork, "" if fork.done else "the process ended early")
        except (Garbled, Late, ValueError, TypeError, KeyError) as error:
            self._bury(fork, f"the process told nonsense: {error}")

    def _bury(self, fork: Fork, ended: str) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(fork.pid, signal.SIGKILL)
        _, status = os.waitpid(fork.pid, 0)
        if ended and os.WIFSIGNALED(status) and os.WTERMSIG(status) != signal.SIGKILL:
            ended = f"the process died of {signal.Signals(os.WTERMSIG(status)).name}"
        if ended or any(outcome == "build_error" for _, outcome, _ in fork.result.calls):
            ended = _with_reason(ended, fork)
        fork.result.ended = ended
        fork.result.seconds = time.monotonic() - fork.started
        fork.channel.close()
        os.close(fork.log)
        self.running.remove(fork)
        self.results.append(fork.result)


def _take(fork: Fork, message: dict[str, Any]) -> None:
    if "compiling" in message:
        fork.result.compiling = str(message["compiling"])[:200]
    elif "kernel" in message:
        fork.result.compiling = ""
        fork.result.kernels.append(from_json(KernelBuild, message["kernel"]))
    elif "call" in message:
        outcome: Status = message["outcome"]
        fork.result.calls.append((str(message["call"]), outcome, str(message["error"])))
    else:
        fork.done = bool(message["done"])


def _with_reason(ended: str, fork: Fork) -> str:
    """Adds the first error that the compiler printed, which no exception carries."""
    size = os.fstat(fork.log).st_size
    text = os.pread(fork.log, min(size, 1 << 16), 0).decode(errors="replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [i for i, line in enumerate(lines) if "error:" in line or "Assert" in line]
    if not errors:
        return ended
    reason = " ".join(lines[errors[0] : errors[0] + 2])[:300]  # the next line shows the code
    if not ended:  # the calls have failed with an exception that names no cause
        fork.result.calls = [
            (case, outcome, f"{error}: {reason}" if outcome == "build_error" else error)
            for case, outcome, error in fork.result.calls
        ]
        return ""
    return f"{ended}: {reason}"


def result_of(data: dict[str, Any]) -> Result:
    """A `Result` as `to_json` gave it."""
    kernels = [from_json(KernelBuild, k) for k in data["kernels"]]
    calls = [(case, status, error) for case, status, error in data["calls"]]
    return Result(**{**data, "kernels": kernels, "calls": calls})
