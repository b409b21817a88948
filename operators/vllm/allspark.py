"""AllSpark: products with 8-bit weights, one scale a column, in the n32k16 order."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from kernelmark.operators.building import full, small, spec
from kernelmark.operators.records import Case, Cost, Expected, Mutant, Operator, TensorSpec
from kernelmark.operators.vllm.baselines import NAME, CustomOp
from kernelmark.operators.vllm.packing import n32k16_unpack, n32k16_unpermute_scales
from kernelmark.operators.vllm.parts import nbytes
from kernelmark.operators.vllm.weight_gemm import ROUNDING, TOLERANCE, product, summed_in

_HALF, _BRAIN, _U8 = torch.float16, torch.bfloat16, torch.uint8


@functools.cache
def _cases() -> Sequence[Case]:
    def tensors(m: int, k: int, n: int, dtype: torch.dtype, zeros: bool) -> tuple[Any, ...]:
        wide = -(-n // 32) * 32
        points: dict[str, Any] = {"fill": "integers", "low": -40, "high": 40}
        return (
            spec((m, k), dtype),
            TensorSpec((wide, k), _U8, "bits"),
            spec((1, wide), dtype, fill="uniform", low=0.0002, high=0.002),
            spec((1, wide), dtype, **points) if zeros else None,
            n, -1, 132, 90, 1024, zeros, True,
        )  # fmt: skip

    shapes: Sequence[tuple[Any, ...]] = (
        ("float16", 9, 128, 64, _HALF, False),
        ("bfloat16", 16, 96, 128, _BRAIN, False),
        ("zero-points", 7, 128, 64, _HALF, True),
        ("zero-points-bfloat16", 5, 64, 96, _BRAIN, True),
        ("padded-columns", 6, 64, 48, _HALF, False),
        ("padded-columns-zero-points", 6, 80, 16, _HALF, True),
        ("one-row", 1, 256, 64, _HALF, False),
        ("many-rows", 70, 48, 32, _BRAIN, False),
        ("deep", 3, 1024, 32, _HALF, True),
        ("one-tile", 2, 16, 32, _HALF, False),
        ("no-rows", 0, 64, 32, _HALF, False),
    )
    models: Sequence[tuple[Any, ...]] = (
        ("llama-3-8b-qkv", "Llama 3 8B qkv", 2048, 4096, 6144, _HALF, False),
        ("llama-3-8b-up", "Llama 3 8B gate and up", 16, 4096, 28672, _BRAIN, False),
        ("llama-3-8b-down", "Llama 3 8B down", 512, 14336, 4096, _HALF, True),
        ("qwen2.5-7b-up", "Qwen2.5 7B up", 64, 3584, 18944, _BRAIN, False),
        ("qwen2.5-32b-decode", "Qwen2.5 32B down", 1, 27648, 5120, _BRAIN, False),
        ("qwen2.5-72b-out", "Qwen2.5 72B output", 128, 8192, 8192, _HALF, False),
        ("mixtral-up", "Mixtral 8x7B expert up", 256, 4096, 14336, _BRAIN, True),
    )
    return (
        *(small(name, *tensors(*shape)) for name, *shape in shapes),
        *(
            full(name, f"{origin}, {shape[0]} tokens", *tensors(*shape))
            for name, origin, *shape in models
        ),
    )


def _weights(
    b_qweight: torch.Tensor,
    b_scales: torch.Tensor,
    b_qzeros: torch.Tensor | None,
    n: int,
    work: torch.dtype,
) -> torch.Tensor:
    """Weights [K, n]."""
    value = n32k16_unpack(b_qweight, n).to(work) - 128
    if b_qzeros is not None:
        value = value - n32k16_unpermute_scales(b_qzeros, n).to(work)
    return value * n32k16_unpermute_scales(b_scales, n).to(work)


def _oracle(
    a: torch.Tensor, b_qweight: torch.Tensor, b_scales: torch.Tensor,
    b_qzeros: torch.Tensor | None, n: int, group_size: int, sm_count: int, sm_version: int,
    CUBLAS_M_THRESHOLD: int, has_zp: bool, n32k16_reorder: bool,
) -> list[Expected]:  # fmt: skip
    return product(a, _weights(b_qweight, b_scales, b_qzeros, n, torch.float64))


def _second(
    a: torch.Tensor, b_qweight: torch.Tensor, b_scales: torch.Tensor,
    b_qzeros: torch.Tensor | None, n: int, group_size: int, sm_count: int, sm_version: int,
    CUBLAS_M_THRESHOLD: int, has_zp: bool, n32k16_reorder: bool,
) -> list[np.ndarray]:  # fmt: skip
    """Byte by byte: each byte's place gives its row and column."""
    k = b_qweight.shape[1]
    flat = b_qweight.numpy().reshape(-1)
    weights = np.zeros((k, len(b_qweight)))
    for at, code in enumerate(flat):
        run, inside = divmod(at, 64)
        rest, row_block = divmod(run, k // 16)
        block, i = divmod(rest, 8)
        column = block * 32 + inside % 16 // 4 * 8 + i
        row = row_block * 16 + inside // 16 * 2 + inside % 4 // 2 * 8 + inside % 2
        place = block * 32 + column % 8 * 4 + column % 32 // 8
        zero = 0.0 if b_qzeros is None else float(b_qzeros[0, place])
        weights[row, column] = (int(code) - 128 - zero) * float(b_scales[0, place])
    return [a.double().numpy() @ weights[:, :n]]


def _gemm(
    a: torch.Tensor, b_qweight: torch.Tensor, b_scales: torch.Tensor,
    b_qzeros: torch.Tensor | None, n: int, group_size: int, sm_count: int, sm_version: int,
    CUBLAS_M_THRESHOLD: int, has_zp: bool, n32k16_reorder: bool,
) -> torch.Tensor:  # fmt: skip
    return a @ _weights(b_qweight, b_scales, b_qzeros, n, a.dtype)


def _mutant(variant: str) -> Callable[..., torch.Tensor]:
    def mutant(
        a: torch.Tensor, b_qweight: torch.Tensor, b_scales: torch.Tensor,
        b_qzeros: torch.Tensor | None, n: int, group_size: int, sm_count: int, sm_version: int,
        CUBLAS_M_THRESHOLD: int, has_zp: bool, n32k16_reorder: bool,
    ) -> torch.Tensor:  # fmt: skip
        if variant == "zero points ignored":
            b_qzeros = None
        if variant == "zero points added" and b_qzeros is not None:
            b_qzeros = -b_qzeros
        if variant == "scales in the stored order":
            b_scales = b_scales.view(-1, 4, 8).transpose(1, 2).reshape(b_scales.shape)
        weights = _weights(b_qweight, b_scales, b_qzeros, n, torch.float32)
        if variant == "codes not centred":
            weights = weights + n32k16_unpermute_scales(b_scales, n).float()
        if variant == "codes in the stored order":
            plain = b_qweight.t().float()[:, :n] - 128
            weights = plain * n32k16_unpermute_scales(b_scales, n).float()
        if variant == "half of K":
            weights = weights.clone()
            weights[len(weights) // 2 :] = 0
        if variant == "sums in the dtype":
            return summed_in(a.dtype, a.float(), weights)
        return (a.float() @ weights).to(a.dtype)

    return mutant


def _cost(case: Case) -> Cost:
    a, words, scales, zeros, n = case.args[:5]
    read = nbytes(a, words, scales) + (0 if zeros is None else nbytes(zeros))
    return Cost(2 * a.numel * n, read + a.shape[0] * n * a.dtype.itemsize)


OPERATORS = (
    Operator(
        id="vllm::allspark_w8a16_gemm",
        family="gemm-quant",
        signatures=(
            "allspark_w8a16_gemm(a: Tensor, b_qweight: Tensor, b_scales: Tensor, "
            "b_qzeros: Tensor?, n: int, group_size: int, sm_count: int, sm_version: int, "
            "CUBLAS_M_THRESHOLD: int, has_zp: bool, n32k16_reorder: bool) -> Tensor",
        ),
        description=(
            "Product of `a` [M, K] (float16 or bfloat16) with 8-bit weights, one scale a column: "
            "[M, n]. Weight (k, j) is (code - 128 - zero[j]) * scale[j]; `b_qzeros` (None unless "
            "`has_zp`) holds zero points relative to 128, in the dtype of `a`. `b_qweight` is "
            "uint8 [N32, K], N32 being n rounded up to 32, in n32k16 order: blocks of 32 columns; "
            "in each for i = 0 to 7, and there for each 16 rows, 64 bytes; byte 16 q + 4 c + 2 h + "
            "l is the code at row 2 q + 8 h + l, column i + 8 c of the block (q, c = 0 to 3; h, l "
            "= 0, 1). `b_scales` and `b_qzeros` are [1, N32]; of each 32, position 4 r + c holds "
            "column 8 c + r. Columns from n on hold anything. "
            + ROUNDING
            + "`group_size` is -1 (one group), `n32k16_reorder` True; `sm_count`, `sm_version` and "
            "`CUBLAS_M_THRESHOLD` (rows from which to dequantise first) do not change the result. "
            "K and n are multiples of 16."
        ),
        sources=(
            "vLLM 0.13, vllm._custom_ops.allspark_w8a16_gemm",
            "csrc/quantization/gptq_allspark/allspark_repack.cu, allspark_qgemm_w8a16.cu",
        ),
        cases=_cases,
        oracle=_oracle,
        second=_second,
        baseline=CustomOp("allspark_w8a16_gemm", _gemm, major=8),
        baseline_name=NAME,
        cost=_cost,
        tolerance=TOLERANCE,
        mutants=tuple(
            Mutant(name, _mutant(name))
            for name in (
                "zero points ignored",
                "zero points added",
                "scales in the stored order",
                "codes not centred",
                "codes in the stored order",
                "half of K",
                "sums in the dtype",
            )
        ),
        note=(
            "vLLM's kernel is for compute capability 8.x; elsewhere the formulation is the "
            "baseline."
        ),
    ),
)
