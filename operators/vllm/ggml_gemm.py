"""Products with GGML weights and activations quantised to 8 bits, plain and for experts.

The quantisation of the activations (GGML's Q8_1) is part of the operators. Weights are exact; the
product of a weight block and an activation block is an integer sum scaled by floats.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from kernelmark.operators.building import dtype_name, full, small, spec
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
from kernelmark.operators.vllm.formats import rounded
from kernelmark.operators.vllm.ggml import read_weights
from kernelmark.operators.vllm.ggml_formats import (
    DESCRIPTION,
    FORMATS,
    decode,
    draw_halves,
    row_bytes,
)
from kernelmark.operators.vllm.parts import nbytes, split_dim
from kernelmark.operators.vllm.weight_gemm import summed_in

_U8, _I32 = torch.uint8, torch.int32
_HALF, _BRAIN, _SINGLE = torch.float16, torch.bfloat16, torch.float32
#: rows that share an expert's block in `ggml_moe_a8`
_BLOCK = 4
#: types that the matrix kernels take; the vector kernels take all
_MATRIX_TYPES = (2, 3, 6, 7, 8, 10, 11, 12, 13, 14)

_TOLERANCE = Tolerance(
    limit=2.0,
    accumulator=torch.float16,
    why="S is the root of the sum of squared terms, and room for one activation that lies within "
    "an ulp of the middle between two codes and falls to the other; rounding to the dtype costs "
    "0.5. Activations that are not quantised are 5 to 15 eps of S away",
)


def quantise(x: torch.Tensor, work: torch.dtype) -> torch.Tensor:
    """x [..., columns] as Q8_1 gives it back: per 32 columns d = max|x| / 127 (float32), codes
    x / d rounded to the nearest, halves away from zero; d is kept as float16.
    """
    blocks = split_dim(x.float(), -1, (x.shape[-1] // 32, 32))
    d = blocks.abs().amax(-1, keepdim=True) / 127.0
    quotient = torch.where(d == 0, 0.0, blocks / d)
    codes = torch.trunc(quotient.abs() + 0.5) * quotient.sign()
    return (codes.to(work) * rounded(d, _HALF).to(work)).flatten(-2)


def _product(x: torch.Tensor, weights: torch.Tensor, dtype: torch.dtype) -> Expected:
    """Quantised x [M, K] times float64 weights [N, K] transposed."""
    exact = quantise(x, torch.float64)
    root = (exact.float().square() @ weights.float().square().t()).double().sqrt()
    step = exact.abs().amax(-1, keepdim=True) / 127
    one_flip = step * weights.abs().amax(-1)
    return Expected(exact @ weights.t(), dtype, root + 512 * one_flip)


# ggml_mul_mat_a8, ggml_mul_mat_vec_a8


def _matrix_cases(vector: bool) -> Sequence[Case]:
    def tensors(kind: int, row: int, k: int, m: int, t: torch.dtype) -> tuple[Any, ...]:
        packed = TensorSpec((row, row_bytes(kind, k)), _U8, "bits")
        return packed, spec((m, k), t), kind, row

    floats = (_HALF, _BRAIN, _SINGLE)
    kinds = tuple(FORMATS) if vector else _MATRIX_TYPES
    shapes: list[tuple[Any, ...]] = [
        (f"{FORMATS[kind].name}-{dtype_name(t)}", kind, 24, 512, 1 if vector else 7, t)
        for i, kind in enumerate(kinds)
        for t in (floats[i % 3], *((floats[(i + 1) % 3],) if i % 2 else ()))
    ]
    shapes += [
        ("Q4_0-rows-33", 2, 33, 256, 2 if vector else 17, _HALF),
        ("Q8_0-columns-288", 8, 16, 288, 1 if vector else 5, _BRAIN),
        ("Q4_K-deep", 12, 4, 2048, 1 if vector else 3, _HALF),
        ("Q6_K-rows-3", 14, 3, 768, 3 if vector else 40, _HALF),
    ]
    tokens = (1, 1, 2, 1, 4, 1, 1) if vector else (512, 64, 2048, 128, 32, 1024, 256)
    models: Sequence[tuple[Any, ...]] = (
        ("llama-3-8b-q4-k", "Llama 3 8B gate and up, Q4_K", 12, 28672, 4096, _HALF),
        ("llama-3-8b-down-q6-k", "Llama 3 8B down, Q6_K", 14, 4096, 14336, _BRAIN),
        ("llama-3-70b-qkv-q8-0", "Llama 3 70B qkv, Q8_0", 8, 10240, 8192, _HALF),
        ("llama-3-70b-q4-0", "Llama 3 70B up, Q4_0", 2, 28672, 8192, _HALF),
        ("qwen2.5-32b-q5-k", "Qwen2.5 32B up, Q5_K", 13, 27648, 5120, _BRAIN),
        ("qwen2.5-7b-q3-k", "Qwen2.5 7B down, Q3_K", 11, 3584, 18944, _SINGLE),
        ("mixtral-q2-k", "Mixtral 8x7B, an expert's up, Q2_K", 10, 14336, 4096, _HALF),
    )
    draws = ("base", "base", "small", "large")
    return (
        *(small(name, *tensors(*shape), draws=draws) for name, *shape in shapes),
        *(
            full(name, f"{origin}, {m} tokens", *tensors(kind, row, k, m, t), draws=draws)
            for (name, origin, kind, row, k, t), m in zip(models, tokens, strict=True)
        ),
    )


def _prepare_matrix(call: Call, case: Case, generator: torch.Generator) -> None:
    draw_halves(call.args[0], call.args[2], generator)


def _matrix_oracle(W: torch.Tensor, X: torch.Tensor, quant_type: int, row: int) -> list[Expected]:
    return [_product(X, decode(W, quant_type, torch.float64)[0], X.dtype)]


def _codes(x: np.ndarray) -> tuple[np.ndarray, np.float16]:
    """Q8_1 of 32 numbers: (codes, d)."""
    d = np.float32(np.abs(x).max()) / np.float32(127)
    if d == 0:
        return np.zeros(32), np.float16(0)
    quotient = x.astype(np.float32) / d
    codes = np.array([np.floor(abs(q) + 0.5) * (1 if q > 0 else -1) for q in quotient.tolist()])
    return codes, np.float16(d)


def _row_by_row(x: torch.Tensor, weights: np.ndarray) -> np.ndarray:
    """Block by block: integers first, then the scale."""
    rows = x.float().numpy().reshape(len(x), -1, 32)
    blocks = weights.reshape(len(weights), -1, 32)
    out = np.zeros((len(rows), len(weights)))
    for i, row in enumerate(rows):
        for b, part in enumerate(row):
            codes, d = _codes(part)
            out[i] += float(d) * (blocks[:, b] @ codes)
    return out


def _matrix_second(W: torch.Tensor, X: torch.Tensor, quant_type: int, row: int) -> list[np.ndarray]:
    return [_row_by_row(X, read_weights(W, quant_type))]


def _mul_mat(W: torch.Tensor, X: torch.Tensor, quant_type: int, row: int) -> torch.Tensor:
    work = _operands(X)
    weights = decode(W, quant_type, torch.float32)[0].to(work)
    return (quantise(X, torch.float32).to(work) @ weights.t()).to(X.dtype)


def _operands(x: torch.Tensor) -> torch.dtype:
    """What a formulation multiplies in: float16 for 16-bit results on an accelerator.

    bfloat16 holds neither the codes times d nor the weights; sums are float32 in any case.
    """
    narrow = x.device.type == "cuda" and x.dtype.itemsize == 2
    return _HALF if narrow else _SINGLE


_WRONG = (
    "activations not quantised",
    "activations truncated",
    "one scale a row",
    "weight scales of the first block",
    "second half ignored",
    "half of K",
    "sums in bfloat16",
)


def _wrong_operands(
    variant: str, W: torch.Tensor, X: torch.Tensor, quant_type: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """(activations [..., K], weights [..., K]) in float32 with one step wrong."""
    form = FORMATS[quant_type]
    blocks = W.clone().view(-1, form.nbytes)
    if variant == "weight scales of the first block":
        at = form.halves[0][0]
        blocks[:, at : at + 2] = blocks[:1, at : at + 2]
    if variant == "second half ignored" and len(form.halves) == 2:
        blocks[:, form.halves[1][0] : form.halves[1][0] + 2] = 0
    weights = decode(blocks.view(W.shape), quant_type, torch.float32)[0]
    x = quantise(X, torch.float32)
    if variant == "activations not quantised":
        x = X.float()
    if variant == "activations truncated":
        parts = split_dim(X.float(), -1, (X.shape[-1] // 32, 32))
        d = parts.abs().amax(-1, keepdim=True) / 127
        x = ((parts / d).trunc() * d.half()).flatten(-2)
    if variant == "one scale a row":
        d = X.float().abs().amax(-1, keepdim=True) / 127
        x = (X.float() / d).round() * d.half()
    if variant == "half of K":
        x = x.clone()
        x[..., x.shape[-1] // 2 :] = 0
    return x, weights


def _matrix_mutant(variant: str) -> Callable[..., torch.Tensor]:
    def mutant(W: torch.Tensor, X: torch.Tensor, quant_type: int, row: int) -> torch.Tensor:
        x, weights = _wrong_operands(variant, W, X, quant_type)
        if variant == "sums in bfloat16":
            return summed_in(torch.bfloat16, x, weights.t()).to(X.dtype)
        return (x @ weights.t()).to(X.dtype)

    return mutant


def _matrix_cost(case: Case) -> Cost:
    packed, x, _, row = case.args
    out = x.shape[0] * row * x.dtype.itemsize
    return Cost(flops=2 * x.numel * row, nbytes=nbytes(packed, x) + out)


# ggml_moe_a8, ggml_moe_a8_vec


def _padded_pairs(tokens: int, top_k: int, experts: int) -> int:
    """Slots that blocks of pairs may take: every expert may leave all but one of a block empty."""
    pairs = tokens * top_k
    slots = pairs + min(experts, pairs) * (_BLOCK - 1)
    return -(-slots // _BLOCK) * _BLOCK


def _moe_cases(vector: bool) -> Sequence[Case]:
    def tensors(
        kind: int, experts: int, tokens: int, top_k: int, k: int, row: int, t: torch.dtype
    ) -> tuple[Any, ...]:
        x = spec((tokens, k), t)
        packed = TensorSpec((experts, row, row_bytes(kind, k)), _U8, "bits")
        if vector:
            ids = spec((tokens, top_k), _I32, fill="integers", low=0, high=experts)
            return x, packed, ids, top_k, kind, row, tokens
        slots = _padded_pairs(tokens, top_k, experts)
        # Drawn as zeros; `_prepare_moe` sorts random choices into them.
        return (
            x, packed, spec((slots,), _I32, fill="zeros"),
            spec((slots // _BLOCK,), _I32, fill="zeros"), spec((1,), _I32, fill="zeros"),
            kind, row, top_k, tokens,
        )  # fmt: skip

    floats = (_HALF, _BRAIN, _SINGLE)
    shapes: list[tuple[Any, ...]] = [
        (f"{FORMATS[kind].name}-{dtype_name(floats[i % 3])}", kind, 4, 5, 2, 256, 24, floats[i % 3])
        for i, kind in enumerate(_MATRIX_TYPES)
    ]
    shapes += [
        ("one-token", 8, 8, 1, 2, 512, 16, _HALF),
        ("top-1", 2, 3, 9, 1, 256, 16, _HALF),
        ("top-6", 12, 16, 4, 6, 512, 8, _BRAIN),
        ("odd-rows", 14, 4, 3, 2, 256, 37, _HALF),
        ("idle-experts", 8, 32, 2, 2, 256, 8, _HALF),
    ]
    models: Sequence[tuple[Any, ...]] = (
        ("mixtral-q4-k", "Mixtral 8x7B, gate of every expert, Q4_K", 12, 8, 2, 4096, 14336, _HALF),
        ("mixtral-q6-k", "Mixtral 8x7B, down of every expert, Q6_K", 14, 8, 2, 14336, 4096, _BRAIN),
        ("mixtral-q4-0", "Mixtral 8x7B, up of every expert, Q4_0", 2, 8, 2, 4096, 14336, _HALF),
        ("qwen3-30b-q8-0", "Qwen3 30B-A3B, gate and up, Q8_0", 8, 128, 8, 2048, 1536, _HALF),
        ("qwen3-30b-q5-k", "Qwen3 30B-A3B, down, Q5_K", 13, 128, 8, 768, 2048, _BRAIN),
        ("deepseek-v2-lite-q3-k", "DeepSeek V2 Lite, up, Q3_K", 11, 64, 6, 2048, 2816, _HALF),
        ("deepseek-v2-lite-q5-1", "DeepSeek V2 Lite, down, Q5_1", 7, 64, 6, 1408, 2048, _SINGLE),
    )  # fmt: skip
    counts = (8, 4, 16, 32, 64, 16, 32) if vector else (512, 256, 128, 1024, 2048, 512, 512)
    draws = ("base", "base", "small", "large")
    return (
        *(small(name, *tensors(*shape), draws=draws) for name, *shape in shapes),
        *(
            full(
                name, f"{origin}, {tokens} tokens",
                *tensors(kind, experts, tokens, top_k, k, row, t), draws=draws,
            )
            for (name, origin, kind, experts, top_k, k, row, t), tokens in zip(
                models, counts, strict=True
            )
        ),
    )  # fmt: skip


def sort_into_blocks(
    topk_ids: torch.Tensor, experts: int, slots: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(sorted pairs [slots], expert of each block, slots in use) of choices [tokens, top_k]."""
    flat = topk_ids.flatten().long()
    device, pairs = flat.device, flat.numel()
    order = flat.argsort(stable=True)
    counts = torch.zeros(experts, dtype=torch.int64, device=device)
    counts.scatter_add_(0, flat, torch.ones_like(flat))
    padded = (counts + _BLOCK - 1) // _BLOCK * _BLOCK
    chosen = flat[order]
    rank = torch.arange(pairs, device=device) - (counts.cumsum(0) - counts)[chosen]
    sorted_ids = torch.full((slots,), pairs, dtype=torch.int64, device=device)
    sorted_ids[(padded.cumsum(0) - padded)[chosen] + rank] = order
    first = torch.arange(0, slots, _BLOCK, device=device)
    owner = torch.searchsorted(padded.cumsum(0), first, right=True).clamp_max(experts - 1)
    return sorted_ids, owner, padded.sum().view(1)


