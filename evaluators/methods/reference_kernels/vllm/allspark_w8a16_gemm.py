"""Product with 8-bit weights in the n32k16 order, unpacked in registers next to the matrix units.

For each of eight columns in a block of 32, bytes of BLOCK_K rows lie in one run, interleaved with
those of three other columns. They are read as they lie; one permutation of dimensions puts them in
rows and columns. Scales differ by column alone, so they meet the sums, not the weights: what is
multiplied is a whole number that 16 bits hold exactly. With few rows K is split over programs,
parts are kept in float32 and added in order by a second kernel.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _codes(weights, block0, blocks, k0, k, BLOCK_K: tl.constexpr, BLOCK_N: tl.constexpr):
    """Codes of rows k0 on, columns of 32-column blocks from `block0` on, [BLOCK_K, BLOCK_N]."""
    line = tl.arange(0, BLOCK_N // 4)[:, None]  # 8 of each block, 4 k bytes each
    at = 4 * k0 + tl.arange(0, 4 * BLOCK_K)[None, :]
    inside = (block0 + line // 8 < blocks) & (at < 4 * k)
    source = weights + (block0 * 8 + line).to(tl.int64) * (4 * k) + at
    codes = tl.load(source, mask=inside, other=128)
    # block, column in 8, 16 rows, row pair in 4, column eight, row half, row of pair
    codes = tl.reshape(codes, (BLOCK_N // 32, 8, BLOCK_K // 16, 4, 4, 2, 2))
    codes = tl.permute(codes, (2, 5, 3, 6, 0, 4, 1))
    return tl.reshape(codes, (BLOCK_K, BLOCK_N))


@triton.jit
def _gemm(
    a, weights, scales, zeros, out, m, n, k, blocks, steps, ZEROS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    tiles_m = tl.cdiv(m, BLOCK_M)
    tile_m, tile_n = tl.program_id(0) % tiles_m, tl.program_id(0) // tiles_m
    split = tl.program_id(1)
    i = (tile_m * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
    j = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    p = tl.arange(0, BLOCK_K)[None, :]
    # Of 32 columns, values of column 8 x + y are at 4 y + x.
    position = j // 32 * 32 + j % 8 * 4 + j % 32 // 8
    if ZEROS:
        zero = tl.load(zeros + position, mask=j < n, other=0.0)[None, :]
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for step in range(split * steps, tl.minimum(split * steps + steps, tl.cdiv(k, BLOCK_K))):
        k0 = step * BLOCK_K
        left = tl.load(a + i * k + k0 + p, mask=(i < m) & (p < k - k0), other=0.0)
        codes = _codes(weights, tile_n * (BLOCK_N // 32), blocks, k0, k, BLOCK_K, BLOCK_N)
        right = (codes.to(tl.int16) - 128).to(left.dtype)
        if ZEROS:
            right -= zero
        total = tl.dot(left, right, total)
    total *= tl.load(scales + position, mask=j < n, other=0.0).to(tl.float32)[None, :]
    out += split.to(tl.int64) * m * n + i * n + j[None, :]
    tl.store(out, total, mask=(i < m) & (j < n)[None, :])


@triton.jit
def _add_parts(parts, out, numel, splits, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for split in range(0, splits):
        total += tl.load(parts + split * numel.to(tl.int64) + at, mask=at < numel, other=0.0)
    tl.store(out + at, total, mask=at < numel)


def allspark_w8a16_gemm(
    a: torch.Tensor,
    b_qweight: torch.Tensor,
    b_scales: torch.Tensor,
    b_qzeros: torch.Tensor | None,
    n: int,
    group_size: int,
    sm_count: int,
    sm_version: int,
    CUBLAS_M_THRESHOLD: int,
    has_zp: bool,
    n32k16_reorder: bool,
) -> torch.Tensor:
    m, k = a.shape
    out = torch.empty((m, n), dtype=a.dtype, device=a.device)
    if m == 0:
        return out
    if m <= 64:
        block_m, block_n, warps = max(triton.next_power_of_2(m), 16), 128, 4
    else:
        block_m, block_n, warps = 128, 128, 8
    block_k = 64
    tiles = triton.cdiv(m, block_m) * triton.cdiv(n, block_n)
    steps = triton.cdiv(k, block_k)
    # About four programs for each multiprocessor where weights are what is read most, else two;
    # none with less than four steps.
    splits = max(min((512 if m <= 64 else 264) // tiles, steps // 4), 1)
    steps = triton.cdiv(steps, splits)
    splits = triton.cdiv(triton.cdiv(k, block_k), steps)
    parts = out
    if splits > 1:
        parts = torch.empty((splits, m, n), dtype=torch.float32, device=a.device)
    _gemm[(tiles, splits)](
        a, b_qweight, b_scales, b_qzeros, parts, m, n, k, b_qweight.shape[0] // 32, steps,
        ZEROS=b_qzeros is not None, BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=block_k,
        num_warps=warps, num_stages=4 if m <= 32 else 3,
    )  # fmt: skip
    if splits > 1:
        _add_parts[(triton.cdiv(m * n, 1024),)](parts, out, m * n, splits, BLOCK=1024)
    return out
