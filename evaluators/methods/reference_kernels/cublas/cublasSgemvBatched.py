"""y = alpha op(A) x + beta y in float32 for each member of a batch behind pointer tables.

A is read once. One program owns BLOCK_R outputs of one member and walks the reduction, in tiles
whose long side lies along the columns' memory: down the rows where op is N, along the reduction
where it transposes. The tables hold device addresses: each program loads its member's three and
turns them into pointers.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def gemv_kernel(
    a_table, x_table, y_table, rows, cols, stride_row, stride_col, incx, incy,
    alpha, beta,
    READ_Y: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    member = tl.program_id(1)
    a_ptr = tl.load(a_table + member).to(tl.pointer_type(tl.float32))
    x_ptr = tl.load(x_table + member).to(tl.pointer_type(tl.float32))
    y_ptr = tl.load(y_table + member).to(tl.pointer_type(tl.float32))
    r = tl.program_id(0).to(tl.int64) * BLOCK_R + tl.arange(0, BLOCK_R)
    at_y = tl.where(incy < 0, (r - rows + 1) * incy, r * incy)
    total = tl.zeros((BLOCK_R, BLOCK_C), dtype=tl.float32)
    for start in range(0, cols, BLOCK_C):
        c = (start + tl.arange(0, BLOCK_C)).to(tl.int64)
        at_x = tl.where(incx < 0, (c - cols + 1) * incx, c * incx)
        x = tl.load(x_ptr + at_x, mask=c < cols, other=0.0)[None, :]
        inside = (r[:, None] < rows) & (c[None, :] < cols)
        tile = a_ptr + r[:, None] * stride_row + c[None, :] * stride_col
        total += tl.load(tile, mask=inside, other=0.0) * x
    result = alpha * tl.sum(total, axis=1)
    if READ_Y:
        result += beta * tl.load(y_ptr + at_y, mask=r < rows, other=0.0)
    tl.store(y_ptr + at_y, result, mask=r < rows)


def cublasSgemvBatched(
    trans: int, m: int, n: int, alpha: float, Aarray: torch.Tensor, lda: int,
    xarray: torch.Tensor, incx: int, beta: float, yarray: torch.Tensor, incy: int,
    batchCount: int,
) -> None:  # fmt: skip
    if m == 0 or n == 0 or batchCount == 0:
        return
    plain = trans == 0
    rows, cols = (m, n) if plain else (n, m)
    along = max(16, min(triton.next_power_of_2(m), 128 if plain else 256))  # down a column of A
    across = 2048 // along
    block_r, block_c = (along, across) if plain else (across, along)
    gemv_kernel[(triton.cdiv(rows, block_r), batchCount)](
        Aarray, xarray, yarray,
        rows, cols, *((1, lda) if plain else (lda, 1)), incx, incy, alpha, beta,
        READ_Y=beta != 0, BLOCK_R=block_r, BLOCK_C=block_c,
    )  # fmt: skip
