"""Product with 2-, 3-, 4- or 8-bit GPTQ weights, unpacked in registers next to the matrix units.

Each program owns a tile of the result and walks its share of K. A step reads whole words (three
words at a time for 3 bits), spreads each over the rows that it holds along a new dimension, shifts
every copy to its own code, and folds that dimension into K. Shuffled words (ExLlama's order) only
have other shifts. Weights are rounded to float16 for the matrix units; sums stay in float32.
Shuffled weights have their groups in order, so a step inside one group needs one row of scales;
plain weights look up the group of every row. With few rows K is split over programs, parts are
kept in float32 and added in order by a second kernel.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _codes(words, k0, column, k, n, BITS: tl.constexpr, SHUFFLED: tl.constexpr, ROWS: tl.constexpr):
    """Codes of rows k0 to k0 + ROWS, [ROWS, columns], of words that hold a power of two of bits."""
    PER_WORD: tl.constexpr = 32 // BITS
    row = (k0 // PER_WORD + tl.arange(0, ROWS // PER_WORD)).to(tl.int64)[:, None]
    packed = tl.load(
        words + row * n + column[None, :],
        mask=(row < k // PER_WORD) & (column < n)[None, :],
        other=0,
    )
    r = tl.arange(0, PER_WORD)
    shift = r // 2 * BITS + r % 2 * 16 if SHUFFLED and BITS < 8 else r * BITS
    codes = (packed[:, None, :] >> shift[None, :, None]) & ((1 << BITS) - 1)
    return tl.reshape(codes, (ROWS, column.shape[0]))


@triton.jit
def _three_bit_codes(words, k0, column, n, SHUFFLED: tl.constexpr):
    """3-bit codes of rows k0 to k0 + 32, [32, columns], out of three words."""
    word = words + (k0 // 32 * 3).to(tl.int64) * n + column
    w0 = tl.load(word, mask=column < n, other=0).to(tl.uint32, bitcast=True)[None, :]
    w1 = tl.load(word + n, mask=column < n, other=0).to(tl.uint32, bitcast=True)[None, :]
    w2 = tl.load(word + 2 * n, mask=column < n, other=0).to(tl.uint32, bitcast=True)[None, :]
    r = tl.arange(0, 32)[:, None]
    if SHUFFLED:
        which = r // 10
        shift = (r % 10 % 2 * 16 + r % 10 // 2 * 3).to(tl.uint32)
        last = (15 + r % 2 * 16).to(tl.uint32)
        split = ((w0 >> last) & 1) | (((w1 >> last) & 1) << 1) | (((w2 >> last) & 1) << 2)
        whole = (tl.where(which == 0, w0, tl.where(which == 1, w1, w2)) >> shift) & 7
        return tl.where(r < 30, whole, split).to(tl.int32)
    which = r * 3 // 32
    shift = (r * 3 % 32).to(tl.uint32)
    low = tl.where(which == 0, w0, tl.where(which == 1, w1, w2)) >> shift
    # Rows 10 and 21 go on in the next word, with 30 and 31 bits used of their own.
    rest = tl.where(r == 10, w1 << 2, tl.where(r == 21, w2 << 1, 0 * w0))
    return ((low | rest) & 7).to(tl.int32)


@triton.jit
def _zero_points(zeros, group, column, n, inside, BITS: tl.constexpr):
    """Stored zero points of `group` (any shape that broadcasts with `column`)."""
    bit = column * BITS
    word = zeros + group * (n // 32 * BITS + n % 32 * BITS // 32) + bit // 32
    shift = bit % 32
    low = tl.load(word, mask=inside, other=0).to(tl.uint32, bitcast=True) >> shift.to(tl.uint32)
    if BITS == 3:
        over = inside & (shift > 29)
        rest = tl.load(word + 1, mask=over, other=0).to(tl.uint32, bitcast=True)
        low = low | (rest << ((32 - shift) % 32).to(tl.uint32))
    return (low & ((1 << BITS) - 1)).to(tl.int32)


@triton.jit
def _gptq_gemm(
    a, words, zeros, scales, index, out, m, n, k, group, steps, offset,
    BITS: tl.constexpr, SHUFFLED: tl.constexpr, ORDERED: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    tiles_m = tl.cdiv(m, BLOCK_M)
    tile_m, tile_n = tl.program_id(0) % tiles_m, tl.program_id(0) // tiles_m
    split = tl.program_id(1)
    i = (tile_m * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
    j = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    p = tl.arange(0, BLOCK_K)
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for step in range(split * steps, tl.minimum(split * steps + steps, k // BLOCK_K)):
        k0 = step * BLOCK_K
        row = k0 + p
        if ORDERED:
            row = tl.load(index + row)
        left = tl.load(a + i * k + row[None, :], mask=i < m, other=0.0)
        if BITS == 3:
            codes = _three_bit_codes(words, k0, j, n, SHUFFLED)
        else:
            codes = _codes(words, k0, j, k, n, BITS, SHUFFLED, BLOCK_K)
        if SHUFFLED:
            g = (k0 // group).to(tl.int64)
            scale = tl.load(scales + g * n + j, mask=j < n, other=0.0)[None, :]
            zero = _zero_points(zeros, g, j, n, j < n, BITS)[None, :]
        else:
            g = tl.load(index + k0 + p).to(tl.int64)[:, None]
            inside = (p < BLOCK_K)[:, None] & (j < n)[None, :]
            scale = tl.load(scales + g * n + j[None, :], mask=inside, other=0.0)
            zero = _zero_points(zeros, g, j[None, :], n, inside, BITS)
        weight = (codes - zero - offset).to(tl.float16) * scale
        total = tl.dot(left, weight, total)
    out += split.to(tl.int64) * m * n + i * n + j[None, :]
    tl.store(out, total, mask=(i < m) & (j < n)[None, :])


@triton.jit
def _add_parts(parts, out, numel, splits, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for split in range(0, splits):
        total += tl.load(parts + split * numel.to(tl.int64) + at, mask=at < numel, other=0.0)
    tl.store(out + at, total, mask=at < numel)


def gptq_gemm(
    a: torch.Tensor,
    b_q_weight: torch.Tensor,
    b_gptq_qzeros: torch.Tensor,
    b_gptq_scales: torch.Tensor,
    b_g_idx: torch.Tensor,
    use_exllama: bool,
    use_v2_format: bool,
    bit: int,
) -> torch.Tensor:
    (m, k), (groups, n) = a.shape, b_gptq_scales.shape
    group = k // groups
    out = torch.empty((m, n), dtype=a.dtype, device=a.device)
    if m == 0:
        return out
    block_k = 64 if bit != 3 and k % 64 == 0 and (group % 64 == 0 or not use_exllama) else 32
    if m <= 32:
        block_m, block_n, warps = 16 if m <= 16 else 32, 128, 4
    elif m <= 64:
        block_m, block_n, warps = 64, 128, 4
    else:
        block_m, block_n, warps = 128, 128, 8
    tiles = triton.cdiv(m, block_m) * triton.cdiv(n, block_n)
    steps = k // block_k
    # Two to three programs for each multiprocessor, none with less than four steps.
    splits = max(min(320 // tiles, steps // 4), 1)
    steps = triton.cdiv(steps, splits)
    splits = triton.cdiv(k // block_k, steps)
    parts = out
    if splits > 1:
        parts = torch.empty((splits, m, n), dtype=torch.float32, device=a.device)
    _gptq_gemm[(tiles, splits)](
        a, b_q_weight, b_gptq_qzeros, b_gptq_scales, b_g_idx, parts, m, n, k, group, steps,
        int(not use_v2_format),
        BITS=bit, SHUFFLED=use_exllama, ORDERED=use_exllama and b_g_idx.numel() > 0,
        BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=block_k, num_warps=warps, num_stages=3,
    )  # fmt: skip
    if splits > 1:
        _add_parts[(triton.cdiv(m * n, 1024),)](parts, out, m * n, splits, BLOCK=1024)
    return out
