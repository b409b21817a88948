"""The judge's handles on its helper processes: start, ask, time out, kill, account for.

A candidate's fault is raised as `Fault` with the status that it earns. A helper that fails for a
reason outside the candidate raises `Infrastructure`: the grade is done again in fresh processes.
Device layer.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from kernelmark.evaluators.chips.base import Chip
from kernelmark.evaluators.grading import devices, isolation, server
from kernelmark.evaluators.grading.channel import (
    Channel,
    Closed,
    Garbled,
    Late,
    field,
    printable,
)
from kernelmark.evaluators.grading.records import Status

START_S = 120.0  #: importing torch from a cold disk
SPAWN_S = 60.0
BURIAL_S = 10.0

#: what a server imports before it forks, so that no runner has to
_PRELOAD = (
    "kernelmark.evaluators.languages.registry",
    "kernelmark.evaluators.languages.triton",
    "kernelmark.evaluators.grading.runner",
)

#: more of it where kernels are compiled: a first `torch.broadcast_shapes` imports SymPy, which took
#: each runner 3 s on an H200's machine
_TO_BUILD = ("kernelmark.evaluators.grading.builder", "torch.fx.experimental.symbolic_shapes")

#: substrings of exception class names and texts, with what they mean, first match
_MEANINGS: tuple[tuple[str, Status], ...] = (
    ("OutOfMemoryError", "out_of_memory"),
    ("builtins.MemoryError", "out_of_memory"),
    ("can't allocate memory", "out_of_memory"),
    ("CUDA out of memory", "out_of_memory"),
    ("triton.compiler.errors", "build_error"),
    ("triton.runtime.errors.OutOfResources", "build_error"),
    ("triton.runtime.errors.PTXASError", "build_error"),
    ("timing.TimingError", "implausible"),
)


class Fault(Exception):
    """The candidate's failure: a status and one line for a person."""

    def __init__(self, status: Status, message: str) -> None:
        super().__init__(message)
        self.status: Status = status
        self.message = message


class Infrastructure(Exception):
    """A helper process failed, and the candidate is not known to be why."""


class KilledFromOutside(Infrastructure):
    """SIGKILL that the judge did not send: somebody, or the kernel out of memory."""


