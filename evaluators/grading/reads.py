"""Counts the elements of tensors that host code reads in one call.

A candidate's host code may read a few: a length, an offset, a factor. Whoever computes on the host
must read what he computes with, and that is many. The scan follows what is made of an element; this
count stands behind it, for ways that no text shows. The runner counts, in the calls that are
checked, not in those that are timed: there it would slow the host.

Not seen: `tolist`, `numpy`, `repr` and the like, which reach past the dispatcher; the scan refuses
them. Device layer.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import FrameType
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

#: elements that host code may read in one call; masks of an index, lengths, one factor or another
MOST_READS = 8

_READ = "aten::_local_scalar_dense"


class Reads(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While open, counts elements that come to the host: one by one, or copied from a device."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count = 0


def _dispatch(
    reads: Reads, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Any = None
) -> Any:
    """Passes an operator on."""
    result = func(*args, **(kwargs or {}))
    if func._schema.name == _READ:
        reads.count += not _asked_by_triton()
    elif _on_cpu(result) and any(map(_on_device, args)) and not _asked_by_triton():
        reads.count += result.numel()
    return result


# Given afterwards: what stands in the class's body is wrapped, which imports a compiler.
Reads.__torch_dispatch__ = _dispatch  # type: ignore[assignment,method-assign]


def _on_cpu(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.device.type == "cpu"


def _on_device(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.device.type not in ("cpu", "meta")


def _asked_by_triton() -> bool:
    """Whether Triton's own code asked, such as its autotuner for a time."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _root(frame) in ("torch", __name__.split(".")[0]):
        frame = frame.f_back
    return frame is not None and _root(frame) == "triton"


def _root(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).split(".")[0]
