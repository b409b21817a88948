"""Product with 2:4 sparse 4- or 8-bit weights in Marlin's layout, made dense in registers.

Kept codes are read as they lie in memory: the layout is a permutation of bits, so each word is
spread over its codes along a new dimension, and one permutation of dimensions puts all codes in
rows and columns. Of every four dense rows two are kept, and four bits say which: each of the four
takes the first code, the second, or nothing. The dense tile goes to the matrix units, which read
two zeros in four; what is saved is memory, and that decides for few rows. Scales and places are
loaded a step ahead: the compiler does so itself only for what it copies in pieces of 4 bytes or
more. With few rows K is split over programs, parts are kept in float32 and added in order by a
second kernel.
"""

import torch
import triton
import triton.language as tl

#: bits, what is subtracted from a code
_TYPES = {"uint4b8": (4, 8), "uint8b128": (8, 128)}


@triton.jit
def _kept(words, k0, j0, n, BITS: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_N: tl.constexpr):
    """(first, second) codes of each four dense rows from k0 on, [BLOCK_K / 4, BLOCK_N] each."""
    TILES: tl.constexpr = BLOCK_K // 32
    WIDTH: tl.constexpr = BLOCK_N * BITS // 2
    width = n * BITS // 2
    row = (k0 // 32 + tl.arange(0, TILES)).to(tl.int64)[:, None]
    at = j0 * BITS // 2 + tl.arange(0, WIDTH)[None, :]
    packed = tl.load(words + row * width + at, mask=at < width, other=0)
    packed = tl.reshape(packed, (TILES * WIDTH, 1))
    if BITS == 4:
        place = tl.arange(0, 8)[None, :]  # in bits: four columns on, row r or r + 8, r or r + 1
        shift = place // 4 * 8 + place // 2 % 2 * 4 + place % 2 * 16
    else:
        place = tl.arange(0, 4)[None, :]  # in bits: row r or r + 8, r or r + 1
        shift = place // 2 * 8 + place % 2 * 16
    codes = (packed >> shift) & ((1 << BITS) - 1)
    # tile row, columns by 8, row pair in 4, column in 4, column half, row half, row of pair
    codes = tl.reshape(codes, (TILES, BLOCK_N // 8, 4, 4, 2, 2, 2))
    codes = tl.permute(codes, (0, 5, 2, 1, 4, 3, 6))
    return tl.split(tl.reshape(codes, (BLOCK_K // 4, BLOCK_N, 2)))


@triton.jit
def _scales_and_places(
    scales, meta, k0, k, j, n, group, ONE_GROUP: tl.constexpr, BLOCK_K: tl.constexpr
):
    """For rows k0 on (nothing past k): scales [columns], and 16 bits for each 16 dense rows."""
    # Of 8 columns, scales of many groups have columns x and x + 4 side by side.
    at = j if ONE_GROUP else j // 8 * 8 + j % 4 * 2 + j % 8 // 4
    inside = (j < n) & (k0 < k)
    scale = tl.load(scales + (k0 // group).to(tl.int64) * n + at, mask=inside, other=0.0)
    element = (k0 // 16 + tl.arange(0, BLOCK_K // 16))[:, None]
    row = j // 64 * 64 + j % 2 * 2 + j % 8 // 4 + j % 4 // 2 * 32 + j % 64 // 8 * 4
    row = row[None, :]
    # Odd row and odd element of a pair change places.
    stored = (element // 2).to(tl.int64) * 2 * n + 2 * (row - row % 2 + element % 2) + row % 2
    return scale, tl.load(meta + stored, mask=inside[None, :], other=0)


@triton.jit
def _gemm(
    a, words, meta, scales, out, m, n, k, group, steps,
    BITS: tl.constexpr, OFFSET: tl.constexpr, ONE_GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    tiles_m = tl.cdiv(m, BLOCK_M)
    tile_m, tile_n = tl.program_id(0) % tiles_m, tl.program_id(0) // tiles_m
    split = tl.program_id(1)
    i = (tile_m * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
    j = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    p = tl.arange(0, BLOCK_K)[None, :]
    which = tl.arange(0, 4)[None, :, None]
    begin = split * steps
    scale, places = _scales_and_places(
        scales, meta, begin * BLOCK_K, k, j, n, group, ONE_GROUP, BLOCK_K
    )
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for step in range(begin, tl.minimum(begin + steps, k // BLOCK_K)):
        k0 = step * BLOCK_K
        next_scale, next_places = _scales_and_places(
            scales, meta, k0 + BLOCK_K, k, j, n, group, ONE_GROUP, BLOCK_K
        )
        left = tl.load(a + i * k + k0 + p, mask=i < m, other=0.0)
        first, second = _kept(words, k0, tile_n * BLOCK_N, n, BITS, BLOCK_K, BLOCK_N)
        first = ((first - OFFSET).to(tl.float16) * scale[None, :])[:, None, :]
        second = ((second - OFFSET).to(tl.float16) * scale[None, :])[:, None, :]
        # Four bits for each four dense rows: the place of the first, then that of the second.
        pairs = (places.to(tl.int32)[:, None, :] >> (which * 4)) & 15
        pairs = tl.reshape(pairs, (BLOCK_K // 4, 1, BLOCK_N))
        dense = tl.where(pairs >> 2 == which, second, 0.0)
        dense = tl.where((pairs & 3) == which, first, dense)
        total = tl.dot(left, tl.reshape(dense.to(tl.float16), (BLOCK_K, BLOCK_N)), total)
        scale, places = next_scale, next_places
    out += split.to(tl.int64) * m * n + i * n + j[None, :]
    tl.store(out, total, mask=(i < m) & (j < n)[None, :])


@triton.jit
def _add_parts(parts, out, numel, splits, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for split in range(0, splits):
        total += tl.load(parts + split * numel.to(tl.int64) + at, mask=at < numel, other=0.0)
    tl.store(out + at, total, mask=at < numel)


def gptq_marlin_24_gemm(
    a: torch.Tensor,
    b_q_weight: torch.Tensor,
    b_meta: torch.Tensor,
    b_scales: torch.Tensor,
    workspace: torch.Tensor,
    b_q_type: str,
    size_m: int,
    size_n: int,
    size_k: int,
) -> torch.Tensor:
    m, n, k = size_m, size_n, size_k
    out = torch.empty((m, n), dtype=a.dtype, device=a.device)
    if m == 0:
        return out
    bits, offset = _TYPES[b_q_type]
    groups = b_scales.shape[0]
    if m <= 64:
        block_m, block_n, warps = max(triton.next_power_of_2(m), 16), 128, 4
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
    _gemm[(tiles, splits)](
        a, b_q_weight, b_meta, b_scales, parts, m, n, k, k // groups, steps,
        BITS=bits, OFFSET=offset, ONE_GROUP=groups == 1,
        BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=block_k, num_warps=warps, num_stages=3,
    )  # fmt: skip
    if splits > 1:
        _add_parts[(triton.cdiv(m * n, 1024),)](parts, out, m * n, splits, BLOCK=1024)
    return out
