"""Paged attention in one launch: a program attends to a whole sequence for one key head's queries.

The queries that share a key head form the 16 rows of the tensor core tile; keys are read as
[head_size, positions] and values as [head_size, positions], the orders they are stored in, 32
positions at a time, with an online softmax. Few long sequences leave most of a chip idle; that is
what the partitions of paged_attention_v2 are for. float8 codes become values by moving their bits
into a float32, which every target can do.
"""

import torch
import triton
import triton.language as tl

_POSITIONS = 32


@triton.jit
def _real_values(x, scale, dtype: tl.constexpr, KIND: tl.constexpr):
    """Cache elements in `dtype`: themselves, or float8_e4m3fn codes times their scale."""
    if KIND == 0:
        return x
    else:
        code = x.to(tl.int32)
        fraction = code & 0x7F
        normal = ((fraction << 20) + (120 << 23)).to(tl.float32, bitcast=True)
        magnitude = tl.where(fraction < 8, fraction.to(tl.float32) * 0.001953125, normal)
        magnitude = tl.where(fraction == 0x7F, float("nan"), magnitude)
        return (tl.where(code > 127, -magnitude, magnitude) * tl.load(scale)).to(dtype)


@triton.jit
def _attend(
    out_at, query, keys, values, tables, lengths, slopes, k_scale, v_scale,
    scale, kv_heads, group, size, block_size, width, query_stride,
    KIND: tl.constexpr, ALIBI: tl.constexpr, X: tl.constexpr, ROWS: tl.constexpr,
    SIZE: tl.constexpr, POSITIONS: tl.constexpr,
):  # fmt: skip
    sequence, head = tl.program_id(0), tl.program_id(1)
    length = tl.load(lengths + sequence)
    dtype: tl.constexpr = query.dtype.element_ty
    row = tl.arange(0, ROWS)
    d = tl.arange(0, SIZE)
    mine = (row < group)[:, None] & (d < size)[None, :]
    heads = kv_heads * group
    own = head * group + row
    at = sequence.to(tl.int64) * query_stride + (own * size)[:, None] + d[None, :]
    q = tl.load(query + at, mask=mine, other=0.0)
    slope = tl.zeros([ROWS], tl.float32)
    if ALIBI:
        slope = tl.load(slopes + own, mask=row < group, other=0.0)

    top = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    out = tl.zeros([ROWS, SIZE], tl.float32)
    for first in range(0, length, POSITIONS):
        t = first + tl.arange(0, POSITIONS)
        inside = t < length
        block = tl.load(tables + sequence * width + t // block_size, mask=inside, other=0)
        place = t % block_size
        start = (block.to(tl.int64) * kv_heads + head) * size * block_size
        both = (d < size)[:, None] & inside[None, :]
        spot = (d // X * (block_size * X) + d % X)[:, None] + (start + place * X)[None, :]
        k = _real_values(tl.load(keys + spot, mask=both, other=0), k_scale, dtype, KIND)
        score = tl.dot(q, k, input_precision="ieee") * scale
        if ALIBI:
            score += slope[:, None] * (t - length + 1).to(tl.float32)[None, :]
        score = tl.where(inside[None, :], score, float("-inf"))
        higher = tl.maximum(top, tl.max(score, axis=1))
        p = tl.exp(score - higher[:, None])
        keep = tl.exp(top - higher)
        total = total * keep + tl.sum(p, axis=1)
        spot = (d * block_size)[:, None] + (start + place)[None, :]
        v = _real_values(tl.load(values + spot, mask=both, other=0), v_scale, dtype, KIND)
        out = out * keep[:, None] + tl.dot(p.to(dtype), tl.trans(v), input_precision="ieee")
        top = higher
    at = (sequence * heads + own).to(tl.int64) * size
    tl.store(out_at + at[:, None] + d[None, :], out / total[:, None], mask=mine)


def paged_attention_v1(
    out, query, key_cache, value_cache, num_kv_heads, scale, block_tables, seq_lens, block_size,
    max_seq_len, alibi_slopes, kv_cache_dtype, k_scale, v_scale, tp_rank=0,
    blocksparse_local_blocks=0, blocksparse_vert_stride=0, blocksparse_block_size=64,
    blocksparse_head_sliding_step=0,
):  # fmt: skip
    sequences, heads, size = query.shape
    group = heads // num_kv_heads
    padded = max(triton.next_power_of_2(size), 16)
    _attend[(sequences, num_kv_heads)](
        out, query, key_cache, value_cache, block_tables, seq_lens, alibi_slopes, k_scale, v_scale,
        scale, num_kv_heads, group, size, block_size, block_tables.stride(0), query.stride(0),
        KIND=int(kv_cache_dtype != "auto"), ALIBI=alibi_slopes is not None,
        X=key_cache.shape[4], ROWS=max(triton.next_power_of_2(group), 16), SIZE=padded,
        POSITIONS=16 if query.dtype == torch.float32 else _POSITIONS,
        num_warps=8 if padded > 128 else 4,
    )  # fmt: skip
