"""C = alpha op(A) op(B) + beta C in complex128 for each matrix behind pointer tables, column-major.

One program owns a tile of C of one member of the batch, whose addresses it loads from the tables;
the second grid axis walks the batch. Triton has no complex type: real and imaginary parts are two
tiles, a complex product is four real ones, which go through the matrix units where a chip has them
for float64. Tiles are loaded with their last axis down a column, where numbers lie side by side,
and turned for the product.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def along(row, column, ld, PLAIN: tl.constexpr):
    """Where elements of op(X) stand, as a tile whose last axis runs down a column of X."""
    return column[:, None] * ld + row[None, :] if PLAIN else row[:, None] * ld + column[None, :]


@triton.jit
def rectangle(rows, columns, PLAIN: tl.constexpr):
    """Which elements of such a tile are inside."""
    return columns[:, None] & rows[None, :] if PLAIN else rows[:, None] & columns[None, :]


@triton.jit
def parts(tile, inside, PLAIN: tl.constexpr):
    """Real and imaginary part of a tile of op(X), rows first."""
    re = tl.load(tile, mask=inside, other=0.0)
    im = tl.load(tile + 1, mask=inside, other=0.0)
    if PLAIN:
        re, im = tl.trans(re), tl.trans(im)
    return re, im


@triton.jit
def gemm_kernel(
    a_table, b_table, c_table, m, n, k,
    alpha_re: tl.float64, alpha_im: tl.float64, beta_re: tl.float64, beta_im: tl.float64,
    lda, ldb, ldc,
    PLAIN_A: tl.constexpr, PLAIN_B: tl.constexpr,
    CONJUGATE_A: tl.constexpr, CONJUGATE_B: tl.constexpr, READ_C: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr = 8,
):  # fmt: skip
    member = tl.program_id(1)
    a_ptr = tl.load(a_table + member).to(tl.pointer_type(tl.float64))
    b_ptr = tl.load(b_table + member).to(tl.pointer_type(tl.float64))
    c_ptr = tl.load(c_table + member).to(tl.pointer_type(tl.float64))
    program = tl.program_id(0)
    tiles_m, tiles_n = tl.cdiv(m, BLOCK_M), tl.cdiv(n, BLOCK_N)
    first = program // (GROUP * tiles_n) * GROUP
    rows_in_group = tl.minimum(tiles_m - first, GROUP)
    tile_m = first + program % (GROUP * tiles_n) % rows_in_group
    tile_n = program % (GROUP * tiles_n) // rows_in_group

    i = (tile_m * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    j = (tile_n * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)
    p = tl.arange(0, BLOCK_K).to(tl.int64)
    a_tile = a_ptr + 2 * along(i, p, lda, PLAIN_A)
    b_tile = b_ptr + 2 * along(p, j, ldb, PLAIN_B)
    re = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float64)
    im = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float64)
    for start in range(0, k, BLOCK_K):
        inside = p < k - start
        inside_a = rectangle(i < m, inside, PLAIN_A)
        inside_b = rectangle(inside, j < n, PLAIN_B)
        a_re, a_im = parts(a_tile, inside_a, PLAIN_A)
        b_re, b_im = parts(b_tile, inside_b, PLAIN_B)
        if CONJUGATE_A:
            a_im = -a_im
        if CONJUGATE_B:
            b_im = -b_im
        re = tl.dot(a_re, b_re, re, input_precision="ieee", out_dtype=tl.float64)
        re = tl.dot(-a_im, b_im, re, input_precision="ieee", out_dtype=tl.float64)
        im = tl.dot(a_re, b_im, im, input_precision="ieee", out_dtype=tl.float64)
        im = tl.dot(a_im, b_re, im, input_precision="ieee", out_dtype=tl.float64)
        a_tile += 2 * BLOCK_K * (lda if PLAIN_A else 1)
        b_tile += 2 * BLOCK_K * (1 if PLAIN_B else ldb)

    c_tile = c_ptr + 2 * (j[:, None] * ldc + i[None, :])
    inside_c = (j[:, None] < n) & (i[None, :] < m)
    re, im = tl.trans(re), tl.trans(im)
    out_re, out_im = alpha_re * re - alpha_im * im, alpha_re * im + alpha_im * re
    if READ_C:
        c_re = tl.load(c_tile, mask=inside_c, other=0.0)
        c_im = tl.load(c_tile + 1, mask=inside_c, other=0.0)
        out_re += beta_re * c_re - beta_im * c_im
        out_im += beta_re * c_im + beta_im * c_re
    tl.store(c_tile, out_re, mask=inside_c)
    tl.store(c_tile + 1, out_im, mask=inside_c)


#: BLOCK_M, BLOCK_N, BLOCK_K, warps and stages, largest tiles first
SHAPES = (
    (64, 32, 16, 4, 3),
    (32, 32, 16, 4, 3),
)


def shape_for(m: int, n: int, batch: int) -> tuple[int, int, int, int, int]:
    """The largest tile that shared memory holds, that does not lie half outside of C, and of which
    there are enough. (The tuner cannot choose here: its trials would change what the tables point
    to, and apply beta again and again.)"""
    active = triton.runtime.driver.active
    device = active.utils.get_device_properties(active.get_current_device())
    target = active.get_current_target()  # Triton 3.7 compiles no taller ones for sm_100
    most_rows = 32 if target.backend == "cuda" and target.arch // 10 == 10 else 128
    for block_m, block_n, block_k, warps, stages in SHAPES:
        fits = (block_m + block_n) * block_k * (stages + 1) * 16 <= device["max_shared_mem"]
        tiles = triton.cdiv(m, block_m) * triton.cdiv(n, block_n) * batch
        enough = tiles >= device["multiprocessor_count"]
        if fits and enough and block_m <= min(most_rows, 2 * m) and block_n < 2 * n:
            return block_m, block_n, block_k, warps, stages
    return SHAPES[-1]


def cublasZgemmBatched(
    transa: int, transb: int, m: int, n: int, k: int, alpha: complex, Aarray: torch.Tensor,
    lda: int, Barray: torch.Tensor, ldb: int, beta: complex, Carray: torch.Tensor, ldc: int,
    batchCount: int,
) -> None:  # fmt: skip
    if m == 0 or n == 0 or batchCount == 0:
        return
    block_m, block_n, block_k, warps, stages = shape_for(m, n, batchCount)
    tiles = triton.cdiv(m, block_m) * triton.cdiv(n, block_n)
    gemm_kernel[(tiles, batchCount)](
        Aarray, Barray, Carray, m, n, k, alpha.real, alpha.imag, beta.real, beta.imag,
        lda, ldb, ldc, PLAIN_A=transa == 0, PLAIN_B=transb == 0,
        CONJUGATE_A=transa == 2, CONJUGATE_B=transb == 2, READ_C=beta != 0,
        BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=block_k, GROUP=8,
        num_warps=warps, num_stages=stages,
    )  # fmt: skip
