"""Norm of query and key heads and rotary embedding in one, on a fused projection, in place.

Oracle: float64. Second statement: NumPy, head by head.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from kernelmark.operators.building import dtype_name, spec
from kernelmark.operators.draws import Call
from kernelmark.operators.records import Case, Cost, Expected, Mutant, Operator, Tolerance
from kernelmark.operators.vllm.baselines import NAME, CustomOp
from kernelmark.operators.vllm.parts import brain, half, split_dim
from kernelmark.operators.vllm.rope import fill_cos_sin, split_pairs


@functools.cache
def _cases() -> Sequence[Case]:
    def case(
        name: str, tokens: int, heads: tuple[int, int, int], size: int, dtype: torch.dtype,
        is_neox: bool = True, positions: int = 64, eps: float = 1e-6, origin: str = "",
    ) -> Case:  # fmt: skip
        args = (
            spec((tokens, sum(heads) * size), dtype), *heads, size, eps,
            spec((size,), dtype), spec((size,), dtype), spec((positions, size), dtype), is_neox,
            spec((tokens,), torch.int64, fill="integers", low=0, high=positions),
        )  # fmt: skip
        return Case(name, args, tier="full" if origin else "small", origin=origin)

    return (
        *(case(f"neox-{dtype_name(t)}", 5, (2, 1, 1), 64, t) for t in (half, brain)),
        *(case(f"gptj-{dtype_name(t)}", 5, (2, 1, 1), 64, t, False) for t in (half, brain)),
        case("head-size-128", 3, (4, 2, 2), 128, brain),
        case("head-size-256", 2, (2, 1, 1), 256, half, False),
        case("as-many-keys", 4, (3, 3, 3), 64, half),
        case("one-token", 1, (2, 1, 1), 128, half),
        case("large-epsilon", 3, (2, 1, 1), 64, brain, eps=0.5),
        case("more-values", 3, (1, 1, 3), 64, half),
        case("no-tokens", 0, (2, 1, 1), 64, brain),
        case("qwen-3-8b", 16384, (32, 8, 8), 128, brain, positions=40960,
             origin="Qwen 3 8B: 32 query and 8 key heads of 128, 16384 tokens"),
        case("qwen-3-30b", 16384, (32, 4, 4), 128, brain, positions=40960,
             origin="Qwen 3 30B-A3B: 32 query and 4 key heads of 128, 16384 tokens"),
        case("qwen-3-235b", 8192, (64, 4, 4), 128, half, positions=40960,
             origin="Qwen 3 235B-A22B: 64 query and 4 key heads of 128"),
        case("qwen-3-0.6b", 32768, (16, 8, 8), 128, half, positions=40960,
             origin="Qwen 3 0.6B: 16 query and 8 key heads of 128"),
        case("gemma-3-12b", 8192, (16, 8, 8), 256, brain, positions=8192,
             origin="Gemma 3 12B: 16 query and 8 key heads of 256"),
        case("glm-4.5-gptj", 16384, (96, 8, 8), 128, brain, False, positions=8192,
             origin="GLM 4.5 head counts: 96 query and 8 key heads of 128, adjacent pairs"),
    )  # fmt: skip


def _prepare(call: Call, case: Case, generator: torch.Generator) -> None:
    fill_cos_sin(call.args[8])


def _normalise(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight.to(x.dtype)


def _turn(
    x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, is_neox: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rotated heads [tokens, heads, size], and the sum of magnitudes of each result's terms."""
    a, b = split_pairs(x, x.shape[-1], is_neox)
    pairs = (a * cos - b * sin, b * cos + a * sin)
    sizes = ((a * cos).abs() + (b * sin).abs(), (b * cos).abs() + (a * sin).abs())
    if is_neox:
        return torch.cat(pairs, -1), torch.cat(sizes, -1)
    return torch.stack(pairs, -1).flatten(-2), torch.stack(sizes, -1).flatten(-2)


