"""Rotary embedding in place: a program turns all pairs of a few heads of one token.

Query and key heads are one range of heads, so one launch does both. The token's cosines and sines
are read once a program and used for all of its heads. A tile is [heads, rot_dim / 2]; the two
members of a pair are two tiles, half a rotation apart (neox) or adjacent (GPT-J, where the two
strided accesses share their cache lines). float32 inside, one rounding.
"""

import triton
import triton.language as tl


@triton.jit
def _rotate(
    x, token_offset, first_head, heads, head_size, half, cos, sin,
    NEOX: tl.constexpr, HEADS: tl.constexpr, HALF: tl.constexpr,
):  # fmt: skip
    head = first_head + tl.arange(0, HEADS)
    pair = tl.arange(0, HALF)
    inside = ((head >= 0) & (head < heads))[:, None] & (pair < half)[None, :]
    first = pair if NEOX else 2 * pair
    second = pair + half if NEOX else 2 * pair + 1
    at = x + token_offset + (head * head_size)[:, None]
    a = tl.load(at + first[None, :], mask=inside, other=0.0).to(tl.float32)
    b = tl.load(at + second[None, :], mask=inside, other=0.0).to(tl.float32)
    tl.store(at + first[None, :], a * cos - b * sin, mask=inside)
    tl.store(at + second[None, :], b * cos + a * sin, mask=inside)


@triton.jit
def _rotary_embedding(
    positions, query, key, cache, query_heads, key_heads, head_size, half, inner,
    query_outer, query_inner, key_outer, key_inner, cache_stride,
    NEOX: tl.constexpr, HEADS: tl.constexpr, HALF: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * HEADS
    row = cache + tl.load(positions + token) * cache_stride
    pair = tl.arange(0, HALF)
    cos = tl.load(row + pair, mask=pair < half, other=0.0).to(tl.float32)[None, :]
    sin = tl.load(row + half + pair, mask=pair < half, other=0.0).to(tl.float32)[None, :]
    outer, within = token // inner, token % inner
    if head < query_heads:
        at = outer * query_outer + within * query_inner
        _rotate(query, at, head, query_heads, head_size, half, cos, sin, NEOX, HEADS, HALF)
    if head + HEADS > query_heads:
        at = outer * key_outer + within * key_inner
        _rotate(
            key, at, head - query_heads, key_heads, head_size, half, cos, sin, NEOX, HEADS, HALF
        )


def _token_strides(x, positions):
    """Strides of the (outer, inner) dimension of tokens."""
    if positions.dim() == 1:
        return x.stride(0), 0
    return x.stride(0), x.stride(1)


def rotary_embedding(positions, query, key, head_size, cos_sin_cache, is_neox):
    tokens, half = positions.numel(), cos_sin_cache.shape[1] // 2
    if tokens == 0:
        return
    lead = positions.dim()
    query_heads = query.shape[lead:].numel() // head_size
    key_heads = key.shape[lead:].numel() // head_size if key is not None else 0
    tile_heads = max(
        1,
        min(
            triton.next_power_of_2(query_heads + key_heads),
            1024 // triton.next_power_of_2(half),
            16,
        ),
    )
    grid = (tokens, triton.cdiv(query_heads + key_heads, tile_heads))
    _rotary_embedding[grid](
        positions, query, query if key is None else key, cos_sin_cache,
        query_heads, key_heads, head_size, half,
        positions.shape[1] if lead == 2 else 1,
        *_token_strides(query, positions),
        *_token_strides(query if key is None else key, positions),
        cos_sin_cache.stride(0),
        NEOX=is_neox, HEADS=tile_heads, HALF=triton.next_power_of_2(half), num_warps=4,
    )  # fmt: skip
