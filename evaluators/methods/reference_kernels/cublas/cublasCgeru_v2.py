"""A = alpha x y^T + A in complex64, A column-major: one tile of A a program, read and written once.

A complex number is moved as one 8-byte word and taken apart in registers. Tiles are long down the
columns, where memory is contiguous; the vectors come from cache.
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
def ger_kernel(
    m, n, alpha_re, alpha_im, x_ptr, incx, y_ptr, incy, a_ptr, lda,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    i = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    j = tl.program_id(1).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    at_x = tl.where(incx < 0, (i - m + 1) * incx, i * incx)
    at_y = tl.where(incy < 0, (j - n + 1) * incy, j * incy)
    x_re, x_im = parts(tl.load(x_ptr + at_x, mask=i < m, other=0)[:, None])
    y_re, y_im = parts(tl.load(y_ptr + at_y, mask=j < n, other=0)[None, :])
    x_re, x_im = alpha_re * x_re - alpha_im * x_im, alpha_re * x_im + alpha_im * x_re
    tile = a_ptr + i[:, None] + j[None, :] * lda
    inside = (i[:, None] < m) & (j[None, :] < n)
    a_re, a_im = parts(tl.load(tile, mask=inside, other=0))
    a_re += x_re * y_re - x_im * y_im
    a_im += x_re * y_im + x_im * y_re
    tl.store(tile, word(a_re, a_im), mask=inside)


def cublasCgeru_v2(
    m: int, n: int, alpha: complex, x: torch.Tensor, incx: int, y: torch.Tensor, incy: int,
    A: torch.Tensor, lda: int,
) -> None:  # fmt: skip
    if m == 0 or n == 0:
        return
    block_m, block_n = 128, 16
    words = x.view(torch.int64), y.view(torch.int64), A.view(torch.int64)
    ger_kernel[(triton.cdiv(m, block_m), triton.cdiv(n, block_n))](
        m, n, alpha.real, alpha.imag, words[0], incx, words[1], incy, words[2], lda,
        BLOCK_M=block_m, BLOCK_N=block_n, num_warps=4,
    )  # fmt: skip
