"""C = alpha A B + beta C or alpha B A + beta C in complex64, A symmetric with one triangle stored.

With A on the right the transposed product is computed, C^T = A B^T: only the strides of B and C
change. A program owns one tile of C and walks the row of A that makes it in three parts: left of
the diagonal and right of it a tile of A is read as it stands or transposed, as uplo says; on the
diagonal the stored half is read a second time, transposed.

A complex number is loaded as one 8-byte word and taken apart in registers; a complex product is
four real ones, which `input_precision="ieee"` keeps out of TF32.
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
def multiply(re, im, a, b):
    """re + i im + a b, for words a and b."""
    a_re, a_im = parts(a)
    b_re, b_im = parts(b)
    re = tl.dot(a_re, b_re, re, input_precision="ieee")
    re = tl.dot(-a_im, b_im, re, input_precision="ieee")
    im = tl.dot(a_re, b_im, im, input_precision="ieee")
    im = tl.dot(a_im, b_re, im, input_precision="ieee")
    return re, im


@triton.jit
def symm_kernel(
    m, n, alpha_re, alpha_im, a_ptr, left_i, left_p, right_i, right_p, b_ptr, stride_bm, stride_bn,
    beta_re, beta_im, c_ptr, stride_cm, stride_cn,
    LOWER: tl.constexpr, READ_C: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """A is m by m; left_i, left_p are its strides left of the diagonal, right_i, right_p right."""
    first = tl.program_id(0) * BLOCK_M
    i = (first + tl.arange(0, BLOCK_M)).to(tl.int64)
    j = (tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)
    p = tl.arange(0, BLOCK_K).to(tl.int64)
    left_tile = a_ptr + i[:, None] * left_i + p[None, :] * left_p
    right_tile = a_ptr + i[:, None] * right_i + p[None, :] * right_p
    b_tile = b_ptr + p[:, None] * stride_bm + j[None, :] * stride_bn
    rows, columns = i[:, None] < m, j[None, :] < n
    re = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    im = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for _ in range(0, first, BLOCK_K):
        a = tl.load(left_tile, mask=rows, other=0)
        b = tl.load(b_tile, mask=columns, other=0)
        re, im = multiply(re, im, a, b)
        left_tile += BLOCK_K * left_p
        b_tile += BLOCK_K * stride_bm
    right_tile += first.to(tl.int64) * right_p
    for start in range(first, tl.minimum(first + BLOCK_M, m), BLOCK_K):
        q = start + p
        left = i[:, None] >= q[None, :] if LOWER else i[:, None] > q[None, :]
        inside = rows & (q[None, :] < m)
        a = tl.load(left_tile, mask=inside & left, other=0)
        a |= tl.load(right_tile, mask=inside & (left == 0), other=0)
        b = tl.load(b_tile, mask=(q[:, None] < m) & columns, other=0)
        re, im = multiply(re, im, a, b)
        left_tile += BLOCK_K * left_p
        right_tile += BLOCK_K * right_p
        b_tile += BLOCK_K * stride_bm
    for start in range(first + BLOCK_M, m, BLOCK_K):
        q = start + p
        a = tl.load(right_tile, mask=rows & (q[None, :] < m), other=0)
        b = tl.load(b_tile, mask=(q[:, None] < m) & columns, other=0)
        re, im = multiply(re, im, a, b)
        right_tile += BLOCK_K * right_p
        b_tile += BLOCK_K * stride_bm

    c_tile = c_ptr + i[:, None] * stride_cm + j[None, :] * stride_cn
    out_re, out_im = alpha_re * re - alpha_im * im, alpha_re * im + alpha_im * re
    if READ_C:
        c_re, c_im = parts(tl.load(c_tile, mask=rows & columns, other=0))
        out_re += beta_re * c_re - beta_im * c_im
        out_im += beta_re * c_im + beta_im * c_re
    tl.store(c_tile, word(out_re, out_im), mask=rows & columns)


def cublasCsymm_v2(
    side: int, uplo: int, m: int, n: int, alpha: complex, A: torch.Tensor, lda: int,
    B: torch.Tensor, ldb: int, beta: complex, C: torch.Tensor, ldc: int,
) -> None:  # fmt: skip
    if m == 0 or n == 0:
        return
    left = side == 0
    order, other = (m, n) if left else (n, m)
    b_strides, c_strides = ((1, ldb), (1, ldc)) if left else ((ldb, 1), (ldc, 1))
    as_stored, turned = (1, lda), (lda, 1)
    a_strides = (*as_stored, *turned) if uplo == 0 else (*turned, *as_stored)
    block_m, block_n = 64, 64
    symm_kernel[(triton.cdiv(order, block_m), triton.cdiv(other, block_n))](
        order, other, alpha.real, alpha.imag, A.view(torch.int64), *a_strides,
        B.view(torch.int64), *b_strides, beta.real, beta.imag, C.view(torch.int64), *c_strides,
        LOWER=uplo == 0, READ_C=beta != 0, BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=16,
        num_warps=8, num_stages=3,
    )  # fmt: skip
