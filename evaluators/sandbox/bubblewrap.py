"""What an agent sees: a bubblewrap sandbox that holds the system, the agent, and its workspace.

Read-only: ``/usr`` and its kin, the few files of ``/etc`` that programs cannot do without, the
folders that the agent is installed in. Writable: its workspace, and a home and ``/tmp`` in memory.
Everything else of the machine is not there: no other folder, no other process, no network but
loopback of its own, no variable that was not named. Copies of this project that lie in a visible
folder (in site-packages, say) are covered.

It does not filter system calls.
"""

from __future__ import annotations

import functools
import glob
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import kernelmark

HOME = "/home/agent"
WORKSPACE = "/workspace"
#: our own programs and sockets in the sandbox
CONTROL = "/kernelmark"
GATEWAY = "/run/gateway.sock"
USER = 1000

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_ETC = (
    *("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "ssl/certs", "ssl/openssl.cnf"),
    *("localtime", "mime.types", "services", "protocols", "debian_version"),
)
_PASSWD = f"agent:x:{USER}:{USER}::{HOME}:/bin/sh\n"
_ETC_FILES = {
    "passwd": _PASSWD,
    "group": f"agent:x:{USER}:\n",
    "hosts": "127.0.0.1 localhost\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
    "resolv.conf": "",
}
_COPIES = ("lib/python3*/site-packages", "lib/python3*/dist-packages", "lib64/python3*/*-packages")


@dataclass(frozen=True)
class View:
    """What one agent is shown. `visible`: read-only folders and files, at their own paths.
    `gateway`: a Unix socket, or None. `memory_bytes`: most that its home and ``/tmp`` hold, each.
    """

    workspace: Path
    control: Path
    gateway: Path | None = None
    visible: tuple[str, ...] = ()
    memory_bytes: int = 1 << 30


@functools.cache
def missing() -> str:
    """Why bubblewrap cannot be used here; empty where it can."""
    program = shutil.which("bwrap")
    if program is None:
        return "bubblewrap is not installed (program bwrap)"
    words = [program, *_NAMESPACES, *_mounts(_SYSTEM), "--", "/bin/true"]
    trial = subprocess.run(words, capture_output=True, text=True, check=False)
    if trial.returncode == 0:
        return ""
    said = trial.stderr.strip().splitlines()
    return f"bubblewrap is not allowed here ({said[-1] if said else trial.returncode})"


def version() -> str:
    """Bubblewrap's version, in its own words."""
    return subprocess.run(["bwrap", "--version"], capture_output=True, text=True).stdout.strip()


def words(view: View) -> list[str]:
    """Words to put before a command so that it runs in the sandbox. Writes into `view.control`."""
    program = shutil.which("bwrap")
    assert program is not None, "callers ask `missing` first"
    found = [program, *_NAMESPACES, *_unnested(program), *_mounts(_SYSTEM)]
    for name in _ETC:
        found += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    for name, text in _ETC_FILES.items():
        file = view.control / f"etc-{name}"
        file.write_text(text, encoding="utf-8")
        found += ["--ro-bind", str(file), f"/etc/{name}"]
    size = _sized(program, view.memory_bytes)
    found += ["--dev", "/dev", "--proc", "/proc"]
    for path in ("/tmp", HOME, "/dev/shm"):
        found += [*size, "--tmpfs", path]
    found += _mounts(view.visible)
    found += ["--ro-bind", str(view.control), CONTROL, "--bind", str(view.workspace), WORKSPACE]
    if view.gateway is not None:
        found += ["--bind", str(view.gateway), GATEWAY]
    for path in covered(view.visible):
        found += ["--tmpfs", path, "--remount-ro", path]
    # /proc too: an agent of root is the owner of the kernel's settings there.
    for path in ("/proc", "/dev", "/"):
        found += ["--remount-ro", path]
    return [*found, "--chdir", WORKSPACE, "--"]


def covered(visible: Sequence[str]) -> list[str]:
    """Folders that hold this project where the sandbox would show them."""
    roots = [os.path.realpath(path) for path in (*_SYSTEM, *visible) if os.path.isdir(path)]
    own = {os.path.realpath(path) for path in kernelmark.__path__}
    prefixes = {prefix for root in roots for prefix in (root, f"{root}/local")}
    patterns = [f"{prefix}/{tail}/kernelmark" for prefix in prefixes for tail in _COPIES]
    own |= {os.path.realpath(path) for pattern in patterns for path in glob.glob(pattern)}
    return sorted(path for path in own if any(_within(path, root) for root in roots))


def refuse_exposure(path: str, secret: Sequence[Path]) -> str:
    """Why `path` may not be shown; empty where it may. `secret`: folders that must not be seen."""
    real = os.path.realpath(path)
    if not os.path.exists(real):
        return f"{path}: no such file or folder"
    for folder in [os.path.realpath(str(p)) for p in (*kernelmark.__path__, *secret)]:
        if _within(folder, real):
            return f"{path} would show {folder} to the agent"
    return ""


_NAMESPACES = (
    *("--unshare-user", "--uid", str(USER), "--gid", str(USER), "--unshare-pid", "--unshare-net"),
    *("--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try", "--hostname", "sandbox"),
    *("--die-with-parent", "--new-session", "--cap-drop", "ALL"),
)


def _mounts(paths: Sequence[str]) -> list[str]:
    found: list[str] = []
    for path in paths:
        if os.path.islink(path) and os.path.dirname(path) == "/":
            found += ["--symlink", os.readlink(path), path]
        elif os.path.exists(path):
            found += ["--ro-bind", path, path]
    return found


def _unnested(program: str) -> list[str]:
    """No user namespaces within, where this bubblewrap can forbid them."""
    return ["--disable-userns"] if "--disable-userns" in _help(program) else []


def _sized(program: str, nbytes: int) -> list[str]:
    """A size for the next tmpfs, where this bubblewrap can give one."""
    return ["--size", str(nbytes)] if "--size" in _help(program) else []


@functools.cache
def _help(program: str) -> str:
    return subprocess.run([program, "--help"], capture_output=True, text=True).stdout


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")