def _choices(
    tokens: int, top_k: int, experts: int, generator: torch.Generator, device: torch.device
) -> torch.Tensor:
    """Different experts for each token, [tokens, top_k]."""
    keys = torch.rand(tokens, experts, generator=generator, device=device)
    return keys.topk(top_k, dim=1).indices


def _prepare_moe(call: Call, case: Case, generator: torch.Generator) -> None:
    x, packed, sorted_ids, expert_ids, used, kind, _, top_k, tokens = call.args
    draw_halves(packed, kind, generator)
    chosen = _choices(tokens, top_k, len(packed), generator, x.device)
    found = sort_into_blocks(chosen, len(packed), len(sorted_ids))
    for target, value in zip((sorted_ids, expert_ids, used), found, strict=True):
        target.copy_(value)


def _prepare_vector(call: Call, case: Case, generator: torch.Generator) -> None:
    x, packed, ids, top_k, kind, _, tokens = call.args
    draw_halves(packed, kind, generator)
    ids.copy_(_choices(tokens, top_k, len(packed), generator, x.device))


def _expert_of_pair(
    sorted_ids: torch.Tensor, expert_ids: torch.Tensor, used: torch.Tensor, pairs: int
) -> torch.Tensor:
    """The expert of every pair [pairs], out of the sorted blocks."""
    slot = torch.arange(len(sorted_ids), device=sorted_ids.device)
    valid = (slot < used) & (sorted_ids >= 0) & (sorted_ids < pairs)
    ids = torch.where(valid, sorted_ids.long(), pairs)
    expert = torch.zeros(pairs + 1, dtype=torch.int64, device=sorted_ids.device)
    return expert.scatter(0, ids, expert_ids.long().repeat_interleave(_BLOCK))[:pairs]


