"""GPTQ: products with 2-, 3-, 4- and 8-bit weights.

Packed words are drawn as random bits: every word is valid. Second statements read codes out of a
bit string, row by row, without the tables of `packing`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from kernelmark.operators.building import full, small, spec
from kernelmark.operators.draws import Call
from kernelmark.operators.records import Case, Cost, Expected, Mutant, Operator
from kernelmark.operators.vllm.baselines import NAME, CustomOp
from kernelmark.operators.vllm.gptq_layouts import (
    PACKED,
    SHUFFLED,
    codes_of,
    exllama_codes,
)
from kernelmark.operators.vllm.packing import (
    exllama_shuffle,
    exllama_unpack,
    unpack_words,
)
from kernelmark.operators.vllm.weight_gemm import ROUNDING, TOLERANCE, gemm_cost, product, summed_in

_HALF, _WORD = torch.float16, torch.int32

# gptq_gemm


@functools.cache
def _gemm_cases() -> Sequence[Case]:
    def tensors(
        m: int, k: int, n: int, bits: int, group: int, exllama: bool, ordered: bool, v2: bool
    ) -> tuple[Any, ...]:
        groups = k // group
        return (
            spec((m, k), _HALF),
            spec((k * bits // 32, n), _WORD, fill="bits"),
            spec((groups, n * bits // 32), _WORD, fill="bits"),
            spec((groups, n), _HALF, fill="uniform", low=0.1 * 2.0**-bits, high=0.4 * 2.0**-bits),
            # `_prepare_gemm` turns a permutation into the groups of rows where that is wanted.
            spec((0 if exllama and not ordered else k,), _WORD, fill="permutation"),
            exllama,
            v2,
            bits,
        )

    shapes: Sequence[tuple[Any, ...]] = (
        ("exllama-4", 7, 128, 64, 4, 32, True, False, False),
        ("exllama-4-v2", 16, 128, 96, 4, 64, True, False, True),
        ("exllama-4-act-order", 9, 128, 64, 4, 32, True, True, False),
        ("exllama-2", 5, 128, 64, 2, 64, True, False, False),
        ("exllama-3", 5, 128, 64, 3, 32, True, False, True),
        ("exllama-3-act-order", 4, 96, 32, 3, 32, True, True, False),
        ("exllama-8", 6, 128, 64, 8, 128, True, False, False),
        ("exllama-8-act-order", 33, 64, 32, 8, 32, True, True, True),
        ("plain-4", 12, 128, 64, 4, 64, False, False, False),
        ("plain-4-act-order", 33, 128, 64, 4, 32, False, True, False),
        ("plain-2-act-order", 4, 64, 32, 2, 32, False, True, True),
        ("plain-3", 6, 96, 64, 3, 32, False, False, False),
        ("plain-8-v2", 3, 64, 40, 8, 64, False, False, True),
        ("one-row", 1, 256, 64, 4, 128, True, False, False),
        ("one-group", 20, 160, 64, 4, 160, True, False, False),
        ("deep", 3, 1024, 32, 4, 128, True, True, False),
        ("no-rows", 0, 64, 32, 4, 32, True, False, False),
    )
    models: Sequence[tuple[Any, ...]] = (
        ("llama-3-8b-qkv-4", "Llama 3 8B qkv, 2048 tokens", 2048, 4096, 6144, 4, True, False),
        ("llama-3-8b-up-4-order", "Llama 3 8B gate and up, 16 tokens", 16, 4096, 28672, 4, 1, 1),
        ("qwen2.5-7b-down-8", "Qwen2.5 7B down, 64 tokens", 64, 18944, 3584, 8, True, False),
        ("qwen2.5-72b-out-3", "Qwen2.5 72B output, 128 tokens", 128, 8192, 8192, 3, True, False),
        ("llama-3-70b-down-2", "Llama 3 70B down, 8 tokens", 8, 28672, 8192, 2, True, False),
        ("qwen2.5-32b-decode-4", "Qwen2.5 32B down, one token", 1, 27648, 5120, 4, True, False),
        ("llama-3-8b-up-4-plain", "Llama 3 8B up, act-order", 256, 4096, 14336, 4, False, True),
    )
    return (
        *(small(name, *tensors(*shape)) for name, *shape in shapes),
        *(
            full(name, origin, *tensors(m, k, n, bits, 128, bool(exllama), bool(order), False))
            for name, origin, m, k, n, bits, exllama, order in models
        ),
    )


def _prepare_gemm(call: Call, case: Case, generator: torch.Generator) -> None:
    """Groups of rows for plain weights: in order, or (act-order cases) shuffled over K."""
    groups, index, exllama = call.args[3].shape[0], call.args[4], call.args[5]
    if exllama:
        return
    rows = index if "order" in case.name else torch.arange(len(index), device=index.device)
    index.copy_(rows // max(len(index) // groups, 1))


def _gemm_weights(
    words: torch.Tensor,
    qzeros: torch.Tensor,
    scales: torch.Tensor,
    g_idx: torch.Tensor,
    exllama: bool,
    v2: bool,
    bits: int,
    work: torch.dtype,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """(weights [K, N] in the order of the packed rows, columns of `a` that they meet or None)."""
    codes = exllama_unpack(words, bits) if exllama else unpack_words(words, bits, 0)
    zeros = unpack_words(qzeros, bits, 1) + (0 if v2 else 1)
    if exllama:
        rows = torch.arange(codes.shape[0], device=codes.device)
        group = rows // (codes.shape[0] // scales.shape[0])
    else:
        group = g_idx.long()
    weights = (codes - zeros[group]).to(work) * scales.to(work)[group]
    return weights, g_idx.long() if exllama and g_idx.numel() else None


def _gemm_oracle(
    a: torch.Tensor,
    b_q_weight: torch.Tensor,
    b_gptq_qzeros: torch.Tensor,
    b_gptq_scales: torch.Tensor,
    b_g_idx: torch.Tensor,
    use_exllama: bool,
    use_v2_format: bool,
    bit: int,
) -> list[Expected]:
    weights, order = _gemm_weights(
        b_q_weight, b_gptq_qzeros, b_gptq_scales, b_g_idx, use_exllama, use_v2_format, bit,
        torch.float64,
    )  # fmt: skip
    return product(a if order is None else a[:, order], weights)


def _gemm_second(
    a: torch.Tensor,
    b_q_weight: torch.Tensor,
    b_gptq_qzeros: torch.Tensor,
    b_gptq_scales: torch.Tensor,
    b_g_idx: torch.Tensor,
    use_exllama: bool,
    use_v2_format: bool,
    bit: int,
) -> list[np.ndarray]:
    """Column by column, row by row."""
    x, scales = a.double().numpy(), b_gptq_scales.double().numpy()
    words = b_q_weight.numpy().view(np.uint32)
    zeros = np.array([codes_of(row, bit) for row in b_gptq_qzeros.numpy().view(np.uint32)])
    zeros = zeros + (not use_v2_format)
    out = np.zeros((x.shape[0], words.shape[1]))
    for n in range(words.shape[1]):
        codes = (exllama_codes if use_exllama else codes_of)(words[:, n], bit)
        for k, code in enumerate(codes):
            group = k * len(scales) // len(codes) if use_exllama else int(b_g_idx[k])
            at = int(b_g_idx[k]) if use_exllama and len(b_g_idx) else k
            out[:, n] += x[:, at] * ((code - zeros[group, n]) * scales[group, n])
    return [out]


def _gemm(
    a: torch.Tensor,
    b_q_weight: torch.Tensor,
    b_gptq_qzeros: torch.Tensor,
    b_gptq_scales: torch.Tensor,
    b_g_idx: torch.Tensor,
    use_exllama: bool,
    use_v2_format: bool,
    bit: int,
) -> torch.Tensor:
    weights, order = _gemm_weights(
        b_q_weight, b_gptq_qzeros, b_gptq_scales, b_g_idx, use_exllama, use_v2_format, bit, a.dtype
    )
    return (a if order is None else a[:, order]) @ weights


def _gemm_mutant(variant: str) -> Callable[..., torch.Tensor]:
    def mutant(
        a: torch.Tensor,
        b_q_weight: torch.Tensor,
        b_gptq_qzeros: torch.Tensor,
        b_gptq_scales: torch.Tensor,
        b_g_idx: torch.Tensor,
        use_exllama: bool,
        use_v2_format: bool,
        bit: int,
    ) -> torch.Tensor:
        if variant == "zero points of the other format":
            use_v2_format = not use_v2_format
        if variant == "order of activations ignored" and use_exllama:
            b_g_idx = b_g_idx[:0]
        if variant == "words not shuffled" and use_exllama:
            b_q_weight = exllama_shuffle(b_q_weight, bit)
        if variant == "groups in order" and not use_exllama:
            b_g_idx = b_g_idx.sort().values
        if variant == "scales of the first group":
            b_gptq_scales = b_gptq_scales[:1].expand_as(b_gptq_scales)
        if variant == "zero points of the first group":
            b_gptq_qzeros = b_gptq_qzeros[:1].expand_as(b_gptq_qzeros)
        weights, order = _gemm_weights(
            b_q_weight, b_gptq_qzeros, b_gptq_scales, b_g_idx, use_exllama, use_v2_format, bit,
            torch.float32,
        )  # fmt: skip
        x = (a if order is None else a[:, order]).float()
        if variant == "half of K":
            weights = weights.clone()
            weights[len(weights) // 2 :] = 0
        if variant == "sums in the dtype":
            return summed_in(a.dtype, x, weights)
        return (x @ weights).to(a.dtype)

    return mutant


def _gptq_gemm_cost(case: Case) -> Cost:
    x, words, zeros, scales, index = case.args[:5]
    m, k, n = x.shape[0], x.shape[1], scales.shape[1]
    return gemm_cost(case, m, n, k, 2 * m * n, x, words, zeros, scales, index)


def _mutants(make: Callable[[str], Callable[..., Any]], *names: str) -> tuple[Mutant, ...]:
    return tuple(Mutant(name, make(name)) for name in names)


OPERATORS = (
    Operator(
        id="vllm::gptq_gemm",
        family="gemm-quant",
        signatures=(
            "gptq_gemm(a: Tensor, b_q_weight: Tensor, b_gptq_qzeros: Tensor, "
            "b_gptq_scales: Tensor, b_g_idx: Tensor, use_exllama: bool, use_v2_format: bool, "
            "bit: int) -> Tensor",
        ),
        description=(
            "Product of `a` [M, K] (float16) with GPTQ weights of 2, 3, 4 or 8 bits: [M, N] "
            "float16. `b_q_weight` is " + PACKED + ". `b_gptq_qzeros` is int32 "
            "[groups, N * bit / 32], each row a stream of zero points alike; `b_gptq_scales` "
            "float16 [groups, N]. Weight (k, n) is (code[k, n] - zero[g, n]) * scale[g, n], where "
            "zero is the stored zero point, plus 1 unless `use_v2_format`. Without `use_exllama` "
            "row k belongs to group g = b_g_idx[k] (int32 [K]). With it, rows are grouped in "
            "order, g = k // (K / groups), the codes of each word are in "
            + SHUFFLED
            + "; and if `b_g_idx` is not empty, packed row k meets column b_g_idx[k] of `a` (a "
            "permutation of K). "
            + ROUNDING
            + "All tensors are contiguous, K and K / groups multiples of 32. M = 0 gives an empty "
            "tensor."
        ),
        sources=(
            "vLLM 0.13, vllm._custom_ops.gptq_gemm",
            "csrc/quantization/gptq/q_gemm.cu, qdq_2.cuh to qdq_8.cuh",
        ),
        cases=_gemm_cases,
        oracle=_gemm_oracle,
        second=_gemm_second,
        baseline=CustomOp("gptq_gemm", _gemm),
        baseline_name=NAME,
        cost=_gptq_gemm_cost,
        tolerance=TOLERANCE,
        prepare=_prepare_gemm,
        mutants=_mutants(
            _gemm_mutant,
            "zero points of the other format",
            "order of activations ignored",
            "words not shuffled",
            "groups in order",
            "scales of the first group",
            "zero points of the first group",
            "half of K",
            "sums in the dtype",
        ),
        note=(
            "For few rows vLLM's own kernel adds parts of 128 rows of K to a float16 result, and "
            "may miss the limit that is asked of candidates here. Its empty `b_g_idx` is a meta "
            "tensor or has no element."
        ),
    ),
)
