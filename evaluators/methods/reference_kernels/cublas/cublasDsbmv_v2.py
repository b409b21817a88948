"""y = alpha A x + beta y in float64, A symmetric with k diagonals on each side, stored as a band.

Each output sums over the k + 1 stored diagonals twice: over its own column of the band, and over
the elements of its row, which stand in the columns before it (uplo lower) or behind it (upper). The
second walk finds what neighbouring outputs have just read, in cache. A program owns BLOCK outputs
and takes DEPTH diagonals a step.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def load_vector(x_ptr, incx, i, inside, n):
    """Elements i of a vector of n; 0 where not `inside`."""
    return tl.load(x_ptr + tl.where(incx < 0, (i - n + 1) * incx, i * incx), mask=inside, other=0.0)


@triton.jit
def sbmv_kernel(
    n, k, alpha: tl.float64, a_ptr, lda, x_ptr, incx, beta: tl.float64, y_ptr, incy,
    LOWER: tl.constexpr, READ_Y: tl.constexpr, BLOCK: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    column = i[None, :]
    own = tl.zeros((DEPTH, BLOCK), dtype=tl.float64)
    others = tl.zeros((DEPTH, BLOCK), dtype=tl.float64)
    for start in range(0, k + 1, DEPTH):
        d = (start + tl.arange(0, DEPTH)).to(tl.int64)[:, None]  # the diagonal; 0 is the main one
        # A column's elements reach down from the diagonal (lower) or up (upper).
        reached = column + d if LOWER else column - d
        reaching = column - d if LOWER else column + d
        row = d if LOWER else k - d

        inside = (d <= k) & (column < n) & (reached >= 0) & (reached < n)
        a = tl.load(a_ptr + row + column * lda, mask=inside, other=0.0)
        own += a * load_vector(x_ptr, incx, reached, inside, n)

        inside = (d > 0) & (d <= k) & (column < n) & (reaching >= 0) & (reaching < n)
        a = tl.load(a_ptr + row + reaching * lda, mask=inside, other=0.0)
        others += a * load_vector(x_ptr, incx, reaching, inside, n)
    result = alpha * (tl.sum(own, axis=0) + tl.sum(others, axis=0))
    if READ_Y:
        result += beta * load_vector(y_ptr, incy, i, i < n, n)
    tl.store(y_ptr + tl.where(incy < 0, (i - n + 1) * incy, i * incy), result, mask=i < n)


def cublasDsbmv_v2(
    uplo: int, n: int, k: int, alpha: float, A: torch.Tensor, lda: int, x: torch.Tensor, incx: int,
    beta: float, y: torch.Tensor, incy: int,
) -> None:  # fmt: skip
    if n == 0:
        return
    depth = min(triton.next_power_of_2(k + 1), 8)
    block = 1024 // depth
    sbmv_kernel[(triton.cdiv(n, block),)](
        n, k, alpha, A, lda, x, incx, beta, y, incy,
        LOWER=uplo == 0, READ_Y=beta != 0, BLOCK=block, DEPTH=depth, num_warps=4,
    )  # fmt: skip
