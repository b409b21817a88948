"""Norm and rotation of query and key heads: a program does a few heads of one token.

A head is read as the two members of its pairs, [heads, head_dim / 2] each, so that the mean of
squares needs one sum over both and the rotation needs no exchange between threads. float32 inside,
one rounding. Query and key heads are one range of heads, and choose their weight by number.
"""

import triton
import triton.language as tl


@triton.jit
def _norm_rope(
    qkv, q_weight, k_weight, cache, positions, row, query_heads, heads, eps,
    NEOX: tl.constexpr, HEADS: tl.constexpr, HALF: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    pair = tl.arange(0, HALF)
    first = pair if NEOX else 2 * pair
    second = pair + HALF if NEOX else 2 * pair + 1
    inside = (head < heads)[:, None] & (pair < HALF)[None, :]
    at = qkv + token * row + (head * (2 * HALF))[:, None]
    a = tl.load(at + first[None, :], mask=inside, other=0.0).to(tl.float32)
    b = tl.load(at + second[None, :], mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(a * a + b * b, axis=1) / (2 * HALF)
    factor = tl.rsqrt(mean + eps)[:, None]
    is_query = (head < query_heads)[:, None]
    wa = tl.where(is_query, tl.load(q_weight + first)[None, :], tl.load(k_weight + first)[None, :])
    wb = tl.where(
        is_query, tl.load(q_weight + second)[None, :], tl.load(k_weight + second)[None, :]
    )
    a = a * factor * wa.to(tl.float32)
    b = b * factor * wb.to(tl.float32)
    angles = cache + tl.load(positions + token) * (2 * HALF)
    cos = tl.load(angles + pair).to(tl.float32)[None, :]
    sin = tl.load(angles + HALF + pair).to(tl.float32)[None, :]
    tl.store(at + first[None, :], a * cos - b * sin, mask=inside)
    tl.store(at + second[None, :], b * cos + a * sin, mask=inside)


def fused_qk_norm_rope(
    qkv, num_heads_q, num_heads_k, num_heads_v, head_dim, eps, q_weight, k_weight, cos_sin_cache,
    is_neox, position_ids,
):  # fmt: skip
    tokens, heads = qkv.shape[0], num_heads_q + num_heads_k
    if tokens == 0:
        return
    tile = max(1, min(triton.next_power_of_2(heads), 1024 // head_dim))
    _norm_rope[(tokens, triton.cdiv(heads, tile))](
        qkv, q_weight, k_weight, cos_sin_cache, position_ids, qkv.stride(0), num_heads_q, heads,
        eps, NEOX=is_neox, HEADS=tile, HALF=head_dim // 2, num_warps=4,
    )  # fmt: skip
