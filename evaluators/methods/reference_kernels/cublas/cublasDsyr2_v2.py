"""A = alpha (x y^T + y x^T) + A over one triangle of A, in float64, column-major.

One tile of A a program, read and written once; tiles that lie wholly in the other triangle leave at
once, those on the diagonal mask what they load and store. Tiles are long down the columns, where
memory is contiguous; the vectors come from cache.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def syr2_kernel(
    n, alpha: tl.float64, x_ptr, incx, y_ptr, incy, a_ptr, lda,
    LOWER: tl.constexpr, BLOCK_I: tl.constexpr, BLOCK_J: tl.constexpr,
):  # fmt: skip
    first_i = tl.program_id(0).to(tl.int64) * BLOCK_I
    first_j = tl.program_id(1).to(tl.int64) * BLOCK_J
    if LOWER:
        if first_i + BLOCK_I <= first_j:
            return
    elif first_j + BLOCK_J <= first_i:
        return
    i = (first_i + tl.arange(0, BLOCK_I))[:, None]
    j = (first_j + tl.arange(0, BLOCK_J))[None, :]
    x_i = tl.load(x_ptr + tl.where(incx < 0, (i - n + 1) * incx, i * incx), mask=i < n)
    y_i = tl.load(y_ptr + tl.where(incy < 0, (i - n + 1) * incy, i * incy), mask=i < n)
    x_j = tl.load(x_ptr + tl.where(incx < 0, (j - n + 1) * incx, j * incx), mask=j < n)
    y_j = tl.load(y_ptr + tl.where(incy < 0, (j - n + 1) * incy, j * incy), mask=j < n)
    inside = (i < n) & (j < n)
    if LOWER:
        inside &= i >= j
    else:
        inside &= i <= j
    a = tl.load(a_ptr + i + j * lda, mask=inside)
    tl.store(a_ptr + i + j * lda, a + alpha * (x_i * y_j + y_i * x_j), mask=inside)


def cublasDsyr2_v2(
    uplo: int, n: int, alpha: float, x: torch.Tensor, incx: int, y: torch.Tensor, incy: int,
    A: torch.Tensor, lda: int,
) -> None:  # fmt: skip
    if n == 0:
        return
    block_i, block_j = 128, 16
    syr2_kernel[(triton.cdiv(n, block_i), triton.cdiv(n, block_j))](
        n, alpha, x, incx, y, incy, A, lda,
        LOWER=uplo == 0, BLOCK_I=block_i, BLOCK_J=block_j, num_warps=4,
    )  # fmt: skip
