"""ATen operators that walk along a dimension: cumsum, diff.

Oracle: torch in float64 or int64. Second statement: NumPy.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
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
    Case,
    Cost,
    Expected,
    Mutant,
    Operator,
    TensorSpec,
    Tolerance,
)

_F16, _BF16 = torch.float16, torch.bfloat16
_ONCE = ("base", "base")


def _integers(shape: tuple[int, ...], t: torch.dtype, low: int, high: int) -> TensorSpec:
    return spec(shape, t, fill="integers", low=low, high=high)


# --- cumsum -------------------------------------------------------------------------------------


@functools.cache
def _cumsum_cases() -> Sequence[Case]:
    return (
        *(small(f"rows-{dtype_name(t)}", spec((5, 177), t), -1) for t in FLOATS),
        small("first-dim", spec((70, 9)), 0),
        small("middle-dim", spec((3, 40, 5), _F16), 1),
        small("transposed", spec((7, 130), strides=(1, 7)), 1),
        small("strided-misaligned", spec((6, 50), _F16, strides=(101, 2), offset=1), -1),
        small("long-row", spec((2, 5000)), 1, draws=("base", "structured")),
        small("one-column", spec((6, 1)), 1),
        small("scalar", spec(()), 0),
        small("empty", spec((3, 0, 4)), 1),
        small("specials", spec((24, 16)), 1, draws=("specials", "base")),
        small("wide-range", spec((4, 300), fill="wide"), -1),
        small("cast-up", spec((4, 300), _F16), 1, dtype=torch.float32),
        small("cast-down", spec((4, 300)), 1, dtype=_F16),
        small("int16", _integers((4, 200), torch.int16, -(2**15), 2**15), 1, draws=_ONCE),
        small("int32-wraps", _integers((4, 90), torch.int32, 0, 2**31), 0, draws=_ONCE),
        small("int64", _integers((300,), torch.int64, -(2**61), 2**61), 0, draws=_ONCE),
        small("bool", spec((5, 200), torch.bool, fill="bool"), -1, draws=_ONCE),
        small(
            "int8-stays",
            _integers((3, 90), torch.int8, -128, 128),
            1,
            draws=_ONCE,
            dtype=torch.int8,
        ),
        small("out", spec((6, 40)), 1, overload=1, out=spec((6, 40), strides=(1, 6))),
        full(
            "top-p", "Llama 3 vocabulary, 128 sequences: nucleus sampling", spec((128, 128256)), -1
        ),
        full(
            "decay-bfloat16",
            "Mamba-2 2.7B log decays, chunks of 512",
            spec((65536, 512), _BF16),
            -1,
        ),
        full(
            "moe-positions",
            "DeepSeek-V3: 256 experts, 32768 tokens: places in each expert (first dimension)",
            _integers((32768, 256), torch.int32, 0, 2),
            0,
            draws=_ONCE,
        ),
        full(
            "position-ids",
            "RoBERTa position ids from a mask, batch 4096 of 4096 tokens",
            spec((4096, 4096), torch.bool, fill="bool"),
            1,
            draws=_ONCE,
        ),
        full(
            "state-decay", "Mamba-2 780M, 8 x 4096 tokens, 3072 channels", spec((8, 4096, 1024)), 1
        ),
        full("short-rows", "Mamba-2 chunks of 256, float16", spec((131072, 256), _F16), -1),
        full("one-row", "WaveNet: phase of 16 minutes of audio at 16 kHz", spec((1 << 24,)), 0),
    )


def _target(self: torch.Tensor, dtype: torch.dtype | None, out: torch.Tensor | None) -> torch.dtype:
    if out is not None:
        return out.dtype
    whole = not (self.is_floating_point() or self.is_complex())
    return dtype or (torch.int64 if whole else self.dtype)


def _cumsum_oracle(
    self: torch.Tensor,
    dim: int,
    *,
    dtype: torch.dtype | None = None,
    out: torch.Tensor | None = None,
) -> list[Expected]:
    target = _target(self, dtype, out)
    x = wide(self.to(target))
    value = torch.cumsum(x, dim)
    if not target.is_floating_point:
        return [expect(value.to(target).to(torch.int64), target)]
    places = torch.arange(1, (x.shape[dim] if x.dim() else 1) + 1, device=x.device)
    if x.dim():
        places = places.view([-1 if i == dim % x.dim() else 1 for i in range(x.dim())])
    root = places.double().sqrt()
    scale = torch.cumsum(x.abs(), dim) * (1 + root / 4)
    if target.itemsize < 4:
        # Running sums in the dtype itself: each is rounded at the size that it has by then.
        unit = torch.finfo(target).eps / torch.finfo(torch.float32).eps
        largest = value.abs().cummax(dim).values if value.numel() else value
        scale = (largest + x.square().cumsum(dim).sqrt()) * unit * (1 + root / 8)
    return [expect(value, target, scale=scale.reshape(value.shape))]


def _cumsum_second(
    self: torch.Tensor,
    dim: int,
    *,
    dtype: torch.dtype | None = None,
    out: torch.Tensor | None = None,
) -> list[torch.Tensor]:
    target = _target(self, dtype, out)
    x = wide(self.to(target)).numpy()
    with np.errstate(invalid="ignore"):
        total = np.cumsum(x, axis=dim if x.ndim else None).reshape(x.shape)
    return [torch.from_numpy(total).to(target)]


def _blocks(size: int, dim: int, *tensors: torch.Tensor) -> Iterable[Any]:
    """Blocks of `size` along `dim`, those of all tensors side by side."""
    return zip(*(torch.ops.aten.split(t, size, dim) for t in tensors), strict=True)


def _restarting(block: int) -> Callable[..., Any]:
    """Scans blocks without carrying the sum of those before."""

    def mutant(self: torch.Tensor, dim: int, **more: Any) -> Any:
        right = torch.ops.aten.cumsum(self, dim, **more)
        if not self.dim():
            return right
        kept = {k: v for k, v in more.items() if k != "out"}
        for part, result in _blocks(block, dim, self, right):
            result.copy_(torch.cumsum(part, dim, **kept))
        return right

    return mutant


def _exclusive(self: torch.Tensor, dim: int, **more: Any) -> Any:
    right = torch.ops.aten.cumsum(self, dim, **more)
    return right.sub_(self.to(right.dtype))


def _stepwise_bfloat16(self: torch.Tensor, dim: int, **more: Any) -> Any:
    """Carries between blocks of 8 are rounded to bfloat16 (floats only)."""
    right = torch.ops.aten.cumsum(self, dim, **more)
    if not right.is_floating_point() or not self.dim():
        return right
    carry: torch.Tensor | float = 0.0
    for part, result in _blocks(8, dim, self, right):
        result.copy_(torch.cumsum(part.float(), dim) + carry)
        if result.shape[dim]:
            carry = result.narrow(dim, result.shape[dim] - 1, 1).bfloat16().float()
    return right


def _moved_cost(case: Case) -> Cost:
    x = case.tensors[0]
    out = case.kwargs.get("out")
    whole = not x.dtype.is_floating_point
    dtype = out.dtype if isinstance(out, TensorSpec) else case.kwargs.get("dtype")
    item = (dtype or (torch.int64 if whole else x.dtype)).itemsize
    return traffic(case, x.numel * item, flops=x.numel, read=x.nbytes)


_CUMSUM = Operator(
    id="aten::cumsum",
    family="scan/sort",
    signatures=(
        "cumsum(self: Tensor, dim: int, *, dtype: ScalarType?=None) -> Tensor",
        "cumsum.out(self: Tensor, dim: int, *, dtype: ScalarType?=None, out: Tensor!) -> Tensor!",
    ),
    description=(
        "Inclusive running sum along `dim`: out[i] = self[0] + ... + self[i]; a negative `dim` "
        "counts from the end. The result has the shape of `self`. With `dtype`, elements are cast "
        "to it first and the result has that dtype. Without it, bool and integer inputs give int64 "
        "and floating-point inputs their own dtype. Integers wrap on overflow. float16 and "
        "bfloat16 may keep running sums in float32 or in the dtype itself. NaN "
        "and infinities propagate to all later elements. A 0-d tensor gives itself. `cumsum.out` "
        "writes into `out`, which has the result's shape and dtype, may have any strides, and is "
        "returned."
    ),
    sources=("PyTorch 2.13, torch.ops.aten.cumsum", "aten/src/ATen/native/ReduceOps.cpp"),
    cases=_cumsum_cases,
    oracle=_cumsum_oracle,
    second=_cumsum_second,
    baseline=torch.ops.aten.cumsum,
    baseline_name="aten",
    cost=_moved_cost,
    tolerance=Tolerance(
        limit=2.0,
        accumulator=torch.float32,
        why="float32 partial sums in any order: S is the running sum of absolute values times "
        "1 + sqrt(terms)/4, which a sequential sum of positive terms needs; one final rounding "
        "0.5. In 16 bits each running sum is rounded: S is the largest so far and the root of the "
        "sum of squares, in units of the dtype, times 1 + sqrt(terms)/8",
    ),
    mutants=(
        Mutant("no carry between blocks of 64", _restarting(64)),
        Mutant("exclusive", _exclusive),
        Mutant("carry rounded to bfloat16", _stepwise_bfloat16),
        Mutant("not a sum", lambda x, d, **k: torch.ops.aten.cumsum(x, d, **k).copy_(x)),
    ),
    note=(
        "ATen keeps the running sum of float16 and bfloat16 in float32 on CPUs, in that dtype on "
        "CUDA, which is why cases of 16 bits have short rows."
    ),
)

# --- diff ---------------------------------------------------------------------------------------


@functools.cache
def _diff_cases() -> Sequence[Case]:
    return (
        *(small(f"rows-{dtype_name(t)}", spec((5, 177), t)) for t in FLOATS),
        small("twice", spec((5, 90), _F16), 2),
        small("four-times", spec((3, 40)), 4, 1),
        small("first-dim", spec((70, 9)), 1, 0),
        small("middle-dim", spec((3, 40, 5), _BF16), 1, -2),
        small("not-at-all", spec((6, 50)), 0),
        small("more-than-there-are", spec((6, 3)), 5),
        small("prepend", spec((4, 30)), 1, 1, spec((4, 2))),
        small("append", spec((30, 4), _F16), 1, 0, None, spec((3, 4), _F16)),
        small("both-twice", spec((4, 30)), 2, -1, spec((4, 1)), spec((4, 5), strides=(1, 4))),
        small("transposed", spec((7, 130), strides=(1, 7))),
        small("strided-misaligned", spec((6, 50), _F16, strides=(101, 2), offset=1)),
        small("one-column", spec((6, 1))),
        small("empty", spec((3, 0))),
        small("int32", _integers((4, 90), torch.int32, -(2**31), 2**31), 1, 0, draws=_ONCE),
        small("int64-twice", _integers((300,), torch.int64, -(2**61), 2**61), 2, draws=_ONCE),
        small("uint8", _integers((9, 40), torch.uint8, 0, 256), draws=_ONCE),
        small("bool", spec((5, 200), torch.bool, fill="bool"), draws=_ONCE),
        small("out", spec((6, 40)), 1, 1, overload=1, out=spec((6, 39), strides=(1, 6))),
        full("audio", "wav2vec 2.0 waveforms, 64 x 30 s at 16 kHz", spec((64, 480000))),
        full(
            "features",
            "Whisper large mel features, batch 512 (delta)",
            spec((512, 128, 3000), _F16),
        ),
        full(
            "acceleration", "Whisper large mel features (delta of delta)", spec((256, 128, 3000)), 2
        ),
        full(
            "frames", "VideoMAE clips: frame differences", spec((16, 16, 3, 224, 224), _BF16), 1, 1
        ),
        full(
            "image-gradient",
            "total variation of Stable Diffusion 1.5 outputs, batch 32 (rows)",
            spec((32, 3, 512, 512)),
            1,
            2,
        ),
        full(
            "event-times",
            "token offsets of Llama 3 packed sequences, prepended start",
            _integers((1024, 8192), torch.int64, 0, 2**40),
            1,
            1,
            _integers((1024, 1), torch.int64, 0, 9),
            draws=_ONCE,
        ),
        full(
            "transposed-frames",
            "wav2vec 2.0 hidden states, read through a transpose",
            spec((64, 1024, 1500), _F16, strides=(1024 * 1500, 1, 1024)),
        ),
    )


def _joined(
    self: torch.Tensor, dim: int, prepend: torch.Tensor | None, append: torch.Tensor | None
) -> torch.Tensor:
    parts = [t for t in (prepend, self, append) if t is not None]
    return wide(torch.cat(parts, dim) if len(parts) > 1 else self)


def _diff_oracle(
    self: torch.Tensor,
    n: int = 1,
    dim: int = -1,
    prepend: torch.Tensor | None = None,
    append: torch.Tensor | None = None,
    *,
    out: torch.Tensor | None = None,
) -> list[Expected]:
    x = _joined(self, dim, prepend, append) if n else wide(self)
    # Each pass rounds to the dtype: all but the last are magnified by those that follow.
    carried = torch.zeros_like(x.double())
    for step in range(min(n, x.shape[dim])):
        low, high = x.narrow(dim, 0, x.shape[dim] - 1), x.narrow(dim, 1, x.shape[dim] - 1)
        sums = carried.narrow(dim, 0, x.shape[dim] - 1) + carried.narrow(dim, 1, x.shape[dim] - 1)
        x = low ^ high if x.dtype == torch.bool else high - low
        carried = sums + (x.abs().double() if step < n - 1 else 0.0)
    whole = not self.is_floating_point()
    value = x.to(self.dtype).to(x.dtype) if whole else x
    return [expect(value, self.dtype, scale=None if whole else carried)]


def _diff_second(
    self: torch.Tensor,
    n: int = 1,
    dim: int = -1,
    prepend: torch.Tensor | None = None,
    append: torch.Tensor | None = None,
    **more: Any,
) -> list[torch.Tensor]:
    x = _joined(self, dim, prepend, append).numpy() if n else wide(self).numpy()
    return [torch.from_numpy(np.diff(x, n=n, axis=dim)).to(self.dtype)]


def _negated(self: torch.Tensor, n: int = 1, *a: Any, **k: Any) -> Any:
    """Low minus high."""
    right = torch.ops.aten.diff(self, n, *a, **k)
    return right if right.dtype == torch.bool or n == 0 else right.neg_()


def _short_by_one(self: torch.Tensor, n: int = 1, dim: int = -1, *a: Any, **more: Any) -> Any:
    """One pass too few, cut to the right shape."""
    right = torch.ops.aten.diff(self, n, dim, *a, **more)
    if n < 2 or not right.numel():
        return right
    kept = {k: v for k, v in more.items() if k != "out"}
    fewer = torch.ops.aten.diff(self, n - 1, dim, *a, **kept)
    return right.copy_(fewer.narrow(dim, 0, right.shape[dim]))


def _no_ends(
    self: torch.Tensor,
    n: int = 1,
    dim: int = -1,
    prepend: torch.Tensor | None = None,
    append: torch.Tensor | None = None,
    **more: Any,
) -> Any:
    """Joins zeros instead of what is given."""
    ends = [None if t is None else torch.zeros_like(t) for t in (prepend, append)]
    return torch.ops.aten.diff(self, n, dim, *ends, **more)


def _diff_cost(case: Case) -> Cost:
    x = case.tensors[0]
    n = case.args[1] if len(case.args) > 1 else 1
    dim = case.args[2] if len(case.args) > 2 else -1
    ends = [t for t in case.args[3:] if isinstance(t, TensorSpec)]
    along = x.shape[dim] + sum(t.shape[dim] for t in ends)
    result = x.numel // max(x.shape[dim], 1) * max(along - n, 0)
    read = sum(t.nbytes for t in (x, *ends))
    return traffic(case, result * x.dtype.itemsize, flops=n * result, read=read)


_DIFF = Operator(
    id="aten::diff",
    family="scan/sort",
    signatures=(
        "diff(self: Tensor, n: int=1, dim: int=-1, prepend: Tensor?=None, append: Tensor?=None) "
        "-> Tensor",
        "diff.out(self: Tensor, n: int=1, dim: int=-1, prepend: Tensor?=None, "
        "append: Tensor?=None, *, out: Tensor!) -> Tensor!",
    ),
    description=(
        "Forward difference along `dim`, applied `n` times: out[i] = x[i + 1] - x[i], where x is "
        "`prepend`, `self` and `append` joined along `dim` (they have the dtype of `self` and its "
        "shape outside `dim`). A negative `dim` counts from the end. Each pass shortens `dim` by "
        "one; if nothing is left the result is empty along it. `n` = 0 gives a copy of `self` "
        "(nothing is joined). The result has the dtype of `self`: integers wrap, bool uses "
        "exclusive or, float16 and bfloat16 may be rounded to the dtype after every pass. "
        "`diff.out` writes into `out`, which has the result's shape and dtype, may have any "
        "strides, and is returned."
    ),
    sources=("PyTorch 2.13, torch.ops.aten.diff", "aten/src/ATen/native/ReduceOps.cpp"),
    cases=_diff_cases,
    oracle=_diff_oracle,
    second=_diff_second,
    baseline=torch.ops.aten.diff,
    baseline_name="aten",
    cost=_diff_cost,
    tolerance=Tolerance(
        limit=1.0,
        accumulator=None,
        why="one rounding 0.5 for n = 1, where S is 0; for more passes S holds the magnitudes of "
        "the intermediate differences, each rounded once to the dtype",
    ),
    mutants=(
        Mutant("negated", _negated),
        Mutant("one pass too few", _short_by_one),
        Mutant("ends are zeros", _no_ends),
    ),
)


OPERATORS = (_CUMSUM, _DIFF)
