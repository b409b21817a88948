"""C = diag(x) A or A diag(x) in float32, column-major: every element of A times one of x.

One tile a program, read and written once, long down the columns, where memory is contiguous. x has
an element for each row or each column and comes from cache.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def dgmm_kernel(
    m, n, a_ptr, lda, x_ptr, incx, c_ptr, ldc,
    LEFT: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    i = (tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M))[:, None]
    j = (tl.program_id(1).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N))[None, :]
    if LEFT:
        x = tl.load(x_ptr + tl.where(incx < 0, (i - m + 1) * incx, i * incx), mask=i < m)
    else:
        x = tl.load(x_ptr + tl.where(incx < 0, (j - n + 1) * incx, j * incx), mask=j < n)
    inside = (i < m) & (j < n)
    a = tl.load(a_ptr + i + j * lda, mask=inside)
    tl.store(c_ptr + i + j * ldc, a * x, mask=inside)


def cublasSdgmm(
    mode: int, m: int, n: int, A: torch.Tensor, lda: int, x: torch.Tensor, incx: int,
    C: torch.Tensor, ldc: int,
) -> None:  # fmt: skip
    if m == 0 or n == 0:
        return
    block_m, block_n = 256, 8
    dgmm_kernel[(triton.cdiv(m, block_m), triton.cdiv(n, block_n))](
        m, n, A, lda, x, incx, C, ldc, LEFT=mode == 0, BLOCK_M=block_m, BLOCK_N=block_n
    )
