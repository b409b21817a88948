"""Which accelerators a machine has, and the lock that keeps two graders off the same one.

Times measured while something else runs on the device are worth nothing, so a process that grades
on an accelerator holds a lock on it, in a folder that all of the machine's processes share; the
kernel lets go of it when the process ends, however it ends. Who cannot have the lock does not
grade. It is no guard against programs that know nothing of it. Device layer.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import importlib
import os
import threading
import time
from pathlib import Path

from kernelmark.evaluators.chips.base import Chip

#: one file a device; the same for every user, run and temporary folder of this machine
LOCKS = Path("/tmp/kernelmark-devices")
WAIT_S = 10.0  #: for whoever is about to end
_STEP_S = 0.1


class DeviceError(RuntimeError):
    """No such accelerator, or it cannot be had."""


def accelerators(chip: Chip, wanted: str = "all") -> list[int]:
    """Numbers of the accelerators to grade on: ``all``, or some of those there are: ``0,1``.

    A chip without accelerators (the interpreter) has the one number 0. Raises `DeviceError`.
    """
    found = chip.detect()
    if not found.usable:
        raise DeviceError(f"{chip.name}: {found.why}")
    if wanted == "all":
        return list(range(found.count if chip.visible_variable else 1))
    try:
        numbers = sorted({int(part) for part in wanted.split(",")})
    except ValueError:
        raise DeviceError(f"devices {wanted!r}: write all, or numbers: 0,1") from None
    if wrong := [n for n in numbers if not 0 <= n < max(found.count, 1)]:
        raise DeviceError(f"{chip.name} has {found.count} accelerators; no number {wrong[0]}")
    return numbers


def identity(chip: Chip, index: int = 0) -> str:
    """What tells accelerator `index` of those visible from all others of this machine; empty for
    a chip that has none.

    Its UUID where torch tells one, else the number that the vendor's variable gives it.
    """
    if not chip.visible_variable:
        return ""
    if chip.device != "cpu":
        module = importlib.import_module("torch").get_device_module(chip.device)
        asked = getattr(module, "get_device_properties", None)
        uuid = getattr(asked(index), "uuid", None) if asked else None
        if uuid is not None:
            return f"{chip.vendor} {uuid}"
    return f"{chip.vendor} {_number(chip, index)}"


def label(identity: str) -> str:
    """16 hexadecimal digits that tell this accelerator from others, and reveal nothing."""
    return hashlib.sha256(identity.encode()).hexdigest()[:16] if identity else ""


_held: dict[str, int] = {}
_lock = threading.Lock()


def claim(chip: Chip, index: int = 0, wait_s: float = WAIT_S) -> str:
    """Takes accelerator `index` for this process until `release_all`; its `identity`.

    Once more is nothing. Raises `DeviceError` where another process holds it for longer than
    `wait_s`, or where the lock cannot be had for another reason.
    """
    name = identity(chip, index)
    with _lock:
        if name and name not in _held:
            _held[name] = _locked(name, wait_s)
    return name


def reserve(chip: Chip, count: int) -> int:
    """One of the machine's `count` accelerators that no other process has reserved: its number.

    For processes that each are to start one judge and were not told where. It keeps nobody from
    grading there; the judge's own `claim` does. Touches no device. Raises `DeviceError` where all
    are reserved.
    """
    if not chip.visible_variable:
        return 0
    with _lock:
        for index in range(count):
            name = f"{chip.vendor} {_number(chip, index)} reserved"
            if name in _held:
                continue
            try:
                _held[name] = _locked(name, 0.0)
                return index
            except DeviceError:
                continue
    raise DeviceError(f"all {count} accelerators of {chip.name} are reserved")


def release_all() -> None:
    """Lets go of everything that this process has claimed."""
    with _lock:
        for fd in _held.values():
            os.close(fd)
        _held.clear()


def _number(chip: Chip, index: int) -> str:
    """What the vendor's variable calls accelerator `index` of those visible."""
    visible = os.environ.get(chip.visible_variable, "")
    numbers = [part.strip() for part in visible.split(",")] if visible else []
    return numbers[index] if index < len(numbers) else str(index)


def _locked(name: str, wait_s: float) -> int:
    """A descriptor that holds the lock; nothing that is started inherits it."""
    try:
        fd = _opened(LOCKS / f"{label(name)}.lock")
    except OSError as error:
        raise DeviceError(f"no lock for {name}: {error}") from error
    deadline = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(fd, 0)
            os.pwrite(fd, str(os.getpid()).encode(), 0)
            return fd
        except OSError as error:
            if error.errno == errno.EWOULDBLOCK and time.monotonic() < deadline:
                time.sleep(_STEP_S)
                continue
            holder = os.pread(fd, 20, 0).decode(errors="replace")
            os.close(fd)
            if error.errno == errno.EWOULDBLOCK:
                raise DeviceError(f"{name} is in use by process {holder}") from None
            raise DeviceError(f"no lock for {name}: {error}") from error


def _opened(path: Path) -> int:
    """Any user of the machine may lock the file, whoever made it."""
    try:
        path.parent.mkdir(mode=0o1777)
        path.parent.chmod(0o1777)
    except FileExistsError:
        pass
    try:
        return os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        if os.fstat(fd).st_uid == os.geteuid():
            os.fchmod(fd, 0o666)
        return fd
