"""x = op(A) x in float32, A triangular with k diagonals beside the main one, stored as a band.

Programs need each other's inputs, so x is first copied to scratch, in walking order. A program then
owns BLOCK outputs and takes DEPTH diagonals a step. With op T an output sums over its own column of
the band; with op N over its row, whose elements stand in neighbouring columns and come from cache.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def copy_kernel(n, x_ptr, incx, copy_ptr, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    at = tl.where(incx < 0, (i - n + 1) * incx, i * incx)
    tl.store(copy_ptr + i, tl.load(x_ptr + at, mask=i < n), mask=i < n)


@triton.jit
def tbmv_kernel(
    n, k, a_ptr, lda, copy_ptr, x_ptr, incx,
    LOWER: tl.constexpr, PLAIN: tl.constexpr, UNIT: tl.constexpr,
    BLOCK: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((DEPTH, BLOCK), dtype=tl.float32)
    for start in range(0, k + 1, DEPTH):
        d = (start + tl.arange(0, DEPTH)).to(tl.int64)[:, None]  # the diagonal; 0 is the main one
        # Output i takes input i - d where op(A) is lower triangular, i + d where it is upper.
        source = i[None, :] - d if LOWER == PLAIN else i[None, :] + d
        column = source if PLAIN else i[None, :]
        row = d if LOWER else k - d
        inside = (d <= k) & (i[None, :] < n) & (source >= 0) & (source < n)
        stored = inside & (d > 0) if UNIT else inside
        a = tl.load(a_ptr + row + column * lda, mask=stored, other=0.0)
        if UNIT:
            a = tl.where(d == 0, 1.0, a)
        total += a * tl.load(copy_ptr + source, mask=inside, other=0.0)
    at = tl.where(incx < 0, (i - n + 1) * incx, i * incx)
    tl.store(x_ptr + at, tl.sum(total, axis=0), mask=i < n)


def cublasStbmv_v2(
    uplo: int, trans: int, diag: int, n: int, k: int, A: torch.Tensor, lda: int, x: torch.Tensor,
    incx: int,
) -> None:  # fmt: skip
    if n == 0:
        return
    copy = torch.empty(n, dtype=torch.float32, device=x.device)
    copy_kernel[(triton.cdiv(n, 1024),)](n, x, incx, copy, BLOCK=1024)
    depth = min(triton.next_power_of_2(k + 1), 8)
    block = 2048 // depth
    tbmv_kernel[(triton.cdiv(n, block),)](
        n, k, A, lda, copy, x, incx, LOWER=uplo == 0, PLAIN=trans == 0, UNIT=diag == 1,
        BLOCK=block, DEPTH=depth, num_warps=4,
    )  # fmt: skip
