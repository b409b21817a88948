"""ATen operators that move elements to other places: cat, stack, rot90, im2col.

Nothing is computed, so results are exact. Oracle: torch slices and views in float64 or int64.
Second statement: NumPy.
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

_F16, _BF16, _F32 = torch.float16, torch.bfloat16, torch.float32
_I32, _I64 = torch.int32, torch.int64
_ONCE = ("base", "base")


def _integers(shape: tuple[int, ...], t: torch.dtype, low: int = -99, high: int = 99) -> TensorSpec:
    return spec(shape, t, fill="integers", low=low, high=high)


def _promoted(tensors: Sequence[torch.Tensor]) -> torch.dtype:
    return functools.reduce(torch.promote_types, (t.dtype for t in tensors))


def _joining_cost(case: Case) -> Cost:
    parts: tuple[TensorSpec, ...] = case.args[0]
    out = case.kwargs.get("out")
    dtype = functools.reduce(torch.promote_types, (t.dtype for t in parts))
    item = (out.dtype if isinstance(out, TensorSpec) else dtype).itemsize
    written = sum(t.numel for t in parts) * item
    return traffic(case, written, flops=0, read=sum(t.nbytes for t in parts))


def _is_legacy_empty(tensor: torch.Tensor) -> bool:
    return tensor.shape == (0,)


# --- cat ----------------------------------------------------------------------------------------


@functools.cache
def _cat_cases() -> Sequence[Case]:
    def pair(t: torch.dtype) -> tuple[TensorSpec, TensorSpec]:
        return spec((5, 33), t), spec((5, 20), t)

    return (
        *(small(f"last-dim-{dtype_name(t)}", pair(t), -1) for t in FLOATS),
        small("first-dim", (spec((3, 40)), spec((9, 40)), spec((1, 40)))),
        small("middle-dim", (spec((3, 5, 7), _F16), spec((3, 8, 7), _F16)), 1),
        small("nine-parts", tuple(spec((i + 1, 17)) for i in range(9))),
        small("transposed", (spec((20, 9), strides=(1, 20)), spec((20, 6), strides=(1, 20))), 1),
        small(
            "mixed-strides",
            (spec((6, 25), _F16, strides=(60, 2), offset=1), spec((6, 10), _F16)),
            1,
        ),
        small("expanded", (spec((6, 25), strides=(0, 1)), spec((6, 10))), 1),
        small("one-tensor", (spec((7, 33), _BF16),), 1),
        small("same-sizes-1", (spec((1, 1)), spec((1, 1))), 1),
        small("with-empty", (spec((4, 0)), spec((4, 9)), spec((4, 0))), 1),
        small("legacy-empty", (spec((0,)), spec((4, 9)), spec((0,)), spec((2, 9)))),
        small("all-empty", (spec((0, 3)), spec((0, 3)))),
        small("promotes-halves", (spec((4, 9), _F16), spec((4, 5), _BF16)), 1),
        small("promotes-int-float", (_integers((4, 9), _I32), spec((4, 5), _F16)), 1),
        small(
            "promotes-ints", (_integers((3, 9), torch.int8), _integers((5, 9), _I64)), draws=_ONCE
        ),
        small(
            "bool",
            (spec((90,), torch.bool, fill="bool"), spec((9,), torch.bool, fill="bool")),
            draws=_ONCE,
        ),
        small(
            "int64",
            (_integers((5, 9), _I64, -(2**62), 2**62), _integers((5, 4), _I64)),
            1,
            draws=_ONCE,
        ),
        small("specials", pair(_F16), 1, draws=("specials", "base")),
        small("out", pair(_F32), 1, overload=1, out=spec((5, 53), strides=(1, 5))),
        full(
            "kv-cache-step",
            "Llama 3 8B key cache, 16 sequences of 4095 tokens and one more",
            (spec((16, 8, 4095, 128), _BF16), spec((16, 8, 1, 128), _BF16)),
            2,
        ),
        full(
            "unet-skip",
            "Stable Diffusion 1.5 U-Net skip connection, batch 32",
            (spec((32, 640, 64, 64), _F16), spec((32, 320, 64, 64), _F16)),
            1,
        ),
        full(
            "rotary-halves",
            "Llama 3 8B rotated query halves, 4 x 4096 tokens",
            (spec((4, 32, 4096, 64), _BF16), spec((4, 32, 4096, 64), _BF16)),
            -1,
        ),
        full(
            "densenet",
            "DenseNet-121 block 1, batch 64",
            tuple(spec((64, 64 if i == 0 else 32, 56, 56)) for i in range(7)),
            1,
        ),
        full(
            "dlrm-features",
            "DLRM: 26 embeddings and the dense vector, batch 32768",
            tuple(spec((32768, 128)) for _ in range(27)),
            1,
        ),
        full(
            "heads-transposed",
            "ViT-L heads joined from (tokens, heads) layout",
            (
                spec((64, 16, 577, 64), _F16, strides=(590848, 64, 1024, 1)),
                spec((64, 16, 577, 64), _F16, strides=(590848, 64, 1024, 1)),
            ),
            2,
        ),
        full(
            "batch",
            "Llama 3 8B hidden states of two batches",
            (spec((8192, 4096), _BF16), spec((24576, 4096), _BF16)),
        ),
    )


def _cat_oracle(
    tensors: list[torch.Tensor], dim: int = 0, *, out: torch.Tensor | None = None
) -> list[Expected]:
    dtype = _promoted(tensors) if out is None else out.dtype
    kept = [t for t in tensors if not _is_legacy_empty(t)] or tensors[:1]
    # Promotion rounds: int32 to float16, say.
    parts = [wide(t.to(dtype)) for t in kept]
    shape = list(parts[0].shape)
    shape[dim] = sum(p.shape[dim] for p in parts)
    value = parts[0].new_empty(shape)
    start = 0
    for part in parts:
        value.narrow(dim, start, part.shape[dim]).copy_(part)
        start += part.shape[dim]
    return [expect(value, dtype)]


def _cat_second(tensors: list[torch.Tensor], dim: int = 0, **more: Any) -> list[Any]:
    dtype = more["out"].dtype if "out" in more else _promoted(tensors)
    kept = [t for t in tensors if not _is_legacy_empty(t)] or tensors[:1]
    return [np.concatenate([wide(t.to(dtype)).numpy() for t in kept], axis=dim)]


def _cat_first_only(tensors: list[torch.Tensor], dim: int = 0, **more: Any) -> torch.Tensor:
    """Only the first tensor is copied, the rest is 0."""
    blanks = [t if i == 0 else torch.zeros_like(t) for i, t in enumerate(tensors)]
    return torch.ops.aten.cat(blanks, dim, **more)


def _cat_reversed(tensors: list[torch.Tensor], dim: int = 0, **more: Any) -> torch.Tensor:
    return torch.ops.aten.cat(tensors[::-1], dim, **more)


def _cat_memory_order(tensors: list[torch.Tensor], dim: int = 0, **more: Any) -> torch.Tensor:
    """Joins along the first dimension whatever `dim` is."""
    right = torch.ops.aten.cat(tensors, dim, **more)
    flat = torch.cat([t.reshape(-1).to(right.dtype) for t in tensors])
    return right.copy_(flat.view(right.shape))


_CAT = Operator(
    id="aten::cat",
    family="concat/layout",
    signatures=(
        "cat(tensors: Tensor[], dim: int=0) -> Tensor",
        "cat.out(tensors: Tensor[], dim: int=0, *, out: Tensor!) -> Tensor!",
    ),
    description=(
        "Joins a list of tensors along the existing dimension `dim` (negative ones count from the "
        "end). All have the same shape outside `dim`; tensors of shape exactly (0,) are skipped "
        "whatever the others' shapes are (all of them: the result is (0,)). Dtypes may differ: the "
        "result has the dtype that torch.promote_types gives over the list (int32 and float16 give "
        "float16, float16 and bfloat16 give float32), and every element is converted to it. "
        "Inputs may have any strides, 0 included. The result is contiguous for contiguous inputs; "
        "any dense layout is accepted. `cat.out` writes into `out`, of the result's shape and any "
        "strides, and returns it."
    ),
    sources=("PyTorch 2.13, torch.ops.aten.cat", "aten/src/ATen/native/TensorShape.cpp"),
    cases=_cat_cases,
    oracle=_cat_oracle,
    second=_cat_second,
    baseline=torch.ops.aten.cat,
    baseline_name="aten",
    cost=_joining_cost,
    tolerance=EXACT,
    mutants=(
        Mutant("only the first tensor", _cat_first_only),
        Mutant("tensors in reverse order", _cat_reversed),
        Mutant("dim ignored", _cat_memory_order),
    ),
)

# --- stack --------------------------------------------------------------------------------------


@functools.cache
def _stack_cases() -> Sequence[Case]:
    def three(t: torch.dtype) -> tuple[TensorSpec, ...]:
        return spec((5, 33), t), spec((5, 33), t), spec((5, 33), t)

    return (
        *(small(f"first-dim-{dtype_name(t)}", three(t)) for t in FLOATS),
        *(small(f"last-dim-{dtype_name(t)}", three(t), -1) for t in FLOATS),
        small("middle-dim", (spec((3, 5, 7), _F16), spec((3, 5, 7), _F16)), 1),
        small("second-to-last", three(_F32), -2),
        small("transposed", (spec((20, 9), strides=(1, 20)), spec((20, 9))), 1),
        small(
            "strided-misaligned",
            (spec((6, 25), _F16, strides=(60, 2), offset=1), spec((6, 25), _F16, offset=3)),
            2,
        ),
        small("scalars", (spec(()), spec(()), spec(()))),
        small("one-tensor", (spec((7, 33), _BF16),), 1),
        small("one-element", (spec((1,)), spec((1,))), 1),
        small("empty", (spec((0, 3)), spec((0, 3))), 1),
        small("promotes", (_integers((4, 9), _I32), spec((4, 9), _F16)), 1),
        small(
            "int16", (_integers((4, 9), torch.int16), _integers((4, 9), torch.int16)), draws=_ONCE
        ),
        small(
            "bool",
            (spec((90,), torch.bool, fill="bool"), spec((90,), torch.bool, fill="bool")),
            1,
            draws=_ONCE,
        ),
        small("specials", three(_F16), 1, draws=("specials", "base")),
        small("out", three(_F32), 1, overload=1, out=spec((5, 3, 33), strides=(1, 5, 15))),
        full(
            "batching",
            "64 ImageNet images at 448 x 448 into a batch",
            tuple(spec((3, 448, 448)) for _ in range(64)),
        ),
        full(
            "complex-pairs",
            "rotary embedding pairs interleaved, Llama 3 8B, 8192 tokens (last dimension)",
            (spec((8192, 32, 64), _BF16), spec((8192, 32, 64), _BF16)),
            -1,
        ),
        full(
            "layers",
            "BERT-base hidden states of 13 layers, 32 x 512 tokens",
            tuple(spec((32, 512, 768), _F16) for _ in range(13)),
        ),
        full(
            "experts",
            "Mixtral 8x7B: expert matrices into one tensor",
            tuple(spec((4096, 3584), _BF16) for _ in range(8)),
        ),
        full(
            "keys-values",
            "Llama 3 8B key and value of 8192 tokens, 8 sequences",
            (spec((8, 8192, 1024), _F16), spec((8, 8192, 1024), _F16)),
            2,
        ),
        full(
            "frames",
            "VideoMAE frames at dimension 1, batch 32",
            tuple(spec((32, 3, 224, 224)) for _ in range(16)),
            1,
        ),
    )


def _stack_oracle(
    tensors: list[torch.Tensor], dim: int = 0, *, out: torch.Tensor | None = None
) -> list[Expected]:
    dtype = _promoted(tensors) if out is None else out.dtype
    return _cat_oracle([t.to(dtype).unsqueeze(dim) for t in tensors], dim, out=out)


def _stack_second(tensors: list[torch.Tensor], dim: int = 0, **more: Any) -> list[Any]:
    dtype = more["out"].dtype if "out" in more else _promoted(tensors)
    return [np.stack([wide(t.to(dtype)).numpy() for t in tensors], axis=dim)]


def _stack_at_front(tensors: list[torch.Tensor], dim: int = 0, **more: Any) -> torch.Tensor:
    right = torch.ops.aten.stack(tensors, dim, **more)
    return right.copy_(torch.ops.aten.stack(tensors, 0).reshape(right.shape))


_STACK = Operator(
    id="aten::stack",
    family="concat/layout",
    signatures=(
        "stack(tensors: Tensor[], dim: int=0) -> Tensor",
        "stack.out(tensors: Tensor[], dim: int=0, *, out: Tensor!) -> Tensor!",
    ),
    description=(
        "Joins a list of tensors of one shape along a new dimension, which becomes dimension `dim` "
        "of the result: result.select(dim, i) is tensors[i]. `dim` lies in [-(r + 1), r] for "
        "tensors of r dimensions; negative ones count from the result's end. Dtypes may differ: "
        "the result has the dtype that torch.promote_types gives over the list and every element "
        "is converted to it. Inputs may have any strides. `stack.out` writes into `out`, of the "
        "result's shape and any strides, and returns it."
    ),
    sources=("PyTorch 2.13, torch.ops.aten.stack", "aten/src/ATen/native/TensorShape.cpp"),
    cases=_stack_cases,
    oracle=_stack_oracle,
    second=_stack_second,
    baseline=torch.ops.aten.stack,
    baseline_name="aten",
    cost=_joining_cost,
    tolerance=EXACT,
    mutants=(
        Mutant("dim ignored", _stack_at_front),
        Mutant(
            "tensors in reverse order",
            lambda ts, dim=0, **k: torch.ops.aten.stack(ts[::-1], dim, **k),
        ),
        Mutant(
            "first tensor repeated",
            lambda ts, dim=0, **k: torch.ops.aten.stack(
                [ts[0].to(_promoted(ts))] * len(ts), dim, **k
            ),
        ),
    ),
)

OPERATORS = (_CAT, _STACK)
