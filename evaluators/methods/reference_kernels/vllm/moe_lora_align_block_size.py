"""Block alignment for every LoRA adapter: count, prefix, place; three launches, no atomics.

As moe_align_block_size, with the adapter as a second axis of programs: an adapter sees the
assignments of its own tokens, all others count as left out. Assignments are cut into chunks of 128.
First each chunk counts its experts, and the list is filled with the padding value; then one program
an expert turns its counts into prefixes over chunks; then each chunk places its assignments: the
start of the expert's padded part, the prefix of the chunk, and the rank within the chunk. Programs
of adapters that are idle or disabled end at once, and their parts stay as they were.
"""

import torch
import triton
import triton.language as tl

_CHUNK = 128


@triton.jit
def _works(enabled, active, loras, lora, LORAS: tl.constexpr):
    """Whether the adapter is listed as active, and enabled."""
    slot = tl.arange(0, LORAS)
    listed = tl.load(active + slot, mask=slot < loras, other=-1)
    return (tl.max((listed == lora).to(tl.int32), axis=0) > 0) & (tl.load(enabled + lora) != 0)


@triton.jit
def _experts_of(topk_ids, owners, expert_map, at, count, topk, experts, lora, MAPPED: tl.constexpr):
    """The expert of each assignment; `experts` for those that are left out."""
    expert = tl.load(topk_ids + at, mask=at < count, other=0)
    owner = tl.load(owners + at // topk, mask=at < count, other=-1)
    if MAPPED:
        expert = tl.load(expert_map + expert)
    return tl.where((owner == lora) & (expert >= 0), expert, experts)


@triton.jit
def _count(
    topk_ids, owners, enabled, active, expert_map, counts, sorted_ids,
    count, topk, experts, loras, chunks, capacity,
    MAPPED: tl.constexpr, LORAS: tl.constexpr, CHUNK: tl.constexpr, BINS: tl.constexpr,
    FILL: tl.constexpr,
):  # fmt: skip
    chunk, lora = tl.program_id(0), tl.program_id(1)
    if _works(enabled, active, loras, lora, LORAS):
        at = chunk * CHUNK + tl.arange(0, CHUNK)
        expert = _experts_of(topk_ids, owners, expert_map, at, count, topk, experts, lora, MAPPED)
        bins = tl.arange(0, BINS)
        target = counts + (lora * experts + bins) * chunks + chunk
        tl.store(target, tl.histogram(expert, BINS), mask=bins < experts)
        for first in range(chunk * FILL, capacity, chunks * FILL):
            spot = first + tl.arange(0, FILL)
            padding = tl.zeros([FILL], tl.int32) + count
            tl.store(sorted_ids + lora * capacity + spot, padding, mask=spot < capacity)


@triton.jit
def _prefix(
    enabled, active, counts, totals, experts, loras, chunks,
    LORAS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    expert, lora = tl.program_id(0), tl.program_id(1)
    if _works(enabled, active, loras, lora, LORAS):
        row = lora * experts + expert
        before = 0
        for first in range(0, chunks, TILE):
            chunk = first + tl.arange(0, TILE)
            mine = tl.load(counts + row * chunks + chunk, mask=chunk < chunks, other=0)
            upto = tl.cumsum(mine, axis=0) + before
            tl.store(counts + row * chunks + chunk, upto - mine, mask=chunk < chunks)
            before += tl.sum(mine, axis=0)
        tl.store(totals + row, before)


@triton.jit
def _place(
    topk_ids, owners, enabled, active, expert_map, counts, totals, sorted_ids, block_experts,
    post_pad, count, topk, experts, loras, chunks, capacity, blocks, block_size,
    MAPPED: tl.constexpr, LORAS: tl.constexpr, CHUNK: tl.constexpr, EXPERTS: tl.constexpr,
    SPAN: tl.constexpr,
):  # fmt: skip
    chunk, lora = tl.program_id(0), tl.program_id(1)
    if _works(enabled, active, loras, lora, LORAS):
        at = chunk * CHUNK + tl.arange(0, CHUNK)
        expert = _experts_of(topk_ids, owners, expert_map, at, count, topk, experts, lora, MAPPED)
        # The start of an expert's part: the padded lengths of all experts before it.
        begin = tl.zeros([CHUNK], tl.int32)
        total = 0
        for first in range(0, experts, EXPERTS):
            other = first + tl.arange(0, EXPERTS)
            tokens = tl.load(totals + lora * experts + other, mask=other < experts, other=0)
            padded = (tokens + block_size - 1) // block_size * block_size
            begin += tl.sum(tl.where(other[None, :] < expert[:, None], padded[None, :], 0), axis=1)
            total += tl.sum(padded, axis=0)
        earlier = tl.arange(0, CHUNK)[None, :] < tl.arange(0, CHUNK)[:, None]
        keys = tl.reshape(expert, [1, CHUNK])
        rank = tl.sum((earlier & (keys == expert[:, None])).to(tl.int32), axis=1)
        real = expert < experts
        source = counts + (lora * experts + expert) * chunks + chunk
        prefix = tl.load(source, mask=real, other=0)
        tl.store(sorted_ids + lora * capacity + begin + prefix + rank, at, mask=real)
        # The expert of each block: the number of experts that end at or before its first place.
        for start in range(chunk * SPAN, blocks, chunks * SPAN):
            block = start + tl.arange(0, SPAN)
            owner = tl.zeros([SPAN], tl.int32)
            end = 0
            for first in range(0, experts, EXPERTS):
                other = first + tl.arange(0, EXPERTS)
                tokens = tl.load(totals + lora * experts + other, mask=other < experts, other=0)
                padded = (tokens + block_size - 1) // block_size * block_size
                ends = tl.cumsum(padded, axis=0) + end
                ended = (ends[None, :] <= (block * block_size)[:, None]) & (other < experts)[
                    None, :
                ]
                owner += tl.sum(ended.to(tl.int32), axis=1)
                end += tl.sum(padded, axis=0)
            owner = tl.where(block * block_size < total, owner, -1)
            tl.store(block_experts + lora * blocks + block, owner, mask=block < blocks)
        if chunk == 0:
            tl.store(post_pad + lora, total)


def moe_lora_align_block_size(
    topk_ids: torch.Tensor,
    token_lora_mapping: torch.Tensor,
    num_experts: int,
    block_size: int,
    max_loras: int,
    max_num_tokens_padded: int,
    max_num_m_blocks: int,
    sorted_token_ids: torch.Tensor,
    experts_ids: torch.Tensor,
    num_tokens_post_pad: torch.Tensor,
    adapter_enabled: torch.Tensor,
    lora_ids: torch.Tensor,
    expert_map: torch.Tensor | None = None,
) -> None:
    count, topk = topk_ids.numel(), topk_ids.shape[1]
    chunks = triton.cdiv(count, _CHUNK)
    device = topk_ids.device
    counts = torch.empty((max_loras, num_experts, chunks), dtype=torch.int32, device=device)
    totals = torch.empty((max_loras, num_experts), dtype=torch.int32, device=device)
    mapped, loras = expert_map is not None, triton.next_power_of_2(max_loras)
    _count[(chunks, max_loras)](
        topk_ids, token_lora_mapping, adapter_enabled, lora_ids, expert_map, counts,
        sorted_token_ids, count, topk, num_experts, max_loras, chunks, max_num_tokens_padded,
        MAPPED=mapped, LORAS=loras, CHUNK=_CHUNK, BINS=triton.next_power_of_2(num_experts + 1),
        FILL=512,
    )  # fmt: skip
    _prefix[(num_experts, max_loras)](
        adapter_enabled, lora_ids, counts, totals, num_experts, max_loras, chunks,
        LORAS=loras, TILE=min(triton.next_power_of_2(chunks), 1024),
    )  # fmt: skip
    _place[(chunks, max_loras)](
        topk_ids, token_lora_mapping, adapter_enabled, lora_ids, expert_map, counts, totals,
        sorted_token_ids, experts_ids, num_tokens_post_pad, count, topk, num_experts, max_loras,
        chunks, max_num_tokens_padded, max_num_m_blocks, block_size,
        MAPPED=mapped, LORAS=loras, CHUNK=_CHUNK,
        EXPERTS=min(triton.next_power_of_2(num_experts), 32), SPAN=32, num_warps=8,
    )  # fmt: skip
