"""y = alpha op(A) x + beta y in float64, A column-major.

A is read once, in tiles whose long side lies along the columns' memory: down the rows where op is
N, along the reduction where op is T. Where the output alone gives too few programs to fill a chip,
the reduction is split into chunks; partial sums go to scratch and a second kernel adds them in
order, so the result repeats bit by bit.
"""

import torch
import triton
import triton.language as tl

PROGRAMS = 1024  # enough to fill the largest chips several times over


@triton.jit
def gemv_kernel(
    a_ptr, x_ptr, y_ptr, partial_ptr, rows, cols, stride_row, stride_col, incx, incy,
    alpha: tl.float64, beta: tl.float64, chunk,
    WHOLE: tl.constexpr, READ_Y: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    r = tl.program_id(0).to(tl.int64) * BLOCK_R + tl.arange(0, BLOCK_R)
    begin = tl.program_id(1) * chunk
    end = tl.minimum(begin + chunk, cols)
    total = tl.zeros((BLOCK_R, BLOCK_C), dtype=y_ptr.dtype.element_ty)
    for start in range(begin, end, BLOCK_C):
        c = (start + tl.arange(0, BLOCK_C)).to(tl.int64)
        inside = c < end
        at_x = tl.where(incx < 0, (c - cols + 1) * incx, c * incx)
        x = tl.load(x_ptr + at_x, mask=inside, other=0.0)
        tile = a_ptr + r[:, None] * stride_row + c[None, :] * stride_col
        a = tl.load(tile, mask=(r[:, None] < rows) & inside[None, :], other=0.0)
        total += a * x[None, :]
    row_sum = tl.sum(total, axis=1)
    if WHOLE:
        at_y = tl.where(incy < 0, (r - rows + 1) * incy, r * incy)
        result = alpha * row_sum
        if READ_Y:
            result += beta * tl.load(y_ptr + at_y, mask=r < rows)
        tl.store(y_ptr + at_y, result, mask=r < rows)
    else:
        tl.store(partial_ptr + tl.program_id(1) * rows + r, row_sum, mask=r < rows)


@triton.jit
def finish_kernel(
    partial_ptr, y_ptr, rows, chunks, incy, alpha: tl.float64, beta: tl.float64,
    READ_Y: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    r = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), dtype=y_ptr.dtype.element_ty)
    for chunk in range(chunks):
        total += tl.load(partial_ptr + chunk * rows + r, mask=r < rows, other=0.0)
    at_y = tl.where(incy < 0, (r - rows + 1) * incy, r * incy)
    result = alpha * total
    if READ_Y:
        result += beta * tl.load(y_ptr + at_y, mask=r < rows)
    tl.store(y_ptr + at_y, result, mask=r < rows)


def cublasDgemv_v2(
    trans: int, m: int, n: int, alpha: float, A: torch.Tensor, lda: int, x: torch.Tensor,
    incx: int, beta: float, y: torch.Tensor, incy: int,
) -> None:  # fmt: skip
    if m == 0 or n == 0:
        return
    plain = trans == 0
    rows, cols = (m, n) if plain else (n, m)
    stride_row, stride_col = (1, lda) if plain else (lda, 1)
    block_r, block_c = (128, 8) if plain else (4, 256)
    tiles = triton.cdiv(rows, block_r)
    chunks = min(triton.cdiv(PROGRAMS, tiles), triton.cdiv(cols, 4 * block_c))
    chunk = triton.cdiv(triton.cdiv(cols, chunks), block_c) * block_c
    chunks = triton.cdiv(cols, chunk)
    partial = torch.empty(chunks * rows if chunks > 1 else 1, dtype=y.dtype, device=y.device)
    read = beta != 0.0
    gemv_kernel[(tiles, chunks)](
        A, x, y, partial, rows, cols, stride_row, stride_col, incx, incy, alpha, beta, chunk,
        WHOLE=chunks == 1, READ_Y=read, BLOCK_R=block_r, BLOCK_C=block_c,
    )  # fmt: skip
    if chunks > 1:
        finish_kernel[(triton.cdiv(rows, 256),)](
            partial, y, rows, chunks, incy, alpha, beta, READ_Y=read, BLOCK=256
        )
