"""ATen sort along a dimension, stable or not.

Oracle: torch's stable sort, exact. Second statement: NumPy's stable argsort.
Where stability is not promised the cases have no ties, so the indices are still determined.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from kernelmark.operators.building import (
    FLOATS,
    dtype_name,
    expect,
    full,
    small,
    spec,
    traffic,
    wide,
)
from kernelmark.operators.records import (
    EXACT,
    Case,
    Cost,
    Expected,
    Mutant,
    Operator,
    TensorSpec,
)

_F16, _BF16 = torch.float16, torch.bfloat16
_ONCE = ("base", "base")
_PLAIN, _STABLE, _OUT, _STABLE_OUT = range(4)


def _integers(shape: tuple[int, ...], t: torch.dtype, low: int, high: int) -> TensorSpec:
    return spec(shape, t, fill="integers", low=low, high=high)


def _distinct(shape: tuple[int, ...], t: torch.dtype = torch.float32, **more: Any) -> TensorSpec:
    """A permutation of 0, 1, 2, ... in each row: no ties as long as `t` holds them exactly."""
    return spec(shape, t, fill="permutation", **more)


def _outs(shape: tuple[int, ...], t: torch.dtype, **more: Any) -> dict[str, TensorSpec]:
    fill = "normal" if t.is_floating_point else "integers"
    return {
        "values": spec(shape, t, fill=fill, high=9, **more),
        "indices": _integers(shape, torch.int64, 0, 9),
    }


@functools.cache
def _sort_cases() -> Sequence[Case]:
    def stable(name: str, x: TensorSpec, *, draws: tuple[str, ...] = Case.draws, **k: Any) -> Case:
        return small(name, x, overload=_STABLE, draws=draws, stable=True, **k)

    return (
        *(stable(f"stable-{dtype_name(t)}", spec((5, 177), t), dim=-1) for t in FLOATS),
        stable("descending-ties", _integers((6, 200), _F16, 0, 7), descending=True, draws=_ONCE),
        stable("first-dim", _integers((70, 9), torch.int32, 0, 9), dim=0, draws=_ONCE),
        stable("middle-dim", spec((3, 40, 5), _F16), dim=-2, descending=True),
        stable("specials", spec((6, 300)), draws=("specials", "base")),
        stable("specials-down", spec((6, 300), _BF16), descending=True, draws=("specials", "base")),
        stable("strided-misaligned", spec((6, 50), _F16, strides=(101, 2), offset=1)),
        stable("long-row", _integers((1, 5000), torch.int32, 0, 1000), draws=("base",)),
        stable("int8", _integers((5, 300), torch.int8, -128, 128), descending=True, draws=_ONCE),
        stable("uint8", _integers((5, 100), torch.uint8, 0, 256), draws=_ONCE),
        stable("int16", _integers((9, 64), torch.int16, -(2**15), 2**15), draws=_ONCE),
        stable("int64", _integers((4, 65), torch.int64, -(2**62), 2**62), draws=_ONCE),
        stable("bool", spec((5, 90), torch.bool, fill="bool"), draws=_ONCE),
        stable("one-column", spec((6, 1))),
        stable("scalar", spec(())),
        stable("empty", spec((3, 0, 4)), dim=1),
        small("plain-no-ties", _distinct((4, 333)), draws=_ONCE),
        small("plain-descending", _distinct((7, 130), torch.int32), -1, True, draws=_ONCE),
        small("plain-first-dim", spec((50, 6), fill="wide"), 0, draws=("base", "small")),
        small(
            "unstable-no-ties",
            _distinct((4, 99), _F16),
            overload=_STABLE,
            draws=_ONCE,
            stable=False,
        ),
        small(
            "out",
            _distinct((4, 90)),
            -1,
            overload=_OUT,
            draws=_ONCE,
            **_outs((4, 90), torch.float32),
        ),
        small(
            "stable-out-strided",
            _integers((6, 40), _F16, 0, 5),
            overload=_STABLE_OUT,
            draws=_ONCE,
            stable=True,
            dim=1,
            **_outs((6, 40), _F16, strides=(1, 6)),
        ),
        *_full_sorts(),
    )


def _full_sorts() -> list[Case]:
    def stable(name: str, origin: str, x: TensorSpec, **k: Any) -> Case:
        return full(name, origin, x, overload=_STABLE, stable=True, **k)

    return [
        stable(
            "top-p-logits", "Llama 3 vocabulary, 64 sequences", spec((64, 128256)), descending=True
        ),
        stable(
            "top-p-bfloat16",
            "Qwen 3 vocabulary, 64 sequences",
            spec((64, 151936), _BF16),
            descending=True,
        ),
        stable("scores", "DETR proposal scores, batch 2048", spec((2048, 1024), _F16), dim=-1),
        stable(
            "expert-assignment",
            "DeepSeek-V3: 8 experts of 256 for 32768 tokens",
            _integers((262144,), torch.int32, 0, 256),
            dim=0,
            draws=_ONCE,
        ),
        stable("token-lengths", "32 shards of 262144 sequence lengths", spec((32, 262144)), dim=-1),
        stable("medians", "Swin-L channels over 4096 tokens", spec((4096, 1536), _F16), dim=0),
        full(
            "shuffle",
            "permutation keys of 4 million training samples",
            _distinct((1, 1 << 22)),
            -1,
            draws=_ONCE,
        ),
        stable(
            "hash-codes",
            "Reformer: 64 heads of 65536 tokens by bucket",
            _integers((64, 65536), torch.int64, 0, 1024),
            dim=-1,
            draws=_ONCE,
        ),
    ]


def _sort_oracle(
    self: torch.Tensor, dim: int = -1, descending: bool = False, **more: Any
) -> list[Expected]:
    values, indices = torch.sort(self, dim=dim, descending=descending, stable=True)
    return [expect(wide(values), self.dtype), expect(indices)]


def _sort_second(
    self: torch.Tensor, dim: int = -1, descending: bool = False, **more: Any
) -> list[Any]:
    x = wide(self).numpy()
    if not x.ndim:
        return [x, np.zeros((), np.int64)]
    turned = np.flip(x, axis=dim) if descending else x
    order = np.argsort(turned, axis=dim, kind="stable")  # NaN last
    if descending:  # the reverse of a stable order of the reversed row is stable
        order = np.flip(x.shape[dim] - 1 - order, axis=dim)
    return [np.take_along_axis(x, order, axis=dim), order.copy()]


def _sort(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    return torch.ops.aten.sort(self, *args, **kwargs)


def _write(right: Any, values: torch.Tensor, indices: torch.Tensor) -> Any:
    right[0].copy_(values)
    right[1].copy_(indices)
    return right


def _ties_reversed(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    """Equal elements come in the opposite order."""
    right = torch.ops.aten.sort(self, *args, **kwargs)
    dim = kwargs.get("dim", args[0] if args else -1)
    descending = kwargs.get("descending", args[1] if len(args) > 1 else False)
    if not self.dim():
        return right
    turned = torch.sort(self.flip(dim), dim=dim, descending=descending, stable=True)
    return _write(right, turned.values, self.shape[dim] - 1 - turned.indices)


def _nan_first(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    """NaN counts as the smallest (floats only)."""
    if not self.is_floating_point():
        return torch.ops.aten.sort(self, *args, **kwargs)
    keys = torch.where(self.isnan(), float("-inf"), self)
    right = torch.ops.aten.sort(keys, *args, **kwargs)
    dim = kwargs.get("dim", args[0] if args else -1)
    values = self.gather(dim, right[1]) if self.dim() else self
    return _write(right, values, right[1])


def _blocks_only(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    """Blocks of 64 are sorted, and never merged."""
    right = torch.ops.aten.sort(self, *args, **kwargs)
    dim = kwargs.get("dim", args[0] if args else -1)
    descending = kwargs.get("descending", args[1] if len(args) > 1 else False)
    if not self.dim():
        return right
    places = torch.arange(0, self.shape[dim], 64)
    parts = torch.ops.aten.split(self, 64, dim)
    sorted_parts = [torch.sort(p, dim=dim, descending=descending, stable=True) for p in parts]
    values = torch.cat([p.values for p in sorted_parts], dim)
    offsets = [int(p) for p in places] or [0]
    indices = torch.cat([p.indices + o for p, o in zip(sorted_parts, offsets, strict=True)], dim)
    return _write(right, values, indices)


def _unsigned(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    """Negative numbers come after the positive ones, as their bit patterns would."""
    right = torch.ops.aten.sort(self, *args, **kwargs)
    dim = kwargs.get("dim", args[0] if args else -1)
    negative = (self < 0).to(torch.int64)
    order = torch.sort(
        negative.gather(dim, right[1]) if self.dim() else negative, dim=dim, stable=True
    )
    indices = right[1].gather(dim, order.indices) if self.dim() else right[1]
    return _write(right, self.gather(dim, indices) if self.dim() else self, indices)


def _sort_cost(case: Case) -> Cost:
    x = case.tensors[0]
    return traffic(case, x.numel * (x.dtype.itemsize + 8), flops=0, read=x.nbytes)


OPERATORS = (
    Operator(
        id="aten::sort",
        family="scan/sort",
        signatures=(
            "sort(self: Tensor, dim: int=-1, descending: bool=False) -> (Tensor, Tensor)",
            "sort.stable(self: Tensor, *, stable: bool?, dim: int=-1, descending: bool=False) "
            "-> (Tensor, Tensor)",
            "sort.values(self: Tensor, dim: int=-1, descending: bool=False, *, values: Tensor!, "
            "indices: Tensor!) -> (Tensor!, Tensor!)",
            "sort.values_stable(self: Tensor, *, stable: bool?, dim: int=-1, "
            "descending: bool=False, values: Tensor!, indices: Tensor!) -> (Tensor!, Tensor!)",
        ),
        description=(
            "Sorts `self` along `dim`, ascending or `descending`, and returns (values, indices): "
            "the sorted elements, with the dtype of `self`, and for each the place (int64) along "
            "`dim` where it stood; values = gather(self, dim, indices). A negative `dim` counts "
            "from the end. Inputs are floating point, integer of any width, or bool. NaN counts as "
            "larger than everything: last when ascending, first when descending; -0 equals 0. With "
            "`stable=True` equal elements (NaN among them) keep their order, when descending too. "
            "Without it their order is free, and those cases have no equal elements. A 0-d tensor "
            "gives itself and index 0. The last two overloads write into `values` and `indices` "
            "(int64), which have the shape of `self` and may have any strides, and return them."
        ),
        sources=("PyTorch 2.13, torch.ops.aten.sort", "aten/src/ATen/native/Sorting.cpp"),
        cases=_sort_cases,
        oracle=_sort_oracle,
        second=_sort_second,
        baseline=_sort,
        baseline_name="aten",
        cost=_sort_cost,
        tolerance=EXACT,
        mutants=(
            Mutant("equal elements reversed", _ties_reversed),
            Mutant("NaN smallest", _nan_first),
            Mutant("blocks of 64 not merged", _blocks_only),
            Mutant("negative after positive", _unsigned),
        ),
    ),
)
