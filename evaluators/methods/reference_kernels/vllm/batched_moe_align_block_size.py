"""Lists of used rows of a batched expert buffer: one launch, a program for a piece of one list.

Where an expert's list begins is the sum of all padded counts before it, a few hundred numbers that
every program reads for itself. Programs are as many as places in the result, so the n-th program
also writes the n-th piece of what lies behind the last list.
"""

import torch
import triton
import triton.language as tl

_TILE = 1024


@triton.jit
def _align(
    counts, ids, owners, post_pad, most, block_size, experts, capacity, blocks,
    TILE: tl.constexpr, EXPERTS: tl.constexpr,
):  # fmt: skip
    expert, piece = tl.program_id(0), tl.program_id(1)
    other = tl.arange(0, EXPERTS)
    tokens = tl.load(counts + other, mask=other < experts, other=0)
    padded = (tokens + block_size - 1) // block_size * block_size
    total = tl.sum(padded, axis=0)
    begin = tl.sum(tl.where(other < expert, padded, 0), axis=0)
    used = tl.load(counts + expert)
    length = (used + block_size - 1) // block_size * block_size

    place = piece * TILE + tl.arange(0, TILE)
    row = tl.where(place < used, expert * most + place, experts * most)
    tl.store(ids + begin + place, row, mask=place < length)
    owner = tl.zeros([TILE], tl.int32) + expert
    tl.store(owners + begin // block_size + place, owner, mask=place < length // block_size)

    place += expert * tl.num_programs(1) * TILE
    none = tl.zeros([TILE], tl.int32) + experts * most
    tl.store(ids + total + place, none, mask=total + place < capacity)
    spare = total // block_size + place
    tl.store(owners + spare, tl.full([TILE], -1, tl.int32), mask=spare < blocks)
    if (expert == 0) & (piece == 0):
        tl.store(post_pad, total)


def batched_moe_align_block_size(
    max_tokens_per_batch: int,
    block_size: int,
    expert_num_tokens: torch.Tensor,
    sorted_ids: torch.Tensor,
    expert_ids: torch.Tensor,
    num_tokens_post_pad: torch.Tensor,
) -> None:
    experts = expert_num_tokens.shape[0]
    longest = triton.cdiv(max_tokens_per_batch, block_size) * block_size
    _align[(experts, triton.cdiv(longest, _TILE))](
        expert_num_tokens, sorted_ids, expert_ids, num_tokens_post_pad, max_tokens_per_batch,
        block_size, experts, sorted_ids.shape[0], expert_ids.shape[0],
        TILE=_TILE, EXPERTS=triton.next_power_of_2(experts), num_warps=4,
    )  # fmt: skip
