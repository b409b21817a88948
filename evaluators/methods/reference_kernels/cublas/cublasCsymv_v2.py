"""y = alpha A x + beta y in complex64, A symmetric (not Hermitian) with one triangle stored.

Every stored number is read once and used twice: a tile of the triangle adds to the outputs of its
rows and, transposed, to those of its columns. One program a tile; each writes its two sums to
scratch, in a slot of its own for each block of outputs, and a second kernel adds the slots in
order, so there are no atomics and the result repeats bit by bit. A tile on the diagonal is
completed by reading its stored half a second time, transposed.

A complex number is loaded as one 8-byte word and taken apart in registers.
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
def load_vector(x_ptr, incx, i, n):
    """Real and imaginary part of elements i of a vector of n; 0 beyond its end."""
    at = tl.where(incx < 0, (i - n + 1) * incx, i * incx)
    return parts(tl.load(x_ptr + at, mask=i < n, other=0))


@triton.jit
def tile_kernel(
    n, a_ptr, lda, x_ptr, incx, partial_ptr,
    LOWER: tl.constexpr, BLOCK: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Sums of the tile in block row program 0 and block column program 1; WIDTH columns a step."""
    rows, columns = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    if LOWER:
        if rows < columns:
            return
    elif rows > columns:
        return
    i = rows * BLOCK + tl.arange(0, BLOCK)
    x_re, x_im = load_vector(x_ptr, incx, i, n)
    x_re, x_im = x_re[:, None], x_im[:, None]
    sum_re = tl.zeros((BLOCK, WIDTH), dtype=tl.float32)
    sum_im = tl.zeros((BLOCK, WIDTH), dtype=tl.float32)
    for start in range(0, BLOCK, WIDTH):
        j = columns * BLOCK + start + tl.arange(0, WIDTH)
        at = i[:, None] + j[None, :] * lda
        inside = (i[:, None] < n) & (j[None, :] < n)
        if rows == columns:
            stored = i[:, None] >= j[None, :] if LOWER else i[:, None] <= j[None, :]
            mirrored = j[None, :] + i[:, None] * lda
            a = tl.load(a_ptr + at, mask=inside & stored, other=0)
            a |= tl.load(a_ptr + mirrored, mask=inside & (stored == 0), other=0)
        else:
            a = tl.load(a_ptr + at, mask=inside, other=0)
        a_re, a_im = parts(a)
        v_re, v_im = load_vector(x_ptr, incx, j, n)
        v_re, v_im = v_re[None, :], v_im[None, :]
        sum_re += a_re * v_re - a_im * v_im
        sum_im += a_re * v_im + a_im * v_re
        if rows != columns:
            down_re = tl.sum(a_re * x_re - a_im * x_im, axis=0)
            down_im = tl.sum(a_re * x_im + a_im * x_re, axis=0)
            tl.store(partial_ptr + rows * n + j, word(down_re, down_im), mask=j < n)
    result = word(tl.sum(sum_re, axis=1), tl.sum(sum_im, axis=1))
    tl.store(partial_ptr + columns * n + i, result, mask=i < n)


@triton.jit
def finish_kernel(
    partial_ptr, y_ptr, n, slots, incy, alpha_re, alpha_im, beta_re, beta_im,
    READ_Y: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    re = tl.zeros((BLOCK,), dtype=tl.float32)
    im = tl.zeros((BLOCK,), dtype=tl.float32)
    for slot in range(slots):
        part = tl.load(partial_ptr + slot * n + i, mask=i < n, other=0)
        part_re, part_im = parts(part)
        re += part_re
        im += part_im
    out_re, out_im = alpha_re * re - alpha_im * im, alpha_re * im + alpha_im * re
    if READ_Y:
        y_re, y_im = load_vector(y_ptr, incy, i, n)
        out_re += beta_re * y_re - beta_im * y_im
        out_im += beta_re * y_im + beta_im * y_re
    at_y = tl.where(incy < 0, (i - n + 1) * incy, i * incy)
    tl.store(y_ptr + at_y, word(out_re, out_im), mask=i < n)


def cublasCsymv_v2(
    uplo: int, n: int, alpha: complex, A: torch.Tensor, lda: int, x: torch.Tensor, incx: int,
    beta: complex, y: torch.Tensor, incy: int,
) -> None:  # fmt: skip
    if n == 0:
        return
    block = 64 if n <= 4096 else 128
    blocks = triton.cdiv(n, block)
    partial = torch.empty((blocks, n), dtype=torch.int64, device=y.device)
    words = A.view(torch.int64), x.view(torch.int64), y.view(torch.int64)
    tile_kernel[(blocks, blocks)](
        n, words[0], lda, words[1], incx, partial, LOWER=uplo == 0, BLOCK=block, WIDTH=16
    )
    finish_kernel[(triton.cdiv(n, 64),)](
        partial, words[2], n, blocks, incy, alpha.real, alpha.imag, beta.real, beta.imag,
        READ_Y=beta != 0, BLOCK=64, num_warps=2,
    )  # fmt: skip
