"""y = alpha op(A) x + beta y in complex64, A column-major.

A complex number is loaded as one 8-byte word and taken apart in registers. A is read once, in tiles
whose long side lies along the columns' memory: down the rows where op is N, along the reduction
where it transposes. Where the output alone gives too few programs to fill a chip, the reduction is
split into chunks; partial sums go to scratch and a second kernel adds them in order, so the result
repeats bit by bit.
"""

import torch
import triton
import triton.language as tl

PROGRAMS = 1024  # enough to fill the largest chips several times over


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
def partial_kernel(
    a_ptr, x_ptr, partial_ptr, rows, cols, stride_row, stride_col, incx, chunk,
    CONJUGATE: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    r = tl.program_id(0).to(tl.int64) * BLOCK_R + tl.arange(0, BLOCK_R)
    begin = tl.program_id(1) * chunk
    end = tl.minimum(begin + chunk, cols)
    sum_re = tl.zeros((BLOCK_R, BLOCK_C), dtype=tl.float32)
    sum_im = tl.zeros((BLOCK_R, BLOCK_C), dtype=tl.float32)
    for start in range(begin, end, BLOCK_C):
        c = (start + tl.arange(0, BLOCK_C)).to(tl.int64)
        at_x = tl.where(incx < 0, (c - cols + 1) * incx, c * incx)
        x_re, x_im = parts(tl.load(x_ptr + at_x, mask=c < end, other=0)[None, :])
        inside = (r[:, None] < rows) & (c[None, :] < end)
        tile = a_ptr + r[:, None] * stride_row + c[None, :] * stride_col
        a_re, a_im = parts(tl.load(tile, mask=inside, other=0))
        if CONJUGATE:
            a_im = -a_im
        sum_re += a_re * x_re - a_im * x_im
        sum_im += a_re * x_im + a_im * x_re
    result = word(tl.sum(sum_re, axis=1), tl.sum(sum_im, axis=1))
    tl.store(partial_ptr + tl.program_id(1) * rows + r, result, mask=r < rows)


@triton.jit
def finish_kernel(
    partial_ptr, y_ptr, rows, chunks, incy, alpha_re, alpha_im, beta_re, beta_im,
    READ_Y: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    r = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    re = tl.zeros((BLOCK,), dtype=tl.float32)
    im = tl.zeros((BLOCK,), dtype=tl.float32)
    for chunk in range(chunks):
        part = tl.load(partial_ptr + chunk * rows + r, mask=r < rows, other=0)
        part_re, part_im = parts(part)
        re += part_re
        im += part_im
    out_re, out_im = alpha_re * re - alpha_im * im, alpha_re * im + alpha_im * re
    at_y = tl.where(incy < 0, (r - rows + 1) * incy, r * incy)
    if READ_Y:
        y_re, y_im = parts(tl.load(y_ptr + at_y, mask=r < rows, other=0))
        out_re += beta_re * y_re - beta_im * y_im
        out_im += beta_re * y_im + beta_im * y_re
    tl.store(y_ptr + at_y, word(out_re, out_im), mask=r < rows)


def cublasCgemv_v2(
    trans: int, m: int, n: int, alpha: complex, A: torch.Tensor, lda: int, x: torch.Tensor,
    incx: int, beta: complex, y: torch.Tensor, incy: int,
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
    partial = torch.empty(chunks * rows, dtype=torch.int64, device=y.device)
    words = A.view(torch.int64), x.view(torch.int64), y.view(torch.int64)
    partial_kernel[(tiles, chunks)](
        words[0], words[1], partial, rows, cols, stride_row, stride_col, incx, chunk,
        CONJUGATE=trans == 2, BLOCK_R=block_r, BLOCK_C=block_c,
    )  # fmt: skip
    finish_kernel[(triton.cdiv(rows, 128),)](
        partial, words[2], rows, chunks, incy, alpha.real, alpha.imag, beta.real, beta.imag,
        READ_Y=beta != 0, BLOCK=128,
    )  # fmt: skip
