"""Block alignment for mixtures of experts: count, prefix, place; three launches, no atomics.

Assignments are cut into chunks of 128. First each chunk counts its experts, and the list is filled
with the padding value; then one program an expert turns its counts into prefixes over chunks; then
each chunk places its assignments: the start of the expert's padded part, the prefix of the chunk,
and the rank within the chunk, which is the number of equal experts before it. The order is that of
the input, so the result is the same on every run.
"""

import torch
import triton
import triton.language as tl

_CHUNK = 128


@triton.jit
def _experts_of(topk_ids, expert_map, at, count, experts, MAPPED: tl.constexpr):
    """The expert of each assignment; `experts` for those that are left out."""
    expert = tl.load(topk_ids + at, mask=at < count, other=0)
    if MAPPED:
        expert = tl.load(expert_map + expert)
    return tl.where((at < count) & (expert >= 0), expert, experts)


@triton.jit
def _count(
    topk_ids, expert_map, counts, sorted_ids, count, experts, chunks, capacity,
    MAPPED: tl.constexpr, CHUNK: tl.constexpr, BINS: tl.constexpr, FILL: tl.constexpr,
):  # fmt: skip
    chunk = tl.program_id(0)
    at = chunk * CHUNK + tl.arange(0, CHUNK)
    expert = _experts_of(topk_ids, expert_map, at, count, experts, MAPPED)
    bins = tl.arange(0, BINS)
    tl.store(counts + bins * chunks + chunk, tl.histogram(expert, BINS), mask=bins < experts)
    for first in range(chunk * FILL, capacity, chunks * FILL):
        spot = first + tl.arange(0, FILL)
        tl.store(sorted_ids + spot, tl.zeros([FILL], tl.int32) + count, mask=spot < capacity)


@triton.jit
def _prefix(counts, totals, chunks, TILE: tl.constexpr):
    expert = tl.program_id(0)
    before = 0
    for first in range(0, chunks, TILE):
        chunk = first + tl.arange(0, TILE)
        mine = tl.load(counts + expert * chunks + chunk, mask=chunk < chunks, other=0)
        upto = tl.cumsum(mine, axis=0) + before
        tl.store(counts + expert * chunks + chunk, upto - mine, mask=chunk < chunks)
        before += tl.sum(mine, axis=0)
    tl.store(totals + expert, before)


@triton.jit
def _place(
    topk_ids, expert_map, counts, totals, sorted_ids, owners, post_pad, count, experts, chunks,
    blocks, block_size,
    MAPPED: tl.constexpr, CHUNK: tl.constexpr, EXPERTS: tl.constexpr, SPAN: tl.constexpr,
):  # fmt: skip
    chunk = tl.program_id(0)
    at = chunk * CHUNK + tl.arange(0, CHUNK)
    expert = _experts_of(topk_ids, expert_map, at, count, experts, MAPPED)
    # The start of an expert's part: the padded lengths of all experts before it.
    begin = tl.zeros([CHUNK], tl.int32)
    total = 0
    for first in range(0, experts, EXPERTS):
        other = first + tl.arange(0, EXPERTS)
        tokens = tl.load(totals + other, mask=other < experts, other=0)
        padded = (tokens + block_size - 1) // block_size * block_size
        begin += tl.sum(tl.where(other[None, :] < expert[:, None], padded[None, :], 0), axis=1)
        total += tl.sum(padded, axis=0)
    # The rank: how many of the chunk have the same expert and come earlier.
    earlier = tl.zeros([CHUNK, SPAN], tl.int32)
    for first in range(chunk * CHUNK, tl.minimum(chunk * CHUNK + CHUNK, count), SPAN):
        other = first + tl.arange(0, SPAN)
        key = _experts_of(topk_ids, expert_map, other, count, experts, MAPPED)
        same = key[None, :] == expert[:, None]
        earlier += (same & (other[None, :] < at[:, None])).to(tl.int32)
    rank = tl.sum(earlier, axis=1)
    real = expert < experts
    prefix = tl.load(counts + expert * chunks + chunk, mask=real, other=0)
    tl.store(sorted_ids + begin + prefix + rank, at, mask=real)
    # The expert of each block: the number of experts that end at or before its first place.
    for start in range(chunk * SPAN, blocks, chunks * SPAN):
        block = start + tl.arange(0, SPAN)
        owner = tl.zeros([SPAN], tl.int32)
        end = 0
        for first in range(0, experts, EXPERTS):
            other = first + tl.arange(0, EXPERTS)
            tokens = tl.load(totals + other, mask=other < experts, other=0)
            padded = (tokens + block_size - 1) // block_size * block_size
            ends = tl.cumsum(padded, axis=0) + end
            ended = (ends[None, :] <= (block * block_size)[:, None]) & (other < experts)[None, :]
            owner += tl.sum(ended.to(tl.int32), axis=1)
            end += tl.sum(padded, axis=0)
        tl.store(owners + block, owner, mask=(block < blocks) & (block * block_size < total))
    if chunk == 0:
        tl.store(post_pad, total)


def moe_align_block_size(
    topk_ids, num_experts, block_size, sorted_token_ids, experts_ids, num_tokens_post_pad,
    expert_map=None,
):  # fmt: skip
    count = topk_ids.numel()
    chunks = triton.cdiv(count, _CHUNK)
    counts = torch.empty((num_experts, chunks), dtype=torch.int32, device=topk_ids.device)
    totals = torch.empty((num_experts,), dtype=torch.int32, device=topk_ids.device)
    mapped = expert_map is not None
    _count[(chunks,)](
        topk_ids, expert_map, counts, sorted_token_ids, count, num_experts, chunks,
        sorted_token_ids.shape[0], MAPPED=mapped, CHUNK=_CHUNK,
        BINS=triton.next_power_of_2(num_experts + 1), FILL=512,
    )  # fmt: skip
    _prefix[(num_experts,)](counts, totals, chunks, TILE=min(triton.next_power_of_2(chunks), 1024))
    _place[(chunks,)](
        topk_ids, expert_map, counts, totals, sorted_token_ids, experts_ids, num_tokens_post_pad,
        count, num_experts, chunks, experts_ids.shape[0], block_size, MAPPED=mapped, CHUNK=_CHUNK,
        EXPERTS=min(triton.next_power_of_2(num_experts), 32), SPAN=32, num_warps=8,
    )  # fmt: skip
