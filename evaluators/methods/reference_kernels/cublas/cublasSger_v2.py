"""A = alpha x y^T + A in float32, A column-major: one tile of A a program, read and written once.

Tiles are long down the columns, where memory is contiguous; the vectors come from cache.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def ger_kernel(
    m, n, alpha, x_ptr, incx, y_ptr, incy, a_ptr, lda,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    i = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    j = tl.program_id(1).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    at_x = tl.where(incx < 0, (i - m + 1) * incx, i * incx)
    at_y = tl.where(incy < 0, (j - n + 1) * incy, j * incy)
    x = tl.load(x_ptr + at_x, mask=i < m, other=0.0)
    y = tl.load(y_ptr + at_y, mask=j < n, other=0.0)
    tile = a_ptr + i[:, None] + j[None, :] * lda
    inside = (i[:, None] < m) & (j[None, :] < n)
    a = tl.load(tile, mask=inside, other=0.0)
    tl.store(tile, a + alpha * x[:, None] * y[None, :], mask=inside)


def cublasSger_v2(
    m: int, n: int, alpha: float, x: torch.Tensor, incx: int, y: torch.Tensor, incy: int,
    A: torch.Tensor, lda: int,
) -> None:  # fmt: skip
    if m == 0 or n == 0:
        return
    block_m, block_n = 256, 16
    grid = (triton.cdiv(m, block_m), triton.cdiv(n, block_n))
    ger_kernel[grid](
        m, n, alpha, x, incx, y, incy, A, lda, BLOCK_M=block_m, BLOCK_N=block_n, num_warps=4
    )
