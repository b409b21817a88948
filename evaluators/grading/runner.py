"""The process beside the candidate: makes its arguments, calls it, hands over the bytes.

It holds no seed, no expected value and no verdict. Nothing that it says is believed: the judge
checks every field of every reply and computes everything else from bytes. One request, one reply:

- ``wake``: makes the device's context, which takes a while.
- ``open``: the arena (again when it has grown).
- ``load``: imports a candidate, or the baseline of an operator and says whether what that compiles
  is kept.
- ``cache``: takes over what was compiled beforehand (`builder`); ``compiled``: what was not.
- ``stage``: copies inputs out of the arena into private memory, fresh or where they were before.
- ``call``: calls the entry point, waits for the device, puts results and inputs into the arena.
- ``warm``: calls the entry point for what it compiles, and forgets the results. ``drop``: forgets
  arguments, and gives memory back.
- ``time_...``: measures (`stopwatch`); what was computed is asked for and checked like any other.

The baseline's process is the same program in the other role. Device layer.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from kernelmark.evaluators.chips.base import Chip
from kernelmark.evaluators.grading import wire
from kernelmark.evaluators.grading.arena import Arena, aligned, storage_bytes
from kernelmark.evaluators.grading.channel import Channel, Closed
from kernelmark.evaluators.grading.hostwork import HostWork
from kernelmark.evaluators.grading.isolation import Isolation
from kernelmark.evaluators.grading.stopwatch import Stopwatch
from kernelmark.operators.draws import PointerList

_SAME_SIZE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.complex128}


@dataclass
class Slot:
    """One set of arguments in private memory. `flats` are the bytes of the tensors' storages."""

    tree: list[Any]
    layouts: list[wire.Layout]
    flats: list[torch.Tensor]
    tensors: list[torch.Tensor]
    tables: list[tuple[torch.Tensor, list[int]]] = field(default_factory=list)
    _ready: tuple[list[Any], dict[str, Any]] | None = None

    def arguments(self, device: torch.device) -> tuple[list[Any], dict[str, Any]]:
        """The arguments of a call; lists and pointer tables are new objects each time."""
        self.tables = []
        return wire.decode(self.tree, self.tensors, device, self._table)

    def ready(self, device: torch.device) -> tuple[list[Any], dict[str, Any]]:
        """Arguments made once, for timed calls: making pointer tables is no part of a call."""
        if self._ready is None:
            self._ready = self.arguments(device)
        return self._ready

    def intact(self) -> bool:
        """Whether pointer tables and the tensors' own layouts are as they were given."""
        return all(table.tolist() == addresses for table, addresses in self.tables) and all(
            _lies_as(t, layout) for t, layout in zip(self.tensors, self.layouts, strict=True)
        )

    def _table(self, pointed: PointerList) -> torch.Tensor:
        table = pointed.addresses()
        self.tables.append((table, table.tolist()))
        return table


def main(channel: Channel, options: dict[str, Any], report: Isolation) -> None:
    """Serves requests until the judge closes the channel."""
    torch.set_num_threads(1)
    serve(channel, Runner(options), report)


def serve(channel: Channel, handler: object, report: Isolation) -> None:
    """Answers each request by the method ``_do_<op>`` of `handler`, until the judge is gone."""
    channel.send({"event": "hello", "isolation": report.describe()})
    with contextlib.suppress(Closed):
        while True:
            request, fds = channel.receive()
            channel.send(_answer(handler, request, fds))


def _answer(handler: object, request: dict[str, Any], fds: Sequence[int]) -> dict[str, Any]:
    """Carries out one request. What the candidate raises becomes part of the reply."""
    reply: dict[str, Any] = {"id": request["id"]}
    operation = getattr(handler, f"_do_{request['op']}")
    try:
        return {**reply, "ok": True, **operation(request, fds)}
    except BaseException as error:  # SystemExit and KeyboardInterrupt too: all the candidate's
        return reply | {"ok": False, "error": describe_error(error)}


def import_candidate(request: dict[str, Any]) -> Callable[..., Any]:
    """The entry point of the source that a ``load`` carries; raises what the candidate raises."""
    from kernelmark.evaluators.languages.registry import get_language

    language = get_language(request["language"])
    path = os.path.abspath(f"candidate{language.suffix}")
    with open(path, "w", encoding="utf-8", newline="") as file:
        file.write(request["source"])
    return language.load(path, request["entry"])


