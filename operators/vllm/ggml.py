"""GGML weights: dequantisation.

Blocks are drawn as random bytes with sensible float16 numbers where a type has them. The second
statement reads every weight on its own, byte by byte.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from kernelmark.operators.building import dtype_name, full, small
from kernelmark.operators.draws import Call
from kernelmark.operators.records import (
    Case,
    Cost,
    Expected,
    Mutant,
    Operator,
    TensorSpec,
    Tolerance,
)
from kernelmark.operators.vllm.baselines import NAME, CustomOp
from kernelmark.operators.vllm.ggml_formats import (
    DESCRIPTION,
    FORMATS,
    IQ4_VALUES,
    decode,
    draw_halves,
    row_bytes,
)

_U8 = torch.uint8
_FLOATS = (torch.float16, torch.bfloat16, torch.float32)


@functools.cache
def _cases() -> Sequence[Case]:
    def tensors(kind: int, m: int, n: int, dtype: torch.dtype) -> tuple[Any, ...]:
        return TensorSpec((m, row_bytes(kind, n)), _U8, "bits"), kind, m, n, dtype

    shapes: list[tuple[Any, ...]] = [
        (f"{form.name}-{dtype_name(dtype)}", kind, 5, 512, dtype)
        for i, (kind, form) in enumerate(FORMATS.items())
        for dtype in (_FLOATS[i % 3], _FLOATS[(i + 1) % 3])
    ]
    shapes += [
        ("Q8_0-one-block", 8, 1, 32, torch.float16),
        ("Q4_K-one-block", 12, 1, 256, torch.float16),
        ("Q4_0-odd-blocks", 2, 7, 96, torch.bfloat16),
        ("Q6_K-long-row", 14, 1, 2048, torch.float16),
        ("Q8_0-no-rows", 8, 0, 64, torch.float16),
    ]
    models: Sequence[tuple[Any, ...]] = (
        ("llama-3-8b-q4-k", "Llama 3 8B gate and up, Q4_K", 12, 28672, 4096, _FLOATS[0]),
        ("llama-3-8b-q6-k", "Llama 3 8B down, Q6_K", 14, 4096, 14336, _FLOATS[0]),
        ("llama-3-8b-q8-0", "Llama 3 8B up, Q8_0", 8, 14336, 4096, _FLOATS[1]),
        ("llama-3-70b-q4-0", "Llama 3 70B output, Q4_0", 2, 8192, 8192, _FLOATS[0]),
        ("qwen2.5-32b-q5-k", "Qwen2.5 32B up, Q5_K", 13, 27648, 5120, _FLOATS[1]),
        ("qwen2.5-32b-q3-k", "Qwen2.5 32B down, Q3_K", 11, 5120, 27648, _FLOATS[0]),
        (
            "mixtral-q2-k",
            "Mixtral 8x7B expert gate and up, Q2_K",
            10,
            28672,
            4096,
            _FLOATS[0],
        ),
        ("qwen2.5-7b-q5-1", "Qwen2.5 7B up, Q5_1", 7, 18944, 3584, _FLOATS[2]),
        ("llama-3-8b-iq4-xs", "Llama 3 8B up, IQ4_XS", 23, 14336, 4096, _FLOATS[0]),
    )
    draws = ("base", "base")
    return (
        *(small(name, *tensors(*shape), draws=draws) for name, *shape in shapes),
        *(full(name, origin, *tensors(*shape), draws=draws) for name, origin, *shape in models),
    )


def _prepare(call: Call, case: Case, generator: torch.Generator) -> None:
    draw_halves(call.args[0], call.args[1], generator)


def _oracle(W: torch.Tensor, quant_type: int, m: int, n: int, dtype: torch.dtype) -> list[Expected]:
    value, size = decode(W, quant_type, torch.float64)
    return [Expected(value.view(m, n), dtype, size.view(m, n))]


def read_weight(block: bytes, quant_type: int, i: int) -> float:
    """Weight `i` of one block, in Python numbers."""

    def half(at: int) -> float:
        return float(np.frombuffer(block[at : at + 2], np.float16)[0])

    def nibble(start: int) -> int:
        return block[start + i % 16] >> 4 if i % 32 >= 16 else block[start + i % 16] & 15

    def two(start: int) -> int:
        return block[start + i // 128 * 32 + i % 32] >> i % 128 // 32 * 2 & 3

    def six(j: int) -> tuple[int, int]:
        b = block[4:16]
        if j < 4:
            return b[j] % 64, b[j + 4] % 64
        return b[j + 4] % 16 + b[j - 4] // 64 * 16, b[j + 4] // 16 + b[j] // 64 * 16

    if quant_type == 2:
        return half(0) * (nibble(2) - 8)
    if quant_type == 3:
        return half(0) * nibble(4) + half(2)
    if quant_type in (6, 7):
        at = 2 if quant_type == 6 else 4
        top = int.from_bytes(block[at : at + 4], "little") >> i & 1
        code = nibble(at + 4) + 16 * top
        return half(0) * (code - 16) if quant_type == 6 else half(0) * code + half(2)
    if quant_type == 8:
        return half(0) * int.from_bytes(block[2 + i : 3 + i], "little", signed=True)
    if quant_type == 10:
        scale = block[i // 16]
        return half(80) * (scale % 16) * two(16) - half(82) * (scale // 16)
    if quant_type == 11:
        s = i // 16
        low = block[96 + s] % 16 if s < 8 else block[96 + s - 8] // 16
        scale = low + (block[104 + s % 4] >> s // 4 * 2 & 3) * 16 - 32
        return half(108) * scale * (two(32) - (0 if block[i % 32] >> i // 32 & 1 else 4))
    if quant_type in (12, 13):
        s, start = i // 32, 16 if quant_type == 12 else 48
        byte = block[start + s // 2 * 32 + i % 32]
        code = byte // 16 if s % 2 else byte % 16
        code += 16 * (block[16 + i % 32] >> s & 1) if quant_type == 13 else 0
        scale, minimum = six(s)
        return half(0) * scale * code - half(2) * minimum
    if quant_type == 14:
        byte = block[i // 128 * 64 + i % 64]
        code = (byte // 16 if i % 128 >= 64 else byte % 16) + 16 * two(128) - 32
        return (
            half(208)
            * int.from_bytes(block[192 + i // 16 : 193 + i // 16], "little", signed=True)
            * code
        )
    if quant_type == 20:
        return half(0) * IQ4_VALUES[nibble(2)]
    s = i // 32
    low = block[4 + s // 2] >> s % 2 * 4 & 15
    scale = low + (int.from_bytes(block[2:4], "little") >> 2 * s & 3) * 16 - 32
    return half(0) * scale * IQ4_VALUES[nibble(8 + 16 * s)]


def read_weights(W: torch.Tensor, quant_type: int) -> np.ndarray:
    """All weights of rows of blocks, [rows, columns]."""
    form = FORMATS[quant_type]
    rows = [row.numpy().tobytes() for row in W.reshape(-1, W.shape[-1])]
    size = form.nbytes
    return np.array(
        [
            [
                read_weight(row[at : at + size], quant_type, i)
                for at in range(0, len(row), size)
                for i in range(form.weights)
            ]
            for row in rows
        ]
    ).reshape(len(rows), W.shape[-1] // size * form.weights)


def _second(
    W: torch.Tensor, quant_type: int, m: int, n: int, dtype: torch.dtype
) -> list[np.ndarray]:
    return [read_weights(W, quant_type)]


def _dequantize(
    W: torch.Tensor, quant_type: int, m: int, n: int, dtype: torch.dtype
) -> torch.Tensor:
    return decode(W, quant_type, torch.float32)[0].to(dtype).view(m, n)


def _mutant(variant: str) -> Callable[..., torch.Tensor]:
    def mutant(
        W: torch.Tensor, quant_type: int, m: int, n: int, dtype: torch.dtype
    ) -> torch.Tensor:
        form = FORMATS[quant_type]
        if variant == "scale of the first block":
            W = W.clone().view(-1, form.nbytes)
            at = form.halves[0][0]
            W[:, at : at + 2] = W[:1, at : at + 2]
            W = W.view(m, -1)
        if variant == "second half ignored" and len(form.halves) == 2:
            W = W.clone().view(-1, form.nbytes)
            W[:, form.halves[1][0] : form.halves[1][0] + 2] = 0
            W = W.view(m, -1)
        out = _dequantize(W, quant_type, m, n, dtype)
        if variant == "halves of blocks exchanged":
            out = out.view(-1, 2, form.weights // 2).flip(1).reshape(m, n)
        if variant == "neighbouring nibbles":
            out = out.view(-1, 2, 16).transpose(1, 2).reshape(m, n)
        if variant == "sign lost":
            out = out.abs()
        if variant == "through float16":
            out = decode(W, quant_type, torch.float16)[0].to(dtype).view(m, n)
        return out

    return mutant


def _cost(case: Case) -> Cost:
    packed, _, m, n, dtype = case.args
    return Cost(flops=2 * m * n, nbytes=packed.nbytes + m * n * dtype.itemsize)


OPERATORS = (
    Operator(
        id="vllm::ggml_dequantize",
        family="quantization",
        signatures=(
            "ggml_dequantize(W: Tensor, quant_type: int, m: int, n: int, dtype: ScalarType?) -> "
            "Tensor",
        ),
        description=(
            "The weights of a GGML matrix: `W` uint8 [m, bytes of a row] to [m, n] of `dtype` "
            "(float16, bfloat16 or float32). " + DESCRIPTION + "Weights are computed in float32 "
            "and rounded once. n is a multiple of the block's weights."
        ),
        sources=(
            "vLLM 0.13, vllm._custom_ops.ggml_dequantize",
            "csrc/quantization/gguf/dequantize.cuh, ggml-common.h; llama.cpp, ggml-quants.c",
        ),
        cases=_cases,
        oracle=_oracle,
        second=_second,
        baseline=CustomOp("ggml_dequantize", _dequantize),
        baseline_name=NAME,
        cost=_cost,
        tolerance=Tolerance(
            limit=1.25,
            accumulator=torch.float32,
            why="0.5 for rounding to the dtype; in float32 one to three roundings of terms whose "
            "absolute values sum to S",
        ),
        prepare=_prepare,
        mutants=tuple(
            Mutant(name, _mutant(name))
            for name in (
                "scale of the first block",
                "second half ignored",
                "halves of blocks exchanged",
                "neighbouring nibbles",
                "sign lost",
                "through float16",
            )
        ),
        note=(
            "vLLM's kernels compute in float16 and widen, so that its results for bfloat16 and "
            "float32 are as coarse as float16's. The types with look-up grids (IQ1, IQ2, IQ3) do "
            "not appear in cases."
        ),
    ),
)
