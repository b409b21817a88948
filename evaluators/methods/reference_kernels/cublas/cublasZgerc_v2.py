"""A = alpha x conj(y)^T + A in complex128, A column-major: one tile of A a program.

A tile has the columns' memory as its last axis but one and the two doubles of a number as its last,
so that a thread moves 16 bytes and neighbours move what lies beside. It is read and written once;
the vectors come from cache.
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
def ger_kernel(
    m, n, alpha_re: tl.float64, alpha_im: tl.float64, x_ptr, incx, y_ptr, incy, a_ptr, lda,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    i = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    j = tl.program_id(1).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    x_re, x_im = parts(x_ptr, tl.where(incx < 0, (i - m + 1) * incx, i * incx), i < m)
    y_re, y_im = parts(y_ptr, tl.where(incy < 0, (j - n + 1) * incy, j * incy), j < n)
    x_re, x_im = alpha_re * x_re - alpha_im * x_im, alpha_re * x_im + alpha_im * x_re
    x_re, x_im, y_re, y_im = x_re[None, :], x_im[None, :], y_re[:, None], -y_im[:, None]

    at = j[:, None] * lda + i[None, :]
    inside = (j[:, None] < n) & (i[None, :] < m)
    a_re, a_im = parts(a_ptr, at, inside)
    a_re += x_re * y_re - x_im * y_im
    a_im += x_re * y_im + x_im * y_re
    both = a_ptr + 2 * tl.expand_dims(at, -1) + tl.arange(0, 2)
    tl.store(both, tl.join(a_re, a_im), mask=tl.expand_dims(inside, -1))


def cublasZgerc_v2(
    m: int, n: int, alpha: complex, x: torch.Tensor, incx: int, y: torch.Tensor, incy: int,
    A: torch.Tensor, lda: int,
) -> None:  # fmt: skip
    if m == 0 or n == 0:
        return
    block_m, block_n = 128, 8
    x, y, A = torch.view_as_real(x), torch.view_as_real(y), torch.view_as_real(A)
    ger_kernel[(triton.cdiv(m, block_m), triton.cdiv(n, block_n))](
        m, n, alpha.real, alpha.imag, x, incx, y, incy, A, lda,
        BLOCK_M=block_m, BLOCK_N=block_n, num_warps=4,
    )  # fmt: skip
