"""Watches what host code does with tensors in one call: what it reads, and what it has torch do.

A candidate's host code may make, view and move tensors, and may read a few elements: a length, an
offset, a factor. Whoever computes on the host must read what he computes with, which is many, or
have torch compute. The scan refuses both by the text; this stands behind it, for ways that no text
shows. The runner watches the calls that are checked, not those that are timed: there it would slow
the host.

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

#: elements that host code may read in one call: masks of an index, lengths, one factor or another
MOST_READS = 8

_READ = "_local_scalar_dense"
#: operators of torch that make, view, move or ask, by the dispatcher's names; those that others are
#: made of stand here too, as inference mode does not take them apart
ALLOWED = frozenset({
    "empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided",
    "zeros", "zeros_like", "new_zeros", "ones", "ones_like", "new_ones", "full", "full_like",
    "new_full", "arange", "scalar_tensor", "randint", "rand",
    "view", "_unsafe_view", "reshape", "_reshape_alias", "_reshape_copy", "view_as", "reshape_as",
    "expand", "expand_as", "broadcast_to", "broadcast_tensors", "select", "slice", "narrow",
    "transpose", "permute", "t", "numpy_T", "mT", "mH", "matrix_H", "adjoint", "squeeze",
    "unsqueeze", "as_strided", "split", "split_with_sizes", "unsafe_split",
    "unsafe_split_with_sizes", "chunk", "unbind", "tensor_split", "hsplit", "vsplit", "dsplit",
    "diagonal", "unfold", "movedim", "moveaxis", "swapaxes", "swapdims", "flatten", "unflatten",
    "ravel", "atleast_1d", "atleast_2d", "atleast_3d", "view_as_real", "view_as_complex", "real",
    "imag", "detach", "detach_", "alias", "lift", "lift_fresh", "resolve_conj", "resolve_neg",
    "squeeze_", "unsqueeze_", "transpose_", "t_", "as_strided_", "resize_", "set_",
    "copy_", "_to_copy", "to", "type_as", "clone", "contiguous", "fill_", "zero_",
    "_local_scalar_dense", "item", "promote_types", "result_type", "can_cast", "is_same_size",
    "numel", "size", "stride", "dim", "is_contiguous", "is_pinned",
})  # fmt: skip


class HostWork(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While open, counts elements that come to the host, one by one or copied from a device, and
    notes operators that are not `ALLOWED`. What Triton's own code asks for is left out."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.reads = 0
        self.computed: set[str] = set()

    def report(self) -> dict[str, Any]:
        """For the judge."""
        return {"reads": self.reads, "computed": sorted(self.computed)[:20]}


def _dispatch(
    work: HostWork, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Any = None
) -> Any:
    """Passes an operator on."""
    result = func(*args, **(kwargs or {}))
    space, _, name = func._schema.name.partition("::")
    read = _elements_read(name, args, result)
    foreign = space != "aten" or name not in ALLOWED
    if (read or foreign) and not _asked_by_triton():
        work.reads += read
        if foreign:
            work.computed.add(f"{space}::{name}")
    return result


# Given afterwards: what stands in the class's body is wrapped, which imports a compiler.
HostWork.__torch_dispatch__ = _dispatch  # type: ignore[assignment,method-assign]


def _elements_read(name: str, args: tuple[Any, ...], result: Any) -> int:
    if name == _READ:
        return 1
    return result.numel() if _on_cpu(result) and any(map(_on_device, args)) else 0


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
