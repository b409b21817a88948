"""ATen products of any rank: linear, matmul.

Oracle and tolerance as in `matmuls`. Second statement: NumPy's einsum.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from kernelmark.operators.aten.matmuls import (
    OPERANDS,
    PRECISION,
    TOLERANCE,
    column_major,
    gemm_mutants,
    product,
)
from kernelmark.operators.building import FLOATS, dtype_name, full, small, spec, traffic, wide
from kernelmark.operators.records import Case, Cost, Expected, Mutant, Operator, TensorSpec

_F16, _BF16, _F32 = torch.float16, torch.bfloat16, torch.float32


def transposed(x: torch.Tensor) -> torch.Tensor:
    """Swaps the last two dimensions; a vector stays."""
    return x.transpose(-1, -2) if x.dim() > 1 else x


# --- linear -------------------------------------------------------------------------------------


def _draws(t: torch.dtype) -> tuple[str, ...]:
    """Without large values in float16: a product that may be rounded first would overflow."""
    return tuple(d for d in Case.draws if d != "large" or t != _F16)


@functools.cache
def _linear_cases() -> Sequence[Case]:
    def biased(t: torch.dtype) -> tuple[TensorSpec, TensorSpec, TensorSpec]:
        return spec((4, 9, 70), t), spec((45, 70), t), spec((45,), t)

    return (
        *(small(f"bias-{dtype_name(t)}", *biased(t), draws=_draws(t)) for t in FLOATS),
        *(small(f"no-bias-{dtype_name(t)}", spec((33, 50), t), spec((20, 50), t)) for t in FLOATS),
        small(
            "vector",
            spec((64,), _F16),
            spec((33, 64), _F16),
            spec((33,), _F16),
            draws=_draws(_F16),
        ),
        small("weight-transposed", spec((17, 40)), column_major(31, 40, _F32), spec((31,))),
        small(
            "strided-misaligned",
            spec((5, 6, 33), _F16, strides=(450, 70, 2), offset=1),
            spec((24, 33), _F16, offset=3),
            spec((24,), _F16, strides=(2,)),
            draws=_draws(_F16),
        ),
        small("deep", spec((5, 2000)), spec((7, 2000)), spec((7,))),
        small("one-element", spec((1, 1)), spec((1, 1)), spec((1,))),
        small("one-feature", spec((30, 20)), spec((1, 20)), spec((1,))),
        small("no-rows", spec((0, 8)), spec((4, 8)), spec((4,))),
        small("no-terms", spec((6, 0)), spec((5, 0)), spec((5,))),
        small("out", spec((33, 20)), spec((18, 20)), spec((18,)), overload=1, out=spec((33, 18))),
        full(
            "llama-3-8b-qkv",
            "Llama 3 8B fused query, key, value projection, 4096 tokens",
            spec((2, 2048, 4096), _BF16),
            spec((6144, 4096), _BF16),
        ),
        full(
            "qwen-2.5-7b-qkv",
            "Qwen 2.5 7B query, key, value projection with bias, 8192 tokens",
            spec((8192, 3584), _BF16),
            spec((4608, 3584), _BF16),
            spec((4608,), _BF16),
        ),
        full(
            "bert-large-mlp",
            "BERT-large intermediate layer, 32 x 512 tokens",
            spec((32, 512, 1024), _F16),
            spec((4096, 1024), _F16),
            spec((4096,), _F16),
            draws=_draws(_F16),
        ),
        full(
            "llama-3-decode",
            "Llama 3 8B output head, 8 sequences decoding",
            spec((8, 1, 4096), _BF16),
            spec((128256, 4096), _BF16),
        ),
        full(
            "vit-float32",
            "ViT-B/16 MLP, batch 32",
            spec((32, 197, 768)),
            spec((3072, 768)),
            spec((3072,)),
        ),
        full(
            "whisper-float32",
            "Whisper large encoder MLP, 1500 frames",
            spec((1500, 1280)),
            spec((5120, 1280)),
            spec((5120,)),
        ),
    )


def _linear_oracle(
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
    out: torch.Tensor | None = None,
) -> list[Expected]:
    return product(input, transposed(weight), bias)


def _linear_second(
    input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, **more: Any
) -> list[np.ndarray]:
    result = np.einsum("...k,nk->...n", wide(input).numpy(), wide(weight).numpy())
    return [result if bias is None else result + wide(bias).numpy()]


def _linear_cost(case: Case) -> Cost:
    x, weight = case.tensors[:2]
    out = case.kwargs.get("out")
    read = sum(t.nbytes for t in case.tensors if t is not out)
    numel = math.prod(x.shape[:-1]) * weight.shape[0]
    return traffic(case, numel * x.dtype.itemsize, flops=2 * numel * x.shape[-1], read=read)


def _no_bias(
    input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, **more: Any
) -> torch.Tensor:
    return torch.ops.aten.linear(input, weight, None, **more)


_LINEAR = Operator(
    id="aten::linear",
    family="gemm",
    signatures=(
        "linear(input: Tensor, weight: Tensor, bias: Tensor?=None) -> Tensor",
        "linear.out(input: Tensor, weight: Tensor, bias: Tensor?=None, *, out: Tensor!) -> Tensor!",
    ),
    description=(
        "Affine map of the last dimension: out[..., n] = sum over k of input[..., k] weight[n, k], "
        "plus bias[n]. `input` is (..., K) with any number of leading dimensions, none included; "
        "`weight` (N, K); `bias` (N,) or None; the result (..., N) of their dtype. "
        + OPERANDS
        + PRECISION
        + "The product may be rounded to the dtype before the bias is added. K = 0 gives the bias, "
        "or zeros. `linear.out` writes into `out` of any strides and returns it."
    ),
    sources=("PyTorch 2.13, torch.ops.aten.linear", "aten/src/ATen/native/Linear.cpp"),
    cases=_linear_cases,
    oracle=_linear_oracle,
    second=_linear_second,
    baseline=torch.ops.aten.linear,
    baseline_name="aten",
    cost=_linear_cost,
    tolerance=TOLERANCE,
    mutants=(
        *gemm_mutants(torch.ops.aten.linear, weight=True),
        Mutant("bias left out", _no_bias),
    ),
)

# --- matmul -------------------------------------------------------------------------------------


@functools.cache
def _matmul_cases() -> Sequence[Case]:
    return (
        *(small(f"tails-{dtype_name(t)}", spec((33, 70), t), spec((70, 45), t)) for t in FLOATS),
        small("dot", spec((700,)), spec((700,))),
        small("dot-bfloat16", spec((130,), _BF16, strides=(2,)), spec((130,), _BF16)),
        small("vector-matrix", spec((65,), _F16), spec((65, 40), _F16)),
        small("matrix-vector", spec((40, 65)), spec((65,))),
        small("batch-matrix", spec((3, 2, 9, 33), _F16), spec((33, 20), _F16)),
        small("matrix-batch", spec((9, 33)), spec((3, 33, 11))),
        small("vector-batch", spec((33,)), spec((3, 2, 33, 11))),
        small("batch-vector", spec((2, 3, 11, 33), _BF16), spec((33,), _BF16)),
        small("batches-broadcast", spec((3, 1, 7, 20)), spec((4, 20, 9))),
        small(
            "heads-transposed",
            spec((2, 3, 8, 16), _F16, strides=(384, 16, 48, 1)),
            spec((2, 3, 16, 8), _F16, strides=(384, 16, 1, 48)),
        ),
        small("column-major", spec((17, 96)), column_major(96, 40, _F32)),
        small("misaligned", spec((2, 8, 35), _F16, offset=1), spec((2, 35, 9), _F16, offset=1)),
        small("no-batch", spec((0, 8, 4)), spec((4, 8))),
        small("no-terms", spec((2, 6, 0)), spec((2, 0, 5))),
        small("one-element", spec((1,)), spec((1, 1))),
        small("out", spec((3, 13, 20)), spec((20, 18)), overload=1, out=spec((3, 13, 18))),
        full(
            "llama-3-8b-gate",
            "Llama 3 8B MLP gate projection, 2 x 2048 tokens",
            spec((2, 2048, 4096), _BF16),
            column_major(4096, 14336, _BF16),
        ),
        full(
            "gpt2-scores",
            "GPT-2 small attention scores, batch 16, heads interleaved in memory",
            spec((16, 12, 1024, 64), _F16, strides=(786432, 64, 768, 1)),
            spec((16, 12, 64, 1024), _F16, strides=(786432, 64, 1, 768)),
        ),
        full(
            "grouped-queries",
            "Llama 3 8B: 4 query heads for each of 8 key heads (broadcast), 2048 tokens",
            spec((8, 4, 2048, 128), _BF16),
            spec((8, 1, 128, 2048), _BF16, strides=(262144, 262144, 1, 128)),
        ),
        full(
            "token-head",
            "Llama 3 8B output head, one token",
            spec((128256, 4096), _F16),
            spec((4096,), _F16),
        ),
        full(
            "float32-projection",
            "BERT-large, 8 x 512 tokens, float32",
            spec((8, 512, 1024)),
            spec((1024, 4096)),
        ),
        full(
            "dot-float32",
            "cosine similarity of two flattened gradients",
            spec((1 << 25,)),
            spec((1 << 25,)),
        ),
        full(
            "token-down",
            "Llama 3 70B MLP down projection, one token",
            spec((28672,), _BF16),
            spec((28672, 8192), _BF16),
        ),
    )


def _matmul_oracle(
    self: torch.Tensor, other: torch.Tensor, *, out: torch.Tensor | None = None
) -> list[Expected]:
    return product(self, other)


def _matmul_second(self: torch.Tensor, other: torch.Tensor, **more: Any) -> list[np.ndarray]:
    a, b = wide(self).numpy(), wide(other).numpy()
    rows = a[None] if a.ndim == 1 else a
    columns = b[:, None] if b.ndim == 1 else b
    result = np.einsum("...mk,...kn->...mn", rows, columns)
    if b.ndim == 1:
        result = result[..., 0]
    if a.ndim == 1:
        result = result[..., 0] if b.ndim == 1 else result[..., 0, :]
    return [np.asarray(result)]


def _matmul_cost(case: Case) -> Cost:
    a, b = case.tensors[:2]
    left = a.shape if len(a.shape) > 1 else (1, *a.shape)
    right = b.shape if len(b.shape) > 1 else (*b.shape, 1)
    batch = math.prod(np.broadcast_shapes(left[:-2], right[:-2]))
    numel = batch * left[-2] * right[-1]
    read = a.nbytes + b.nbytes
    return traffic(case, numel * a.dtype.itemsize, flops=2 * numel * a.shape[-1], read=read)


_MATMUL = Operator(
    id="aten::matmul",
    family="gemm",
    signatures=(
        "matmul(self: Tensor, other: Tensor) -> Tensor",
        "matmul.out(self: Tensor, other: Tensor, *, out: Tensor!) -> Tensor!",
    ),
    description=(
        "Matrix product with broadcasting, as numpy.matmul: the last two dimensions are matrices "
        "(M, K) and (K, N), the leading ones are broadcast. A 1-D `self` counts as (1, K) and a "
        "1-D `other` as (K, 1), and the added dimension leaves the result again: two vectors give "
        "a 0-d dot product. The result has the operands' dtype. "
        + OPERANDS
        + PRECISION
        + "K = 0 gives zeros. `matmul.out` writes into `out` of any strides and returns it."
    ),
    sources=("PyTorch 2.13, torch.ops.aten.matmul", "aten/src/ATen/native/LinearAlgebra.cpp"),
    cases=_matmul_cases,
    oracle=_matmul_oracle,
    second=_matmul_second,
    baseline=torch.ops.aten.matmul,
    baseline_name="aten",
    cost=_matmul_cost,
    tolerance=TOLERANCE,
    mutants=gemm_mutants(torch.ops.aten.matmul),
)

OPERATORS = (_LINEAR, _MATMUL)
