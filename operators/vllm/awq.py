"""AWQ: products with 4-bit weights, and the move of AWQ weights into Marlin's layout.

Packed words are drawn as random bits: every word is valid. Second statements unpack with NumPy,
word by word, without the tables of `packing`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from kernelmark.operators.building import full, small, spec
from kernelmark.operators.records import (
    EXACT,
    Case,
    Cost,
    Expected,
    Mutant,
    Operator,
    TensorSpec,
)
from kernelmark.operators.vllm.baselines import NAME, CustomOp
from kernelmark.operators.vllm.packing import MARLIN_LAYOUT, awq_unpack, marlin_pack
from kernelmark.operators.vllm.parts import nbytes, split_dim
from kernelmark.operators.vllm.weight_gemm import ROUNDING, TOLERANCE, gemm_cost, product, summed_in

_HALF, _WORD = torch.float16, torch.int32

# awq_gemm


@functools.cache
def _gemm_cases() -> Sequence[Case]:
    def tensors(m: int, k: int, n: int, group: int, split: int) -> tuple[Any, ...]:
        groups = k // group
        return (
            spec((m, k), _HALF),
            spec((k, n // 8), _WORD, fill="bits"),
            spec((groups, n), _HALF, fill="uniform", low=0.002, high=0.02),
            spec((groups, n // 8), _WORD, fill="bits"),
            split,
        )

    shapes: Sequence[tuple[Any, ...]] = (
        ("one-row", 1, 128, 64, 128, 1),
        ("groups-of-32", 16, 128, 64, 32, 8),
        ("groups-of-64", 7, 192, 128, 64, 2),
        ("groups-of-128", 33, 256, 128, 128, 8),
        ("one-group", 20, 160, 64, 160, 4),
        ("narrow", 5, 64, 8, 32, 1),
        ("odd-tiles", 19, 96, 72, 32, 3),
        ("deep", 3, 1024, 64, 128, 8),
        ("many-rows", 70, 64, 64, 64, 1),
        ("no-rows", 0, 128, 64, 64, 8),
    )
    models: Sequence[tuple[Any, ...]] = (
        ("llama-3-8b-qkv", "Llama 3 8B fused qkv projection, 2048 tokens", 2048, 4096, 6144),
        ("llama-3-8b-up", "Llama 3 8B fused gate and up projection, 16 tokens", 16, 4096, 28672),
        ("llama-3-8b-down", "Llama 3 8B down projection, 512 tokens", 512, 14336, 4096),
        ("qwen2.5-7b-up", "Qwen2.5 7B up projection, 128 tokens", 128, 3584, 18944),
        ("qwen2.5-32b-decode", "Qwen2.5 32B down projection, one token", 1, 27648, 5120),
        ("qwen2.5-72b-out", "Qwen2.5 72B output projection, 64 tokens", 64, 8192, 8192),
        ("mixtral-up", "Mixtral 8x7B expert up projection, 256 tokens", 256, 4096, 14336),
    )
    return (
        *(small(name, *tensors(*shape)) for name, *shape in shapes),
        *(full(name, origin, *tensors(m, k, n, 128, 8)) for name, origin, m, k, n in models),
    )


def _awq_weights(
    qweight: torch.Tensor, scales: torch.Tensor, qzeros: torch.Tensor, dtype: torch.dtype
) -> torch.Tensor:
    """(code - zero) * scale, [K, N] in `dtype`."""
    group = qweight.shape[0] // scales.shape[0]
    codes = split_dim(_codes(qweight), 0, (len(scales), group))
    centred = (codes - _codes(qzeros).unsqueeze(1)).to(dtype)
    return (centred * scales.to(dtype).unsqueeze(1)).flatten(0, 1)


def _codes(words: torch.Tensor) -> torch.Tensor:
    """AWQ words [R, N / 8] to codes [R, N]; column j lies at bit 4 (j // 2) + 16 (j % 2)."""
    column = torch.arange(8, device=words.device, dtype=torch.int32)
    shifted = words.unsqueeze(-1) >> (column // 2 * 4 + column % 2 * 16)
    return (shifted & 15).flatten(-2)


def _gemm_oracle(
    input: torch.Tensor,
    qweight: torch.Tensor,
    scales: torch.Tensor,
    qzeros: torch.Tensor,
    split_k_iters: int,
) -> list[Expected]:
    group = qweight.shape[0] // scales.shape[0]
    zeros = awq_unpack(qzeros).repeat_interleave(group, 0)
    factors = scales.double().repeat_interleave(group, 0)
    return product(input, (awq_unpack(qweight) - zeros) * factors)


def _nibbles(words: torch.Tensor) -> np.ndarray:
    """Codes of AWQ words by their hexadecimal digits."""
    place = {0: 0, 1: 4, 2: 1, 3: 5, 4: 2, 5: 6, 6: 3, 7: 7}
    unsigned = words.numpy().view(np.uint32)
    codes = np.zeros((words.shape[0], words.shape[1] * 8), dtype=np.int64)
    for row in range(words.shape[0]):
        for word in range(words.shape[1]):
            digits = f"{unsigned[row, word]:08x}"[::-1]
            for column in range(8):
                codes[row, 8 * word + column] = int(digits[place[column]], 16)
    return codes


def _gemm_second(
    input: torch.Tensor,
    qweight: torch.Tensor,
    scales: torch.Tensor,
    qzeros: torch.Tensor,
    split_k_iters: int,
) -> list[np.ndarray]:
    """Group by group: (x q - sum(x) z) s."""
    x, s = input.double().numpy(), scales.double().numpy()
    codes, zeros = _nibbles(qweight), _nibbles(qzeros)
    group = len(codes) // len(s)
    total = np.zeros((x.shape[0], codes.shape[1]))
    for g in range(len(s)):
        part = slice(g * group, (g + 1) * group)
        share = x[:, part] @ codes[part] - x[:, part].sum(1, keepdims=True) * zeros[g]
        total += share * s[g]
    return [total]


def _gemm(
    input: torch.Tensor,
    qweight: torch.Tensor,
    scales: torch.Tensor,
    qzeros: torch.Tensor,
    split_k_iters: int,
) -> torch.Tensor:
    return input @ _awq_weights(qweight, scales, qzeros, input.dtype)


def _gemm_mutant(variant: str) -> Callable[..., torch.Tensor]:
    def mutant(
        input: torch.Tensor,
        qweight: torch.Tensor,
        scales: torch.Tensor,
        qzeros: torch.Tensor,
        split_k_iters: int,
    ) -> torch.Tensor:
        if variant == "zero points ignored":
            qzeros = torch.zeros_like(qzeros)
        if variant == "zero points off by one":
            qzeros = (awq_unpack(qzeros) + 1).clamp_max(15)
            s = scales.float().repeat_interleave(qweight.shape[0] // len(scales), 0)
            z = qzeros.repeat_interleave(qweight.shape[0] // len(scales), 0)
            return (input.float() @ ((awq_unpack(qweight) - z) * s)).to(input.dtype)
        if variant == "scales of the first group":
            scales = scales[:1].expand_as(scales)
        if variant == "zero points of the first group":
            qzeros = qzeros[:1].expand_as(qzeros)
        weights = _awq_weights(qweight, scales, qzeros, torch.float32)
        if variant == "columns in the order of their nibbles":
            order = torch.tensor((0, 2, 4, 6, 1, 3, 5, 7))
            weights = split_dim(weights, 1, (weights.shape[1] // 8, 8))[..., order].flatten(1)
        if variant == "half of K":
            half = input.shape[1] // 2
            input, weights = input[:, :half], weights[:half]
        if variant == "sums in the dtype":
            return summed_in(input.dtype, input.float(), weights)
        return (input.float() @ weights).to(input.dtype)

    return mutant


def _awq_gemm_cost(case: Case) -> Cost:
    x, words, scales, zeros, _ = case.args
    m, k, n = x.shape[0], x.shape[1], scales.shape[1]
    return gemm_cost(case, m, n, k, 2 * m * n, x, words, scales, zeros)


# awq_marlin_moe_repack


@functools.cache
def _repack_cases() -> Sequence[Case]:
    def tensors(experts: int, k: int, n: int, bits: int, a_8bit: bool) -> tuple[Any, ...]:
        words = TensorSpec((experts, k, n * bits // 32), _WORD, "bits")
        return words, TensorSpec((experts, 0), _WORD), k, n, bits, a_8bit

    shapes: Sequence[tuple[Any, ...]] = (
        ("4-bits", 2, 64, 64, 4, False),
        ("8-bits", 2, 64, 64, 8, False),
        ("4-bits-wide", 3, 32, 192, 4, False),
        ("8-bits-tall", 1, 144, 64, 8, False),
        ("4-bits-8-bit-activations", 2, 64, 128, 4, True),
        ("8-bits-8-bit-activations", 2, 96, 64, 8, True),
        ("one-tile", 1, 16, 64, 4, False),
        ("one-tile-8-bit-activations", 1, 32, 64, 4, True),
    )
    models: Sequence[tuple[Any, ...]] = (
        ("mixtral-up-4", "Mixtral 8x7B experts, gate and up", 8, 4096, 28672, 4, False),
        ("mixtral-down-4", "Mixtral 8x7B experts, down", 8, 14336, 4096, 4, False),
        ("mixtral-down-8", "Mixtral 8x7B experts, down, 8 bits", 8, 14336, 4096, 8, False),
        ("qwen3-30b-up-4", "Qwen3 30B-A3B experts, gate and up", 128, 2048, 1536, 4, False),
        ("qwen3-30b-down-4", "Qwen3 30B-A3B experts, down", 128, 768, 2048, 4, True),
        ("deepseek-v2-lite-8", "DeepSeek V2 Lite experts, gate and up", 64, 2048, 2816, 8, True),
        ("deepseek-v3-4", "DeepSeek V3, 32 experts on a device, down", 32, 2048, 7168, 4, False),
    )
    draws = ("base", "base")
    return (
        *(small(name, *tensors(*shape), draws=draws) for name, *shape in shapes),
        *(full(name, origin, *tensors(*shape), draws=draws) for name, origin, *shape in models),
    )


def _repack_oracle(
    b_q_weight: torch.Tensor,
    perm: torch.Tensor,
    size_k: int,
    size_n: int,
    num_bits: int,
    is_a_8bit: bool = False,
) -> list[Expected]:
    experts = [
        marlin_pack(awq_unpack(expert, num_bits), num_bits, is_a_8bit) for expert in b_q_weight
    ]
    return [Expected(torch.stack(experts), _WORD)]


def tile_reader(bits: int, a_8bit: bool, source: Callable[[int, int], int], k: int, n: int) -> Any:
    """Marlin words [K / 16, N * bits / 2] of the codes source(row, column), by loops over tiles,
    threads and warps as a repacking kernel runs them.
    """
    height, width = (32, 32) if a_8bit else (16, 64)
    factor = 32 // bits
    out = np.zeros((k // 16) * (n * 16 // factor), dtype=np.uint32)
    per_tile = height * width // factor
    order = {
        (4, False): (0, 2, 4, 6, 1, 3, 5, 7),
        (4, True): (0, 4, 1, 5, 2, 6, 3, 7),
        (8, False): (0, 2, 1, 3),
        (8, True): (0, 1, 2, 3),
    }[bits, a_8bit]
    for tile in range((k // height) * (n // width)):
        top, left = tile // (n // width) * height, tile % (n // width) * width
        for thread in range(32):
            for warp in range(4):
                column, row = thread // 4, thread % 4 * (4 if a_8bit else 2)
                if a_8bit:
                    at = left + warp // 2 * 16 + column + 8 * (warp % 2)
                    values = [source(top + row + i + 16 * h, at) for h in (0, 1) for i in range(4)]
                else:
                    at = left + warp * 16 + column
                    rows = (row, row + 1, row + 8, row + 9)
                    values = [source(top + r, at + 8 * h) for h in (0, 1) for r in rows]
                if bits == 4:
                    word = sum(values[order[i]] << 4 * i for i in range(8))
                    out[tile * per_tile + thread * 4 + warp] = word
                else:
                    for half in (0, 1):
                        word = sum(values[4 * half + order[i]] << 8 * i for i in range(4))
                        out[tile * per_tile + thread * 8 + warp * 2 + half] = word
    return out.view(np.int32).reshape(k // 16, -1)


def _repack_second(
    b_q_weight: torch.Tensor,
    perm: torch.Tensor,
    size_k: int,
    size_n: int,
    num_bits: int,
    is_a_8bit: bool = False,
) -> list[np.ndarray]:
    factor, mask = 32 // num_bits, (1 << num_bits) - 1
    place = (0, 4, 1, 5, 2, 6, 3, 7) if num_bits == 4 else (0, 2, 1, 3)
    experts = []
    for expert in b_q_weight.numpy().view(np.uint32):

        def source(row: int, column: int, words: np.ndarray = expert) -> int:
            word = int(words[row, column // factor])
            return word >> place[column % factor] * num_bits & mask

        experts.append(tile_reader(num_bits, is_a_8bit, source, size_k, size_n))
    return [np.stack(experts)]


def _repack(
    b_q_weight: torch.Tensor,
    perm: torch.Tensor,
    size_k: int,
    size_n: int,
    num_bits: int,
    is_a_8bit: bool = False,
) -> torch.Tensor:
    return marlin_pack(awq_unpack(b_q_weight, num_bits), num_bits, is_a_8bit)


def _repack_mutant(variant: str) -> Callable[..., torch.Tensor]:
    def mutant(
        b_q_weight: torch.Tensor,
        perm: torch.Tensor,
        size_k: int,
        size_n: int,
        num_bits: int,
        is_a_8bit: bool = False,
    ) -> torch.Tensor:
        if variant == "first expert for all":
            b_q_weight = b_q_weight[:1].expand_as(b_q_weight)
        if variant == "always for 16-bit activations":
            is_a_8bit = False
        out = _repack(b_q_weight, perm, size_k, size_n, num_bits, is_a_8bit)
        if variant == "not moved":
            out = b_q_weight.reshape(out.shape).clone()
        if variant == "halves of words exchanged":
            out = out << 16 | (out >> 16 & 0xFFFF)
        return out

    return mutant


def repack_cost(case: Case) -> Cost:
    """Every word is read once and written once; nothing is computed."""
    words = case.args[0]
    return Cost(flops=0, nbytes=2 * nbytes(words))


OPERATORS = (
    Operator(
        id="vllm::awq_gemm",
        family="gemm-quant",
        signatures=(
            "awq_gemm(input: Tensor, qweight: Tensor, scales: Tensor, qzeros: Tensor, "
            "split_k_iters: int) -> Tensor",
        ),
        description=(
            "Product of `input` [M, K] (float16) with 4-bit AWQ weights: [M, N] float16. "
            "`qweight` is int32 [K, N / 8]: a word holds columns 8 w to 8 w + 7 of one row, column "
            "j of them in bits 4 (j // 2) + 16 (j % 2) and the three above (nibbles from the low "
            "end: columns 0, 2, 4, 6, 1, 3, 5, 7). `qzeros` int32 [K / group, N / 8] holds zero "
            "points the same way, `scales` float16 [K / group, N]; group = K / scales.size(0). "
            "Weight (k, n) is (code - zero[k // group]) * scale[k // group]. "
            + ROUNDING
            + "`split_k_iters` (1 to 8) is in how many parts a kernel may cut K; it does not "
            "change the result. All tensors are contiguous; K and group are multiples of 32, N of "
            "8. M = 0 gives an empty tensor."
        ),
        sources=(
            "vLLM 0.13, vllm._custom_ops.awq_gemm",
            "csrc/quantization/awq/gemm_kernels.cu, dequantize.cuh",
        ),
        cases=_gemm_cases,
        oracle=_gemm_oracle,
        second=_gemm_second,
        baseline=CustomOp("awq_gemm", _gemm),
        baseline_name=NAME,
        cost=_awq_gemm_cost,
        tolerance=TOLERANCE,
        mutants=tuple(
            Mutant(name, _gemm_mutant(name))
            for name in (
                "zero points ignored",
                "zero points off by one",
                "scales of the first group",
                "zero points of the first group",
                "columns in the order of their nibbles",
                "half of K",
                "sums in the dtype",
            )
        ),
        note="vLLM's kernel wants N to be a multiple of 64; smaller N appear in small cases only.",
    ),
    Operator(
        id="vllm::awq_marlin_moe_repack",
        family="quant-weight-layout",
        signatures=(
            "awq_marlin_moe_repack(b_q_weight: Tensor, perm: Tensor, size_k: int, size_n: int, "
            "num_bits: int, is_a_8bit: bool=False) -> Tensor",
        ),
        description=(
            "Moves AWQ weights of every expert into Marlin's layout. `b_q_weight` is int32 [E, K, "
            "N * bits / 32] in AWQ's order (4 bits: nibbles of a word, from the low end, are "
            "columns 0, 2, 4, 6, 1, 3, 5, 7; 8 bits: bytes are columns 0, 2, 1, 3). `perm` is not "
            "used. The result is int32 [E, K / 16, N * bits / 2]. " + MARLIN_LAYOUT
        ),
        sources=(
            "vLLM 0.13, vllm._custom_ops.awq_marlin_moe_repack",
            "csrc/quantization/gptq_marlin/awq_marlin_repack.cu",
        ),
        cases=_repack_cases,
        oracle=_repack_oracle,
        second=_repack_second,
        baseline=CustomOp("awq_marlin_moe_repack", _repack),
        baseline_name=NAME,
        cost=repack_cost,
        tolerance=EXACT,
        mutants=tuple(
            Mutant(name, _repack_mutant(name))
            for name in (
                "first expert for all",
                "always for 16-bit activations",
                "not moved",
                "halves of words exchanged",
            )
        ),
    ),
)
