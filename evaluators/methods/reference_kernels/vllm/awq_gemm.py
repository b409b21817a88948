"""Product with 4-bit AWQ weights: words are unpacked in registers, next to the matrix units.

Each program owns a tile of the result and walks its share of K. A step lies inside one group of
rows, so that scales and zero points are one row each. A word of eight columns is spread over eight
neighbouring registers (three interleavings with itself) and every copy shifted to its own nibble;
(code - zero) * scale is rounded to float16 and goes to the matrix units, sums stay in float32.
With few rows the weights are the traffic, and tiles over N alone do not fill the chip: then K is
split, parts are kept in float32 and added in order by a second kernel.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _spread(words):
    """Every word eight times, side by side."""
    words = tl.interleave(words, words)
    words = tl.interleave(words, words)
    return tl.interleave(words, words)


@triton.jit
def _awq_gemm(
    a, words, scales, zeros, out, m, n, k, group, steps,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    tiles_m = tl.cdiv(m, BLOCK_M)
    tile_m, tile_n = tl.program_id(0) % tiles_m, tl.program_id(0) // tiles_m
    split = tl.program_id(1)
    i = (tile_m * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
    j = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    word = tile_n * (BLOCK_N // 8) + tl.arange(0, BLOCK_N // 8)
    shift = j % 8 // 2 * 4 + j % 2 * 16
    p = tl.arange(0, BLOCK_K)
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for step in range(split * steps, tl.minimum(split * steps + steps, k // BLOCK_K)):
        row = (step * BLOCK_K + p).to(tl.int64)
        left = tl.load(a + i * k + row[None, :], mask=i < m, other=0.0)
        packed = tl.load(
            words + row[:, None] * (n // 8) + word[None, :], mask=(word < n // 8)[None, :], other=0
        )
        g = (step * BLOCK_K // group).to(tl.int64)
        zero = tl.load(zeros + g * (n // 8) + word, mask=word < n // 8, other=0)
        scale = tl.load(scales + g * n + j, mask=j < n, other=0.0)
        code = (_spread(packed) >> shift[None, :]) & 15
        point = (_spread(zero) >> shift) & 15
        weight = (code - point[None, :]).to(tl.float16) * scale[None, :]
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


def awq_gemm(
    input: torch.Tensor,
    qweight: torch.Tensor,
    scales: torch.Tensor,
    qzeros: torch.Tensor,
    split_k_iters: int,
) -> torch.Tensor:
    m, k = input.shape
    groups, n = scales.shape
    group = k // groups
    out = torch.empty((m, n), dtype=input.dtype, device=input.device)
    if m == 0:
        return out
    block_k = 64 if group % 64 == 0 else 32
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
        parts = torch.empty((splits, m, n), dtype=torch.float32, device=input.device)
    _awq_gemm[(tiles, splits)](
        input, qweight, scales, qzeros, parts, m, n, k, group, steps,
        BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=block_k, num_warps=warps, num_stages=4,
    )  # fmt: skip
    if splits > 1:
        _add_parts[(triton.cdiv(m * n, 1024),)](parts, out, m * n, splits, BLOCK=1024)
    return out
