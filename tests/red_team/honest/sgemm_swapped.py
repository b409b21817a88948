# operator: cublas::cublasSgemm_v2
# style: a row-major kernel on swapped operands, as views of the storage
# chips: interpreter nvidia

import torch
import triton
import triton.language as tl


@triton.jit
def row_major_kernel(
    x_ptr, x0, x1, y_ptr, y0, y1, c_ptr, ldc, rows, columns, inner, alpha, beta,
    READ: tl.constexpr, TILE: tl.constexpr
):  # fmt: skip
    r = tl.program_id(0) * TILE + tl.arange(0, TILE)
    c = tl.program_id(1) * TILE + tl.arange(0, TILE)
    total = tl.zeros((TILE, TILE), tl.float32)
    for start in range(0, inner, TILE):
        s = start + tl.arange(0, TILE)
        x = tl.load(
            x_ptr + r[:, None] * x0 + s[None, :] * x1,
            mask=(r[:, None] < rows) & (s[None, :] < inner),
            other=0.0,
        )
        y = tl.load(
            y_ptr + s[:, None] * y0 + c[None, :] * y1,
            mask=(s[:, None] < inner) & (c[None, :] < columns),
            other=0.0,
        )
        total = tl.dot(x, y, total, input_precision="ieee")
    at = c_ptr + r[:, None] * ldc + c[None, :]
    inside = (r[:, None] < rows) & (c[None, :] < columns)
    result = total * alpha
    if READ:
        result += tl.load(at, mask=inside) * beta
    tl.store(at, result, mask=inside)


def operand(X, trans, rows, columns, ld):
    """op(X) transposed, as a row-major view: element (j, i) of the view is op(X)[i, j]."""
    if trans == 0:
        return X.as_strided((columns, rows), (ld, 1))
    return X.as_strided((columns, rows), (1, ld))


def cublasSgemm_v2(transa, transb, m, n, k, alpha, A, lda, B, ldb, beta, C, ldc):
    if not (m and n):
        return
    a = operand(A, transa, m, k, lda)
    b = operand(B, transb, k, n, ldb)
    row_major_kernel[(triton.cdiv(n, 32), triton.cdiv(m, 32))](
        b, b.stride(0), b.stride(1), a, a.stride(0), a.stride(1), C, ldc, n, m, k, alpha, beta,
        READ=bool(beta), TILE=32,
    )  # fmt: skip
