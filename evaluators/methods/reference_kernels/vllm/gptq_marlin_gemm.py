"""Product with 4- or 8-bit weights in Marlin's layout, unpacked in registers.

Words are read as they lie in memory, runs of 16 rows by BLOCK_N columns, and never picked apart by
address: the layout is a permutation of bits, so each word is spread over its codes along a new
dimension, and one permutation of dimensions puts all codes in rows and columns. Weights are
rounded to the dtype of `a` for the matrix units; sums stay in float32. Where a step lies inside one
group, it needs one row of scales; otherwise the group of every row is looked up. They are loaded a
step ahead: the compiler does so itself only for what it copies in pieces of 4 bytes or more. With
few rows K is split over programs, parts are kept in float32 and added in order by a second kernel.
"""

import torch
import triton
import triton.language as tl

#: bits, what is subtracted from a code (None: its zero point)
_TYPES = {"uint4": (4, None), "uint4b8": (4, 8), "uint8b128": (8, 128)}


@triton.jit
def _codes(words, k0, j0, n, BITS: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_N: tl.constexpr):
    """Codes of rows k0 on and columns j0 on, [BLOCK_K, BLOCK_N]."""
    TILES: tl.constexpr = BLOCK_K // 16
    WIDTH: tl.constexpr = BLOCK_N * BITS // 2
    width = n * BITS // 2
    row = (k0 // 16 + tl.arange(0, TILES)).to(tl.int64)[:, None]
    at = j0 * BITS // 2 + tl.arange(0, WIDTH)[None, :]
    packed = tl.load(words + row * width + at, mask=at < width, other=0)
    packed = tl.reshape(packed, (TILES * WIDTH, 1))
    if BITS == 4:
        place = tl.arange(0, 8)[None, :]  # in bits: column c or c + 8, row r or r + 8, r or r + 1
        shift = place // 4 * 8 + place // 2 % 2 * 4 + place % 2 * 16
    else:
        place = tl.arange(0, 4)[None, :]  # in bits: row r or r + 8, r or r + 1
        shift = place // 2 * 8 + place % 2 * 16
    codes = (packed >> shift) & ((1 << BITS) - 1)
    # tile row, 64 columns, column in 8, row pair in 4, tile, column half, row half, row of pair
    codes = tl.reshape(codes, (TILES, BLOCK_N // 64, 8, 4, 4, 2, 2, 2))
    codes = tl.permute(codes, (0, 6, 3, 7, 1, 4, 5, 2))
    return tl.reshape(codes, (BLOCK_K, BLOCK_N))


@triton.jit
def _single_position(j):
    """Where the scale (of one group) or the bias of column j is stored."""
    return j // 32 * 32 + j % 8 // 2 * 8 + j % 32 // 8 * 2 + j % 2


@triton.jit
def _scales_and_zeros(
    scales, zeros, index, k0, k, j, n, group,
    OFFSET: tl.constexpr, ONE_GROUP: tl.constexpr, BY_ROW: tl.constexpr, INDEXED: tl.constexpr,
    BLOCK_K: tl.constexpr,
):  # fmt: skip
    """For rows k0 on (nothing past k): scales and zero points, [BLOCK_K or 1, columns]."""
    if BY_ROW:
        row = k0 + tl.arange(0, BLOCK_K)
        g = tl.load(index + row, mask=row < k, other=0) if INDEXED else row // group
        g = g.to(tl.int64)[:, None]
    else:
        g = tl.full((1, 1), 0, tl.int64) + k0 // group
    inside = (g >= 0) & (k0 < k) & (j < n)[None, :]
    # Of 64 columns, scales of many groups have column 8 x + y at 8 y + x.
    position = j // 64 * 64 + j % 8 * 8 + j % 64 // 8
    at = _single_position(j) if ONE_GROUP else position
    scale = tl.load(scales + g * n + at[None, :], mask=inside, other=0.0)
    if OFFSET is None:
        word = tl.load(zeros + g * (n // 8) + (position // 8)[None, :], mask=inside, other=0)
        zero = (word >> ((position % 8 // 2 + position % 2 * 4) * 4)[None, :]) & 15
    else:
        zero = tl.full((1, 1), OFFSET, tl.int32)
    return scale, zero


@triton.jit
def _gemm(
    a, words, zeros, scales, index, perm, bias, out, m, n, k, group, steps,
    BITS: tl.constexpr, OFFSET: tl.constexpr, ONE_GROUP: tl.constexpr, BY_ROW: tl.constexpr,
    INDEXED: tl.constexpr, ORDERED: tl.constexpr, BIAS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    tiles_m = tl.cdiv(m, BLOCK_M)
    tile_m, tile_n = tl.program_id(0) % tiles_m, tl.program_id(0) // tiles_m
    split = tl.program_id(1)
    i = (tile_m * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
    j = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    p = tl.arange(0, BLOCK_K)
    first = split * steps
    scale, zero = _scales_and_zeros(scales, zeros, index, first * BLOCK_K, k, j, n, group,
                                    OFFSET, ONE_GROUP, BY_ROW, INDEXED, BLOCK_K)  # fmt: skip
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for step in range(first, tl.minimum(first + steps, k // BLOCK_K)):
        k0 = step * BLOCK_K
        next_scale, next_zero = _scales_and_zeros(
            scales, zeros, index, k0 + BLOCK_K, k, j, n, group,
            OFFSET, ONE_GROUP, BY_ROW, INDEXED, BLOCK_K,
        )  # fmt: skip
        row = k0 + p
        if ORDERED:
            row = tl.load(perm + row)
        left = tl.load(a + i * k + row[None, :], mask=i < m, other=0.0)
        codes = _codes(words, k0, tile_n * BLOCK_N, n, BITS, BLOCK_K, BLOCK_N)
        total = tl.dot(left, (codes - zero).to(left.dtype) * scale, total)
        scale, zero = next_scale, next_zero
    if BIAS:
        total += tl.load(bias + _single_position(j), mask=j < n, other=0.0).to(tl.float32)[None, :]
    out += split.to(tl.int64) * m * n + i * n + j[None, :]
    tl.store(out, total, mask=(i < m) & (j < n)[None, :])


@triton.jit
def _add_parts(parts, bias, out, numel, n, splits, BIAS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for split in range(0, splits):
        total += tl.load(parts + split * numel.to(tl.int64) + at, mask=at < numel, other=0.0)
    if BIAS:
        total += tl.load(bias + _single_position((at % n).to(tl.int32))).to(tl.float32)
    tl.store(out + at, total, mask=at < numel)


def gptq_marlin_gemm(
    a: torch.Tensor,
    c: torch.Tensor | None,
    b_q_weight: torch.Tensor,
    b_bias: torch.Tensor | None,
    b_scales: torch.Tensor,
    a_scales: torch.Tensor | None,
    global_scale: torch.Tensor | None,
    b_zeros: torch.Tensor,
    g_idx: torch.Tensor,
    perm: torch.Tensor,
    workspace: torch.Tensor,
    b_q_type: str,
    size_m: int,
    size_n: int,
    size_k: int,
    is_k_full: bool = True,
    use_atomic_add: bool = False,
    use_fp32_reduce: bool = False,
    is_zp_float: bool = False,
) -> torch.Tensor:
    m, n, k = size_m, size_n, size_k
    out = torch.empty((m, n), dtype=a.dtype, device=a.device) if c is None else c
    if m == 0:
        return out
    bits, offset = _TYPES[b_q_type]
    groups = b_scales.shape[0]
    # Rows in order of their groups have groups of equal size, unless they are a shard of K.
    ragged = g_idx.numel() > 0 and not is_k_full
    if m <= 32:
        block_m, block_n, warps = 16 if m <= 16 else 32, 128, 4
    elif m <= 64:
        block_m, block_n, warps = 64, 128, 4
    else:
        block_m, block_n, warps = 128, 128, 8
    block_k = 64
    tiles = triton.cdiv(m, block_m) * triton.cdiv(n, block_n)
    steps = k // block_k
    # About four programs for each multiprocessor where weights are what is read most, else two;
    # none with less than four steps.
    splits = max(min((512 if m <= 64 else 264) // tiles, steps // 4), 1)
    steps = triton.cdiv(steps, splits)
    splits = triton.cdiv(k // block_k, steps)
    parts = out
    if splits > 1:
        parts = torch.empty((splits, m, n), dtype=torch.float32, device=a.device)
    biased = b_bias is not None
    _gemm[(tiles, splits)](
        a, b_q_weight, b_zeros, b_scales, g_idx, perm, b_bias, parts, m, n, k, k // groups, steps,
        BITS=bits, OFFSET=offset, ONE_GROUP=groups == 1,
        BY_ROW=ragged or k // groups % block_k != 0, INDEXED=ragged, ORDERED=perm.numel() > 0,
        BIAS=biased and splits == 1, BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=block_k,
        num_warps=warps, num_stages=4 if m <= 32 else 3,
    )  # fmt: skip
    if splits > 1:
        _add_parts[(triton.cdiv(m * n, 1024),)](
            parts, b_bias, out, m * n, n, splits, BIAS=biased, BLOCK=1024
        )
    return out