class Server:
    """A server process for one chip. Starts at once; `spawn` waits until it is ready."""

    def __init__(self, chip: Chip, index: int = 0, cache: str = "") -> None:
        """`cache`: folder for what baselines compile (`isolation.cache_folder`)."""
        self._lock = threading.RLock()
        self._numbers = itertools.count(1)
        self._events: dict[tuple[str, int], tuple[dict[str, Any], list[int]]] = {}
        self._ready = self._closed = False
        self._prepared: list[dict[str, str]] = []  #: messages
        ours, theirs = socket.socketpair()
        self._channel = Channel(ours)
        home = module_of(chip)
        folder = os.path.dirname(str(sys.modules[home].__file__))
        visible = isolation.visible_paths(server.PACKAGE, [folder])
        kept = isolation.cache_folder(cache)
        self.rooted, self._process = _start(theirs, chip, index, visible, kept)
        theirs.close()
        first = {
            "chip": chip.name,
            "chip_module": home,
            "paths": visible,
            "cache": kept,
            "preload": [home, *_PRELOAD, *([] if chip.attests == "interpreted" else _TO_BUILD)],
        }
        with contextlib.suppress(Closed):  # dead already: `spawn` will find out
            self._channel.send(first)

    @property
    def pid(self) -> int:
        """Process id (of bubblewrap's monitor, where that is in use)."""
        return self._process.pid

    def spawn(self, role: str, chip: Chip, limits: isolation.Limits) -> Worker:
        """A fresh runner in the role ``candidate``, ``baseline`` or ``builder`` (which compiles).
        Raises `Infrastructure`."""
        ours, theirs = socket.socketpair()
        with self._lock:
            number = next(self._numbers)
            message = {
                "op": "spawn",
                "number": number,
                "role": role,
                "chip": chip.name,
                "chip_module": module_of(chip),
                "limits": server.limits_message(limits),
                "environment": {},
            }
            try:
                self._wait_ready()
                self._channel.send(message, [theirs.fileno()])
                _, fds = self._event("spawned", number, SPAWN_S)
            except (Closed, Late, Garbled) as error:
                ours.close()
                raise Infrastructure(f"the server process failed: {error}") from error
            finally:
                theirs.close()
        worker = Worker(self, number, Channel(ours), fds[0])
        worker.greet()
        return worker

    def ready_compilers(self, target: str) -> None:
        """Has builders that are forked from now on find the compilers for `target` (a chip's name)
        loaded. Does not wait. Raises `Infrastructure`."""
        self._prepare({"op": "compilers", "target": target})

    def ready_inductor(self) -> None:
        """Has runners that are forked from now on find ``torch.compile`` loaded. Does not wait.
        Raises `Infrastructure`."""
        self._prepare({"op": "inductor"})

    def _prepare(self, message: dict[str, str]) -> None:
        """Sends what the server does once, before further forks."""
        with self._lock:
            if message in self._prepared:
                return
            self._prepared.append(message)
            try:
                self._wait_ready()
                self._channel.send(message)
            except (Closed, Late, Garbled) as error:
                raise Infrastructure(f"the server process failed: {error}") from error

    def status_of(self, number: int, timeout_s: float = BURIAL_S) -> int:
        """Wait status of a runner that is dead or dying. Raises `Infrastructure`."""
        try:
            with self._lock:
                message, _ = self._event("exited", number, timeout_s)
        except (Closed, Late, Garbled) as error:
            raise Infrastructure(f"the server process failed: {error}") from error
        return field(message, "status", int)

    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    def close(self) -> None:
        """Ends the server and with it every runner. Bubblewrap's monitor is of the same group."""
        if self._closed:
            return
        self._closed = True
        self._channel.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for _, fds in self._events.values():
            for fd in fds:
                os.close(fd)
        self._events.clear()

    def _wait_ready(self) -> None:
        if not self._ready:
            message, _ = self._channel.receive(START_S)
            if message.get("event") != "ready":
                raise Garbled("the server process did not get ready")
            self._ready = True

    def _event(self, name: str, number: int, timeout_s: float) -> tuple[dict[str, Any], list[int]]:
        """Waits for one event, keeping others for whoever asks."""
        deadline = time.monotonic() + timeout_s
        while (name, number) not in self._events:
            message, fds = self._channel.receive(max(0.0, deadline - time.monotonic()))
            self._events[message["event"], message["number"]] = message, fds
        return self._events.pop((name, number))


