"""Moves GPTQ weights of all experts into Marlin's layout.

Every word of the result is gathered: its place gives the thread that will hold it, and with that
the rows and columns of its codes, which are picked one by one. A column of the input is a stream of
codes along K; with an order of rows each code is first looked for in it. Neighbouring programs read
neighbouring words, so what is read again comes out of cache.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _place(word, p, per_row, BITS: tl.constexpr, WIDE: tl.constexpr):
    """(row, column) of the code at place `p` of a word: see Marlin's layout in the operator."""
    PER_WORD: tl.constexpr = 32 // BITS
    HEIGHT: tl.constexpr = 32 if WIDE else 16
    THREAD_WORDS: tl.constexpr = 32 // PER_WORD
    group, within = word // (32 * THREAD_WORDS), word % (32 * THREAD_WORDS)
    thread = within // THREAD_WORDS
    if WIDE:
        v = p % 2 * 4 + p // 2 if BITS == 4 else p
    else:
        v = p % (PER_WORD // 2) * 2 + p // (PER_WORD // 2)
    # The codes of a thread: for each tile, for columns c and c + 8, HEIGHT / 4 rows.
    number = within % THREAD_WORDS * PER_WORD + v
    step, side = number % (HEIGHT // 4), number // (HEIGHT // 4)
    if WIDE:
        row = 4 * (thread % 4) + step % 4 + 16 * (step // 4)
    else:
        row = 2 * (thread % 4) + step % 2 + 8 * (step // 2)
    row += group // per_row * HEIGHT
    return row, group % per_row * (1024 // HEIGHT) + 8 * side + thread // 4


@triton.jit
def _repack(
    words, perm, out, k, n, count, BITS: tl.constexpr, WIDE: tl.constexpr,
    ORDERED: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    PER_WORD: tl.constexpr = 32 // BITS
    expert = tl.program_id(1).to(tl.int64)
    at = tl.program_id(0) * TILE + tl.arange(0, TILE)
    inside = at < count
    per_row = n // (32 if WIDE else 64)
    word = tl.zeros([TILE], tl.int32)
    for p in tl.static_range(PER_WORD):
        row, column = _place(at, p, per_row, BITS, WIDE)
        if ORDERED:
            row = tl.load(perm + expert * k + row, mask=inside, other=0)
        source = words + expert * count + row // PER_WORD * n + column
        packed = tl.load(source, mask=inside, other=0)
        code = (packed >> (row % PER_WORD * BITS)) & ((1 << BITS) - 1)
        word |= code << (p * BITS)
    tl.store(out + expert * count + at, word, mask=inside)


def gptq_marlin_moe_repack(
    b_q_weight: torch.Tensor,
    perm: torch.Tensor,
    size_k: int,
    size_n: int,
    num_bits: int,
    is_a_8bit: bool = False,
) -> torch.Tensor:
    experts = b_q_weight.shape[0]
    shape = (experts, size_k // 16, size_n * num_bits // 2)
    out = torch.empty(shape, dtype=torch.int32, device=b_q_weight.device)
    count = out.stride(0)
    if out.numel():
        _repack[(triton.cdiv(count, 1024), experts)](
            b_q_weight, perm, out, size_k, size_n, count, BITS=num_bits, WIDE=is_a_8bit,
            ORDERED=perm.numel() > 0, TILE=1024, num_warps=4,
        )  # fmt: skip
    return out
