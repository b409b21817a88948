"""Rotary position embedding, in place, as vLLM's attention layers call it.

Oracle: complex multiplication in float64. Second statement: NumPy, pair by pair.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from kernelmark.operators.building import FLOATS, dtype_name, spec, wide
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

_SIGNATURE = (
    "rotary_embedding(positions: Tensor, query: Tensor!, key: Tensor!?, head_size: int, "
    "cos_sin_cache: Tensor, is_neox: bool) -> ()"
)


def fill_cos_sin(cache: torch.Tensor, base: float = 10000.0) -> None:
    """Writes cos then sin of position * base^(-2i / rot_dim) into [max_position, rot_dim]."""
    positions, rot_dim = cache.shape
    half = rot_dim // 2
    steps = torch.arange(half, device=cache.device, dtype=torch.float64) * (2.0 / rot_dim)
    at = torch.arange(positions, device=cache.device, dtype=torch.float64)
    angle = torch.outer(at, base**-steps)
    cache.copy_(torch.cat([angle.cos(), angle.sin()], dim=1))


def split_pairs(x: torch.Tensor, rot_dim: int, is_neox: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Views of the first and second members of the rotated pairs, [..., rot_dim / 2] each."""
    if is_neox:
        return x[..., : rot_dim // 2], x[..., rot_dim // 2 : rot_dim]
    return x[..., 0:rot_dim:2], x[..., 1:rot_dim:2]


def _case(
    name: str,
    tokens: tuple[int, ...],
    heads: tuple[int, int | None],
    head_size: int,
    dtype: torch.dtype,
    is_neox: bool = True,
    rot_dim: int = 0,
    max_position: int = 64,
    split: bool = False,
    by_head: bool = False,
    offset: int = 0,
    tier: Any = "small",
    origin: str = "",
) -> Case:
    """A case with `heads` query and key heads (no key where None). `split`: query and key are
    slices of one fused projection of [tokens, (query + 2 key heads) * head_size]."""
    query_heads, key_heads = heads
    row = (query_heads + 2 * (key_heads or 0)) * head_size

    def projected(count: int) -> TensorSpec:
        shape = (*tokens, count, head_size) if by_head else (*tokens, count * head_size)
        strides = None
        if split:
            strides = (row, head_size, 1) if by_head else (row, 1)
        return spec(shape, dtype, strides=strides, offset=offset)

    args = (
        spec(tokens, torch.int64, fill="integers", low=0, high=max_position),
        projected(query_heads),
        None if key_heads is None else projected(key_heads),
        head_size,
        spec((max_position, rot_dim or head_size), dtype, offset=offset),
        is_neox,
    )
    return Case(name, args, tier=tier, origin=origin)


@functools.cache
def _cases() -> Sequence[Case]:
    half, brain, single = torch.float16, torch.bfloat16, torch.float32
    small = [_case(f"neox-{dtype_name(t)}", (7,), (4, 2), 32, t) for t in FLOATS] + [
        _case("gptj", (7,), (4, 2), 32, half, is_neox=False),
        _case("gptj-float32", (5,), (3, 3), 16, single, is_neox=False),
        _case("partial-neox", (6,), (2, 2), 80, half, rot_dim=32),
        _case("partial-gptj", (6,), (2, 1), 64, brain, is_neox=False, rot_dim=24),
        _case("no-key", (5,), (3, None), 32, half),
        _case("batch-by-sequence", (2, 3), (4, 1), 32, brain),
        _case("head-dimension", (5,), (4, 2), 32, half, by_head=True),
        _case("split-from-qkv", (6,), (4, 2), 32, brain, split=True),
        _case("split-by-head", (6,), (4, 2), 32, half, split=True, by_head=True, is_neox=False),
        _case("misaligned", (5,), (3, 1), 16, half, offset=1),
        _case("one-token", (1,), (1, 1), 64, single),
        _case("no-tokens", (0,), (2, 1), 32, half),
    ]
    full = [
        _case(
            "llama-3-8b",
            (16384,),
            (32, 8),
            128,
            brain,
            max_position=8192,
            split=True,
            tier="full",
            origin="Llama 3 8B: 32 query and 8 key heads of 128, 16384 tokens",
        ),
        _case(
            "llama-3-70b",
            (8192,),
            (64, 8),
            128,
            brain,
            max_position=131072,
            tier="full",
            origin="Llama 3 70B: 64 query and 8 key heads of 128, 8192 tokens",
        ),
        _case(
            "gpt-j-6b",
            (16384,),
            (16, 16),
            256,
            half,
            is_neox=False,
            rot_dim=64,
            max_position=2048,
            tier="full",
            origin="GPT-J 6B: 16 heads of 256, the first 64 rotated in adjacent pairs",
        ),
        _case(
            "gpt-neox-20b",
            (16384,),
            (64, 64),
            96,
            half,
            rot_dim=24,
            max_position=2048,
            tier="full",
            origin="GPT-NeoX 20B: 64 heads of 96, a quarter rotated",
        ),
        _case(
            "phi-2",
            (16384,),
            (32, 32),
            80,
            half,
            rot_dim=32,
            max_position=2048,
            tier="full",
            origin="Phi-2: 32 heads of 80, the first 32 rotated",
        ),
        _case(
            "qwen-2.5-7b-float32",
            (16384,),
            (28, 4),
            128,
            single,
            max_position=32768,
            tier="full",
            origin="Qwen 2.5 7B: 28 query and 4 key heads of 128, float32",
        ),
        _case(
            "deepseek-v3-queries",
            (16384,),
            (128, None),
            64,
            brain,
            is_neox=False,
            max_position=4096,
            tier="full",
            origin="DeepSeek V3: the rotary part of 128 query heads, adjacent pairs",
        ),
    ]
    return (*small, *full)


def _prepare(call: Call, case: Case, generator: torch.Generator) -> None:
    fill_cos_sin(call.args[4])


def _rotate(
    x: torch.Tensor,
    positions: torch.Tensor,
    head_size: int,
    cos_sin_cache: torch.Tensor,
    is_neox: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The rotated tensor in the dtype of `cos_sin_cache` (shape of `x`), and |terms| summed."""
    work = cos_sin_cache.dtype
    heads = x.shape[positions.dim() :].numel() // head_size
    rows = x.to(work).reshape(positions.numel(), heads, head_size)
    rot_dim = cos_sin_cache.shape[1]
    cos, sin = cos_sin_cache[positions.flatten()].unsqueeze(1).chunk(2, dim=-1)
    first, second = split_pairs(rows, rot_dim, is_neox)
    turned = (first * cos - second * sin, second * cos + first * sin)
    size = ((first * cos).abs() + (second * sin).abs(), (second * cos).abs() + (first * sin).abs())

    def join(pair: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        if is_neox:
            return torch.cat(pair, dim=-1)
        return torch.stack(pair, dim=-1).flatten(-2)

    rest = rows[..., rot_dim:]
    value = torch.cat([join(turned), rest], dim=-1)
    scale = torch.cat([join(size), torch.zeros_like(rest)], dim=-1)
    return value.reshape(x.shape), scale.reshape(x.shape)


def _oracle(
    positions: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor | None,
    head_size: int,
    cos_sin_cache: torch.Tensor,
    is_neox: bool,
) -> list[Expected]:
    results = []
    for x in (query, key):
        if x is not None:
            value, scale = _rotate(x, positions, head_size, wide(cos_sin_cache), is_neox)
            results.append(Expected(value, x.dtype, scale=scale))
    return results


def _second(
    positions: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor | None,
    head_size: int,
    cos_sin_cache: torch.Tensor,
    is_neox: bool,
) -> list[np.ndarray]:
    """As complex numbers: each pair times exp(i * angle)."""
    table = cos_sin_cache.double().numpy()
    half = table.shape[1] // 2
    phase = (table[:, :half] + 1j * table[:, half:])[positions.flatten().numpy()]
    results = []
    for x in (query, key):
        if x is None:
            continue
        heads = x.shape[positions.dim() :].numel() // head_size
        rows = x.double().numpy().reshape(positions.numel(), heads, head_size).copy()
        for i in range(half):
            a, b = (i, i + half) if is_neox else (2 * i, 2 * i + 1)
            turned = (rows[..., a] + 1j * rows[..., b]) * phase[:, None, i]
            rows[..., a], rows[..., b] = turned.real, turned.imag
        results.append(rows.reshape(x.shape))
    return results


def _rotary_embedding(
    positions: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor | None,
    head_size: int,
    cos_sin_cache: torch.Tensor,
    is_neox: bool,
) -> None:
    for x in (query, key):
        if x is not None:
            x.copy_(_rotate(x, positions, head_size, cos_sin_cache.float(), is_neox)[0])


def _cost(case: Case) -> Cost:
    positions, query, key, head_size, cache, _ = case.args
    tokens, rot_dim = positions.numel, cache.shape[1]
    heads = (query.numel + (key.numel if key else 0)) // max(tokens * head_size, 1)
    turned = tokens * heads * rot_dim
    # Only rotated elements need to move, and only the cache rows that positions name.
    rows = min(tokens, cache.shape[0]) * rot_dim * cache.dtype.itemsize
    nbytes = 2 * turned * query.dtype.itemsize + rows + positions.nbytes
    return Cost(flops=3 * turned, nbytes=nbytes)


def _mutant(variant: str) -> Any:
    def mutant(
        positions: torch.Tensor,
        query: torch.Tensor,
        key: torch.Tensor | None,
        head_size: int,
        cos_sin_cache: torch.Tensor,
        is_neox: bool,
    ) -> None:
        cache = cos_sin_cache
        if variant == "sine negated":
            cos, sin = cache.chunk(2, dim=-1)
            cache = torch.cat([cos, -sin], dim=-1)
        if variant == "sine and cosine exchanged":
            cache = torch.cat(cache.chunk(2, dim=-1)[::-1], dim=-1)
        if variant == "pairing of the other style":
            is_neox = not is_neox
        if variant == "positions counted from the first token":
            positions = torch.arange(positions.numel(), device=positions.device)
            positions = positions % cache.shape[0]
        if variant == "two elements rotated":
            cache = torch.cat([cache[:, :1], cache[:, cache.shape[1] // 2 :][:, :1]], dim=-1)
        if variant == "key left out":
            key = None
        _rotary_embedding(positions, query, key, head_size, cache, is_neox)

    return mutant


OPERATORS = (
    Operator(
        id="vllm::rotary_embedding",
        family="rope",
        signatures=(_SIGNATURE,),
        description=(
            "Rotates pairs of elements of every head of `query` and `key`, in place, by an angle "
            "that depends on the token's position. `positions` is int64, [tokens] or "
            "[batch, sequence]. `query` is [*positions.shape, heads * head_size] or "
            "[*positions.shape, heads, head_size]; `key` is alike with its own number of heads, or "
            "None. Within a token the elements are contiguous; tokens may be strided (slices of a "
            "fused projection). `cos_sin_cache` is [max_position, rot_dim], dtype of `query`: row "
            "p holds cos of the rot_dim/2 angles of position p, then their sin. rot_dim is even "
            "and at most head_size; elements from rot_dim on are left as they are. With c, s for "
            "pair i: x' = x*c - y*s, y' = y*c + x*s, where (x, y) are elements (i, i + rot_dim/2) "
            "of the head if `is_neox`, else (2i, 2i + 1). float16, bfloat16 or float32; products "
            "and their sum may be rounded to that dtype or computed in float32."
        ),
        sources=(
            "vLLM 0.13, vllm._custom_ops.rotary_embedding",
            "csrc/pos_encoding_kernels.cu",
            "Su et al., RoFormer (2021)",
        ),
        cases=_cases,
        oracle=_oracle,
        second=_second,
        baseline=CustomOp("rotary_embedding", _rotary_embedding),
        baseline_name=NAME,
        cost=_cost,
        tolerance=Tolerance(
            limit=1.0,
            accumulator=None,
            why="vLLM rounds both products and their sum to the dtype: 0.5 of the terms plus 0.5 "
            "of the result; with float32 inside 0.5 of the result alone",
        ),
        mutants=tuple(
            Mutant(name, _mutant(name))
            for name in (
                "sine negated",
                "sine and cosine exchanged",
                "pairing of the other style",
                "positions counted from the first token",
                "two elements rotated",
                "key left out",
            )
        ),
        prepare=_prepare,
    ),
)
