"""Layouts of GPTQ weights: ExLlama's shuffle, the move into Marlin.

Packed words are drawn as random bits: every word is valid. Second statements read codes out of a
bit string, row by row, without the tables of `packing`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from kernelmark.operators.building import full, small
from kernelmark.operators.records import EXACT, Case, Cost, Expected, Mutant, Operator, TensorSpec
from kernelmark.operators.vllm.awq import repack_cost, tile_reader
from kernelmark.operators.vllm.baselines import NAME, CustomOp
from kernelmark.operators.vllm.packing import (
    MARLIN_LAYOUT,
    exllama_shuffle,
    exllama_unshuffle,
    marlin_pack,
    pack_words,
    unpack_words,
)
from kernelmark.operators.vllm.parts import nbytes

_HALF, _WORD = torch.float16, torch.int32

PACKED = (
    "int32 [K * bit / 32, N]: each column is a stream of codes, `bit` bits each, row 0 in the "
    "lowest bits of the first word (with 3 bits, 32 rows take 3 words and rows 10 and 21 straddle)"
)
SHUFFLED = (
    "ExLlama's order: 4 bits, the 8 rows of a word from the low end 0, 2, 4, 6, 1, 3, 5, 7; 2 "
    "bits, the 16 rows even first, then odd, alike; 8 bits unchanged; 3 bits, of 32 rows in words "
    "0 to 2, word w holds rows 10 w + (0, 2, 4, 6, 8) in bits 0 to 14, rows 10 w + (1, 3, 5, 7, 9) "
    "in bits 16 to 30, and bit w of rows 30 and 31 in bits 15 and 31"
)


def _bit_string(words: np.ndarray) -> str:
    """Bits of uint32 words, the lowest first."""
    return "".join(f"{int(w):032b}"[::-1] for w in words)


def codes_of(words: np.ndarray, bits: int) -> list[int]:
    text = _bit_string(words)
    return [int(text[i : i + bits][::-1], 2) for i in range(0, len(text), bits)]


def exllama_codes(words: np.ndarray, bits: int) -> list[int]:
    """Codes of one column of shuffled words, row by row."""
    if bits == 8:
        return codes_of(words, 8)
    if bits == 3:
        codes = []
        for start in range(0, len(words), 3):
            three = [int(w) for w in words[start : start + 3]]
            for row in range(30):
                word, within = divmod(row, 10)
                codes.append(three[word] >> (within % 2 * 16 + within // 2 * 3) & 7)
            for odd in (0, 1):
                codes.append(sum((three[w] >> (15 + 16 * odd) & 1) << w for w in range(3)))
        return codes
    count = 32 // bits
    codes = []
    for word in words:
        for row in range(count):
            shift = row // 2 * bits + row % 2 * 16
            codes.append(int(word) >> shift & (1 << bits) - 1)
    return codes


# gptq_shuffle


@functools.cache
def _shuffle_cases() -> Sequence[Case]:
    def tensors(k: int, n: int, bits: int, ordered: bool) -> tuple[Any, ...]:
        words = TensorSpec((k * bits // 32, n), _WORD, "bits")
        return words, TensorSpec((k if ordered else 0,), _WORD, "permutation"), bits

    shapes: list[tuple[Any, ...]] = [
        (f"{bits}-bits{'-act-order' if order else ''}", 96, 50, bits, order)
        for bits in (2, 3, 4, 8)
        for order in (False, True)
    ]
    shapes += [
        ("one-block", 32, 2, 3, False),
        ("tall", 512, 6, 4, True),
        ("wide", 32, 300, 4, False),
        ("no-columns", 64, 0, 4, False),
    ]
    models: Sequence[tuple[Any, ...]] = (
        ("llama-3-8b-up-4", "Llama 3 8B gate and up", 4096, 28672, 4, True),
        ("llama-3-8b-down-4", "Llama 3 8B down", 14336, 4096, 4, False),
        ("llama-3-70b-up-4", "Llama 3 70B gate and up", 8192, 57344, 4, True),
        ("qwen2.5-72b-down-8", "Qwen2.5 72B down", 29568, 8192, 8, True),
        ("qwen2.5-72b-up-3", "Qwen2.5 72B up", 8192, 29568, 3, True),
        ("llama-3-70b-down-2", "Llama 3 70B down", 28672, 8192, 2, True),
        ("qwen2.5-32b-up-3", "Qwen2.5 32B up", 5120, 27648, 3, False),
    )
    draws = ("base", "base")
    return (
        *(small(name, *tensors(*shape), draws=draws) for name, *shape in shapes),
        *(full(name, origin, *tensors(*shape), draws=draws) for name, origin, *shape in models),
    )


def _shuffled(q_weight: torch.Tensor, q_perm: torch.Tensor, bit: int) -> torch.Tensor:
    if q_perm.numel():
        q_weight = pack_words(unpack_words(q_weight, bit, 0)[q_perm.long()], bit, 0)
    return exllama_shuffle(q_weight, bit)


def _shuffle_oracle(q_weight: torch.Tensor, q_perm: torch.Tensor, bit: int) -> list[Expected]:
    # Columns are independent; a few at a time keep the codes in memory.
    parts = [
        _shuffled(part, q_perm, bit)
        for part in q_weight.tensor_split(max(q_weight.shape[1] // 2048, 1), 1)
    ]
    return [Expected(torch.cat(parts, 1), _WORD)]


def _shuffle_second(q_weight: torch.Tensor, q_perm: torch.Tensor, bit: int) -> list[np.ndarray]:
    """Shuffled words by trying: bit after bit is set where reading back gives the wanted code."""
    words = q_weight.numpy().view(np.uint32)
    out = np.zeros_like(words)
    step = 3 if bit == 3 else 1
    rows = 32 * step // bit
    # which bit of the codes each bit of a block shows
    shown = np.zeros((32 * step, 2), dtype=int)
    for at in range(32 * step):
        probe = np.zeros(step, dtype=np.uint32)
        probe[at // 32] = np.uint32(1 << at % 32)
        for row, code in enumerate(exllama_codes(probe, bit)):
            if code:
                shown[at] = row, code.bit_length() - 1
    for n in range(words.shape[1]):
        codes = np.array(codes_of(words[:, n], bit), dtype=np.int64)
        codes = codes[q_perm.numpy()] if len(q_perm) else codes
        for block in range(len(words) // step):
            part = codes[block * rows : (block + 1) * rows]
            bits = part[shown[:, 0]] >> shown[:, 1] & 1
            for word in range(step):
                value = sum(int(b) << i for i, b in enumerate(bits[32 * word : 32 * word + 32]))
                out[block * step + word, n] = value
    return [out.view(np.int32)]


def _shuffle(q_weight: torch.Tensor, q_perm: torch.Tensor, bit: int) -> None:
    q_weight.copy_(_shuffled(q_weight, q_perm, bit))


def _shuffle_mutant(variant: str) -> Callable[..., None]:
    def mutant(q_weight: torch.Tensor, q_perm: torch.Tensor, bit: int) -> None:
        if variant == "permutation ignored":
            q_perm = q_perm[:0]
        if variant == "inverse permutation" and q_perm.numel():
            q_perm = torch.argsort(q_perm)
        if variant == "permuted only" and q_perm.numel():
            shuffled = _shuffled(q_weight, q_perm, bit)
            q_weight.copy_(exllama_unshuffle(shuffled, bit))
            return
        if variant == "unshuffled instead":
            q_weight.copy_(exllama_unshuffle(q_weight, bit))
            return
        if variant == "shuffled twice":
            _shuffle(q_weight, q_perm, bit)
            q_perm = q_perm[:0]
        _shuffle(q_weight, q_perm, bit)

    return mutant


def _shuffle_cost(case: Case) -> Cost:
    words, perm, _ = case.args
    return Cost(flops=0, nbytes=2 * nbytes(words) + nbytes(perm))


# gptq_marlin_moe_repack


@functools.cache
def _repack_cases() -> Sequence[Case]:
    def tensors(
        experts: int, k: int, n: int, bits: int, a_8bit: bool, order: bool
    ) -> tuple[Any, ...]:
        words = TensorSpec((experts, k * bits // 32, n), _WORD, "bits")
        perm = TensorSpec((experts, k if order else 0), _WORD, "permutation")
        return words, perm, k, n, bits, a_8bit

    shapes: Sequence[tuple[Any, ...]] = (
        ("4-bits", 2, 64, 64, 4, False, False),
        ("8-bits", 2, 64, 64, 8, False, False),
        ("4-bits-act-order", 3, 32, 128, 4, False, True),
        ("8-bits-act-order", 2, 80, 64, 8, False, True),
        ("4-bits-wide", 1, 16, 320, 4, False, False),
        ("4-bits-8-bit-activations", 2, 64, 128, 4, True, False),
        ("8-bits-8-bit-activations", 2, 32, 64, 8, True, False),
        ("one-tile", 1, 16, 64, 4, False, True),
    )
    models: Sequence[tuple[Any, ...]] = (
        ("mixtral-up-4", "Mixtral 8x7B experts, gate and up", 8, 4096, 28672, 4, False, True),
        ("mixtral-down-4", "Mixtral 8x7B experts, down", 8, 14336, 4096, 4, False, False),
        ("mixtral-down-8", "Mixtral 8x7B experts, down, 8 bits", 8, 14336, 4096, 8, False, True),
        ("qwen3-30b-up-4", "Qwen3 30B-A3B experts, gate and up", 128, 2048, 1536, 4, False, False),
        ("qwen3-30b-down-4", "Qwen3 30B-A3B experts, down", 128, 768, 2048, 4, True, False),
        ("deepseek-v2-lite-8", "DeepSeek V2 Lite experts, up", 64, 2048, 2816, 8, True, False),
        ("deepseek-v3-4", "DeepSeek V3, 32 experts, down", 32, 2048, 7168, 4, False, True),
    )
    draws = ("base", "base")
    return (
        *(small(name, *tensors(*shape), draws=draws) for name, *shape in shapes),
        *(full(name, origin, *tensors(*shape), draws=draws) for name, origin, *shape in models),
    )


def _repack(
    b_q_weight: torch.Tensor,
    perm: torch.Tensor,
    size_k: int,
    size_n: int,
    num_bits: int,
    is_a_8bit: bool = False,
) -> torch.Tensor:
    codes = unpack_words(b_q_weight, num_bits, 1)
    if perm.numel():
        codes = codes.take_along_dim(perm.long().unsqueeze(-1), 1)
    return marlin_pack(codes, num_bits, is_a_8bit)


def _repack_oracle(
    b_q_weight: torch.Tensor,
    perm: torch.Tensor,
    size_k: int,
    size_n: int,
    num_bits: int,
    is_a_8bit: bool = False,
) -> list[Expected]:
    # Expert by expert: codes take sixteen times the memory of their words.
    experts = [
        _repack(words[None], order[None], size_k, size_n, num_bits, is_a_8bit)
        for words, order in zip(b_q_weight, perm, strict=True)
    ]
    return [Expected(torch.cat(experts), _WORD)]


def _repack_second(
    b_q_weight: torch.Tensor,
    perm: torch.Tensor,
    size_k: int,
    size_n: int,
    num_bits: int,
    is_a_8bit: bool = False,
) -> list[np.ndarray]:
    factor, mask = 32 // num_bits, (1 << num_bits) - 1
    experts = []
    for words, order in zip(b_q_weight.numpy().view(np.uint32), perm.numpy(), strict=True):

        def source(
            row: int, column: int, words: np.ndarray = words, order: np.ndarray = order
        ) -> int:
            row = int(order[row]) if len(order) else row
            return int(words[row // factor, column]) >> row % factor * num_bits & mask

        experts.append(tile_reader(num_bits, is_a_8bit, source, size_k, size_n))
    return [np.stack(experts)]


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
        if variant == "permutation ignored":
            perm = perm[:, :0]
        if variant == "inverse permutation" and perm.numel():
            perm = perm.argsort(-1)
        if variant == "permutation of the first expert":
            perm = perm[:1].expand_as(perm)
        if variant == "always for 16-bit activations":
            is_a_8bit = False
        out = _repack(b_q_weight, perm, size_k, size_n, num_bits, is_a_8bit)
        return b_q_weight.reshape(out.shape).clone() if variant == "not moved" else out

    return mutant


def _mutants(make: Callable[[str], Callable[..., Any]], *names: str) -> tuple[Mutant, ...]:
    return tuple(Mutant(name, make(name)) for name in names)


OPERATORS = (
    Operator(
        id="vllm::gptq_shuffle",
        family="quant-weight-layout",
        signatures=("gptq_shuffle(q_weight: Tensor!, q_perm: Tensor, bit: int) -> ()",),
        description=(
            "Puts GPTQ weights into the order that ExLlama's kernels read, in place. `q_weight` is "
            + PACKED
            + ". If `q_perm` (int32 [K], a permutation) is not empty, rows are first permuted: row "
            "k becomes the old row q_perm[k]. Then the codes of each word (3 bits: of three words) "
            "are put in " + SHUFFLED + ". `bit` is 2, 3, 4 or 8; K is a multiple of 32."
        ),
        sources=(
            "vLLM 0.13, vllm._custom_ops.gptq_shuffle",
            "csrc/quantization/gptq/q_gemm.cu, qdq_2.cuh to qdq_8.cuh",
        ),
        cases=_shuffle_cases,
        oracle=_shuffle_oracle,
        second=_shuffle_second,
        baseline=CustomOp("gptq_shuffle", _shuffle),
        baseline_name=NAME,
        cost=_shuffle_cost,
        tolerance=EXACT,
        mutants=_mutants(
            _shuffle_mutant,
            "permutation ignored",
            "inverse permutation",
            "permuted only",
            "unshuffled instead",
            "shuffled twice",
        ),
    ),
    Operator(
        id="vllm::gptq_marlin_moe_repack",
        family="quant-weight-layout",
        signatures=(
            "gptq_marlin_moe_repack(b_q_weight: Tensor, perm: Tensor, size_k: int, size_n: int, "
            "num_bits: int, is_a_8bit: bool=False) -> Tensor",
        ),
        description=(
            "Moves GPTQ weights of every expert into Marlin's layout. `b_q_weight` is int32 "
            "[E, K * bits / 32, N]: each column is a stream of codes of `num_bits` (4 or 8) bits, "
            "row 0 in the lowest bits of the first word. `perm` is int32 [E, K], or [E, 0] for "
            "none: row k of expert e becomes its old row perm[e, k]. The result is int32 "
            "[E, K / 16, N * bits / 2]. " + MARLIN_LAYOUT
        ),
        sources=(
            "vLLM 0.13, vllm._custom_ops.gptq_marlin_moe_repack",
            "csrc/quantization/gptq_marlin/gptq_marlin_repack.cu",
        ),
        cases=_repack_cases,
        oracle=_repack_oracle,
        second=_repack_second,
        baseline=CustomOp("gptq_marlin_moe_repack", _repack),
        baseline_name=NAME,
        cost=repack_cost,
        tolerance=EXACT,
        mutants=_mutants(
            _repack_mutant,
            "first expert for all",
            "permutation ignored",
            "inverse permutation",
            "permutation of the first expert",
            "always for 16-bit activations",
            "not moved",
        ),
    ),
)
