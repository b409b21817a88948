"""C = alpha op(A) + beta op(B) in float32, column-major.

One 64 by 64 tile of C a program. A transposed operand is read along its own columns and turned by
the compiler through shared memory, so both sides of a transposition stay coalesced.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def geam_kernel(
    m, n, alpha, a_ptr, stride_am, stride_an, beta, b_ptr, stride_bm, stride_bn, c_ptr, ldc,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    i = (tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M))[:, None]
    j = (tl.program_id(1).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N))[None, :]
    inside = (i < m) & (j < n)
    a = tl.load(a_ptr + i * stride_am + j * stride_an, mask=inside)
    b = tl.load(b_ptr + i * stride_bm + j * stride_bn, mask=inside)
    tl.store(c_ptr + i + j * ldc, alpha * a + beta * b, mask=inside)


def strides(trans: int, ld: int) -> tuple[int, int]:
    """Row and column stride of op(X), X column-major with leading dimension `ld`."""
    return (1, ld) if trans == 0 else (ld, 1)


def cublasSgeam(
    transa: int, transb: int, m: int, n: int, alpha: float, A: torch.Tensor, lda: int,
    beta: float, B: torch.Tensor, ldb: int, C: torch.Tensor, ldc: int,
) -> None:  # fmt: skip
    if m == 0 or n == 0:
        return
    block = 64
    geam_kernel[(triton.cdiv(m, block), triton.cdiv(n, block))](
        m, n, alpha, A, *strides(transa, lda), beta, B, *strides(transb, ldb), C, ldc,
        BLOCK_M=block, BLOCK_N=block, num_warps=8,
    )  # fmt: skip
