"""Product of 8-bit matrices, scales and bias applied to the sums before they are written.

Each program owns a tile of the result and walks K in steps; int8 products are summed in int32,
float8 products in float32. `b` is column-major, so that both operands are read along K.
Scales of rows and columns meet the finished sums. Block scales (128 by 128) meet the sums of each
step instead. Programs are numbered in groups of GROUP tile rows, so that those running together
share tiles in cache. The tile follows from the number of rows alone.

Where no matrix unit takes float8 (gfx11) the products are of float16, which holds every such value.
The bits are moved here: Triton's own conversion takes LLVM minutes to compile there.
"""

import torch
import triton
import triton.language as tl
from triton.language.target_info import current_target


@triton.jit
def _widened(x):
    """float8 e4m3fn as float16: the exponents' biases differ by 8."""
    bits = x.to(tl.uint8, bitcast=True).to(tl.uint16)
    value = ((bits & 0x80) << 8 | (bits & 0x7F) << 7).to(tl.float16, bitcast=True) * 256.0
    return tl.where((bits & 0x7F) == 0x7F, float("nan"), value).to(tl.float16)


@triton.jit
def _scaled_mm(
    a, b, scale_a, scale_b, bias, out, m, n, k,
    a_m, a_k, b_k, b_n, sa_m, sa_k, sb_k, sb_n,
    INTEGER: tl.constexpr, WIDEN: tl.constexpr, BLOCKS: tl.constexpr, BIAS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr = 8,
):  # fmt: skip
    program = tl.program_id(0)
    tiles_m, tiles_n = tl.cdiv(m, BLOCK_M), tl.cdiv(n, BLOCK_N)
    first = program // (GROUP * tiles_n) * GROUP
    height = tl.minimum(tiles_m - first, GROUP)
    tile_m = first + program % (GROUP * tiles_n) % height
    tile_n = program % (GROUP * tiles_n) // height

    i = (tile_m * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    j = (tile_n * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)
    p = tl.arange(0, BLOCK_K).to(tl.int64)
    a += i[:, None] * a_m + p[None, :] * a_k
    b += p[:, None] * b_k + j[None, :] * b_n
    if INTEGER:
        total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.int32)
    else:
        total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for step in range(0, tl.cdiv(k, BLOCK_K)):
        inside = p < k - step * BLOCK_K
        left = tl.load(a, mask=(i < m)[:, None] & inside[None, :], other=0.0)
        right = tl.load(b, mask=inside[:, None] & (j < n)[None, :], other=0.0)
        if WIDEN:
            left, right = _widened(left), _widened(right)
        if BLOCKS:
            block = step * BLOCK_K // 128
            rows = tl.load(scale_a + i * sa_m + block * sa_k, mask=i < m, other=0.0)
            columns = tl.load(scale_b + block * sb_k + j // 128 * sb_n, mask=j < n, other=0.0)
            total += tl.dot(left, right) * (rows[:, None] * columns[None, :])
        elif INTEGER:
            total = tl.dot(left, right, total, out_dtype=tl.int32)
        else:
            total = tl.dot(left, right, total)
        a += BLOCK_K * a_k
        b += BLOCK_K * b_k
    result = total.to(tl.float32)
    if not BLOCKS:
        rows = tl.load(scale_a + i * sa_m, mask=i < m, other=0.0)
        columns = tl.load(scale_b + j * sb_n, mask=j < n, other=0.0)
        result = result * columns[None, :] * rows[:, None]
    if BIAS:
        result += tl.load(bias + j, mask=j < n, other=0.0).to(tl.float32)[None, :]
    tl.store(out + i[:, None] * n + j[None, :], result, mask=(i < m)[:, None] & (j < n)[None, :])


def _tile(m: int) -> tuple[int, int, int]:
    """(rows, columns, warps) of a tile: 64 KB of operands in flight fit every chip."""
    if m <= 64:
        return max(triton.next_power_of_2(m), 16), 128, 4
    return 128, 128, 8


def cutlass_scaled_mm(
    a: torch.Tensor,
    b: torch.Tensor,
    scale_a: torch.Tensor,
    scale_b: torch.Tensor,
    out_dtype: torch.dtype,
    bias: torch.Tensor | None = None,
) -> torch.Tensor:
    rows = a.reshape(-1, a.shape[-1])
    (m, k), n = rows.shape, b.shape[1]
    out = torch.empty((*a.shape[:-1], n), dtype=out_dtype, device=a.device)
    if m == 0 or n == 0:
        return out
    blocks = scale_a.dim() == 2 and scale_a.shape[1] > 1
    if blocks:
        scales = (*scale_a.stride(), *scale_b.stride())
    else:
        scales = (int(scale_a.numel() > 1), 0, 0, int(scale_b.numel() > 1))

    target = current_target()
    widen = a.dtype == torch.float8_e4m3fn and str(getattr(target, "arch", ""))[:5] == "gfx11"
    block_m, block_n, warps = _tile(m)
    grid = (triton.cdiv(m, block_m) * triton.cdiv(n, block_n),)
    _scaled_mm[grid](
        rows, b, scale_a, scale_b, bias, out, m, n, k,
        *rows.stride(), *b.stride(), *scales,
        INTEGER=a.dtype == torch.int8, WIDEN=widen, BLOCKS=blocks, BIAS=bias is not None,
        BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=32 if widen else 128,
        num_warps=warps, num_stages=3,
    )  # fmt: skip
    return out
