"""C = alpha op(A) op(B) + beta C in complex128 for each matrix of a strided batch, column-major.

One program owns a tile of C of one member of the batch; the second grid axis walks the batch.
Triton has no complex type: real and imaginary parts are two tiles, a complex product is four real
ones, which go through the matrix units where a chip has them for float64. Tiles are loaded with
their last axis down a column, where numbers lie side by side, and turned for the product.
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


def _worth_trying(configs, arguments, **_):
    """Leaves out tiles that shared memory does not hold, that lie half outside the result, or that
    are less than an eighth of the largest; of long products that fill the device, all but that."""
    m, n, k, out = arguments["m"], arguments["n"], arguments["k"], arguments["c_ptr"]
    numbers = out.numel() // 2  # a complex number is two of its elements
    active = triton.runtime.driver.active
    device = active.utils.get_device_properties(active.get_current_device())
    target = active.get_current_target()  # Triton 3.7 compiles no taller ones for sm_100
    most_rows = 32 if target.backend == "cuda" and target.arch // 10 == 10 else 128

    def shared_bytes(c):
        sides = c.kwargs["BLOCK_M"] + c.kwargs["BLOCK_N"]
        return sides * c.kwargs["BLOCK_K"] * c.num_stages * 2 * out.element_size()

    def size(c):  # what of the tile lies in the result
        return min(m, c.kwargs["BLOCK_M"]) * min(n, c.kwargs["BLOCK_N"])

    left = [
        c
        for c in configs
        if shared_bytes(c) <= device["max_shared_mem"]
        and c.kwargs["BLOCK_M"] <= min(most_rows, max(2 * m, 32))
        and c.kwargs["BLOCK_N"] < max(2 * n, 64)
    ]
    left.sort(key=size, reverse=True)
    if k >= 1024 and left and numbers >= 2 * device["multiprocessor_count"] * size(left[0]):
        return left[:1]
    return [c for c in left if 8 * size(c) >= size(left[0])] or configs


@triton.autotune(
    configs=[
        triton.Config({"BLOCK_M": 64, "BLOCK_N": 32, "BLOCK_K": 16}, num_warps=4, num_stages=3),
        triton.Config({"BLOCK_M": 64, "BLOCK_N": 32, "BLOCK_K": 16}, num_warps=8, num_stages=3),
        triton.Config({"BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 16}, num_warps=4, num_stages=3),
    ],
    key=["m", "n", "k"],
    prune_configs_by={"early_config_prune": _worth_trying},
    restore_value=["c_ptr"],  # trials of the tuner would apply beta again and again
)
@triton.jit
def gemm_kernel(
    a_ptr, b_ptr, c_ptr, m, n, k,
    alpha_re: tl.float64, alpha_im: tl.float64, beta_re: tl.float64, beta_im: tl.float64,
    lda, ldb, ldc, batch_a, batch_b, batch_c,
    PLAIN_A: tl.constexpr, PLAIN_B: tl.constexpr,
    CONJUGATE_A: tl.constexpr, CONJUGATE_B: tl.constexpr, READ_C: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr = 8,
):  # fmt: skip
    member = tl.program_id(1).to(tl.int64)
    a_ptr += 2 * member * batch_a
    b_ptr += 2 * member * batch_b
    c_ptr += 2 * member * batch_c
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


def cublasZgemmStridedBatched(
    transa: int, transb: int, m: int, n: int, k: int, alpha: complex,
    A: torch.Tensor, lda: int, strideA: int, B: torch.Tensor, ldb: int, strideB: int,
    beta: complex, C: torch.Tensor, ldc: int, strideC: int, batchCount: int,
) -> None:  # fmt: skip
    if m == 0 or n == 0 or batchCount == 0:
        return

    def grid(meta):
        return (triton.cdiv(m, meta["BLOCK_M"]) * triton.cdiv(n, meta["BLOCK_N"]), batchCount)

    gemm_kernel[grid](
        torch.view_as_real(A), torch.view_as_real(B), torch.view_as_real(C),
        m, n, k, alpha.real, alpha.imag, beta.real, beta.imag,
        lda, ldb, ldc, strideA, strideB, strideC,
        PLAIN_A=transa == 0, PLAIN_B=transb == 0,
        CONJUGATE_A=transa == 2, CONJUGATE_B=transb == 2, READ_C=beta != 0,
    )  # fmt: skip
