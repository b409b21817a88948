"""Top-k of a softmax over experts: a program does a few tokens, their logits in registers.

The softmax is monotonic, so the largest logits are chosen one after another: take the maximum, find
the first expert that has it, strike it out. Weights are collected in a small tile, so that dividing
by their sum needs no second pass over memory.
"""

import triton
import triton.language as tl


@triton.jit
def _topk(
    weights, ids, source_rows, gating, tokens, experts, topk,
    RENORMALIZE: tl.constexpr, ROWS: tl.constexpr, EXPERTS: tl.constexpr, TOPK: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    expert = tl.arange(0, EXPERTS)
    here = token < tokens
    both = here[:, None] & (expert < experts)[None, :]
    at = token.to(tl.int64)[:, None] * experts + expert[None, :]
    x = tl.load(gating + at, mask=both, other=float("-inf")).to(tl.float32)
    top = tl.where(here, tl.max(x, axis=1), 0.0)
    e = tl.exp(x - top[:, None])
    total = tl.sum(e, axis=1)
    slot = tl.arange(0, TOPK)[None, :]
    chosen = tl.zeros([ROWS, TOPK], tl.float32)
    numbers = tl.zeros([ROWS, TOPK], tl.int32)
    x = tl.where(both, x, float("-inf"))
    for k in range(topk):
        best = tl.max(x, axis=1)
        where = tl.where(x == best[:, None], expert[None, :], EXPERTS)
        first = tl.min(where, axis=1)
        chosen = tl.where(slot == k, tl.exp(best - top)[:, None], chosen)
        numbers = tl.where(slot == k, first[:, None], numbers)
        x = tl.where(expert[None, :] == first[:, None], float("-inf"), x)
    share = chosen / total[:, None]
    if RENORMALIZE:
        share = share / tl.sum(share, axis=1)[:, None]
    inside = here[:, None] & (slot < topk)
    at = token.to(tl.int64)[:, None] * topk + slot
    tl.store(weights + at, share, mask=inside)
    tl.store(ids + at, numbers, mask=inside)
    tl.store(source_rows + at, slot * tokens + token[:, None], mask=inside)


def topk_softmax(topk_weights, topk_ids, token_expert_indices, gating_output, renormalize=False):
    tokens, experts = gating_output.shape
    topk = topk_weights.shape[1]
    if tokens == 0:
        return
    padded = triton.next_power_of_2(experts)
    rows = max(1, min(2048 // padded, 64))
    _topk[(triton.cdiv(tokens, rows),)](
        topk_weights, topk_ids, token_expert_indices, gating_output, tokens, experts, topk,
        RENORMALIZE=renormalize, ROWS=rows, EXPERTS=padded, TOPK=triton.next_power_of_2(topk),
        num_warps=4,
    )  # fmt: skip
