"""GPTQ weights put into the order of ExLlama's kernels: a program makes one row of words.

With no order of rows the codes of a word stay in the word, and the work is done in place. With one,
row k is an old row that lies anywhere: the words are read from a copy. All columns of a program
have their codes in the same rows, so a row's place is one number and the reads are runs; programs
that run together share columns, so that what is read eight times comes out of cache.
"""

import torch
import triton
import triton.language as tl

_TILE = 1024


@triton.jit
def _copy(source, target, count, TILE: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)
    tl.store(target + at, tl.load(source + at, mask=at < count), mask=at < count)


@triton.jit
def _shuffle(
    source, perm, out, rows, n, BITS: tl.constexpr, ORDERED: tl.constexpr, TILE: tl.constexpr
):
    """2, 4 and 8 bits: one word of each column."""
    PER_WORD: tl.constexpr = 32 // BITS
    HALF: tl.constexpr = PER_WORD // 2
    row = tl.program_id(0) % rows
    column = tl.program_id(0) // rows * TILE + tl.arange(0, TILE)
    inside = column < n
    target = row.to(tl.int64) * n + column
    word = tl.zeros([TILE], tl.int32)
    if not ORDERED:
        packed = tl.load(source + target, mask=inside, other=0)
    for p in tl.static_range(PER_WORD):
        within = p if BITS == 8 else p % HALF * 2 + p // HALF
        if ORDERED:
            old = tl.load(perm + row * PER_WORD + within)
            packed = tl.load(
                source + (old // PER_WORD).to(tl.int64) * n + column, mask=inside, other=0
            )
            shift = old % PER_WORD * BITS
        else:
            shift = within * BITS
        word |= ((packed >> shift) & ((1 << BITS) - 1)) << (p * BITS)
    tl.store(out + target, word, mask=inside)


@triton.jit
def _shuffle_3(source, perm, out, blocks, n, ORDERED: tl.constexpr, TILE: tl.constexpr):
    """3 bits: three words, that is 32 rows, of each column."""
    block = tl.program_id(0) % blocks
    column = tl.program_id(0) // blocks * TILE + tl.arange(0, TILE)
    inside = column < n
    target = block.to(tl.int64) * 3 * n + column
    w0 = tl.zeros([TILE], tl.int32)
    w1 = tl.zeros([TILE], tl.int32)
    w2 = tl.zeros([TILE], tl.int32)
    for r in tl.static_range(32):
        old = block * 32 + r
        if ORDERED:
            old = tl.load(perm + old)
        bit = old % 32 * 3
        first = source + ((old // 32 * 3 + bit // 32).to(tl.int64) * n + column)
        shift = (bit % 32).to(tl.uint32)
        low = tl.load(first, mask=inside, other=0).to(tl.uint32, bitcast=True) >> shift
        # Rows 10 and 21 of 32 go on in the next word.
        over = inside & (shift > 29)
        rest = tl.load(first + n, mask=over, other=0).to(tl.uint32, bitcast=True)
        code = ((low | (rest << ((32 - shift) % 32))) & 7).to(tl.int32)
        if r < 30:
            place = r % 10 % 2 * 16 + r % 10 // 2 * 3
            if r < 10:
                w0 |= code << place
            elif r < 20:
                w1 |= code << place
            else:
                w2 |= code << place
        else:
            last = 15 + r % 2 * 16
            w0 |= (code & 1) << last
            w1 |= ((code >> 1) & 1) << last
            w2 |= (code >> 2) << last
    tl.store(out + target, w0, mask=inside)
    tl.store(out + target + n, w1, mask=inside)
    tl.store(out + target + 2 * n, w2, mask=inside)


def gptq_shuffle(q_weight: torch.Tensor, q_perm: torch.Tensor, bit: int) -> None:
    rows, n = q_weight.shape
    ordered = q_perm.numel() > 0
    if n == 0 or (bit == 8 and not ordered):
        return
    source = q_weight
    if ordered:
        source = torch.empty_like(q_weight)
        count = q_weight.numel()
        _copy[(triton.cdiv(count, 4096),)](q_weight, source, count, TILE=4096, num_warps=4)
    tile = min(triton.next_power_of_2(n), _TILE)
    tiles = triton.cdiv(n, tile)
    if bit == 3:
        _shuffle_3[(rows // 3 * tiles,)](
            source, q_perm, q_weight, rows // 3, n, ORDERED=ordered, TILE=tile, num_warps=4
        )
    else:
        _shuffle[(rows * tiles,)](
            source, q_perm, q_weight, rows, n, BITS=bit, ORDERED=ordered, TILE=tile, num_warps=4
        )
