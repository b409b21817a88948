"""Makes a case's tensors from a seed, on any device.

A draw is a pure function of (case, variation, seed, device type, torch version). The judge holds
the seed; nobody else ever sees it.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from kernelmark.operators.records import (
    Argument,
    Case,
    OnDevice,
    Operator,
    Pointers,
    TensorSpec,
    contiguous_strides,
)

#: name -> what it does to fills that may be varied (`normal`, `wide`)
VARIATIONS = {
    "base": "as declared",
    "small": "values scaled by 1e-3",
    "large": "values scaled by 64",
    "structured": "ramps along the last dimension with every eighth element 0",
    "specials": "1 in 64 elements NaN, infinite, zero, negative zero or subnormal",
}
_SCALES = {"small": 1e-3, "large": 64.0}


@dataclass
class Call:
    """Arguments of one call, made. `Pointers` are `PointerList` here."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def tensors(self) -> list[torch.Tensor]:
        """Every tensor, in the order of `Case.tensors`."""
        return _flat((self.args, list(self.kwargs.values())))

    def clone(self) -> Call:
        """A private copy: same values, strides and offsets, new storages."""
        return Call(map_tensors(self.args, copy_view), map_tensors(self.kwargs, copy_view))


class PointerList:
    """What a `Pointers` argument points to; a candidate gets `addresses()` instead.

    `members`: tensor, or NumPy array, of shape (count, ...), as they lie in memory. The table lists
    them shuffled, always in the same way for the same count. Iterates in the table's order.
    """

    def __init__(self, members: Any) -> None:
        self.members = members

    def __len__(self) -> int:
        return len(self.members)

    def __iter__(self) -> Iterator[Any]:
        return (self.members[place] for place in _shuffled(len(self)))

    def stacked(self) -> Any:
        """A copy of the members in the table's order."""
        return self.members[list(_shuffled(len(self)))]

    def unstacked(self, values: Any) -> Any:
        """`values`, one for each of the table's entries, in the order of `members`."""
        order = _shuffled(len(self))
        return values[sorted(range(len(order)), key=order.__getitem__)]

    def addresses(self) -> torch.Tensor:
        """int64 tensor of shape (count,) with each member's data address, on their device."""
        first, pitch = self.members.data_ptr(), self.members.stride(0) * self.members.itemsize
        table = [first + place * pitch for place in _shuffled(len(self))]
        return torch.tensor(table, dtype=torch.int64, device=self.members.device)


@functools.cache
def _shuffled(count: int) -> tuple[int, ...]:
    """A permutation of range(count), the same one everywhere."""
    order = list(range(count))
    random.Random(count).shuffle(order)
    return tuple(order)


def draw(operator: Operator, case: Case, variation: str, seed: int, device: torch.device) -> Call:
    """The arguments of `case` under `variation`; the same seed gives the same bytes."""
    generator = torch.Generator(device).manual_seed(seed)

    def make(value: Argument) -> Any:
        if isinstance(value, TensorSpec):
            return _tensor(value, variation, generator, device)
        if isinstance(value, Pointers):
            return PointerList(_tensor(value.buffer, variation, generator, device))
        if isinstance(value, OnDevice):
            return device
        if isinstance(value, tuple):
            items = [make(item) for item in value]
            return items  # lists, as ATen's Tensor[] and int[] arguments are given
        return value

    call = Call(tuple(make(a) for a in case.args), {k: make(v) for k, v in case.kwargs.items()})
    if operator.prepare is not None:
        operator.prepare(call, case, generator)
    return call


def arguments_for_candidate(call: Call) -> Call:
    """The same call with every `PointerList` replaced by its address table."""

    def swap(value: Any) -> Any:
        if isinstance(value, PointerList):
            return value.addresses()
        if isinstance(value, list):
            return [swap(item) for item in value]
        return value

    return Call(tuple(swap(a) for a in call.args), {k: swap(v) for k, v in call.kwargs.items()})


def map_tensors(value: Any, function: Callable[[torch.Tensor], Any]) -> Any:
    """Applies `function` to every tensor in a nest of tuples, lists and dicts, to the members
    behind a table of pointers as one."""
    if isinstance(value, torch.Tensor):
        return function(value)
    if isinstance(value, PointerList):
        return PointerList(function(value.members))
    if isinstance(value, list):
        return [map_tensors(item, function) for item in value]
    if isinstance(value, tuple):
        return tuple(map_tensors(item, function) for item in value)
    if isinstance(value, dict):
        return {key: map_tensors(item, function) for key, item in value.items()}
    return value


def copy_view(tensor: torch.Tensor, device: torch.device | None = None) -> torch.Tensor:
    """A copy with the same strides and storage offset, gap bytes included, in a new storage.

    On `device`, or on the tensor's own.
    """
    storage = tensor.untyped_storage()
    raw = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage)
    flat = raw.to(device or tensor.device, copy=True)
    copy = torch.empty(0, dtype=tensor.dtype, device=flat.device)
    return copy.set_(flat.untyped_storage(), tensor.storage_offset(), tensor.shape, tensor.stride())


def _flat(value: Any) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    map_tensors(value, found.append)
    return found


