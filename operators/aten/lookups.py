"""ATen operators that read through indices: embedding, gather, index_select.

Nothing is computed, so results are exact. Oracle: torch's advanced indexing, which none of the
baselines goes through. Second statement: NumPy.
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
from kernelmark.operators.records import EXACT, Case, Cost, Expected, Mutant, Operator, TensorSpec

_F16, _BF16 = torch.float16, torch.bfloat16
_I32, _I64 = torch.int32, torch.int64


def indices(shape: tuple[int, ...], high: int, t: torch.dtype = _I64, **more: Any) -> TensorSpec:
    """Uniform indices in [0, high), with repetitions; `low` may be given in `more`."""
    return spec(shape, t, fill="integers", high=high, **more)


def numpy_of(tensor: torch.Tensor) -> np.ndarray:
    """The tensor in the oracle's precision, as a NumPy array."""
    return wide(tensor).numpy()


def _copied_bytes(case: Case, numel: int) -> Cost:
    """Cost of reading `numel` elements of the first tensor, all indices, and writing them."""
    source, out = case.tensors[0], case.kwargs.get("out")
    others = [t for t in case.tensors[1:] if t is not out]
    item = source.dtype.itemsize
    distinct = min(numel, source.numel)
    return traffic(
        case, numel * item, flops=0, read=distinct * item + sum(t.nbytes for t in others)
    )


def _shifted(index: torch.Tensor, size: int) -> torch.Tensor:
    """Every index one too far (wrapping at the end)."""
    return (index + 1) % max(size, 1)


# --- embedding ----------------------------------------------------------------------------------


@functools.cache
def _embedding_cases() -> Sequence[Case]:
    return (
        *(small(f"tokens-{dtype_name(t)}", spec((50, 40), t), indices((3, 7), 50)) for t in FLOATS),
        small("int32-indices", spec((50, 33)), indices((20,), 50, _I32)),
        small("padding-index", spec((10, 16)), indices((4, 9), 10), 2),
        small("flags-change-nothing", spec((10, 16)), indices((30,), 10), 0, True, True),
        small("one-index", spec((10, 65), _F16), indices((), 10)),
        small("three-dims", spec((20, 8)), indices((2, 3, 4), 20)),
        small("weight-transposed", spec((30, 20), strides=(1, 30)), indices((5, 5), 30)),
        small("weight-misaligned", spec((30, 21), _BF16, offset=1), indices((11,), 30)),
        small("indices-strided", spec((30, 8)), indices((6, 5), 30, strides=(1, 6))),
        small("one-column", spec((100, 1)), indices((300,), 100)),
        small("one-row", spec((1, 70)), indices((9,), 1)),
        small("no-indices", spec((10, 8)), indices((0,), 10)),
        small("specials", spec((40, 33), _F16), indices((20,), 40), draws=("specials", "base")),
        small("out", spec((30, 8)), indices((3, 4), 30), overload=1, out=spec((3, 4, 8))),
        full(
            "llama-3-8b",
            "Llama 3 8B, 16384 tokens",
            spec((128256, 4096), _BF16),
            indices((2, 8192), 128256),
        ),
        full(
            "llama-3-70b",
            "Llama 3 70B, 8192 tokens",
            spec((128256, 8192), _F16),
            indices((8192,), 128256),
        ),
        full(
            "gpt2", "GPT-2 small, 64 x 1024 tokens", spec((50257, 768)), indices((64, 1024), 50257)
        ),
        full(
            "bert",
            "BERT-base, 256 x 512 tokens",
            spec((30522, 768), _F16),
            indices((256, 512), 30522),
        ),
        full(
            "dlrm",
            "DLRM, one table of 1M rows, batch 1M",
            spec((1 << 20, 128)),
            indices((1 << 18,), 1 << 20),
        ),
        full(
            "gemma-3",
            "Gemma 3 4B, 16384 tokens, int32 ids",
            spec((262144, 2560), _BF16),
            indices((16384,), 262144, _I32),
        ),
        full(
            "t5-positions",
            "T5 relative positions, 12 heads, 2048 x 2048",
            spec((32, 12), _F16),
            indices((2048, 2048), 32),
            draws=("base", "base"),
        ),
    )


def _embedding_oracle(
    weight: torch.Tensor, indices: torch.Tensor, *a: Any, **k: Any
) -> list[Expected]:
    return [expect(wide(weight[indices.long()]), weight.dtype)]


def _embedding_second(weight: torch.Tensor, indices: torch.Tensor, *a: Any, **k: Any) -> list[Any]:
    return [np.take(numpy_of(weight), numpy_of(indices), axis=0)]


def _embedding_cost(case: Case) -> Cost:
    weight, index = case.tensors[:2]
    return _copied_bytes(case, index.numel * weight.shape[1])


