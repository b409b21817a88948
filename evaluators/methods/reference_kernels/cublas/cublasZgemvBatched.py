"""y = alpha op(A) x + beta y in complex128 for each member of a batch behind pointer tables.

A is read once. One program owns BLOCK_R outputs of one member and walks the reduction. Tiles have
the columns' memory as their last side but one and the two doubles of a number as their last, so
that a thread loads 16 bytes and neighbours load what lies beside; a transposition only changes the
axis that is summed. The tables hold device addresses: each program loads its member's three and
turns them into pointers.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def parts(pointer, at, inside):
    """Real and imaginary part of the complex128 numbers number `at`; 0 where not `inside`."""
    both = pointer + 2 * tl.expand_dims(at, -1) + tl.arange(0, 2)
    return tl.split(tl.load(both, mask=tl.expand_dims(inside, -1), other=0.0))


@triton.jit
def gemv_kernel(
    a_table, x_table, y_table, rows, cols, lda, incx, incy,
    alpha_re: tl.float64, alpha_im: tl.float64, beta_re: tl.float64, beta_im: tl.float64,
    PLAIN: tl.constexpr, CONJUGATE: tl.constexpr, READ_Y: tl.constexpr,
    BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    member = tl.program_id(1)
    a_ptr = tl.load(a_table + member).to(tl.pointer_type(tl.float64))
    x_ptr = tl.load(x_table + member).to(tl.pointer_type(tl.float64))
    y_ptr = tl.load(y_table + member).to(tl.pointer_type(tl.float64))
    r = tl.program_id(0).to(tl.int64) * BLOCK_R + tl.arange(0, BLOCK_R)
    at_y = tl.where(incy < 0, (r - rows + 1) * incy, r * incy)
    shape: tl.constexpr = (BLOCK_C, BLOCK_R) if PLAIN else (BLOCK_R, BLOCK_C)
    sum_re = tl.zeros(shape, dtype=tl.float64)
    sum_im = tl.zeros(shape, dtype=tl.float64)
    for start in range(0, cols, BLOCK_C):
        c = (start + tl.arange(0, BLOCK_C)).to(tl.int64)
        at_x = tl.where(incx < 0, (c - cols + 1) * incx, c * incx)
        x_re, x_im = parts(x_ptr, at_x, c < cols)
        if PLAIN:  # rows of A lie side by side: they are the tile's last axis
            x_re, x_im = x_re[:, None], x_im[:, None]
            at_a = c[:, None] * lda + r[None, :]
            inside = (c[:, None] < cols) & (r[None, :] < rows)
        else:
            x_re, x_im = x_re[None, :], x_im[None, :]
            at_a = r[:, None] * lda + c[None, :]
            inside = (r[:, None] < rows) & (c[None, :] < cols)
        a_re, a_im = parts(a_ptr, at_a, inside)
        if CONJUGATE:
            a_im = -a_im
        sum_re += a_re * x_re - a_im * x_im
        sum_im += a_re * x_im + a_im * x_re
    axis: tl.constexpr = 0 if PLAIN else 1
    re, im = tl.sum(sum_re, axis=axis), tl.sum(sum_im, axis=axis)
    out_re, out_im = alpha_re * re - alpha_im * im, alpha_re * im + alpha_im * re
    if READ_Y:
        y_re, y_im = parts(y_ptr, at_y, r < rows)
        out_re += beta_re * y_re - beta_im * y_im
        out_im += beta_re * y_im + beta_im * y_re
    tl.store(y_ptr + 2 * at_y, out_re, mask=r < rows)
    tl.store(y_ptr + 2 * at_y + 1, out_im, mask=r < rows)


def cublasZgemvBatched(
    trans: int, m: int, n: int, alpha: complex, Aarray: torch.Tensor, lda: int,
    xarray: torch.Tensor, incx: int, beta: complex, yarray: torch.Tensor, incy: int,
    batchCount: int,
) -> None:  # fmt: skip
    if m == 0 or n == 0 or batchCount == 0:
        return
    plain = trans == 0
    rows, cols = (m, n) if plain else (n, m)
    along = max(16, min(triton.next_power_of_2(m), 128 if plain else 256))  # down a column of A
    across = 1024 // along
    block_r, block_c = (along, across) if plain else (across, along)
    gemv_kernel[(triton.cdiv(rows, block_r), batchCount)](
        Aarray, xarray, yarray,
        rows, cols, lda, incx, incy, alpha.real, alpha.imag, beta.real, beta.imag,
        PLAIN=plain, CONJUGATE=trans == 2, READ_Y=beta != 0, BLOCK_R=block_r, BLOCK_C=block_c,
    )  # fmt: skip