def _tensor(
    spec: TensorSpec, variation: str, generator: torch.Generator, device: torch.device
) -> torch.Tensor:
    strides = spec.strides or contiguous_strides(spec.shape)
    flat = torch.zeros(spec.storage_numel, dtype=spec.dtype, device=device)
    if spec.numel:
        body = flat[spec.offset :]
        body.copy_(FILLS[spec.fill](spec, body.numel(), variation, generator, device))
        if spec.strides is not None and spec.fill in _WHOLE:
            values = FILLS[spec.fill](spec, spec.numel, variation, generator, device)
            flat.as_strided(spec.shape, strides, spec.offset).copy_(values.view(spec.shape))
    return flat.as_strided(spec.shape, strides, spec.offset)


Fill = Callable[[TensorSpec, int, str, torch.Generator, torch.device], torch.Tensor]


def _normal(
    spec: TensorSpec, numel: int, variation: str, generator: torch.Generator, device: torch.device
) -> torch.Tensor:
    values = _randn(spec, numel, generator, device)
    if variation in _SCALES:
        values *= _SCALES[variation]
    elif variation == "structured":
        last = max(spec.shape[-1], 1) if spec.shape else 1
        index = torch.arange(numel, device=device)
        values = values.mul_(0.125) + (index % last).to(values.dtype) / last
        values *= index % 8 != 0
    elif variation == "specials":
        values = _with_specials(values, spec.dtype, generator)
    return values


def _wide(
    spec: TensorSpec, numel: int, variation: str, generator: torch.Generator, device: torch.device
) -> torch.Tensor:
    exponent = torch.rand(numel, generator=generator, device=device) * 6 - 3
    return _normal(spec, numel, variation, generator, device) * 10.0**exponent


def _uniform(
    spec: TensorSpec, numel: int, variation: str, generator: torch.Generator, device: torch.device
) -> torch.Tensor:
    wide = _working_dtype(spec.dtype)
    values = torch.rand(numel, generator=generator, device=device, dtype=_real(wide)).to(wide)
    return values * (spec.high - spec.low) + spec.low


def _integers(
    spec: TensorSpec, numel: int, variation: str, generator: torch.Generator, device: torch.device
) -> torch.Tensor:
    return torch.randint(
        int(spec.low), int(spec.high), (numel,), generator=generator, device=device
    )


def _bits(
    spec: TensorSpec, numel: int, variation: str, generator: torch.Generator, device: torch.device
) -> torch.Tensor:
    raw = torch.randint(
        0,
        256,
        (numel * spec.dtype.itemsize,),
        generator=generator,
        device=device,
        dtype=torch.uint8,
    )
    return raw.view(spec.dtype)


def _permutation(
    spec: TensorSpec, numel: int, variation: str, generator: torch.Generator, device: torch.device
) -> torch.Tensor:
    keys = torch.rand(numel, generator=generator, device=device).view(-1, spec.shape[-1])
    return keys.argsort(dim=-1).flatten()


def _constant(value: float) -> Fill:
    def fill(
        spec: TensorSpec, numel: int, variation: str, g: torch.Generator, device: torch.device
    ) -> torch.Tensor:
        return torch.full((numel,), value, device=device)

    return fill


def _bool(
    spec: TensorSpec, numel: int, variation: str, generator: torch.Generator, device: torch.device
) -> torch.Tensor:
    return torch.rand(numel, generator=generator, device=device) < 0.5


FILLS: dict[str, Fill] = {
    "normal": _normal,  # N(0, 1), varied
    "wide": _wide,  # N(0, 1) times 10^U(-3, 3), varied
    "uniform": _uniform,  # U[low, high)
    "integers": _integers,  # uniform integers in [low, high)
    "bits": _bits,  # random bytes
    "permutation": _permutation,  # a permutation of range(shape[-1]) along the last dimension
    "bool": _bool,  # fair coin
    "zeros": _constant(0.0),
    "ones": _constant(1.0),
    "nan": _constant(float("nan")),  # memory that must not be read
}
#: fills that have a meaning only over the view's own elements, not over its storage
_WHOLE = {"permutation"}


def _working_dtype(dtype: torch.dtype) -> torch.dtype:
    if dtype.is_complex:
        return dtype
    return torch.float64 if dtype == torch.float64 else torch.float32


def _real(dtype: torch.dtype) -> torch.dtype:
    return torch.empty(0, dtype=dtype).real.dtype if dtype.is_complex else dtype


def _randn(
    spec: TensorSpec, numel: int, generator: torch.Generator, device: torch.device
) -> torch.Tensor:
    return torch.randn(numel, generator=generator, device=device, dtype=_working_dtype(spec.dtype))


def _with_specials(
    values: torch.Tensor, dtype: torch.dtype, generator: torch.Generator
) -> torch.Tensor:
    tiny = torch.finfo(dtype).smallest_normal / 4
    specials = torch.tensor(
        [float("nan"), float("inf"), float("-inf"), 0.0, -0.0, tiny],
        dtype=values.dtype,
        device=values.device,
    )
    n = values.numel()
    where = torch.rand(n, generator=generator, device=values.device) < 1 / 64
    which = torch.randint(0, len(specials), (n,), generator=generator, device=values.device)
    return torch.where(where, specials[which], values)