class Worker:
    """One runner process."""

    def __init__(self, home: Server, number: int, channel: Channel, pidfd: int) -> None:
        self.server = home
        self.number = number
        self.channel = channel
        self.pidfd = pidfd
        self.pid = _pid_of(pidfd)
        self.isolation = ""
        self._operation = ""
        self._killed = self._ended = False

    def greet(self) -> None:
        """Waits for the runner's first word. No foreign code has run yet."""
        try:
            message, _ = self.channel.receive(SPAWN_S, self.pidfd)
            if message.get("event") == "failed":
                raise Garbled(printable(field(message, "text", str)))
            self.isolation = printable(field(message, "isolation", str))
        except (Closed, Late, Garbled) as error:
            self.end()
            raise Infrastructure(f"a runner did not start: {error}") from error

    def ask(
        self, op: str, timeout_s: float, fds: Sequence[int] = (), **fields: Any
    ) -> dict[str, Any]:
        """One request, one reply. Raises `Fault` or `Infrastructure`; then the runner is dead."""
        deadline = time.monotonic() + timeout_s
        number = self.post(op, fds, timeout_s, **fields)
        return self.answer(number, max(0.0, deadline - time.monotonic()))

    def post(self, op: str, fds: Sequence[int] = (), timeout_s: float = 30.0, **fields: Any) -> int:
        """Sends a request and does not wait. Returns its number, for `answer`."""
        self._operation = op
        number = secrets.randbits(62)
        try:
            self.channel.send({"id": number, "op": op, **fields}, fds, timeout_s)
        except Closed as error:
            raise self._cause_of_death() from error
        except Late as error:
            raise self._too_late(timeout_s) from error
        return number

    def answer(self, number: int, timeout_s: float, *, patient: bool = False) -> dict[str, Any]:
        """The reply to request `number`. `patient`: raises `Late` and leaves the runner alive."""
        try:
            reply, foreign = self.channel.receive(timeout_s, self.pidfd)
            for fd in foreign:
                os.close(fd)
            if reply.get("id") != number or foreign:
                raise Garbled("an answer to no question")
            if field(reply, "ok", bool):
                return reply
        except Late as error:
            if patient:
                raise
            raise self._too_late(timeout_s) from error
        except Garbled as error:
            raise self.garbled(error) from error
        except Closed as error:
            raise self._cause_of_death() from error
        raise _fault_of(reply, self._operation)

    def garbled(self, error: Garbled) -> Fault:
        """Ends the runner; what its nonsense means."""
        self.end()
        return Fault("tampered", f"the judge's channel was written to: {error}")

    def _too_late(self, timeout_s: float) -> Fault:
        self.end()
        return Fault("timed_out", f"no answer within {timeout_s:.3g} s ({self._operation})")

    def tasks(self) -> int:
        """Threads of the process, as the kernel counts them; 0 where they cannot be seen."""
        try:
            return len(os.listdir(f"/proc/{self.pid}/task"))
        except OSError:
            return 0

    def kill(self) -> None:
        """Kills the runner and all it started. Several die at the same time; then `end` each."""
        if self._killed or self._ended:
            return
        self._killed = True
        self.signal(signal.SIGKILL)

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal to the runner and all it started."""
        with contextlib.suppress(ProcessLookupError):
            if self.pid > 0 and isolation.OWN_PROCESSES not in self.isolation:
                os.killpg(self.pid, number)
            signal.pidfd_send_signal(self.pidfd, number)

    def end(self) -> None:
        """Kills the runner and all it started, and waits until it is gone."""
        if self._ended:
            return
        self.kill()
        self._ended = True
        self.channel.close()
        try:
            self.server.status_of(self.number)
        except Infrastructure:
            pass  # the server is gone, and its runners with it
        finally:
            os.close(self.pidfd)

    def _cause_of_death(self) -> Exception:
        try:
            status = self.server.status_of(self.number)
        except Infrastructure as error:
            return error
        finally:
            self._forget()
        if os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            if number == signal.SIGKILL:
                return KilledFromOutside("the runner was killed (SIGKILL)")
            name = signal.Signals(number).name
            return Fault("runtime_error", f"crashed: the process died of {name}")
        code = os.waitstatus_to_exitcode(status)
        return Fault("runtime_error", f"ended its own process with status {code}")

    def _forget(self) -> None:
        if not self._ended:
            self._ended = True
            self.channel.close()
            os.close(self.pidfd)


class Waking:
    """A runner that makes its device context, a third of a second on a GPU, while the judge does
    something else."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self._number = worker.post("wake")

    def awake(self, timeout_s: float) -> Worker:
        """Waits for it. Raises `Infrastructure`: no foreign code has run yet."""
        try:
            self.worker.answer(self._number, timeout_s)
        except Fault as fault:
            raise Infrastructure(f"a runner cannot use its device: {fault.message}") from fault
        return self.worker


def end_all(workers: Sequence[Worker]) -> None:
    """Ends them, all at the same time."""
    for worker in workers:
        worker.kill()
    for worker in workers:
        worker.end()


