"""Chooses the calls that a candidate is compiled for, and makes their arguments cheaply.

Host code chooses kernels and block sizes by dtype, shape and stride, so the arguments must look
like the real ones; their contents hardly matter, because no kernel runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from kernelmark.operators.draws import (
    Call,
    PointerList,
    arguments_for_candidate,
    draw,
)
from kernelmark.operators.records import (
    Argument,
    Case,
    OnDevice,
    Operator,
    Pointers,
    TensorSpec,
    contiguous_strides,
)

#: cases above this are not made: host code may touch what it is given (``contiguous``)
MAX_BYTES = 1 << 30
#: rows longer than this make a kernel that holds one too large to compile quickly
LONG_ROW = 16384
#: tensors up to this get drawn contents
DRAWN_BYTES = 1 << 20


def choose(operator: Operator, at_most: int) -> list[Case]:
    """At most `at_most` cases that differ in dtypes or overload, those with a full-tier case first.

    Of each kind the full-tier case with the shortest rows, else the largest small one. Kernels that
    hold a whole row compile for minutes where a row is a vocabulary (`LONG_ROW`), so those last.
    After the first comes what brings the most dtypes that were not there: 8-bit floats, which
    targets lack first, then bfloat16, then others.
    """
    kinds: dict[tuple[Any, ...], Case] = {}
    for case in sorted(operator.cases(), key=_rank):
        if _nbytes(case) <= MAX_BYTES and any(spec.numel for spec in case.tensors):
            kinds.setdefault((case.overload, case.dtypes), case)
    left = list(kinds.values())
    chosen = [left.pop(0)] if left else []
    while left and len(chosen) < at_most:
        there = {dtype for case in chosen for dtype in case.dtypes}
        chosen.append(max(left, key=lambda case: _rarity(set(case.dtypes) - there)))
        left.remove(chosen[-1])
    return chosen


def _rarity(dtypes: set[torch.dtype]) -> tuple[int, int, int]:
    """Greater for what a target is likelier to lack."""
    narrow = sum(dtype.is_floating_point and dtype.itemsize == 1 for dtype in dtypes)
    return narrow, int(torch.bfloat16 in dtypes), len(dtypes)


def make(
    operator: Operator, names: Sequence[str]
) -> list[tuple[str, tuple[Any, ...], dict[str, Any]]]:
    """(case, args, kwargs) of each named case, as a candidate gets them, on the CPU."""
    cases = {case.name: case for case in operator.cases()}
    made = []
    for name in names:
        call = arguments_for_candidate(make_call(operator, cases[name], _untouched))
        made.append((name, call.args, call.kwargs))
    return made


def _rank(case: Case) -> tuple[int, int]:
    row = max((spec.shape[-1] for spec in case.tensors if spec.shape), default=1)
    if case.tier == "full":
        return (2 if row > LONG_ROW else 0), row
    return 1, -_nbytes(case)


def _nbytes(case: Case) -> int:
    return sum(spec.storage_numel * spec.dtype.itemsize for spec in case.tensors)


def make_call(operator: Operator, case: Case, large: Callable[[TensorSpec], torch.Tensor]) -> Call:
    """A call on the CPU, drawn where it is small; else `large` makes the tensors."""
    if _nbytes(case) <= DRAWN_BYTES:
        return draw(operator, case, "base", 0, torch.device("cpu"))

    def argument(value: Argument) -> Any:
        if isinstance(value, TensorSpec):
            return large(value)
        if isinstance(value, Pointers):
            return PointerList(large(value.buffer))
        if isinstance(value, OnDevice):
            return torch.device("cpu")
        if isinstance(value, tuple):
            return [argument(item) for item in value]
        return value

    kwargs = {name: argument(value) for name, value in case.kwargs.items()}
    return Call(tuple(argument(value) for value in case.args), kwargs)


def _untouched(spec: TensorSpec) -> torch.Tensor:
    """Zeros whose pages the kernel of the operating system maps only when they are touched."""
    nbytes = max(spec.storage_numel * spec.dtype.itemsize, 1)
    flat = torch.from_numpy(np.zeros(nbytes + 64, np.uint8))
    skip = -flat.data_ptr() % 64  # as an allocator of device memory aligns
    body = flat[skip : skip + spec.storage_numel * spec.dtype.itemsize].view(spec.dtype)
    strides = spec.strides or contiguous_strides(spec.shape)
    return body.as_strided(spec.shape, strides, body.storage_offset() + spec.offset)