class Runner:
    """State of a runner: the arena, the function under test, its arguments."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.role: str = options["role"]
        self.chip = chip_from(options["chip_module"], options["chip"])
        if self.chip.device != "cpu":  # else the server has done it, once for all its runners
            self.chip.activate()
        self.device = torch.device(self.chip.device)
        self._arena: Arena | None = None
        self.arena = torch.empty(0, dtype=torch.uint8)
        self.function: Callable[..., Any] | None = None
        self.slots: dict[int, Slot] = {}
        self.skipped: Any = None
        self.compiled = 0
        self._disabling: Any = None
        self._stopwatch: Stopwatch | None = None

    def _do_wake(self, request: dict[str, Any], fds: Sequence[int]) -> dict[str, Any]:
        torch.empty(1, device=self.device)
        self.chip.synchronize()
        return {}

    def _do_open(self, request: dict[str, Any], fds: Sequence[int]) -> dict[str, Any]:
        before, self._arena = self._arena, Arena.adopt(request["arena"], fds[0])
        self.arena = self._arena.bytes
        if before is not None:
            before.close()
        return {}

    def _do_load(self, request: dict[str, Any], fds: Sequence[int]) -> dict[str, Any]:
        if self.role == "baseline":
            from kernelmark.evaluators.grading import inductor
            from kernelmark.operators.registry import get_operator

            if request["choices"] == "forgotten":
                inductor.forget_choices()
            self.function = get_operator(request["operator"]).baseline
            return {"kept": inductor.kept()}
        from kernelmark.evaluators.languages.registry import get_language

        language = get_language(request["language"])
        if request["disabled"]:
            self._disabling = language.disable_kernels()  # kept: it ends when it is collected
            self.skipped = self._disabling.__enter__()
        self.function = import_candidate(request)
        return {}

    def _do_cache(self, request: dict[str, Any], fds: Sequence[int]) -> dict[str, Any]:
        """An archive of compiled kernels, for Triton's cache of this process."""
        import triton

        from kernelmark.evaluators.grading.builder import unpack

        def listen(*, cache_hit: bool, **rest: Any) -> None:
            self.compiled += not cache_hit

        triton.knobs.compilation.listener = listen
        with os.fdopen(fds[0], "rb") as file:
            file.seek(0)
            unpack(file, Path(os.environ["TRITON_CACHE_DIR"]))
        return {}

    def _do_compiled(self, request: dict[str, Any], fds: Sequence[int]) -> dict[str, Any]:
        """How many kernels were not in what ``cache`` brought."""
        return {"compiled": self.compiled}

    def _do_stage(self, request: dict[str, Any], fds: Sequence[int]) -> dict[str, Any]:
        number = request["slot"]
        layouts = [wire.layout_from(item) for item in request["layouts"]]
        before = self.slots.get(number) if request["reuse"] else None
        if before is None or [x.nbytes for x in before.layouts] != [x.nbytes for x in layouts]:
            self.slots[number] = self._slot(request["tree"], layouts)
            flats = self.slots[number].flats
        else:
            # Same objects, same addresses, same version counters; only the data is new.
            before.tree, before.layouts = request["tree"], layouts
            flats = [storage_bytes(flat) for flat in before.flats]
        self._forget(request["drop"])  # after the new one stands: it has other addresses
        for layout, flat in zip(layouts, flats, strict=True):
            flat.copy_(self.arena[layout.at : layout.at + layout.nbytes])
        self.chip.synchronize()
        return {}

    def _do_drop(self, request: dict[str, Any], fds: Sequence[int]) -> dict[str, Any]:
        self._forget(request["slots"])
        if request["thoroughly"] and self.device.type != "cpu":
            torch.get_device_module(self.device.type).empty_cache()
        return {}

    def _forget(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            self.slots.pop(number, None)

    def _do_call(self, request: dict[str, Any], fds: Sequence[int]) -> dict[str, Any]:
        slot = self.slots[request["slot"]]
        args, kwargs = slot.arguments(self.device)
        assert self.function is not None
        with _poisoned_memory(), HostWork() as work:
            begin = time.perf_counter()
            value = self.function(*args, **kwargs)
            self.chip.synchronize()
            seconds = time.perf_counter() - begin
        return self._hand_over(slot, value, request, seconds) | work.report()

    def _do_warm(self, request: dict[str, Any], fds: Sequence[int]) -> dict[str, Any]:
        """One call whose results nobody asks for; what it compiles is compiled."""
        slot = self.slots.pop(request["slot"])
        args, kwargs = slot.arguments(self.device)
        assert self.function is not None
        self.function(*args, **kwargs)
        self.chip.synchronize()
        return {}

    def _hand_over(
        self, slot: Slot, value: Any, request: dict[str, Any], seconds: float = 0.0
    ) -> dict[str, Any]:
        """Copies results and inputs into the arena and describes them."""
        begin, end = request["region"]
        writer = Writer(self.arena, slot.flats, begin, end)
        described = writer.describe(value)
        for flat, at in zip(slot.flats, request["inputs_at"], strict=True):
            flat = storage_bytes(flat)
            self.arena[at : at + flat.numel()].copy_(flat)
        self.chip.synchronize()
        return {
            "value": described,
            "tensors": writer.tensors,
            "tables_intact": slot.intact(),
            "threads": threading.active_count(),
            "seconds": seconds,
            "launches_skipped": 0 if self.skipped is None else int(self.skipped.launches),
        }

    def _do_time_open(self, request: dict[str, Any], fds: Sequence[int]) -> dict[str, Any]:
        self.slots.clear()
        if self._stopwatch is None:
            timer = self.chip.timer()
            assert timer is not None
            self._stopwatch = Stopwatch(timer, self._fill, self._call, self.chip.synchronize)
        for number, items in enumerate(request["layouts"]):
            layouts = [wire.layout_from(item) for item in items]
            self.slots[number] = self._slot(request["tree"], layouts)
        self._stopwatch.use(range(len(self.slots)))
        if fds:
            self._stopwatch.open_latch(fds[0])
            os.close(fds[0])
        return {}

    def _do_time_start(self, request: dict[str, Any], fds: Sequence[int]) -> dict[str, Any]:
        self._watch().start()
        return {}

    def _do_time_block(self, request: dict[str, Any], fds: Sequence[int]) -> dict[str, Any]:
        self._watch().block(request["mode"], request["calls"])
        return {}

    def _do_time_stop(self, request: dict[str, Any], fds: Sequence[int]) -> dict[str, Any]:
        return {"blocks": self._watch().stop()}

    def _do_time_queue(self, request: dict[str, Any], fds: Sequence[int]) -> dict[str, Any]:
        self._watch().queue(request["calls"], request["ticket"])
        return {}

    def _do_time_single(self, request: dict[str, Any], fds: Sequence[int]) -> dict[str, Any]:
        self._watch().single()
        return {}

    def _do_time_collect(self, request: dict[str, Any], fds: Sequence[int]) -> dict[str, Any]:
        self.chip.synchronize()
        number = request["slot"]
        returned = self._watch().returned[number]
        return self._hand_over(self.slots[number], returned, request)

    def _do_time_close(self, request: dict[str, Any], fds: Sequence[int]) -> dict[str, Any]:
        self._watch().close()
        self.slots.clear()
        return {}

    def _watch(self) -> Stopwatch:
        assert self._stopwatch is not None
        return self._stopwatch

    def _fill(self, number: int) -> None:
        """Copies a slot's inputs out of the arena, where they were written before."""
        slot = self.slots[number]
        for layout, flat in zip(slot.layouts, slot.flats, strict=True):
            flat.copy_(self.arena[layout.at : layout.at + layout.nbytes], non_blocking=True)

    def _call(self, number: int) -> Any:
        args, kwargs = self.slots[number].ready(self.device)
        assert self.function is not None
        return self.function(*args, **kwargs)

    def _slot(self, tree: list[Any], layouts: list[wire.Layout]) -> Slot:
        flats = [self._private(layout.nbytes) for layout in layouts]
        views = [layout.view(flat) for layout, flat in zip(layouts, flats, strict=True)]
        return Slot(tree, layouts, flats, views)

    def _private(self, nbytes: int) -> torch.Tensor:
        return torch.empty(nbytes, dtype=torch.uint8, device=self.device)


class Writer:
    """Puts returned tensors into a region of the arena and describes whatever was returned."""

    def __init__(
        self, arena: torch.Tensor, inputs: Sequence[torch.Tensor], begin: int, end: int
    ) -> None:
        self.arena = arena
        self.owners = {flat.data_ptr(): i for i, flat in enumerate(inputs) if flat.numel()}
        self.next, self.end = begin, end
        self.tensors: list[dict[str, Any]] = []

    def describe(self, value: Any, depth: int = 0) -> dict[str, Any]:
        """`value` as `wire.parse_reply` reads it."""
        if type(value) is torch.Tensor and value.layout == torch.strided:
            self.tensors.append(self._put(value))
            return {"t": len(self.tensors) - 1}
        if type(value) in (list, tuple) and depth < 8:
            return {"l": [self.describe(item, depth + 1) for item in value]}
        if value is None or type(value) in (bool, int, float):
            return {"s": value}
        if type(value) is complex:
            return {"c": [value.real, value.imag]}
        return {"x": f"{type(value).__module__}.{type(value).__qualname__}"}

    def _put(self, tensor: torch.Tensor) -> dict[str, Any]:
        tensor = tensor.detach()
        base = tensor.untyped_storage().data_ptr()
        owner = self.owners.get(base)
        first = tensor.data_ptr() if tensor.numel() else base
        nbytes = tensor.numel() * tensor.dtype.itemsize
        at = self.next if self.next + nbytes <= self.end else None
        if at is not None and nbytes:
            same_size = _SAME_SIZE[tensor.dtype.itemsize]
            place = self.arena[at : at + nbytes].view(same_size).view(tensor.shape)
            place.copy_(tensor.resolve_conj().resolve_neg().view(same_size))
        if at is not None:
            self.next = aligned(at + nbytes)
        return {
            "dtype": wire.dtype_name(tensor.dtype),
            "shape": list(tensor.shape),
            "strides": list(tensor.stride()),
            "place": [tensor.storage_offset(), first if owner is None else first - base],
            "device": tensor.device.type,
            "owner": owner,
            "at": at,
        }


def chip_from(module: str, name: str) -> Chip:
    """The chip `name` of a module: the registry is the judge's, who has chosen already."""
    found = importlib.import_module(module)
    chips = getattr(found, "CHIPS", None) or (found.CHIP,)
    chip: Chip = next(chip for chip in chips if chip.name == name)
    return chip


def describe_error(error: BaseException) -> dict[str, Any]:
    """Class names, text, and the last line of the candidate's file on the way."""
    line = 0
    for frame in traceback.extract_tb(error.__traceback__):
        if os.path.basename(frame.filename).startswith("candidate."):
            line = frame.lineno or 0
    if isinstance(error, SyntaxError):
        line = error.lineno or 0
    return {
        "kinds": [f"{k.__module__}.{k.__qualname__}" for k in type(error).__mro__[:8]],
        "text": _text(error)[:4000],
        "line": line,
    }


def _text(error: BaseException) -> str:
    """What an exception says. Of a verdict's message its first line is left: where that only
    announces a cause (``backend='inductor' raised:``), the cause is moved up to it."""
    text = str(error).strip()
    first, _, rest = text.partition("\n")
    return f"{first} {rest.lstrip()}" if first.endswith(":") else text


@contextlib.contextmanager
def _poisoned_memory() -> Iterator[None]:
    """While open, memory that torch hands out uninitialised holds NaN or the largest integer."""
    # What torch.use_deterministic_algorithms does, without its second of imports.
    switch: Any = torch._C._set_deterministic_algorithms
    settings: Any = torch.utils.deterministic
    switch(True, warn_only=True)
    settings.fill_uninitialized_memory = True
    try:
        yield
    finally:
        switch(False)


def _lies_as(tensor: torch.Tensor, layout: wire.Layout) -> bool:
    return (
        tuple(tensor.shape) == layout.shape
        and tuple(tensor.stride()) == layout.strides
        and tensor.storage_offset() == layout.offset
    )
