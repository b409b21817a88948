"""ATen matrix products of matrices and batches: mm, bmm; and what all products share.

Oracle: float64 products of the same operands; S is the product of absolute values. float32 is the
class "ieee": TF32 fails. Second statement: NumPy's einsum and matmul.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from kernelmark.operators.building import (
    FLOATS,
    dtype_name,
    expect,
    full,
    growth,
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

PRECISION = (
    "float16 and bfloat16 operands are multiplied exactly, accumulated in float32 and rounded "
    "once; float32 is IEEE float32 throughout (TF32 or bfloat16 products are too coarse and fail). "
)
OPERANDS = "Operands share one dtype and may have any strides (transposed, sliced, expanded). "
TOLERANCE = Tolerance(
    limit=2.0,
    accumulator=torch.float32,
    why="float32 accumulation in any order: S is |A||B| times 1 + sqrt(K)/4, which sequential "
    "sums of positive terms need; TF32 operands are 10 times over at K = 4096",
)


def column_major(rows: int, columns: int, t: torch.dtype, **more: Any) -> TensorSpec:
    return spec((rows, columns), t, strides=(1, rows), **more)


def product(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None = None) -> list[Expected]:
    """a @ b (+ bias) in float64, with its condition scale."""
    value = torch.matmul(wide(a), wide(b))
    # S needs no more than a few digits, so float32 (and a device's fast float32) will do.
    scale = torch.matmul(a.float().abs(), b.float().abs()).double() * growth(a.shape[-1])
    if bias is not None:
        # The product may be rounded to the dtype first: half an eps of it, at a limit of 2.
        coarser = torch.finfo(a.dtype).eps / torch.finfo(torch.float32).eps
        scale = scale + wide(bias).abs() + value.abs() * (coarser / 4)
        value = value + wide(bias)
    return [expect(value, a.dtype, scale=scale)]


# --- mutants ------------------------------------------------------------------------------------


def _to_tf32(x: torch.Tensor) -> torch.Tensor:
    """float32 rounded to 10 significand bits, to nearest even."""
    bits = x.contiguous().view(torch.int32)
    bits = (bits + 0x0FFF + ((bits >> 13) & 1)) & ~0x1FFF
    return bits.view(torch.float32)


def _put(right: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    return right.copy_(value.reshape(right.shape))


Product = Callable[..., torch.Tensor]


def _tf32(operator: Product) -> Product:
    def mutant(a: torch.Tensor, b: torch.Tensor, *rest: Any, **more: Any) -> torch.Tensor:
        if a.dtype != torch.float32:
            return operator(a, b, *rest, **more)
        return operator(_to_tf32(a), _to_tf32(b), *rest, **more)

    return mutant


def _half_k(operator: Product, weight: bool = False) -> Product:
    """Sums the first half of K only. `weight`: K is the last dimension of `b`."""

    def mutant(a: torch.Tensor, b: torch.Tensor, *rest: Any, **more: Any) -> torch.Tensor:
        k = a.shape[-1]
        axis = -1 if weight or b.dim() == 1 else -2
        kept = (k + 1) // 2
        return operator(a.narrow(-1, 0, kept), b.narrow(axis, 0, kept), *rest, **more)

    return mutant


def _rounded_sums(operator: Product, weight: bool = False) -> Product:
    """Accumulates blocks of 16 along K, rounding every partial sum to bfloat16."""

    def mutant(a: torch.Tensor, b: torch.Tensor, *rest: Any, **more: Any) -> torch.Tensor:
        right = operator(a, b, *rest, **more)
        axis = -1 if weight or b.dim() == 1 else -2
        total = torch.zeros((), dtype=_BF16)
        for x, y in zip(
            *(torch.ops.aten.split(*s) for s in ((a, 16, -1), (b, 16, axis))), strict=True
        ):
            y = y.t() if weight else y
            total = (total + torch.matmul(x.float(), y.float())).to(_BF16)
        bias = rest[0] if rest else None
        return _put(right, total if bias is None else total + bias)

    return mutant


def _strides_ignored(operator: Product) -> Product:
    """Reads the second operand in memory order, as if it were contiguous."""

    def mutant(a: torch.Tensor, b: torch.Tensor, *rest: Any, **more: Any) -> torch.Tensor:
        if b.is_contiguous() or 0 in b.stride() or b.dim() < 2 or _has_gaps(b):
            return operator(a, b, *rest, **more)
        flat = b.as_strided((b.numel(),), (1,), b.storage_offset())
        return operator(a, flat.view(b.shape), *rest, **more)

    return mutant


def _has_gaps(x: torch.Tensor) -> bool:
    return sum((n - 1) * s for n, s in zip(x.shape, x.stride(), strict=True)) + 1 != x.numel()


def gemm_mutants(operator: Product, weight: bool = False) -> tuple[Mutant, ...]:
    return (
        Mutant("operands rounded to TF32", _tf32(operator)),
        Mutant("half of K", _half_k(operator, weight)),
        Mutant("partial sums rounded to bfloat16", _rounded_sums(operator, weight)),
        Mutant("strides of the second operand ignored", _strides_ignored(operator)),
    )


# --- mm -----------------------------------------------------------------------------------------


@functools.cache
def _mm_cases() -> Sequence[Case]:
    return (
        *(small(f"tails-{dtype_name(t)}", spec((33, 70), t), spec((70, 45), t)) for t in FLOATS),
        *(
            small(f"column-major-{dtype_name(t)}", spec((17, 96), t), column_major(96, 40, t))
            for t in FLOATS
        ),
        small("both-transposed", column_major(31, 50, _F16), column_major(50, 29, _F16)),
        small(
            "strided-misaligned",
            spec((20, 33), _F16, strides=(67, 2), offset=1),
            spec((33, 24), _F16, offset=3),
        ),
        small("deep", spec((5, 2000)), spec((2000, 7))),
        small("one-row", spec((1, 130), _BF16), spec((130, 65), _BF16)),
        small("one-column", spec((65, 130)), spec((130, 1))),
        small("one-element", spec((1, 1)), spec((1, 1))),
        small("outer", spec((40, 1), _F16), spec((1, 50), _F16)),
        small("no-rows", spec((0, 8)), spec((8, 4))),
        small("no-terms", spec((6, 0), _F16), spec((0, 5), _F16)),
        small("expanded", spec((9, 40), strides=(0, 1)), spec((40, 12))),
        small("wide-range", spec((16, 64), fill="wide"), spec((64, 16), fill="wide")),
        small("specials", spec((40, 6)), spec((6, 30)), draws=("specials", "base")),
        small(
            "out",
            spec((33, 20)),
            spec((20, 18)),
            overload=1,
            out=spec((33, 18), strides=(1, 33)),
        ),
        full(
            "llama-3-8b-up",
            "Llama 3 8B MLP up projection, 4096 tokens",
            spec((4096, 4096), _BF16),
            column_major(4096, 14336, _BF16),
        ),
        full(
            "llama-3-8b-down",
            "Llama 3 8B MLP down projection, 2048 tokens",
            spec((2048, 14336), _F16),
            column_major(14336, 4096, _F16),
        ),
        full(
            "llama-3-decode",
            "Llama 3 70B output projection, 16 sequences decoding",
            spec((16, 8192), _BF16),
            column_major(8192, 28672, _BF16),
        ),
        full(
            "gpt2-logits",
            "GPT-2 small logits of 4096 tokens",
            spec((4096, 768), _F16),
            column_major(768, 50257, _F16),
        ),
        full("bert-float32", "BERT-large MLP, 4096 tokens", spec((4096, 1024)), spec((1024, 4096))),
        full(
            "weight-gradient",
            "BERT-large MLP weight gradient over 16384 tokens",
            column_major(1024, 16384, _BF16),
            spec((16384, 4096), _BF16),
        ),
        full(
            "square-float32", "ViT-g features, Gram matrix", spec((4096, 4096)), spec((4096, 4096))
        ),
        full(
            "square-float16",
            "linear algebra benchmark of LLM training, square 8192",
            spec((8192, 8192), _F16),
            spec((8192, 8192), _F16),
        ),
    )


def _mm_oracle(
    self: torch.Tensor, mat2: torch.Tensor, *, out: torch.Tensor | None = None
) -> list[Expected]:
    return product(self, mat2)


def _einsum(equation: str) -> Callable[..., list[np.ndarray]]:
    def second(self: torch.Tensor, mat2: torch.Tensor, **more: Any) -> list[np.ndarray]:
        with np.errstate(invalid="ignore"):
            return [np.einsum(equation, wide(self).numpy(), wide(mat2).numpy())]

    return second


def _mm_cost(case: Case) -> Cost:
    a, b = case.tensors[:2]
    numel = math.prod(a.shape[:-1]) * b.shape[-1]
    read = a.nbytes + b.nbytes
    return traffic(case, numel * a.dtype.itemsize, flops=2 * numel * a.shape[-1], read=read)


_MM = Operator(
    id="aten::mm",
    family="gemm",
    signatures=(
        "mm(self: Tensor, mat2: Tensor) -> Tensor",
        "mm.out(self: Tensor, mat2: Tensor, *, out: Tensor!) -> Tensor!",
    ),
    description=(
        "Matrix product of `self` (M, K) and `mat2` (K, N): an (M, N) matrix of their dtype. "
        + OPERANDS
        + PRECISION
        + "K = 0 gives zeros, M = 0 or N = 0 an empty matrix. NaN and infinities propagate as in "
        "IEEE arithmetic. `mm.out` writes into `out` (M, N) of any strides and returns it."
    ),
    sources=("PyTorch 2.13, torch.ops.aten.mm", "aten/src/ATen/native/LinearAlgebra.cpp"),
    cases=_mm_cases,
    oracle=_mm_oracle,
    second=_einsum("mk,kn->mn"),
    baseline=torch.ops.aten.mm,
    baseline_name="aten",
    cost=_mm_cost,
    tolerance=TOLERANCE,
    mutants=gemm_mutants(torch.ops.aten.mm),
    note="The overload mm.dtype (an output dtype of its own) exists on CUDA only and is left out.",
)

# --- bmm ----------------------------------------------------------------------------------------


@functools.cache
def _bmm_cases() -> Sequence[Case]:
    return (
        *(
            small(f"tails-{dtype_name(t)}", spec((3, 19, 33), t), spec((3, 33, 21), t))
            for t in FLOATS
        ),
        small(
            "second-transposed",
            spec((2, 17, 64), _F16),
            spec((2, 64, 40), _F16, strides=(64 * 40, 1, 64)),
        ),
        small(
            "heads-interleaved",
            spec((4, 20, 16), _BF16, strides=(16, 64, 1)),
            spec((4, 16, 20), _BF16, strides=(16, 1, 64)),
        ),
        small("batch-innermost", spec((3, 9, 10), strides=(1, 3, 27)), spec((3, 10, 8))),
        small("first-transposed", spec((2, 30, 18), strides=(540, 1, 30)), spec((2, 18, 9))),
        small("shared-second", spec((4, 6, 40)), spec((4, 40, 12), strides=(0, 12, 1))),
        small("misaligned", spec((2, 8, 35), _F16, offset=1), spec((2, 35, 9), _F16, offset=1)),
        small("one-row", spec((5, 1, 64), _F16), spec((5, 64, 33), _F16)),
        small("deep", spec((2, 3, 1500)), spec((2, 1500, 4))),
        small("one-element", spec((1, 1, 1)), spec((1, 1, 1))),
        small("no-batch", spec((0, 8, 4)), spec((0, 4, 8))),
        small("no-terms", spec((2, 6, 0)), spec((2, 0, 5))),
        small("specials", spec((3, 20, 6)), spec((3, 6, 20)), draws=("specials", "base")),
        small(
            "out",
            spec((2, 13, 20)),
            spec((2, 20, 18)),
            overload=1,
            out=spec((2, 13, 18), strides=(234, 1, 13)),
        ),
        full(
            "gpt2-scores",
            "GPT-2 small attention scores, batch 16: 192 heads of 1024 tokens",
            spec((192, 1024, 64), _F16),
            spec((192, 64, 1024), _F16, strides=(65536, 1, 64)),
        ),
        full(
            "gpt2-values",
            "GPT-2 small attention over values, batch 16",
            spec((192, 1024, 1024), _F16),
            spec((192, 1024, 64), _F16),
        ),
        full(
            "llama-3-scores",
            "Llama 3 8B attention scores of 4096 tokens, heads interleaved in memory",
            spec((32, 4096, 128), _BF16, strides=(128, 4096, 1)),
            spec((32, 128, 4096), _BF16, strides=(128, 1, 4096)),
        ),
        full(
            "experts",
            "Mixtral 8x7B expert up projection, 512 tokens for each of 8 experts",
            spec((8, 512, 4096), _BF16),
            spec((8, 4096, 14336), _BF16, strides=(4096 * 14336, 1, 4096)),
        ),
        full(
            "mla-absorb",
            "DeepSeek-V3 latent attention: 128 heads, 512 tokens, query into latent space",
            spec((128, 512, 128), _BF16, strides=(128, 128 * 128, 1)),
            spec((128, 128, 512), _BF16),
        ),
        full(
            "vit-float32",
            "ViT-B/16 attention scores, batch 64, float32",
            spec((768, 197, 64)),
            spec((768, 64, 197), strides=(64 * 197, 1, 64)),
        ),
        full(
            "float32-batch",
            "Swin-L window attention, 4096 windows",
            spec((4096, 49, 32)),
            spec((4096, 32, 49)),
        ),
    )


_BMM = Operator(
    id="aten::bmm",
    family="gemm",
    signatures=(
        "bmm(self: Tensor, mat2: Tensor) -> Tensor",
        "bmm.out(self: Tensor, mat2: Tensor, *, out: Tensor!) -> Tensor!",
    ),
    description=(
        "Batch of matrix products: `self` (B, M, K) times `mat2` (B, K, N) gives (B, M, N) of "
        "their dtype, one product for each b; nothing is broadcast. "
        + OPERANDS
        + PRECISION
        + "K = 0 gives zeros; B, M or N = 0 an empty tensor. NaN and infinities propagate as in "
        "IEEE arithmetic. `bmm.out` writes into `out` (B, M, N) of any strides and returns it."
    ),
    sources=("PyTorch 2.13, torch.ops.aten.bmm", "aten/src/ATen/native/LinearAlgebra.cpp"),
    cases=_bmm_cases,
    oracle=_mm_oracle,
    second=_einsum("bmk,bkn->bmn"),
    baseline=torch.ops.aten.bmm,
    baseline_name="aten",
    cost=_mm_cost,
    tolerance=TOLERANCE,
    mutants=gemm_mutants(torch.ops.aten.bmm),
    note="The overload bmm.dtype (an output dtype of its own) exists on CUDA only and is left out.",
)

OPERATORS = (_MM, _BMM)
