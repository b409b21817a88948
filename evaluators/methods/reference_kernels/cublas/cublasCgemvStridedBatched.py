"""y = alpha op(A) x + beta y in complex64 for each member of a strided batch.

A is read once. One program owns BLOCK_R outputs of one member and walks the reduction, in tiles
whose long side lies along the columns' memory: down the rows where op is N, along the reduction
where it transposes. A complex number is loaded as one 8-byte word and taken apart in registers.
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
    a_ptr, step_a, x_ptr, step_x, y_ptr, step_y, rows, cols, stride_row, stride_col, incx, incy,
    alpha_re, alpha_im, beta_re, beta_im,
    CONJUGATE: tl.constexpr, READ_Y: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    member = tl.program_id(1).to(tl.int64)
    a_ptr += member * step_a
    x_ptr += member * step_x
    y_ptr += member * step_y
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


def cublasCgemvStridedBatched(
    trans: int, m: int, n: int, alpha: complex, A: torch.Tensor, lda: int, strideA: int,
    x: torch.Tensor, incx: int, stridex: int, beta: complex, y: torch.Tensor, incy: int,
    stridey: int, batchCount: int,
) -> None:  # fmt: skip
    if m == 0 or n == 0 or batchCount == 0:
        return
    plain = trans == 0
    rows, cols = (m, n) if plain else (n, m)
    along = max(16, min(triton.next_power_of_2(m), 128 if plain else 256))  # down a column of A
    across = 2048 // along
    block_r, block_c = (along, across) if plain else (across, along)
    gemv_kernel[(triton.cdiv(rows, block_r), batchCount)](
        A.view(torch.int64), strideA, x.view(torch.int64), stridex, y.view(torch.int64), stridey,
        rows, cols, *((1, lda) if plain else (lda, 1)), incx, incy,
        alpha.real, alpha.imag, beta.real, beta.imag,
        CONJUGATE=trans == 2, READ_Y=beta != 0, BLOCK_R=block_r, BLOCK_C=block_c,
    )  # fmt: skip
