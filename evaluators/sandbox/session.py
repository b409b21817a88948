"""One agent at work: started in its sandbox, watched, ended with all that it started.

The agent sees its workspace, `verify`, and a loopback port behind which is the gateway and nothing
else. What it may use is limited: processes and the size of a file by the kernel, and looked after
from outside (memory, processes, disk, time), so that an agent cannot lift them.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kernelmark.evaluators.sandbox import bubblewrap
from kernelmark.evaluators.sandbox.judge_socket import Answerer, judge_socket
from kernelmark.evaluators.sandbox.processes import folder_bytes, tree_use
from kernelmark.evaluators.sandbox.transcript import Transcript

#: where an agent in a sandbox finds the gateway: a port of its own network namespace
GATEWAY_PORT = 18080
_TICK_S = 0.25
_DISK_EVERY = 8  #: ticks
_PYTHON = "/usr/bin/python3"
_HERE = Path(__file__).parent
_GONE_S = 10.0  #: how long what was killed may take to be gone


@dataclass(frozen=True)
class AgentLimits:
    """What an agent may use. `disk_bytes`: of its workspace; home and ``/tmp`` are memory."""

    wall_s: float = 1800.0
    memory_bytes: int = 8 << 30
    processes: int = 512
    disk_bytes: int = 2 << 30
    file_bytes: int = 512 << 20


@dataclass(frozen=True)
class Plan:
    """What is to be run. `files`: paths and contents, written into the agent's home before.

    `visible`: folders and files of this machine that it is shown, read-only. `gateway`: the
    gateway's Unix socket, None where the agent calls no model. `bare`: without a sandbox.
    """

    command: tuple[str, ...]
    environment: Mapping[str, str]
    files: Mapping[str, str] = field(default_factory=dict)
    visible: tuple[str, ...] = ()
    candidate: str = "candidate.py"
    gateway: Path | None = None
    limits: AgentLimits = AgentLimits()
    bare: bool = False


@dataclass(frozen=True)
class Ending:
    """How it ended: by itself with `exit_status` (negative: a signal), or `stopped` for a reason
    (``wall_s``, ``memory_bytes``, ``processes``, ``disk_bytes``, or the caller's)."""

    exit_status: int
    stopped: str
    seconds: float
    output_bytes: int
    last_line: str


@dataclass(frozen=True)
class Places:
    """Paths as the agent knows them."""

    home: str
    workspace: str
    control: str


@contextlib.contextmanager
def prepared(workspace: Path, bare: bool) -> Iterator[tuple[Path, Places]]:
    """A control folder for one session, and paths as its agent will know them.

    It lies under the system's temporary folder: the names of sockets must be short.
    """
    with tempfile.TemporaryDirectory(prefix="kernelmark-") as name:
        control = Path(name)
        if bare:
            (control / "home").mkdir()
            yield control, Places(str(control / "home"), str(workspace), name)
        else:
            yield control, Places(bubblewrap.HOME, bubblewrap.WORKSPACE, bubblewrap.CONTROL)


def run_agent(
    plan: Plan,
    workspace: Path,
    control: Path,
    places: Places,
    transcript: Transcript,
    answer: Answerer,
    called_off: Callable[[], str] = lambda: "",
) -> Ending:
    """Runs one agent to its end. `called_off` is asked often; a reason ends it."""
    python, shown = _python(plan.bare)
    _write_control(plan, control, places, python)
    words = [python, f"{places.control}/launch.py", f"{places.control}/launch.json"]
    if not plan.bare:
        visible = (*plan.visible, *shown)
        memory = plan.limits.memory_bytes // 2
        view = bubblewrap.View(workspace, control, plan.gateway, visible, memory)
        words = [*bubblewrap.words(view), *words]
    with judge_socket(control / "judge.sock", answer):
        return _watched(words, plan.limits, workspace, transcript, called_off)


def _write_control(plan: Plan, control: Path, places: Places, python: str) -> None:
    (control / "bin").mkdir()
    source = (_HERE / "verify.py").read_text(encoding="utf-8")
    (control / "bin" / "verify").write_text(f"#!{python}\n{source}", encoding="utf-8")
    (control / "bin" / "verify").chmod(0o755)
    shutil.copyfile(_HERE / "launch.py", control / "launch.py")
    path = plan.environment.get("PATH", "/usr/local/bin:/usr/bin:/bin")
    environment = {
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "USER": "agent",
        "SHELL": "/bin/sh",
        **plan.environment,
        "HOME": places.home,
        "PATH": f"{places.control}/bin:{path}",
        "KERNELMARK_JUDGE": f"{places.control}/judge.sock",
        "KERNELMARK_CANDIDATE": f"{places.workspace}/{plan.candidate}",
    }
    launch = {
        "command": list(plan.command),
        "environment": environment,
        "files": {f"{places.home}/{name}": text for name, text in plan.files.items()},
        "folder": places.workspace,
        "limits": {
            "file_bytes": plan.limits.file_bytes,
            "processes": 2 * plan.limits.processes,  # for what is faster than the watch
            "core_bytes": 0,
        },
        "port": GATEWAY_PORT,
        "gateway": bubblewrap.GATEWAY if plan.gateway is not None and not plan.bare else "",
    }
    if plan.bare:  # counted for the whole user there, not for the agent
        del launch["limits"]["processes"]  # type: ignore[attr-defined]
    (control / "launch.json").write_text(json.dumps(launch), encoding="utf-8")


def _python(bare: bool) -> tuple[str, tuple[str, ...]]:
    """A Python for our own programs in the sandbox, and what must be shown for it to work."""
    if bare:
        return sys.executable, ()
    if os.access(_PYTHON, os.X_OK):
        return _PYTHON, ()
    own = os.path.join(sys.base_prefix, "bin", f"python3.{sys.version_info.minor}")
    return own, (sys.base_prefix,)


def _watched(
    words: Sequence[str],
    limits: AgentLimits,
    workspace: Path,
    transcript: Transcript,
    called_off: Callable[[], str],
) -> Ending:
    began = time.monotonic()
    process = subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"},
        start_new_session=True,
    )
    reader = threading.Thread(target=_read_all, args=(process, transcript), name="transcript")
    reader.start()
    stopped = ""
    try:
        for tick in _ticks(process):
            seconds = time.monotonic() - began
            stopped = called_off() or _over(process.pid, limits, workspace, tick, seconds)
            if stopped:
                break
    finally:
        _end(process, reader)
    transcript.close()
    return Ending(
        exit_status=process.returncode,
        stopped=stopped,
        seconds=time.monotonic() - began,
        output_bytes=transcript.total_bytes,
        last_line=transcript.last_line(),
    )


def _ticks(process: subprocess.Popen[bytes]) -> Iterator[int]:
    """A number each `_TICK_S` until the process has ended."""
    number = 0
    while True:
        try:
            process.wait(_TICK_S)
            return
        except subprocess.TimeoutExpired:
            yield number
            number += 1


def _over(pid: int, limits: AgentLimits, workspace: Path, tick: int, seconds: float) -> str:
    """The limit that is exceeded; empty where none is."""
    if seconds > limits.wall_s:
        return "wall_s"
    count, resident = tree_use(pid)
    if resident > limits.memory_bytes:
        return "memory_bytes"
    if count > limits.processes:
        return "processes"
    if tick % _DISK_EVERY == 0 and folder_bytes(workspace) > limits.disk_bytes:
        return "disk_bytes"
    return ""


def _end(process: subprocess.Popen[bytes], reader: threading.Thread) -> None:
    """Kills the whole group; in a sandbox, the kernel then kills all that is in it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    reader.join(_GONE_S)  # ends when the last process that could print has gone


def _read_all(process: subprocess.Popen[bytes], transcript: Transcript) -> None:
    assert process.stdout is not None
    with process.stdout as output:
        while data := os.read(output.fileno(), 1 << 16):
            transcript.add(data)