def _padding_zeroed(
    weight: torch.Tensor, indices: torch.Tensor, padding_idx: int = -1, *a: Any, **k: Any
) -> torch.Tensor:
    right = torch.ops.aten.embedding(weight, indices, padding_idx, *a, **k)
    return right.masked_fill_((indices == padding_idx).unsqueeze(-1), 0)


_EMBEDDING = Operator(
    id="aten::embedding",
    family="indexing",
    signatures=(
        "embedding(weight: Tensor, indices: Tensor, padding_idx: int=-1, "
        "scale_grad_by_freq: bool=False, sparse: bool=False) -> Tensor",
        "embedding.out(weight: Tensor, indices: Tensor, padding_idx: int=-1, "
        "scale_grad_by_freq: bool=False, sparse: bool=False, *, out: Tensor!) -> Tensor!",
    ),
    description=(
        "Rows of `weight` (V, D): out[..., :] = weight[indices[...], :], for `indices` (int32 or "
        "int64, any shape, 0-d included, any strides) in [0, V). The result has the shape "
        "(*indices.shape, D) and the dtype of `weight`, whose strides may be any. `padding_idx`, "
        "`scale_grad_by_freq` and `sparse` concern gradients only and change nothing: the row of "
        "`padding_idx` is copied like any other. `embedding.out` writes into `out` and returns it."
    ),
    sources=("PyTorch 2.13, torch.ops.aten.embedding", "aten/src/ATen/native/Embedding.cpp"),
    cases=_embedding_cases,
    oracle=_embedding_oracle,
    second=_embedding_second,
    baseline=torch.ops.aten.embedding,
    baseline_name="aten",
    cost=_embedding_cost,
    tolerance=EXACT,
    mutants=(
        Mutant(
            "next row",
            lambda w, i, *a, **k: torch.ops.aten.embedding(w, _shifted(i, len(w)), *a, **k),
        ),
        Mutant("row of padding_idx zeroed", _padding_zeroed),
        Mutant(
            "first row for all",
            lambda w, i, *a, **k: torch.ops.aten.embedding(w, torch.zeros_like(i), *a, **k),
        ),
    ),
)

# --- gather -------------------------------------------------------------------------------------


@functools.cache
def _gather_cases() -> Sequence[Case]:
    return (
        *(
            small(f"last-dim-{dtype_name(t)}", spec((5, 90), t), -1, indices((5, 33), 90))
            for t in FLOATS
        ),
        small("first-dim", spec((40, 9)), 0, indices((25, 9), 40)),
        small("middle-dim", spec((3, 20, 7), _F16), 1, indices((3, 50, 7), 20)),
        small("index-smaller", spec((6, 20, 9)), 1, indices((4, 5, 3), 20)),
        small("self-transposed", spec((7, 130), strides=(1, 7)), 1, indices((7, 64), 130)),
        small("index-strided", spec((8, 30)), 1, indices((8, 20), 30, strides=(1, 8))),
        small("index-expanded", spec((8, 30)), 1, indices((8, 20), 30, strides=(1, 0))),
        small("misaligned", spec((4, 65), _F16, offset=1), 1, indices((4, 33), 65, offset=1)),
        small(
            "int64",
            indices((6, 50), 2**62, low=-(2**62)),
            1,
            indices((6, 20), 50),
            draws=("base", "base"),
        ),
        small(
            "bool",
            spec((6, 50), torch.bool, fill="bool"),
            1,
            indices((6, 60), 50),
            draws=("base", "base"),
        ),
        small("sparse-grad", spec((6, 20)), 0, indices((3, 20), 6), sparse_grad=True),
        small("scalar", spec(()), 0, indices((), 1)),
        small("one-element", spec((1, 1)), 1, indices((1, 1), 1)),
        small("no-index", spec((4, 8)), 1, indices((0, 8), 8)),
        small(
            "specials", spec((40, 33), _F16), 1, indices((40, 9), 33), draws=("specials", "base")
        ),
        small(
            "out",
            spec((6, 20)),
            1,
            indices((6, 9), 20),
            overload=1,
            out=spec((6, 9), strides=(1, 6)),
        ),
        full(
            "label-logits",
            "Llama 2 sampled softmax: 8192 candidates for each of 4096 tokens",
            spec((4096, 32064), _BF16),
            1,
            indices((4096, 8192), 32064),
        ),
        full(
            "beam-search",
            "T5 11B decoder states, 8 beams of 256 sequences",
            spec((256, 8, 8192), _F16),
            1,
            indices((256, 8, 8192), 8),
        ),
        full(
            "point-features",
            "PointNet++ neighbours: 32 clouds of 16384 points, 64 features",
            spec((32, 64, 16384)),
            2,
            indices((32, 64, 8192), 16384),
        ),
        full(
            "token-pruning",
            "ViT-L tokens kept, batch 256",
            spec((256, 577, 1024), _F16),
            1,
            indices((256, 288, 1024), 577, strides=(288, 1, 0)),
        ),
        full(
            "rows",
            "DLRM table read by element (first dimension)",
            spec((1 << 18, 256)),
            0,
            indices((1 << 17, 256), 1 << 18),
        ),
        full(
            "advantages",
            "PPO log-probabilities of Llama 2 tokens",
            spec((8192, 32000)),
            1,
            indices((8192, 4096), 32000),
        ),
    )


