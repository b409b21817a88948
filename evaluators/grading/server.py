"""The helper that makes runners cheap: imports torch and Triton once, then forks on request.

It knows nothing secret, makes no device context (a child of a process with one cannot use the
device) and runs no foreign code: whatever a runner does, it does in a fork. The judge holds the
other end of its channel; when the judge ends, this ends, and every runner with it. Device layer.

Messages: ``spawn`` (with a runner's channel end as descriptor) answers ``spawned`` with a pidfd;
``exited`` follows once the runner is dead, with its wait status. ``compilers`` and ``inductor``
have more loaded before further forks.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import select
import shutil
import signal
import socket
import sys
import tempfile
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kernelmark.evaluators.chips import _compile_worker
from kernelmark.evaluators.chips.targets import CHIPS
from kernelmark.evaluators.grading import inductor, isolation
from kernelmark.evaluators.grading.channel import Channel, Closed

PACKAGE = Path(__file__).resolve().parents[2]

#: what a new interpreter runs to become a server: finds our package wherever it is installed
BOOTSTRAP = """
import sys, types
fd, parent, package, rooted, *path = sys.argv[1:]
sys.path[:] = path
sys.modules["kernelmark"] = module = types.ModuleType("kernelmark")
module.__path__ = [package]
from kernelmark.evaluators.grading import server
server.main(int(fd), int(parent), rooted == "rooted")
"""


def main(fd: int, judge: int, rooted: bool) -> None:
    """Serves until the judge is gone. `judge`: pidfd of the judge's process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the judge's to handle
    channel = Channel(socket.socket(fileno=fd))
    with contextlib.suppress(Closed):
        first, _ = channel.receive()
        namespace = _own_namespace(rooted)
        for module in ("torch", "triton", "triton.language", *first["preload"]):
            importlib.import_module(module)
        _activate(first["chip_module"], first["chip"])
        _share()
        channel.send({"event": "ready"})
        Server(channel, judge, rooted, namespace, first["paths"], first["cache"]).serve()
    os._exit(0)


def _share() -> None:
    """What is shared with runners stays shared: no collection touches it."""
    gc.collect()
    gc.freeze()


def _activate(module: str, name: str) -> None:
    """What needs no device context is done before the forks."""
    from kernelmark.evaluators.grading.runner import chip_from

    chip_from(module, name).preload()


def _own_namespace(rooted: bool) -> isolation.Isolation:
    report = isolation.Isolation()
    if not rooted and os.geteuid() != 0:
        report.attempt("user namespace", isolation.become_root_of_namespace)
    return report


