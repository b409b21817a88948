"""ATen softmax and its kin: exponentials over a dimension, normalised.

Oracle: torch in float64 from the same inputs. Second statement: NumPy, with the maximum taken out.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
import torch
from kernelmark.operators.building import FLOATS, dtype_name, expect, spec, traffic, wide
from kernelmark.operators.records import Case, Cost, Expected, Mutant, Operator, Tolerance


@functools.cache
def _softmax_cases() -> Sequence[Case]:
    small = [Case(f"rows-{dtype_name(t)}", (spec((5, 77), t), -1)) for t in FLOATS] + [
        Case("inner-dim", (spec((3, 17, 5)), 1)),
        Case("first-dim", (spec((9, 33)), 0)),
        Case("transposed", (spec((7, 33), strides=(1, 7)), -1)),
        Case("misaligned", (spec((4, 65), torch.float16, offset=1), 1)),
        Case("one-column", (spec((6, 1)), -1)),
        Case("vector", (spec((1000,)), 0)),
        Case("scalar", (spec(()), 0)),
        Case("empty", (spec((0, 8)), -1)),
        Case("cast-up", (spec((4, 50), torch.float16), -1, torch.float32)),
        Case("with-infinities", (spec((8, 40)), -1), draws=("specials", "base")),
        Case("wide-range", (spec((4, 200), fill="wide"), -1), draws=("base", "small")),
    ]
    full = [
        Case(
            "gpt2-attention",
            (spec((16, 12, 1024, 1024), torch.float16), -1),
            tier="full",
            origin="GPT-2 small attention scores, batch 16",
        ),
        Case(
            "llama-3-logits",
            (spec((64, 128256), torch.bfloat16), -1),
            tier="full",
            origin="Llama 3 vocabulary, 64 tokens",
        ),
        Case(
            "llama-3-logits-float32",
            (spec((64, 128256)), -1),
            tier="full",
            origin="Llama 3 vocabulary, 64 tokens",
        ),
        Case(
            "square-4096",
            (spec((4096, 4096), torch.float16), -1),
            tier="full",
            origin="attention scores of one head at 4096 tokens",
        ),
        Case(
            "vit-attention",
            (spec((64, 12, 197, 197), torch.float16), -1),
            tier="full",
            origin="ViT-B/16 attention scores, batch 64",
        ),
        Case(
            "channels",
            (spec((32, 512, 32, 32)), 1),
            tier="full",
            origin="segmentation head over 512 channels (inner dimension)",
        ),
    ]
    return (*small, *full)


def _softmax_oracle(
    self: torch.Tensor, dim: int, dtype: torch.dtype | None = None
) -> list[Expected]:
    x = wide(self)
    value = torch.softmax(x, dim)
    # exp(x - max) magnifies the rounding of its argument by |x - max|.
    distance = x - x.amax(dim, keepdim=True) if x.numel() else x
    scale = (value * (1 + distance.abs())).nan_to_num(0.0)
    return [expect(value, dtype or self.dtype, scale=scale)]


def _softmax_second(
    self: torch.Tensor, dim: int, dtype: torch.dtype | None = None
) -> list[np.ndarray]:
    x = self.double().numpy()
    if x.ndim == 0:
        return [np.where(np.isfinite(x), 1.0, np.nan)]
    with np.errstate(invalid="ignore"):
        e = np.exp(x - x.max(axis=dim, keepdims=True)) if x.size else x
        return [e / e.sum(axis=dim, keepdims=True)]


def _softmax(self: torch.Tensor, dim: int, dtype: torch.dtype | None = None) -> torch.Tensor:
    return torch.ops.aten.softmax.int(self, dim, dtype)


def _softmax_cost(case: Case) -> Cost:
    x = case.tensors[0]
    item = (case.args[2] if len(case.args) > 2 else x.dtype).itemsize
    return traffic(case, written=x.numel * item, flops=5 * x.numel)


def _no_denominator(self: torch.Tensor, dim: int, dtype: torch.dtype | None = None) -> torch.Tensor:
    x = self.to(dtype or self.dtype)
    return torch.exp(x - x.amax(dim, keepdim=True)) if x.dim() and x.numel() else x


def _half_reduction(self: torch.Tensor, dim: int, dtype: torch.dtype | None = None) -> torch.Tensor:
    x = self.to(dtype or self.dtype)
    if not x.dim() or x.numel() == 0:
        return torch.ones_like(x)
    e = torch.exp(x - x.amax(dim, keepdim=True))
    return e / e.narrow(dim, 0, (x.shape[dim] + 1) // 2).sum(dim, keepdim=True)


def _no_maximum(self: torch.Tensor, dim: int, dtype: torch.dtype | None = None) -> torch.Tensor:
    x = self.to(dtype or self.dtype)
    e = torch.exp(x)
    return e / e.sum(dim, keepdim=True) if x.dim() else torch.ones_like(x)


OPERATORS = (
    Operator(
        id="aten::softmax",
        family="norm/softmax",
        signatures=("softmax(self: Tensor, dim: int, dtype: ScalarType?=None) -> Tensor",),
        description=(
            "Exponentials of `self` along `dim`, divided by their sum: "
            "out = exp(self - max(self)) / sum(exp(self - max(self))). `dim` may be negative. "
            "With `dtype`, `self` is cast to it first and the result has that dtype; otherwise the "
            "result has the dtype of `self` and float16 or bfloat16 accumulates in float32. A row "
            "that holds NaN or +inf, or only -inf, is NaN throughout. The result has the shape of "
            "`self`; a 0-d tensor gives 1."
        ),
        sources=("PyTorch 2.13, torch.ops.aten.softmax.int", "aten/src/ATen/native/SoftMax.cpp"),
        cases=_softmax_cases,
        oracle=_softmax_oracle,
        second=_softmax_second,
        baseline=_softmax,
        baseline_name="aten",
        cost=_softmax_cost,
        tolerance=Tolerance(
            limit=4.0,
            accumulator=torch.float32,
            why="expf 2 ulp, division 1 ulp, sum of K terms 1 ulp; baseline stays below 1.6",
        ),
        mutants=(
            Mutant("denominator dropped", _no_denominator),
            Mutant("half the reduction", _half_reduction),
            Mutant("maximum not taken out", _no_maximum),
        ),
    ),
)