def _gather_oracle(
    self: torch.Tensor, dim: int, index: torch.Tensor, **more: Any
) -> list[Expected]:
    if not self.dim():
        return [expect(wide(self).expand(index.shape), self.dtype)]
    grid: list[torch.Tensor] = []
    for axis, size in enumerate(index.shape):
        place = torch.arange(size, device=index.device)
        grid.append(place.view([-1 if i == axis else 1 for i in range(index.dim())]))
    grid[dim] = index
    return [expect(wide(self[tuple(grid)]), self.dtype)]


def _gather_second(self: torch.Tensor, dim: int, index: torch.Tensor, **more: Any) -> list[Any]:
    x, places = numpy_of(self), index.numpy()
    if not x.ndim:
        return [x]
    cut = tuple(
        slice(None) if i == dim % x.ndim else slice(0, n) for i, n in enumerate(places.shape)
    )
    return [np.take_along_axis(x[cut], places, axis=dim)]


def _gather_cost(case: Case) -> Cost:
    return _copied_bytes(case, case.tensors[1].numel)


def _next_element(self: torch.Tensor, dim: int, index: torch.Tensor, **more: Any) -> torch.Tensor:
    size = self.shape[dim] if self.dim() else 1
    return torch.ops.aten.gather(self, dim, _shifted(index, size), **more)


def _one_row(self: torch.Tensor, dim: int, index: torch.Tensor, **more: Any) -> torch.Tensor:
    """The first index of each slice along `dim` serves the whole slice."""
    if not self.dim() or not index.numel():
        return torch.ops.aten.gather(self, dim, index, **more)
    first = index.narrow(dim, 0, 1).expand_as(index)
    return torch.ops.aten.gather(self, dim, first, **more)


_GATHER = Operator(
    id="aten::gather",
    family="indexing",
    signatures=(
        "gather(self: Tensor, dim: int, index: Tensor, *, sparse_grad: bool=False) -> Tensor",
        "gather.out(self: Tensor, dim: int, index: Tensor, *, sparse_grad: bool=False, "
        "out: Tensor!) -> Tensor!",
    ),
    description=(
        "Elements of `self` along `dim`, chosen one by one: for three dimensions and `dim` = 1, "
        "out[i, j, k] = self[i, index[i, j, k], k]. `index` is int64 with as many dimensions as "
        "`self`, values in [0, self.shape[dim]), and may be shorter than `self` outside `dim` "
        "(then only that part of `self` is read). The result has the shape of `index` and the "
        "dtype of `self` (any). A negative `dim` counts from the end. `self` and `index` may have "
        "any strides, 0 included. `sparse_grad` concerns gradients only. A 0-d `self` gives itself."
        " `gather.out` writes into `out` of any strides and returns it."
    ),
    sources=(
        "PyTorch 2.13, torch.ops.aten.gather",
        "aten/src/ATen/native/TensorAdvancedIndexing.cpp",
    ),
    cases=_gather_cases,
    oracle=_gather_oracle,
    second=_gather_second,
    baseline=torch.ops.aten.gather,
    baseline_name="aten",
    cost=_gather_cost,
    tolerance=EXACT,
    mutants=(
        Mutant("next element", _next_element),
        Mutant("first index for the whole slice", _one_row),
    ),
)

# --- index_select -------------------------------------------------------------------------------


