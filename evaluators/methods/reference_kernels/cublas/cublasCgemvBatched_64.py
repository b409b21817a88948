"""y = alpha op(A) x + beta y in complex64 for each member of a batch behind pointer tables.

A is read once. One program owns BLOCK_R outputs of one member and walks the reduction, in tiles
whose long side lies along the columns' memory: down the rows where op is N, along the reduction
where it transposes. A complex number is loaded as one 8-byte word and taken apart in registers. The
tables hold device addresses: each program loads its member's three and turns them into pointers.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def parts(word):
    """Real and imaginary part of complex64 numbers that were loaded as int64 words."""
    re = word.to(tl.int32).to(tl.float32, bitcast=True)
    im = (word >> 32).to(tl.int32).to(tl.float32, bitcast=True)
    return re, im


@triton.jit
def word(re, im):
    """The int64 words of complex64 numbers."""
    low = re.to(tl.int32, bitcast=True).to(tl.int64) & 0xFFFFFFFF
    return (im.to(tl.int32, bitcast=True).to(tl.int64) << 32) | low


@triton.jit
def gemv_kernel(
    a_table, x_table, y_table, rows, cols, stride_row, stride_col, incx, incy,
    alpha_re, alpha_im, beta_re, beta_im,
    CONJUGATE: tl.constexpr, READ_Y: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    member = tl.program_id(1)
    a_ptr = tl.load(a_table + member).to(tl.pointer_type(tl.int64))
    x_ptr = tl.load(x_table + member).to(tl.pointer_type(tl.int64))
    y_ptr = tl.load(y_table + member).to(tl.pointer_type(tl.int64))
    r = tl.program_id(0).to(tl.int64) * BLOCK_R + tl.arange(0, BLOCK_R)
    at_y = tl.where(incy < 0, (r - rows + 1) * incy, r * incy)
    sum_re = tl.zeros((BLOCK_R, BLOCK_C), dtype=tl.float32)
    sum_im = tl.zeros((BLOCK_R, BLOCK_C), dtype=tl.float32)
    for start in range(0, cols, BLOCK_C):
        c = (start + tl.arange(0, BLOCK_C)).to(tl.int64)
        at_x = tl.where(incx < 0, (c - cols + 1) * incx, c * incx)
        x_re, x_im = parts(tl.load(x_ptr + at_x, mask=c < cols, other=0)[None, :])
        inside = (r[:, None] < rows) & (c[None, :] < cols)
        tile = a_ptr + r[:, None] * stride_row + c[None, :] * stride_col
        a_re, a_im = parts(tl.load(tile, mask=inside, other=0))
        if CONJUGATE:
            a_im = -a_im
        sum_re += a_re * x_re - a_im * x_im
        sum_im += a_re * x_im + a_im * x_re
    re, im = tl.sum(sum_re, axis=1), tl.sum(sum_im, axis=1)
    out_re, out_im = alpha_re * re - alpha_im * im, alpha_re * im + alpha_im * re
    if READ_Y:
        y_re, y_im = parts(tl.load(y_ptr + at_y, mask=r < rows, other=0))
        out_re += beta_re * y_re - beta_im * y_im
        out_im += beta_re * y_im + beta_im * y_re
    tl.store(y_ptr + at_y, word(out_re, out_im), mask=r < rows)


def cublasCgemvBatched_64(
    trans: int, m: int, n: int, alpha: complex, Aarray: torch.Tensor, lda: int,
    xarray: torch.Tensor, incx: int, beta: complex, yarray: torch.Tensor, incy: int,
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
        rows, cols, *((1, lda) if plain else (lda, 1)), incx, incy,
        alpha.real, alpha.imag, beta.real, beta.imag,
        CONJUGATE=trans == 2, READ_Y=beta != 0, BLOCK_R=block_r, BLOCK_C=block_c,
    )  # fmt: skip
