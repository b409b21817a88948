# operator: cublas::cublasHgemmStridedBatched
# style: the batch on the third axis, strides in elements
# chips: interpreter nvidia

import torch
import triton
import triton.language as tl


@triton.jit
def gemm_kernel(
    m, n, k, alpha, a_ptr, am, ak, az, b_ptr, bk, bn, bz, beta, c_ptr, ldc, cz,
    READ: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr
):  # fmt: skip
    z = tl.program_id(2).to(tl.int64)
    i = tl.program_id(0).to(tl.int64) * M + tl.arange(0, M)
    j = tl.program_id(1).to(tl.int64) * N + tl.arange(0, N)
    total = tl.zeros((M, N), tl.float32)
    for start in range(0, k, K):
        s = start + tl.arange(0, K)
        a = tl.load(
            a_ptr + z * az + i[:, None] * am + s[None, :] * ak,
            mask=(i[:, None] < m) & (s[None, :] < k),
            other=0.0,
        )
        b = tl.load(
            b_ptr + z * bz + s[:, None] * bk + j[None, :] * bn,
            mask=(s[:, None] < k) & (j[None, :] < n),
            other=0.0,
        )
        total += tl.dot(a, b, input_precision="ieee")
    inside = (i[:, None] < m) & (j[None, :] < n)
    at = c_ptr + z * cz + i[:, None] + j[None, :] * ldc
    c = alpha * total
    if READ:
        c += beta * tl.load(at, mask=inside, other=0.0).to(tl.float32)
    tl.store(at, c.to(c_ptr.dtype.element_ty), mask=inside)


def cublasHgemmStridedBatched(
    transa, transb, m, n, k, alpha, A, lda, strideA, B, ldb, strideB, beta, C, ldc, strideC,
    batchCount,
):  # fmt: skip
    if m * n * batchCount == 0:
        return
    am, ak = (1, lda) if transa == 0 else (lda, 1)
    bk, bn = (1, ldb) if transb == 0 else (ldb, 1)
    grid = (triton.cdiv(m, 32), triton.cdiv(n, 32), batchCount)
    gemm_kernel[grid](
        m, n, k, alpha, A, am, ak, strideA, B, bk, bn, strideB, beta, C, ldc, strideC,
        READ=beta != 0, M=32, N=32, K=32,
    )  # fmt: skip
