"""The process that compiles a candidate's kernels for the device of this machine, without it.

Forked and isolated like a runner, it pretends to have the device: the candidate's host code runs on
CPU tensors, launches do nothing, and each kernel (each configuration of an autotuner) is compiled
into a private Triton cache, which then goes to the candidate's runner. A call that has compiled
nothing for a while is broken off: it is the runner's. One request, one reply:

- ``load``: begins the pretence and imports the candidate.
- ``compile``: calls the entry point as one case would.
- ``pack``: writes the cache into the descriptor that comes with it.

Device layer.
"""

from __future__ import annotations

import json
import mmap
import os
import signal
import tarfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
import triton

from kernelmark.evaluators.chips import _compiling, _drivers
from kernelmark.evaluators.chips.here import Here
from kernelmark.evaluators.grading import wire
from kernelmark.evaluators.grading.channel import Channel
from kernelmark.evaluators.grading.isolation import Isolation
from kernelmark.evaluators.grading.runner import import_candidate, serve
from kernelmark.operators.draws import PointerList

IDLE_S = 5.0  #: of host code that compiles nothing, after which a call is broken off
_NO_RESERVE = 0x4000  #: MAP_NORESERVE of Linux: pages are given when they are touched
_GROUP = "__grp__"  #: begins the names of files in which Triton lists others by their whole path


def main(channel: Channel, options: dict[str, Any], report: Isolation) -> None:
    """Serves requests until the judge closes the channel."""
    torch.set_num_threads(1)
    serve(channel, Builder(), report)


class Idle(BaseException):
    """Host code went on for `IDLE_S` and compiled nothing."""


class Alarm:
    """While entered, raises `Idle` in the main thread where nothing is compiled for `idle_s`.

    It ticks between two instructions of Python: one long call into C, or host code that swallows
    even `Idle`, is left to the judge's own limit. A process that stood still meanwhile
    (`Build.resting`) has missed all ticks but one.
    """

    TICKS = 5

    def __init__(self, idle_s: float) -> None:
        self.idle_s = idle_s
        self._set = False
        self._compiling = 0
        self._ticks = 0
        signal.signal(signal.SIGALRM, self._ring)

    def __enter__(self) -> None:
        self._set = True
        self._wind()

    def __exit__(self, *error: object) -> None:
        self._set = False
        signal.setitimer(signal.ITIMER_REAL, 0)

    @contextmanager
    def compiling(self) -> Iterator[None]:
        """Keeps it quiet, however long the work takes."""
        self._compiling += 1
        try:
            yield
        finally:
            self._wind()
            self._compiling -= 1

    def _wind(self) -> None:
        self._ticks = 0
        tick_s = self.idle_s / self.TICKS
        signal.setitimer(signal.ITIMER_REAL, tick_s, tick_s)

    def _ring(self, number: int, frame: object) -> None:
        self._ticks += 1
        if self._set and not self._compiling and self._ticks > self.TICKS:
            raise Idle(f"its host code compiled nothing for {self.idle_s:g} s")


class Builder:
    """State of a builder: the pretence, the candidate, contents of small arguments."""

    def __init__(self) -> None:
        self.told: list[dict[str, Any]] = []
        self.alarm = Alarm(IDLE_S)
        self.contents: mmap.mmap | None = None

    def _do_load(self, request: dict[str, Any], fds: Sequence[int]) -> dict[str, Any]:
        if fds:
            size = os.fstat(fds[0]).st_size
            access = mmap.PROT_READ | mmap.PROT_WRITE
            self.contents = mmap.mmap(fds[0], size, flags=mmap.MAP_PRIVATE, prot=access)
            os.close(fds[0])
        here = Here.from_message(request["here"])
        target = here.compile_target()
        self.recorder = _compiling.pretend(target, self.told.append, here.answers)
        launcher = self._quietly(_drivers.launcher_for(target.backend))
        triton.runtime.driver.active.launcher_cls = launcher
        self.recorder.plain = self._quietly(self.recorder.plain)
        self.function = import_candidate(request)
        return {}

    def _do_compile(self, request: dict[str, Any], fds: Sequence[int]) -> dict[str, Any]:
        layouts = [wire.layout_from(item) for item in request["layouts"]]
        tensors = [layout.view(self._memory(layout)) for layout in layouts]
        args, kwargs = wire.decode(
            request["tree"], tensors, torch.device("cpu"), PointerList.addresses
        )
        pretence = self.recorder.pretence
        assert pretence is not None
        self.told.clear()
        reads = pretence.reads
        call = partial(self.function, *args, **kwargs)
        try:
            with self.alarm:
                status, error = _compiling.outcome(self.recorder, call)
        except Idle as idle:
            status, error = "timed_out", str(idle)
        return {
            "outcome": status,
            "error": error,
            "read": pretence.reads > reads,
            "kernels": [told["kernel"] for told in self.told if "kernel" in told],
        }

    def _do_pack(self, request: dict[str, Any], fds: Sequence[int]) -> dict[str, Any]:
        with os.fdopen(fds[0], "wb") as file:
            pack(_cache_folder(), file)
        return {}

    def _quietly(self, compiler: Callable[..., Any]) -> Callable[..., Any]:
        """`compiler`, which may take its time."""

        def compile_quietly(*args: Any, **kwargs: Any) -> Any:
            with self.alarm.compiling():
                return compiler(*args, **kwargs)

        return compile_quietly

    def _memory(self, layout: wire.Layout) -> torch.Tensor:
        """The bytes of a storage: as drawn, or zeros that take no memory until touched."""
        if layout.at >= 0 and self.contents is not None and layout.nbytes:
            return torch.frombuffer(
                self.contents, dtype=torch.uint8, offset=layout.at, count=layout.nbytes
            )
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE
        memory = mmap.mmap(-1, max(layout.nbytes, 1), flags=flags)
        return torch.frombuffer(memory, dtype=torch.uint8)


def pack(folder: Path, file: Any) -> None:
    """Writes the files of a Triton cache (folders of files) as a tar archive."""
    with tarfile.open(fileobj=file, mode="w") as archive:
        for path in sorted(folder.glob("*/*")):
            if path.is_file():
                archive.add(path, arcname=str(path.relative_to(folder)), recursive=False)


def unpack(file: Any, folder: Path) -> None:
    """Puts the files of an archive into the Triton cache `folder`, with its own paths in them."""
    with tarfile.open(fileobj=file, mode="r") as archive:
        for member in archive:
            content = archive.extractfile(member) if member.isfile() else None
            if content is None:
                continue
            place, name = folder / Path(member.name).parent.name, Path(member.name).name
            data = content.read()
            if name.startswith(_GROUP):
                names = json.loads(data)["child_paths"]
                data = json.dumps({"child_paths": {n: str(place / n) for n in names}}).encode()
            place.mkdir(parents=True, exist_ok=True)
            (place / name).write_bytes(data)


def _cache_folder() -> Path:
    return Path(os.environ["TRITON_CACHE_DIR"])