def _experts_expected(
    X: torch.Tensor, W: torch.Tensor, experts: torch.Tensor, top_k: int, kind: int
) -> list[Expected]:
    """Pairs (token t, choice c) in row t * top_k + c, expert by expert."""
    pairs, rows = len(experts), W.shape[1]
    value = torch.zeros(pairs, rows, dtype=torch.float64, device=X.device)
    scale = torch.zeros_like(value)
    for e in range(len(W)):
        at = (experts == e).nonzero().flatten()
        if len(at):
            part = _product(X[at // top_k], decode(W[e], kind, torch.float64)[0], X.dtype)
            assert part.scale is not None
            value[at], scale[at] = part.value, part.scale
    return [Expected(value, X.dtype, scale)]


def _moe_oracle(
    X: torch.Tensor,
    W: torch.Tensor,
    sorted_token_ids: torch.Tensor,
    expert_ids: torch.Tensor,
    num_tokens_post_padded: torch.Tensor,
    quant_type: int,
    row: int,
    top_k: int,
    tokens: int,
) -> list[Expected]:
    experts = _expert_of_pair(sorted_token_ids, expert_ids, num_tokens_post_padded, tokens * top_k)
    return _experts_expected(X, W, experts, top_k, quant_type)


def _moe_second(
    X: torch.Tensor,
    W: torch.Tensor,
    sorted_token_ids: torch.Tensor,
    expert_ids: torch.Tensor,
    num_tokens_post_padded: torch.Tensor,
    quant_type: int,
    row: int,
    top_k: int,
    tokens: int,
) -> list[np.ndarray]:
    """Slot by slot."""
    weights = [read_weights(expert, quant_type) for expert in W]
    out = np.zeros((tokens * top_k, row))
    for slot in range(int(num_tokens_post_padded)):
        pair = int(sorted_token_ids[slot])
        if pair < tokens * top_k:
            expert = weights[int(expert_ids[slot // _BLOCK])]
            out[pair] = _row_by_row(X[pair // top_k : pair // top_k + 1], expert)[0]
    return [out]


def _vector_oracle(
    X: torch.Tensor,
    W: torch.Tensor,
    topk_ids: torch.Tensor,
    top_k: int,
    quant_type: int,
    row: int,
    tokens: int,
) -> list[Expected]:
    return _experts_expected(X, W, topk_ids.flatten(), top_k, quant_type)


def _vector_second(
    X: torch.Tensor,
    W: torch.Tensor,
    topk_ids: torch.Tensor,
    top_k: int,
    quant_type: int,
    row: int,
    tokens: int,
) -> list[np.ndarray]:
    """Pair by pair."""
    weights = [read_weights(expert, quant_type) for expert in W]
    pairs = [(t, int(e)) for t, chosen in enumerate(topk_ids.tolist()) for e in chosen]
    return [np.stack([_row_by_row(X[t : t + 1], weights[e])[0] for t, e in pairs])]


def _all_experts(
    x: torch.Tensor, weights: torch.Tensor, experts: torch.Tensor, top_k: int, dtype: torch.dtype
) -> torch.Tensor:
    """x [tokens, K] times weights [E, N, K] of every expert, the chosen ones taken."""
    every = (x @ weights.flatten(0, 1).t()).view(len(x), weights.shape[0], weights.shape[1])
    token = torch.arange(len(experts), device=x.device) // top_k
    return every[token, experts.long()].to(dtype)


def _by_all_experts(
    X: torch.Tensor, W: torch.Tensor, experts: torch.Tensor, top_k: int, kind: int
) -> torch.Tensor:
    work = _operands(X)
    weights = decode(W, kind, torch.float32)[0].to(work)
    return _all_experts(quantise(X, torch.float32).to(work), weights, experts, top_k, X.dtype)


def _moe(
    X: torch.Tensor,
    W: torch.Tensor,
    sorted_token_ids: torch.Tensor,
    expert_ids: torch.Tensor,
    num_tokens_post_padded: torch.Tensor,
    quant_type: int,
    row: int,
    top_k: int,
    tokens: int,
) -> torch.Tensor:
    experts = _expert_of_pair(sorted_token_ids, expert_ids, num_tokens_post_padded, tokens * top_k)
    return _by_all_experts(X, W, experts, top_k, quant_type)


def _vector(
    X: torch.Tensor,
    W: torch.Tensor,
    topk_ids: torch.Tensor,
    top_k: int,
    quant_type: int,
    row: int,
    tokens: int,
) -> torch.Tensor:
    return _by_all_experts(X, W, topk_ids.flatten(), top_k, quant_type)


_WRONG_EXPERTS = ("first expert for all", "tokens by position", "neighbouring expert")


def _wrong_pairs(
    variant: str, X: torch.Tensor, W: torch.Tensor, experts: torch.Tensor, top_k: int, kind: int
) -> torch.Tensor:
    if variant == "first expert for all":
        experts = torch.zeros_like(experts)
    if variant == "neighbouring expert":
        experts = (experts + 1) % len(W)
    x, weights = _wrong_operands(variant, W, X, kind)
    if variant == "tokens by position":
        x = x[torch.arange(len(experts)) % len(x)]
        return _all_experts(x, weights, experts, 1, X.dtype)
    if variant == "sums in bfloat16":
        every = summed_in(torch.bfloat16, x, weights.flatten(0, 1).t()).view(len(x), len(W), -1)
        return every[torch.arange(len(experts)) // top_k, experts.long()].to(X.dtype)
    return _all_experts(x, weights, experts, top_k, X.dtype)


def _moe_mutant(variant: str) -> Callable[..., torch.Tensor]:
    def mutant(
        X: torch.Tensor,
        W: torch.Tensor,
        sorted_token_ids: torch.Tensor,
        expert_ids: torch.Tensor,
        num_tokens_post_padded: torch.Tensor,
        quant_type: int,
        row: int,
        top_k: int,
        tokens: int,
    ) -> torch.Tensor:
        experts = _expert_of_pair(
            sorted_token_ids, expert_ids, num_tokens_post_padded, tokens * top_k
        )
        return _wrong_pairs(variant, X, W, experts, top_k, quant_type)

    return mutant


def _vector_mutant(variant: str) -> Callable[..., torch.Tensor]:
    def mutant(
        X: torch.Tensor,
        W: torch.Tensor,
        topk_ids: torch.Tensor,
        top_k: int,
        quant_type: int,
        row: int,
        tokens: int,
    ) -> torch.Tensor:
        return _wrong_pairs(variant, X, W, topk_ids.flatten(), top_k, quant_type)

    return mutant


def _moe_cost(case: Case) -> Cost:
    """Every expert that can be chosen is read once."""
    x, packed = case.args[:2]
    vector = len(case.args) == 7
    top_k = case.args[3] if vector else case.args[7]
    pairs, (experts, row, _) = x.shape[0] * top_k, packed.shape
    read = nbytes(packed) * min(experts, pairs) // experts + nbytes(*case.tensors[2:])
    out = pairs * row * x.dtype.itemsize
    return Cost(flops=2 * pairs * row * x.shape[1], nbytes=x.nbytes + read + out)


def _mutants(make: Callable[[str], Callable[..., Any]], names: Sequence[str]) -> tuple[Mutant, ...]:
    return tuple(Mutant(name, make(name)) for name in names)


_ACTIVATIONS = (
    "Activations are quantised in blocks of 32 columns: d = max|x| / 127 in float32, codes x / d "
    "rounded to the nearest integer (halves away from zero; zeros where d = 0), and the block "
    "counts as float16(d) * code. The result is the product of these and the weights, with integer "
    "or float32 sums, rounded once to the dtype of `X` (float16, bfloat16 or float32). "
)
_NOTE = (
    "Where a format has an offset, vLLM multiplies it by the sum of the activations before they "
    "were quantised, which GGML keeps beside the codes; here it multiplies the quantised ones."
)
_SOURCES = "csrc/quantization/gguf/gguf_kernel.cu, vecdotq.cuh, mmq.cuh, mmvq.cuh, moe.cuh"


def _matrix_operator(name: str, vector: bool, description: str) -> Operator:
    return Operator(
        id=f"vllm::{name}",
        family="gemv-quant" if vector else "gemm-quant",
        signatures=(f"{name}(W: Tensor, X: Tensor, quant_type: int, row: int) -> Tensor",),
        description=description + _ACTIVATIONS + DESCRIPTION,
        sources=(f"vLLM 0.13, vllm._custom_ops.{name}", _SOURCES),
        cases=functools.cache(lambda: _matrix_cases(vector)),
        oracle=_matrix_oracle,
        second=_matrix_second,
        baseline=CustomOp(name, _mul_mat),
        baseline_name=NAME,
        cost=_matrix_cost,
        tolerance=_TOLERANCE,
        prepare=_prepare_matrix,
        mutants=_mutants(_matrix_mutant, _WRONG),
        note=_NOTE,
    )


OPERATORS = (
    _matrix_operator(
        "ggml_mul_mat_a8",
        False,
        "Y = X W^T: `X` [batch, columns] times GGML weights `W` (uint8 [row, bytes of a row]) "
        "gives [batch, row]. ",
    ),
    _matrix_operator(
        "ggml_mul_mat_vec_a8",
        True,
        "Y = X W^T for one or a few vectors: `X` [vectors, columns] (1 to 8 of them) times GGML "
        "weights `W` (uint8 [row, bytes of a row]) gives [vectors, row]. ",
    ),
    Operator(
        id="vllm::ggml_moe_a8",
        family="moe-gemm-quant",
        signatures=(
            "ggml_moe_a8(X: Tensor, W: Tensor, sorted_token_ids: Tensor, expert_ids: Tensor, "
            "num_tokens_post_padded: Tensor, quant_type: int, row: int, top_k: int, tokens: int) "
            "-> Tensor",
        ),
        description=(
            "Products of tokens with the GGML weights of the experts that they chose. `X` is "
            "[tokens, columns], `W` uint8 [experts, row, bytes of a row]. Pair p = token * top_k + "
            "choice; `sorted_token_ids` (int32) lists pairs sorted by expert in blocks of 4, "
            "entries of tokens * top_k and more being padding; block b belongs to expert "
            "expert_ids[b]; entries from num_tokens_post_padded[0] on are not used. The result is "
            "[tokens * top_k, row]; its row p is X[p // top_k] times the weights of the pair's "
            "expert, transposed. Every pair occurs once. " + _ACTIVATIONS + DESCRIPTION
        ),
        sources=("vLLM 0.13, vllm._custom_ops.ggml_moe_a8", _SOURCES),
        cases=functools.cache(lambda: _moe_cases(False)),
        oracle=_moe_oracle,
        second=_moe_second,
        baseline=CustomOp("ggml_moe_a8", _moe),
        baseline_name=NAME,
        cost=_moe_cost,
        tolerance=_TOLERANCE,
        prepare=_prepare_moe,
        mutants=_mutants(_moe_mutant, (*_WRONG, *_WRONG_EXPERTS)),
        note=_NOTE,
    ),
    Operator(
        id="vllm::ggml_moe_a8_vec",
        family="moe-gemm-quant",
        signatures=(
            "ggml_moe_a8_vec(X: Tensor, W: Tensor, topk_ids: Tensor, top_k: int, quant_type: int, "
            "row: int, tokens: int) -> Tensor",
        ),
        description=(
            "Products of a few tokens with the GGML weights of the experts that they chose. `X` is "
            "[tokens, columns], `W` uint8 [experts, row, bytes of a row], `topk_ids` int32 "
            "[tokens, top_k]. The result is [tokens * top_k, row]; row t * top_k + c is X[t] times "
            "the weights of expert topk_ids[t, c], transposed. " + _ACTIVATIONS + DESCRIPTION
        ),
        sources=("vLLM 0.13, vllm._custom_ops.ggml_moe_a8_vec", _SOURCES),
        cases=functools.cache(lambda: _moe_cases(True)),
        oracle=_vector_oracle,
        second=_vector_second,
        baseline=CustomOp("ggml_moe_a8_vec", _vector),
        baseline_name=NAME,
        cost=_moe_cost,
        tolerance=_TOLERANCE,
        prepare=_prepare_vector,
        mutants=_mutants(_vector_mutant, (*_WRONG, *_WRONG_EXPERTS)),
        note=_NOTE,
    ),
)
