"""Experts from the best groups: a program does a few tokens, their scores in registers.

Scores are held as [tokens, groups, experts of a group], so that the two largest of each group are a
maximum, a strike, and another maximum. Groups are then struck out, and experts chosen, by the same
step over and over: take the maximum, find the first that has it, strike it out. Weights are
collected in a small tile, so that dividing by their sum needs no second pass over memory.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _topk(
    scores, bias, weights, ids, tokens, experts, size, groups, chosen, topk, factor,
    SIGMOID: tl.constexpr, RENORMALIZE: tl.constexpr, ALL_GROUPS: tl.constexpr,
    ROWS: tl.constexpr, GROUPS: tl.constexpr, SIZE: tl.constexpr, TOPK: tl.constexpr,
):  # fmt: skip
    NONE: tl.constexpr = float("-inf")
    token = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    group, member = tl.arange(0, GROUPS)[:, None], tl.arange(0, SIZE)[None, :]
    expert = group * size + member  # [groups, members]
    real = ((group < groups) & (member < size))[None, :, :]
    here = token < tokens
    inside = here[:, None, None] & real
    at = token.to(tl.int64)[:, None, None] * experts + expert[None, :, :]
    s = tl.load(scores + at, mask=inside, other=0.0).to(tl.float32)
    if SIGMOID:
        s = tl.div_rn(1.0, 1.0 + tl.exp(-s))
    shift = tl.load(bias + expert, mask=(group < groups) & (member < size), other=0.0)
    biased = tl.where(real, s + shift[None, :, :], NONE)

    if not ALL_GROUPS:
        best = tl.max(biased, axis=2)
        first = tl.min(tl.where(biased == best[:, :, None], member[None, :, :], SIZE), axis=2)
        rest = tl.where(member[None, :, :] == first[:, :, None], NONE, biased)
        second = tl.max(rest, axis=2)
        value = tl.where((tl.arange(0, GROUPS) < groups)[None, :], best, NONE)
        if SIZE > 1:
            value += second
        number = tl.arange(0, GROUPS)[None, :]
        kept = tl.zeros([ROWS, GROUPS], tl.int32)
        for _ in range(chosen):
            top = tl.max(value, axis=1)
            which = tl.min(tl.where(value == top[:, None], number, GROUPS), axis=1)
            kept = tl.where(number == which[:, None], 1, kept)
            value = tl.where(number == which[:, None], NONE, value)
        biased = tl.where(kept[:, :, None] == 1, biased, NONE)

    slot = tl.arange(0, TOPK)[None, :]
    share = tl.zeros([ROWS, TOPK], tl.float32)
    numbers = tl.zeros([ROWS, TOPK], tl.int32)
    biased = tl.reshape(biased, [ROWS, GROUPS * SIZE])
    s = tl.reshape(s, [ROWS, GROUPS * SIZE])
    place = tl.arange(0, GROUPS * SIZE)[None, :]
    for k in range(topk):
        top = tl.max(biased, axis=1)
        which = tl.min(tl.where(biased == top[:, None], place, GROUPS * SIZE), axis=1)
        mine = place == which[:, None]
        weight = tl.sum(tl.where(mine, s, 0.0), axis=1)
        share = tl.where(slot == k, weight[:, None], share)
        name = which // SIZE * size + which % SIZE
        numbers = tl.where(slot == k, name[:, None], numbers)
        biased = tl.where(mine, NONE, biased)
    if RENORMALIZE:
        share = share / (tl.sum(share, axis=1)[:, None] + 1e-20)
    inside = here[:, None] & (slot < topk)
    at = token.to(tl.int64)[:, None] * topk + slot
    tl.store(weights + at, share * factor, mask=inside)
    tl.store(ids + at, numbers, mask=inside)


def grouped_topk(
    scores: torch.Tensor,
    num_expert_group: int,
    topk_group: int,
    topk: int,
    renormalize: bool,
    routed_scaling_factor: float,
    bias: torch.Tensor,
    scoring_func: int = 0,
) -> tuple[torch.Tensor, torch.Tensor]:
    tokens, experts = scores.shape
    weights = torch.empty((tokens, topk), dtype=torch.float32, device=scores.device)
    ids = torch.empty((tokens, topk), dtype=torch.int32, device=scores.device)
    if tokens == 0:
        return weights, ids
    size = experts // num_expert_group
    groups, members = triton.next_power_of_2(num_expert_group), triton.next_power_of_2(size)
    rows = max(1, min(2048 // (groups * members), 32))
    _topk[(triton.cdiv(tokens, rows),)](
        scores, bias, weights, ids, tokens, experts, size, num_expert_group, topk_group, topk,
        routed_scaling_factor, SIGMOID=scoring_func == 1, RENORMALIZE=renormalize,
        ALL_GROUPS=topk_group == num_expert_group, ROWS=rows, GROUPS=groups, SIZE=members,
        TOPK=triton.next_power_of_2(topk), num_warps=4,
    )  # fmt: skip
    return weights, ids