@functools.cache
def _select_cases() -> Sequence[Case]:
    return (
        *(small(f"rows-{dtype_name(t)}", spec((30, 40), t), 0, indices((17,), 30)) for t in FLOATS),
        small("last-dim", spec((5, 90)), -1, indices((33,), 90)),
        small("middle-dim", spec((3, 20, 7), _F16), 1, indices((50,), 20)),
        small("int32-index", spec((9, 20)), 1, indices((11,), 20, _I32)),
        small("transposed", spec((7, 130), strides=(1, 7)), 0, indices((9,), 7)),
        small(
            "strided-misaligned",
            spec((6, 50), _F16, strides=(101, 2), offset=1),
            1,
            indices((20,), 50, strides=(3,)),
        ),
        small(
            "int64",
            indices((6, 50), 2**62, low=-(2**62)),
            0,
            indices((20,), 6),
            draws=("base", "base"),
        ),
        small(
            "bool",
            spec((6, 50), torch.bool, fill="bool"),
            1,
            indices((60,), 50),
            draws=("base", "base"),
        ),
        small("one-index", spec((6, 33)), 0, indices((1,), 6)),
        small("index-0-d", spec((6, 33)), 1, indices((), 33)),
        small("scalar", spec(()), 0, indices((1,), 1)),
        small("no-index", spec((4, 8)), 1, indices((0,), 8)),
        small("specials", spec((40, 33), _F16), 0, indices((9,), 40), draws=("specials", "base")),
        small(
            "out", spec((6, 20)), 1, indices((9,), 20), overload=1, out=spec((6, 9), strides=(1, 6))
        ),
        full(
            "expert-tokens",
            "Mixtral 8x7B: tokens of the experts, 16384 tokens",
            spec((16384, 4096), _BF16),
            0,
            indices((32768,), 16384),
        ),
        full(
            "graph-nodes",
            "ogbn-products GraphSAGE: features of 1M neighbours",
            spec((2449029, 100)),
            0,
            indices((1 << 20,), 2449029),
        ),
        full(
            "cache-beams",
            "Llama 3 8B key cache, 16 sequences reordered",
            spec((16, 8, 4096, 128), _F16),
            0,
            indices((16,), 16),
        ),
        full(
            "channels",
            "channel shuffle of ShuffleNet, batch 256",
            spec((256, 464, 28, 28), _F16),
            1,
            indices((464,), 464),
        ),
        full(
            "columns",
            "Llama 2 logits of 8192 kept tokens (last dimension)",
            spec((4096, 32000)),
            1,
            indices((8192,), 32000),
        ),
        full(
            "vision-windows",
            "Qwen2-VL window order of 65536 patches",
            spec((65536, 1280), _BF16),
            0,
            indices((65536,), 65536),
        ),
    )


def _select_oracle(
    self: torch.Tensor, dim: int, index: torch.Tensor, **more: Any
) -> list[Expected]:
    if not self.dim():
        return [expect(wide(self), self.dtype)]
    moved = self.movedim(dim, 0)[index.long().reshape(-1)].movedim(0, dim)
    return [expect(wide(moved), self.dtype)]


def _select_second(self: torch.Tensor, dim: int, index: torch.Tensor, **more: Any) -> list[Any]:
    x = numpy_of(self)
    return [np.take(x, numpy_of(index).reshape(-1), axis=dim) if x.ndim else x]


def _select_cost(case: Case) -> Cost:
    x, index = case.tensors[:2]
    along = x.shape[case.args[1]] if x.shape else 1
    return _copied_bytes(case, x.numel // max(along, 1) * index.numel)


def _select_next(self: torch.Tensor, dim: int, index: torch.Tensor, **more: Any) -> torch.Tensor:
    size = self.shape[dim] if self.dim() else 1
    return torch.ops.aten.index_select(self, dim, _shifted(index, size), **more)


def _select_in_order(
    self: torch.Tensor, dim: int, index: torch.Tensor, **more: Any
) -> torch.Tensor:
    """The indices are taken in ascending order."""
    ordered = index.sort().values if index.dim() else index
    return torch.ops.aten.index_select(self, dim, ordered, **more)


_INDEX_SELECT = Operator(
    id="aten::index_select",
    family="indexing",
    signatures=(
        "index_select(self: Tensor, dim: int, index: Tensor) -> Tensor",
        "index_select.out(self: Tensor, dim: int, index: Tensor, *, out: Tensor!) -> Tensor!",
    ),
    description=(
        "Slices of `self` along `dim`, in the order of `index`: with `dim` = 0, "
        "out[i, ...] = self[index[i], ...]. `index` is a vector (or 0-d, which counts as one "
        "entry) of int32 or int64 in [0, self.shape[dim]), repetitions allowed. The result has the "
        "shape of `self` with `dim` as long as `index`, and the dtype of `self` (any). A negative "
        "`dim` counts from the end; strides may be any. A 0-d `self` gives itself. "
        "`index_select.out` writes into `out` of any strides and returns it."
    ),
    sources=(
        "PyTorch 2.13, torch.ops.aten.index_select",
        "aten/src/ATen/native/TensorAdvancedIndexing.cpp",
    ),
    cases=_select_cases,
    oracle=_select_oracle,
    second=_select_second,
    baseline=torch.ops.aten.index_select,
    baseline_name="aten",
    cost=_select_cost,
    tolerance=EXACT,
    mutants=(
        Mutant("next slice", _select_next),
        Mutant("indices in ascending order", _select_in_order),
    ),
)

OPERATORS = (_EMBEDDING, _GATHER, _INDEX_SELECT)
