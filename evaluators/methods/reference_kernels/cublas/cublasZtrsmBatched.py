"""Solves op(A) X = alpha B or X op(A) = alpha B in complex128, matrices behind pointer tables.

A is triangular; X replaces B. With A on the right the transposed system is solved, which only
changes strides, and an upper triangle is walked from the last block to the first.

A program owns WIDTH right-hand sides of one member of the batch, whose addresses it loads from the
tables, from the first unknown to the last, so that programs need nothing of each other. For BLOCK
unknowns at a time it takes off what is solved already, as a product, then substitutes within the
block: one unknown after the other, in registers. What it has solved it reads back from B; a barrier
between writing and reading makes that safe.

Triton has no complex type: real and imaginary parts are two tiles, a complex product is four real
ones.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def parts(number, inside):
    """Real and imaginary part of the numbers at pointers `number`; 0 where not `inside`."""
    re = tl.load(number, mask=inside, other=0.0)
    im = tl.load(number + 1, mask=inside, other=0.0)
    return re, im


@triton.jit
def trsm_kernel(
    order, sides, alpha_re: tl.float64, alpha_im: tl.float64,
    a_table, stride_ai, stride_aj, b_table, stride_bi, stride_bj,
    FORWARD: tl.constexpr, UNIT: tl.constexpr, CONJUGATE: tl.constexpr,
    BLOCK: tl.constexpr, WIDTH: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """A is `order` by `order`, the triangle that the strides make of it; B is order by `sides`."""
    member = tl.program_id(1)
    a_ptr = tl.load(a_table + member).to(tl.pointer_type(tl.float64))
    b_ptr = tl.load(b_table + member).to(tl.pointer_type(tl.float64))
    local = tl.arange(0, BLOCK)
    j = tl.program_id(0).to(tl.int64) * WIDTH + tl.arange(0, WIDTH)
    blocks = tl.cdiv(order, BLOCK)
    for step in range(blocks):
        block = step if FORWARD else blocks - 1 - step
        i = (block * BLOCK + local).to(tl.int64)
        b_tile = b_ptr + 2 * (i[:, None] * stride_bi + j[None, :] * stride_bj)
        inside = (i[:, None] < order) & (j[None, :] < sides)

        # What the unknowns before add to this block
        re = tl.zeros((BLOCK, WIDTH), dtype=tl.float64)
        im = tl.zeros((BLOCK, WIDTH), dtype=tl.float64)
        begin = 0 if FORWARD else (block + 1) * BLOCK
        end = block * BLOCK if FORWARD else order
        for start in range(begin, end, BLOCK_K):
            p = (start + tl.arange(0, BLOCK_K)).to(tl.int64)
            a_tile = a_ptr + 2 * (i[:, None] * stride_ai + p[None, :] * stride_aj)
            x_tile = b_ptr + 2 * (p[:, None] * stride_bi + j[None, :] * stride_bj)
            a_re, a_im = parts(a_tile, (i[:, None] < order) & (p[None, :] < order))
            x_re, x_im = parts(x_tile, (p[:, None] < order) & (j[None, :] < sides))
            if CONJUGATE:
                a_im = -a_im
            re = tl.dot(a_re, x_re, re, input_precision="ieee", out_dtype=tl.float64)
            re = tl.dot(-a_im, x_im, re, input_precision="ieee", out_dtype=tl.float64)
            im = tl.dot(a_re, x_im, im, input_precision="ieee", out_dtype=tl.float64)
            im = tl.dot(a_im, x_re, im, input_precision="ieee", out_dtype=tl.float64)
        b_re, b_im = parts(b_tile, inside)
        re, im = alpha_re * b_re - alpha_im * b_im - re, alpha_re * b_im + alpha_im * b_re - im

        for number in range(BLOCK):
            row = number if FORWARD else BLOCK - 1 - number
            at = (block * BLOCK + row).to(tl.int64)
            here = local[:, None] == row
            s_re = tl.sum(tl.where(here, re, 0.0), axis=0)[None, :]
            s_im = tl.sum(tl.where(here, im, 0.0), axis=0)[None, :]
            if not UNIT:
                pivot = a_ptr + 2 * at * (stride_ai + stride_aj)
                p_re = tl.load(pivot, mask=at < order, other=1.0)
                p_im = tl.load(pivot + 1, mask=at < order, other=0.0)
                if CONJUGATE:
                    p_im = -p_im
                size = p_re * p_re + p_im * p_im
                s_re, s_im = (
                    (s_re * p_re + s_im * p_im) / size,
                    (s_im * p_re - s_re * p_im) / size,
                )
            after = i > at if FORWARD else i < at
            below = (i < order) & (at < order) & after
            a_re, a_im = parts(a_ptr + 2 * (i * stride_ai + at * stride_aj), below)
            a_re, a_im = a_re[:, None], a_im[:, None]
            if CONJUGATE:
                a_im = -a_im
            re, im = (
                tl.where(here, s_re, re - (a_re * s_re - a_im * s_im)),
                tl.where(here, s_im, im - (a_re * s_im + a_im * s_re)),
            )
        tl.store(b_tile, re, mask=inside)
        tl.store(b_tile + 1, im, mask=inside)
        tl.debug_barrier()  # other threads of the program read what this one has written


def cublasZtrsmBatched(
    side: int, uplo: int, trans: int, diag: int, m: int, n: int, alpha: complex,
    Aarray: torch.Tensor, lda: int, Barray: torch.Tensor, ldb: int, batchCount: int,
) -> None:  # fmt: skip
    if m == 0 or n == 0 or batchCount == 0:
        return
    left, plain = side == 0, trans == 0
    order, sides = (m, n) if left else (n, m)
    as_stored = left == plain  # whether the system's matrix is A itself, not its transpose
    a_strides = (1, lda) if as_stored else (lda, 1)
    b_strides = (1, ldb) if left else (ldb, 1)
    block = max(16, min(triton.next_power_of_2(order), 32))
    width = 16
    grid = (triton.cdiv(sides, width), batchCount)
    trsm_kernel[grid](
        order, sides, alpha.real, alpha.imag, Aarray, *a_strides, Barray, *b_strides,
        FORWARD=(uplo == 0) == as_stored, UNIT=diag == 1, CONJUGATE=trans == 2,
        BLOCK=block, WIDTH=width, BLOCK_K=16,
        num_warps=1, num_stages=2,
    )  # fmt: skip