class Server:
    """Forks runners, watches them, reports their ends."""

    def __init__(
        self,
        channel: Channel,
        judge: int,
        rooted: bool,
        namespace: isolation.Isolation,
        paths: list[str],
        cache: str,
    ) -> None:
        self.channel = channel
        self.judge = judge
        self.rooted = rooted
        self.namespace = namespace
        self.paths = paths
        self.cache = cache
        self.runners: dict[int, tuple[int, int, str]] = {}  #: pidfd -> (number, pid, scratch)

    def serve(self) -> None:
        """Until the judge closes the channel or dies."""
        while True:
            poller = select.poll()
            for fd in (self.channel.socket.fileno(), self.judge, *self.runners):
                poller.register(fd, select.POLLIN)
            ready = {fd for fd, _ in poller.poll()}
            for pidfd in ready & set(self.runners):
                self._bury(pidfd)
            if self.judge in ready:
                return
            if self.channel.socket.fileno() in ready:
                self._answer()
                while self.channel.holds():  # they came together
                    self._answer()

    def _answer(self) -> None:
        message, fds = self.channel.receive()
        if message["op"] == "compilers":
            _compile_worker.warm_up(t for t in CHIPS if t.name == message["target"])
            return
        if message["op"] == "inductor":
            if not inductor.prepare():
                print("torch.compile asks CUDA while it loads: each runner does", file=sys.stderr)
            _share()
            return
        scratch = _scratch_folder()
        report = isolation.Isolation(list(self.namespace.parts), list(self.namespace.missing))
        parent = os.getpid()
        with isolation.child_in_new_pid_namespace(report):
            pid = os.fork()
            if pid == 0:
                self._become_runner(message, fds[0], report, parent, scratch)
        pidfd = os.pidfd_open(pid)
        self.runners[pidfd] = (message["number"], pid, scratch)
        self.channel.send({"event": "spawned", "number": message["number"]}, [pidfd])
        for fd in fds:
            os.close(fd)

    def _become_runner(
        self,
        message: dict[str, Any],
        fd: int,
        report: isolation.Isolation,
        parent: int,
        scratch: str,
    ) -> None:
        """In the child: isolates it and runs the loop; never returns."""
        program = "builder" if message["role"] == "builder" else "runner"
        runner = importlib.import_module(f"kernelmark.evaluators.grading.{program}")
        status = 1
        channel = Channel(socket.socket(fileno=fd))
        try:
            os.setsid()
            isolation.close_other_descriptors({fd})
            isolation.die_with_parent(0)
            limits = isolation.Limits(**message["limits"])
            hidden = str(PACKAGE / "operators") if message["role"] != "baseline" else ""
            isolation.enter(
                report, limits, self.paths, hidden, rooted=self.rooted, cache=self.cache
            )
            isolation.die_with_parent(parent)
            _use_scratch(report, scratch)
            if message["role"] == "baseline":
                _use_cache()
            os.environ.update(message["environment"])
            runner.main(channel, message, report)
            status = 0
        except BaseException:
            channel.send({"event": "failed", "text": traceback.format_exc()[-4000:]})
        finally:
            os._exit(status)

    def _bury(self, pidfd: int) -> None:
        number, pid, scratch = self.runners.pop(pidfd)
        _, status = os.waitpid(pid, 0)
        os.close(pidfd)
        shutil.rmtree(scratch, ignore_errors=True)
        self.channel.send({"event": "exited", "number": number, "status": status})


def _scratch_folder() -> str:
    """A folder for one runner, in case it cannot have a mount of its own; removed at its end."""
    folder = tempfile.mkdtemp(prefix="kernelmark-")
    if os.geteuid() == 0:
        os.chown(folder, isolation.NOBODY, isolation.NOBODY)
    return folder


def _use_scratch(report: isolation.Isolation, scratch: str) -> None:
    """Points everything that writes files at the scratch folder."""
    folder = isolation.SCRATCH if "private scratch" in report.parts else scratch
    for name in ("HOME", "TMPDIR", "TRITON_HOME"):
        os.environ[name] = folder
    os.environ["TRITON_CACHE_DIR"] = f"{folder}/triton"
    tempfile.tempdir = None
    with contextlib.suppress(OSError):
        os.chdir(folder)


def _use_cache() -> None:
    """Points compilers at the folder that outlives this runner, where there is one to write to."""
    if os.access(isolation.CACHE, os.W_OK):
        os.environ["TRITON_CACHE_DIR"] = f"{isolation.CACHE}/triton"
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = f"{isolation.CACHE}/inductor"


def command(fd: int, judge: int, path: list[str], visible: list[str], cache: str) -> list[str]:
    """Argument vector of a server process, in bubblewrap where that works.

    `path`: its `sys.path`. `visible`: what it may read. `cache`: what baselines may write to.
    """
    wrap = isolation.bubblewrap(visible, cache)
    rooted = "rooted" if wrap else "bare"
    words = [sys.executable, "-I", "-c", BOOTSTRAP, str(fd), str(judge), str(PACKAGE), rooted]
    return [*wrap, *words, *path]


def limits_message(limits: isolation.Limits) -> dict[str, Any]:
    """`limits` as the ``spawn`` message carries them."""
    return asdict(limits)