def _compute(
    work: torch.dtype,
    qkv: torch.Tensor,
    num_heads_q: int,
    num_heads_k: int,
    head_dim: int,
    eps: float,
    q_weight: torch.Tensor,
    k_weight: torch.Tensor,
    cos_sin_cache: torch.Tensor,
    is_neox: bool,
    position_ids: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(new query and key heads, magnitudes), [tokens, (q + k) * head_dim] in `work`."""
    heads = num_heads_q + num_heads_k
    x = split_dim(qkv[:, : heads * head_dim].to(work), 1, (heads, head_dim))
    queries = _normalise(x[:, :num_heads_q], q_weight, eps)
    keys = _normalise(x[:, num_heads_q:], k_weight, eps)
    cos, sin = cos_sin_cache[position_ids].to(work).unsqueeze(1).chunk(2, dim=-1)
    value, size = _turn(torch.cat([queries, keys], 1), cos, sin, is_neox)
    return value.flatten(1), size.flatten(1)


def _oracle(
    qkv: torch.Tensor,
    num_heads_q: int,
    num_heads_k: int,
    num_heads_v: int,
    head_dim: int,
    eps: float,
    q_weight: torch.Tensor,
    k_weight: torch.Tensor,
    cos_sin_cache: torch.Tensor,
    is_neox: bool,
    position_ids: torch.Tensor,
) -> list[Expected]:
    value, size = _compute(
        torch.float64, qkv, num_heads_q, num_heads_k, head_dim, eps, q_weight, k_weight,
        cos_sin_cache, is_neox, position_ids,
    )  # fmt: skip
    rest = qkv[:, value.shape[1] :].double()
    scale = torch.cat([size, torch.zeros_like(rest)], 1)
    return [Expected(torch.cat([value, rest], 1), qkv.dtype, scale)]


def _second(
    qkv: torch.Tensor,
    num_heads_q: int,
    num_heads_k: int,
    num_heads_v: int,
    head_dim: int,
    eps: float,
    q_weight: torch.Tensor,
    k_weight: torch.Tensor,
    cos_sin_cache: torch.Tensor,
    is_neox: bool,
    position_ids: torch.Tensor,
) -> list[np.ndarray]:
    out = qkv.double().numpy().copy()
    table, half_dim = cos_sin_cache.double().numpy(), head_dim // 2
    for token, position in enumerate(position_ids.tolist()):
        phase = table[position, :half_dim] + 1j * table[position, half_dim:]
        for head in range(num_heads_q + num_heads_k):
            weight = (q_weight if head < num_heads_q else k_weight).double().numpy()
            x = out[token, head * head_dim : (head + 1) * head_dim]
            x *= weight / np.sqrt((x @ x) / head_dim + eps)
            first = np.arange(half_dim) * (1 if is_neox else 2)
            second = first + (half_dim if is_neox else 1)
            turned = (x[first] + 1j * x[second]) * phase
            x[first], x[second] = turned.real, turned.imag
    return [out]


def _fused_qk_norm_rope(
    qkv: torch.Tensor,
    num_heads_q: int,
    num_heads_k: int,
    num_heads_v: int,
    head_dim: int,
    eps: float,
    q_weight: torch.Tensor,
    k_weight: torch.Tensor,
    cos_sin_cache: torch.Tensor,
    is_neox: bool,
    position_ids: torch.Tensor,
) -> None:
    value, _ = _compute(
        torch.float32, qkv, num_heads_q, num_heads_k, head_dim, eps, q_weight, k_weight,
        cos_sin_cache, is_neox, position_ids,
    )  # fmt: skip
    qkv[:, : value.shape[1]] = value.to(qkv.dtype)


def _cost(case: Case) -> Cost:
    qkv, heads_q, heads_k, _, size = case.args[:5]
    cache, positions = case.args[8], case.args[10]
    turned = qkv.shape[0] * (heads_q + heads_k) * size
    rows = min(qkv.shape[0], cache.shape[0]) * size * cache.dtype.itemsize
    return Cost(7 * turned, 2 * turned * qkv.dtype.itemsize + rows + positions.nbytes)


def _mutant(variant: str) -> Any:
    def mutant(
        qkv: torch.Tensor,
        num_heads_q: int,
        num_heads_k: int,
        num_heads_v: int,
        head_dim: int,
        eps: float,
        q_weight: torch.Tensor,
        k_weight: torch.Tensor,
        cos_sin_cache: torch.Tensor,
        is_neox: bool,
        position_ids: torch.Tensor,
    ) -> None:
        cache = cos_sin_cache
        if variant == "query weight for keys":
            k_weight = q_weight
        if variant == "epsilon dropped":
            eps = 0.0
        if variant == "pairing of the other style":
            is_neox = not is_neox
        if variant == "values normalised too":
            num_heads_k += num_heads_v
        if variant == "keys left":
            num_heads_k = 0
        if variant == "not rotated":
            cache = torch.cat([torch.ones_like(c) * (1 - i) for i, c in
                               enumerate(cache.chunk(2, -1))], -1)  # fmt: skip
        if variant == "positions counted from the first token":
            position_ids = torch.arange(len(qkv), device=qkv.device) % len(cache)
        _fused_qk_norm_rope(
            qkv, num_heads_q, num_heads_k, num_heads_v, head_dim, eps, q_weight, k_weight, cache,
            is_neox, position_ids,
        )  # fmt: skip
        if variant == "normalised over the whole row":
            x = qkv.float()
            factor = torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
            qkv.copy_(x * factor)

    return mutant


OPERATORS = (
    Operator(
        id="vllm::fused_qk_norm_rope",
        family="norm+rope",
        signatures=(
            "fused_qk_norm_rope(qkv: Tensor!, num_heads_q: int, num_heads_k: int, "
            "num_heads_v: int, head_dim: int, eps: float, q_weight: Tensor, k_weight: Tensor, "
            "cos_sin_cache: Tensor, is_neox: bool, position_ids: Tensor) -> ()",
        ),
        description=(
            "On a fused projection `qkv` [tokens, (num_heads_q + num_heads_k + num_heads_v) * "
            "head_dim] (float16 or bfloat16, contiguous), in place: every query head, then every "
            "key head, is normalised over its head_dim elements, x / sqrt(mean(x^2) + eps) * "
            "weight, with `q_weight` or `k_weight` [head_dim]; then its pairs are rotated by the "
            "angles of the token's position: x' = x*c - y*s, y' = y*c + x*s, with (x, y) elements "
            "(i, i + head_dim/2) if `is_neox`, else (2i, 2i + 1). `cos_sin_cache` is "
            "[max_position, head_dim]: cos of the head_dim/2 angles, then sin; `position_ids` "
            "int64 [tokens]. Weights and cache have the dtype of `qkv`. float32 throughout, "
            "rounded once at the end. Value heads stay as they are."
        ),
        sources=(
            "vLLM 0.13, vllm._custom_ops.fused_qk_norm_rope",
            "csrc/fused_qknorm_rope_kernel.cu",
        ),
        cases=_cases,
        oracle=_oracle,
        second=_second,
        baseline=CustomOp("fused_qk_norm_rope", _fused_qk_norm_rope),
        baseline_name=NAME,
        cost=_cost,
        tolerance=Tolerance(
            limit=1.5,
            why="float32 inside leaves one rounding, 0.5, and float32 errors of the terms where "
            "the rotation cancels; 1.5 leaves no room for a rounding between the steps",
        ),
        mutants=tuple(
            Mutant(name, _mutant(name))
            for name in (
                "query weight for keys",
                "epsilon dropped",
                "pairing of the other style",
                "values normalised too",
                "keys left",
                "not rotated",
                "positions counted from the first token",
                "normalised over the whole row",
            )
        ),
        prepare=_prepare,
    ),
)