_servers: dict[tuple[str, int, str], Server] = {}
_servers_lock = threading.Lock()


def shared_server(chip: Chip, index: int = 0, cache: str = "") -> Server:
    """The server for `chip` that grades in this process share; started if there is none."""
    with _servers_lock:
        found = _servers.get((chip.name, index, cache))
        if found is None or not found.alive():
            if found is not None:
                found.close()
            found = _servers[chip.name, index, cache] = Server(chip, index, cache)
        return found


def claim_accelerator(chip: Chip, index: int = 0) -> str:
    """Takes the accelerator for this process (`devices.claim`); its label. Raises
    `Infrastructure`."""
    try:
        return devices.label(devices.claim(chip, index))
    except devices.DeviceError as error:
        raise Infrastructure(str(error)) from error


def discard(server: Server) -> None:
    """Ends a shared server that failed; the next grade starts a fresh one."""
    with _servers_lock:
        for key in [key for key, known in _servers.items() if known is server]:
            del _servers[key]
    server.close()


def close_servers() -> None:
    """Ends every shared server, and lets go of the accelerators."""
    with _servers_lock:
        for running in _servers.values():
            running.close()
        _servers.clear()
    devices.release_all()


atexit.register(close_servers)


def _start(
    theirs: socket.socket, chip: Chip, index: int, visible: list[str], cache: str
) -> tuple[bool, subprocess.Popen[bytes]]:
    """Starts the process with its channel and a pidfd of this one; True: in bubblewrap."""
    environment = isolation.environment()
    chip.prepare(environment, index)
    here = os.path.realpath(os.getcwd())
    path = [p for p in sys.path if p and os.path.realpath(p) != here]
    judge = os.pidfd_open(os.getpid())
    try:
        command = server.command(theirs.fileno(), judge, path, visible, cache)
        process = subprocess.Popen(
            command,
            env=environment,
            pass_fds=(theirs.fileno(), judge),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=None if os.environ.get("KERNELMARK_DEBUG") else subprocess.DEVNULL,
            start_new_session=True,
        )
    finally:
        os.close(judge)
    return "rooted" in command, process


def module_of(chip: Chip) -> str:
    """Name of the module that defines `chip` as its `CHIP` or among its `CHIPS`."""
    for name, module in list(sys.modules.items()):
        chips = getattr(module, "CHIPS", None) or (getattr(module, "CHIP", None),)
        if isinstance(chips, list | tuple) and any(found is chip for found in chips):
            return name
    raise LookupError(f"no module has {chip.name!r} as its CHIP")


def _pid_of(pidfd: int) -> int:
    """The process id behind a pidfd as this process sees it; -1 if it is gone or hidden."""
    with open(f"/proc/self/fdinfo/{pidfd}") as file:
        for line in file:
            if line.startswith("Pid:"):
                return int(line.split()[1])
    return -1


def _fault_of(reply: dict[str, Any], op: str) -> Exception:
    """What an exception in the runner means. The text is foreign."""
    error = reply.get("error")
    if not isinstance(error, dict):
        return Fault("tampered", "the judge's channel was written to: an error without a cause")
    kinds = [printable(str(kind), 100) for kind in list(error.get("kinds", ()))[:8]]
    text = printable(str(error.get("text", "")))
    line = error.get("line")
    where = f"line {line}: " if type(line) is int and line > 0 else ""
    name = kinds[0].rpartition(".")[2] if kinds else "error"
    first_line = text.strip().split("\n")[0]
    message = f"{where}{name}: {first_line}" if first_line else f"{where}{name}"
    searched = [*kinds, text]
    for needle, status in _MEANINGS:
        if any(needle in part for part in searched):
            return Fault(status, message)
    return Fault("build_error" if op == "load" else "runtime_error", message)


Progress = Callable[[str], None]
