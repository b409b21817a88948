"""A runner and an arena as the judge uses them: give it a call, get back private tensors.

Everything that comes out of a session is the judge's own copy: a runner that writes to the arena
later changes nothing. Device layer.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Any

import torch

from kernelmark.evaluators.grading import wire
from kernelmark.evaluators.grading.arena import Arena, aligned, storage_bytes
from kernelmark.evaluators.grading.channel import Garbled, field, printable
from kernelmark.evaluators.grading.sharing import SharingError
from kernelmark.evaluators.grading.workers import Fault, Infrastructure, Worker
from kernelmark.operators.draws import Call
from kernelmark.operators.records import Expected

_MIN_ARENA = 16 << 20


@dataclass(frozen=True)
class Outcome:
    """What one call did. `tensors` are the inputs as the call left them, in `Call.tensors` order;
    `bytes_after` their whole storages. `value` is the nest returned, with `Got` for tensors."""

    value: Any
    tensors: tuple[torch.Tensor, ...]
    bytes_after: tuple[torch.Tensor, ...]
    intact: bool  #: the inputs' layouts and pointer tables are unchanged
    launches_skipped: int
    seconds: float


@dataclass(frozen=True)
class Got:
    """A returned tensor: the runner's description, and the judge's copy of its elements."""

    about: wire.Returned
    tensor: torch.Tensor | None  #: None where it did not fit into the region that was expected


class Memory:
    """The arena of one grade, shared by its runners; a larger one takes its place when needed."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        nvidia = device.type == "cuda" and torch.version.hip is None
        self.transport = "cuda-descriptor" if nvidia else "memfd"
        self.note = self.transport  #: for the verdict
        try:
            self.arena = Arena.allocate(_MIN_ARENA, self.transport)
        except SharingError as error:
            self.transport, self.note = "memfd", f"memfd ({error})"
            self.arena = Arena.allocate(_MIN_ARENA, self.transport)
        self.generation = 1

    def ensure(self, nbytes: int) -> None:
        """Makes room for `nbytes`; sessions open the new arena before their next request."""
        if nbytes > self.arena.nbytes:
            self.arena.close()
            self.arena = Arena.allocate(aligned(nbytes + nbytes // 4), self.transport)
            self.generation += 1

    def leave_free(self, nbytes: int) -> None:
        """Where the device has less than `nbytes` free: what this process's allocator keeps in
        reserve goes back. The runners allocate from the same device."""
        if self.device.type == "cpu":
            return
        device = torch.get_device_module(self.device.type)
        if device.mem_get_info()[0] < nbytes:
            device.empty_cache()

    def close(self) -> None:
        """Lets go of the arena."""
        self.arena.close()


class Session:
    """One runner with a loaded function."""

    def __init__(
        self, worker: Worker, memory: Memory, timeout_s: float, ends_at: float = math.inf
    ) -> None:
        """`timeout_s`: for one request; `ends_at`: by the monotonic clock, for all of them."""
        self.worker = worker
        self.memory = memory
        self.most_reads = 0  #: elements of tensors that host code read in one call
        self.computed: set[str] = set()  #: operators of torch that it called, and may not
        self._timeout_s = timeout_s
        self.ends_at = ends_at
        self._opened = 0
        self._tasks = 0  #: threads of the process with the candidate loaded
        self._layouts: dict[int, list[wire.Layout]] = {}

    @property
    def timeout_s(self) -> float:
        """For the next request: no longer than what is left for all of them."""
        return max(0.0, min(self._timeout_s, self.ends_at - time.monotonic()))

    def load_baseline(self, operator: str, *, forget_choices: bool = False) -> bool:
        """Imports the baseline in the runner; whether what it compiles outlives the runner.
        `forget_choices`: but not what it chooses among what it has compiled."""
        choices = "forgotten" if forget_choices else "kept"
        return field(self.load(operator=operator, choices=choices), "kept", bool)

    def load(self, **fields: Any) -> dict[str, Any]:
        """Imports the candidate or the baseline in the runner."""
        self._open_arena()
        self._tasks = self.worker.tasks()
        return self.worker.ask("load", self.timeout_s, **fields)

    def stage(
        self, slot: int, call: Call, *, reuse: bool = False, drop: Sequence[int] = ()
    ) -> None:
        """Gives the runner private copies of a call's tensors, or new data for the old ones. The
        slots `drop` go once the new one stands."""
        tensors = call.tensors()
        layouts = wire.lay_out(tensors)
        self.need(2 * wire.end_of(layouts))
        for tensor, layout in zip(tensors, layouts, strict=True):
            flat = storage_bytes(tensor)
            self.memory.arena.bytes[layout.at : layout.at + layout.nbytes].copy_(flat)
        self.synchronize()
        self._layouts[slot] = layouts
        self.worker.ask(
            "stage",
            self.timeout_s,
            slot=slot,
            tree=wire.encode(call),
            layouts=[astuple(layout) for layout in layouts],
            reuse=reuse,
            drop=list(drop),
        )

    def release(self, slot: int, *, thoroughly: bool) -> None:
        """Frees a slot. `thoroughly`: both processes give cached memory back to the device, which
        they share."""
        self.worker.ask("drop", self.timeout_s, slots=[slot], thoroughly=thoroughly)
        if thoroughly and self.memory.device.type != "cpu":
            torch.get_device_module(self.memory.device.type).empty_cache()

    def run(self, slot: int, expected: Sequence[Any]) -> Outcome:
        """Calls the function on a staged slot and takes copies of all that it left behind."""
        layouts = self._layouts[slot]
        inputs_end = wire.end_of(layouts)
        region = (inputs_end, inputs_end + room_for(expected))
        self.need(region[1])
        self.memory.leave_free(2 * region[1])
        return self.collect("call", slot, layouts, region)

    def collect(
        self, op: str, slot: int, layouts: list[wire.Layout], region: tuple[int, int]
    ) -> Outcome:
        """One request that ends in results being handed over: returned elements in `region`, the
        inputs' storages where they came from."""
        places = [layout.at for layout in layouts]
        reply = self.worker.ask(op, self.timeout_s, slot=slot, region=region, inputs_at=places)
        try:
            self._nothing_runs_on(reply)
            if op == "call":
                self._watched(reply)
            return self._outcome(reply, layouts, region)
        except Garbled as error:
            raise self.worker.garbled(error) from error

    def _outcome(
        self, reply: dict[str, Any], layouts: list[wire.Layout], region: tuple[int, int]
    ) -> Outcome:
        parsed = wire.parse_reply(reply, len(layouts), region)
        # Copies of everything, first; nothing below looks at the arena.
        after = tuple(self._taken(x.at, x.at + x.nbytes) for x in layouts)
        copy = self._taken(*region)
        self.synchronize()
        return Outcome(
            value=_with_tensors(parsed.value, copy, region[0]),
            tensors=tuple(
                _strided(flat, layout) for flat, layout in zip(after, layouts, strict=True)
            ),
            bytes_after=after,
            intact=parsed.tables_intact,
            launches_skipped=field(reply, "launches_skipped", int),
            seconds=parsed.seconds,
        )

    def _watched(self, reply: dict[str, Any]) -> None:
        """What host code did in a call, as the runner's `hostwork` saw it."""
        self.most_reads = max(self.most_reads, field(reply, "reads", int))
        named = field(reply, "computed", list)
        self.computed.update(printable(field({"name": x}, "name", str), 80) for x in named[:20])

    def _taken(self, begin: int, end: int) -> torch.Tensor:
        return self.memory.arena.bytes[begin:end].to(self.memory.device, copy=True)

    def _nothing_runs_on(self, reply: dict[str, Any]) -> None:
        """No thread may outlive a call. Drivers of devices start some of their own, so that only
        on the CPU the kernel's count is the measure; elsewhere the runner's own must do."""
        claimed = field(reply, "threads", int)
        more = self.worker.tasks() - self._tasks if self.memory.device.type == "cpu" else 0
        if claimed > 1 or more > 0:
            self.worker.end()
            raise Fault("tampered", "threads go on after the call has returned")

    def need(self, nbytes: int) -> None:
        """Makes room in the arena, and has the runner open it if it is a new one."""
        self.memory.ensure(nbytes)
        self._open_arena()

    def _open_arena(self) -> None:
        if self._opened != self.memory.generation:
            arena = self.memory.arena
            assert arena.fd is not None
            try:
                self.worker.ask("open", self.timeout_s, [arena.fd], arena=arena.description)
            except Fault as fault:
                if self._opened:
                    raise
                # No foreign code has run yet.
                raise Infrastructure(f"a runner cannot open the arena: {fault}") from fault
            self._opened = self.memory.generation

    def synchronize(self) -> None:
        """Waits until the judge's own work on the device is done."""
        if self.memory.device.type != "cpu":
            torch.get_device_module(self.memory.device.type).synchronize()


def room_for(expected: Sequence[Any]) -> int:
    """Bytes for the returned elements, with a little to spare for results of a wrong size."""
    sizes = [
        aligned(item.value.numel() * item.dtype.itemsize)
        for item in expected
        if isinstance(item, Expected)
    ]
    return sum(sizes) + aligned(1 << 16)


def _with_tensors(value: Any, copy: torch.Tensor, begin: int) -> Any:
    """`value` with the elements of its tensors; `copy` is what lay in the arena from `begin`."""
    if isinstance(value, tuple):
        return tuple(_with_tensors(item, copy, begin) for item in value)
    if not isinstance(value, wire.Returned):
        return value
    if value.at is None:
        return Got(value, None)
    elements = copy[value.at - begin : value.at - begin + value.nbytes].view(value.dtype)
    return Got(value, elements.view(value.shape))


def _strided(flat: torch.Tensor, layout: wire.Layout) -> torch.Tensor:
    """The view that `layout` describes over the bytes `flat`."""
    dtype = wire.dtype_named(layout.dtype)
    whole = flat[: flat.numel() // dtype.itemsize * dtype.itemsize].view(dtype)
    return whole.as_strided(layout.shape, layout.strides, whole.storage_offset() + layout.offset)
