"""How a call crosses to a runner and what comes back, as plain values.

To the runner: every tensor's layout and its place in the arena, and the arguments as a tree. Back:
the layout of every returned tensor and where its elements were put, relations to the inputs'
storages, and Python scalars. A reply is parsed into `Reply` field by field; whatever is not as it
must be raises `Garbled`. Device layer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kernelmark.evaluators.grading.arena import aligned
from kernelmark.evaluators.grading.channel import Garbled, field, naturals, printable
from kernelmark.operators.draws import Call, PointerList

_MAX_RESULTS = 4096
_DTYPES: dict[str, torch.dtype] = {
    str(value).removeprefix("torch."): value
    for value in vars(torch).values()
    if isinstance(value, torch.dtype)
}


def dtype_name(dtype: torch.dtype) -> str:
    """``float16`` for torch.float16."""
    return str(dtype).removeprefix("torch.")


def dtype_named(name: str) -> torch.dtype:
    """The dtype called `name`. Raises `Garbled`."""
    if name not in _DTYPES:
        raise Garbled(f"no dtype {name!r}")
    return _DTYPES[name]


@dataclass(frozen=True)
class Layout:
    """One input tensor: how it lies in its storage, and where that storage lies in the arena."""

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int  #: elements
    at: int  #: byte offset in the arena
    nbytes: int  #: of the whole storage

    def view(self, flat: torch.Tensor) -> torch.Tensor:
        """The tensor over `flat`, the bytes of its storage."""
        tensor = torch.empty(0, dtype=dtype_named(self.dtype), device=flat.device)
        return tensor.set_(flat.untyped_storage(), self.offset, self.shape, self.strides)


def layout_from(item: list[Any]) -> Layout:
    """The layout that `dataclasses.astuple` took apart, after its way through JSON."""
    dtype, shape, strides, *rest = item
    return Layout(dtype, tuple(shape), tuple(strides), *rest)


def lay_out(tensors: Sequence[torch.Tensor], start: int = 0) -> list[Layout]:
    """Places for the storages of `tensors`, one after another from byte `start`."""
    layouts: list[Layout] = []
    for tensor in tensors:
        nbytes = tensor.untyped_storage().nbytes()
        layouts.append(
            Layout(
                dtype_name(tensor.dtype),
                tuple(tensor.shape),
                tuple(tensor.stride()),
                int(tensor.storage_offset()),
                start,
                nbytes,
            )
        )
        start = aligned(start + nbytes)
    return layouts


def end_of(layouts: Sequence[Layout]) -> int:
    """First free byte after `layouts`."""
    return aligned(layouts[-1].at + layouts[-1].nbytes) if layouts else 0


def encode(call: Call) -> list[Any]:
    """``[args, kwargs]`` with tensors replaced by their number in `Call.tensors()`."""
    numbers = iter(range(1 << 30))

    def walk(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return {"t": next(numbers)}
        if isinstance(value, PointerList):
            return {"p": next(numbers)}
        if isinstance(value, list):
            return {"l": [walk(item) for item in value]}
        if isinstance(value, torch.dtype):
            return {"d": dtype_name(value)}
        if isinstance(value, torch.device):
            return {"dev": 1}
        if isinstance(value, complex):
            return {"c": [value.real, value.imag]}
        if value is None or isinstance(value, bool | int | float | str):
            return value
        if isinstance(value, torch.memory_format | torch.layout):
            return {"n": str(value).removeprefix("torch.")}
        raise TypeError(f"an argument of type {type(value).__name__} cannot be given to a runner")

    args = [walk(value) for value in call.args]
    return [args, {key: walk(value) for key, value in call.kwargs.items()}]


def decode(
    tree: list[Any],
    tensors: Sequence[torch.Tensor],
    device: torch.device,
    table: Callable[[PointerList], torch.Tensor],
) -> tuple[list[Any], dict[str, Any]]:
    """Arguments from `encode`'s tree; `table` makes a pointer table."""

    def walk(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        ((kind, inner),) = value.items()
        if kind == "t":
            return tensors[inner]
        if kind == "p":
            return table(PointerList(tensors[inner]))
        if kind == "l":
            return [walk(item) for item in inner]
        if kind == "d":
            return dtype_named(inner)
        if kind == "dev":
            return device
        if kind == "c":
            return complex(*inner)
        return getattr(torch, inner)

    args, kwargs = tree
    return [walk(value) for value in args], {key: walk(value) for key, value in kwargs.items()}


@dataclass(frozen=True)
class Returned:
    """A tensor that the candidate returned, as the runner describes it.

    `at`: where its elements were put, dense, row-major; None where they did not fit. `owner`: the
    input whose storage it lies in, or None. `first`: the first byte of its elements, relative to
    the owner's storage, or an address that only tells returned tensors apart.
    """

    dtype: torch.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    first: int
    device: str
    owner: int | None
    at: int | None

    @property
    def nbytes(self) -> int:
        """Bytes of the elements, dense."""
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True)
class Foreign:
    """A returned object that is neither a plain tensor nor a scalar."""

    kind: str


@dataclass(frozen=True)
class Reply:
    """What came back of one call. `value` is the nest returned, as tuples."""

    value: Any
    seconds: float  #: the runner's own claim
    tables_intact: bool


def parse_reply(message: dict[str, Any], inputs: int, region: tuple[int, int]) -> Reply:
    """Checks every field. `region`: bytes (begin, end) of the arena open to returned elements."""
    tensors = [_parse_tensor(item, inputs, region) for item in field(message, "tensors", list)]
    budget = [_MAX_RESULTS]

    def walk(value: Any, depth: int) -> Any:
        budget[0] -= 1
        if budget[0] < 0 or depth > 8:
            raise Garbled("too much was returned")
        if not isinstance(value, dict) or len(value) != 1:
            raise Garbled("a returned value is not described")
        ((kind, inner),) = value.items()
        if kind == "t" and type(inner) is int and 0 <= inner < len(tensors):
            return tensors[inner]
        if kind == "l" and isinstance(inner, list):
            return tuple(walk(item, depth + 1) for item in inner)
        if kind == "s" and (inner is None or type(inner) in (bool, int, float)):
            return inner
        if kind == "c" and isinstance(inner, list) and [type(x) for x in inner] == [float] * 2:
            return complex(*inner)
        if kind == "x" and isinstance(inner, str):
            return Foreign(printable(inner, 200))
        raise Garbled("a returned value is not described")

    return Reply(
        walk(message.get("value"), 0),
        float(field(message, "seconds", float)),
        field(message, "tables_intact", bool),
    )


def _parse_tensor(item: Any, inputs: int, region: tuple[int, int]) -> Returned:
    if not isinstance(item, dict):
        raise Garbled("a returned tensor is not described")
    shape = naturals(item, "shape")
    if len(shape) > 64 or math.prod(max(n, 1) for n in shape) >= 1 << 62:
        raise Garbled("a returned tensor of impossible size")
    owner, at = item.get("owner"), item.get("at")
    if owner is not None and not (type(owner) is int and 0 <= owner < inputs):
        raise Garbled("a returned tensor lies in an unknown storage")
    offset, first = naturals(item, "place", 2)
    tensor = Returned(
        dtype_named(field(item, "dtype", str)),
        shape,
        naturals(item, "strides", len(shape)),
        offset,
        first,
        printable(field(item, "device", str), 40),
        owner,
        at,
    )
    if at is not None and not (
        type(at) is int and region[0] <= at and at + tensor.nbytes <= region[1] and at % 16 == 0
    ):
        raise Garbled("a returned tensor lies outside its region")
    return tensor
