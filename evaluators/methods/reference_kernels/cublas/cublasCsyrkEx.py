"""C = alpha op(A) op(A)^T + beta C over one triangle of C, in complex64, column-major.

A tiled product in which both operands are the same matrix, transposed and not conjugated. Programs
whose tile lies wholly in the other triangle leave at once; tiles on the diagonal mask their store.
Where the triangle has too few tiles to fill a chip, k is split into chunks; partial products go to
scratch and a second kernel adds them in order.

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
def update(c_tile, inside, re, im, alpha_re, alpha_im, beta_re, beta_im, READ_C: tl.constexpr):
    """C = alpha (re + i im) + beta C where `inside`."""
    out_re, out_im = alpha_re * re - alpha_im * im, alpha_re * im + alpha_im * re
    if READ_C:
        c_re, c_im = parts(tl.load(c_tile, mask=inside, other=0))
        out_re += beta_re * c_re - beta_im * c_im
        out_im += beta_re * c_im + beta_im * c_re
    tl.store(c_tile, word(out_re, out_im), mask=inside)


@triton.jit
def syrk_kernel(
    n, k, chunk, a_ptr, stride_an, stride_ak, c_ptr, ldc, partial_ptr,
    alpha_re, alpha_im, beta_re, beta_im,
    LOWER: tl.constexpr, READ_C: tl.constexpr, WHOLE: tl.constexpr,
    BLOCK: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    tile_i, tile_j = tl.program_id(0), tl.program_id(1)
    if LOWER:
        if tile_i < tile_j:
            return
    elif tile_i > tile_j:
        return
    i = (tile_i * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    j = (tile_j * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    begin = tl.program_id(2) * chunk
    end = tl.minimum(begin + chunk, k)
    p = (begin + tl.arange(0, BLOCK_K)).to(tl.int64)
    left_tile = a_ptr + i[:, None] * stride_an + p[None, :] * stride_ak
    right_tile = a_ptr + p[:, None] * stride_ak + j[None, :] * stride_an
    re = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    im = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for start in range(begin, end, BLOCK_K):
        inside = start + tl.arange(0, BLOCK_K) < end
        left = tl.load(left_tile, mask=(i[:, None] < n) & inside[None, :], other=0)
        right = tl.load(right_tile, mask=inside[:, None] & (j[None, :] < n), other=0)
        left_re, left_im = parts(left)
        right_re, right_im = parts(right)
        re = tl.dot(left_re, right_re, re, input_precision="ieee")
        re = tl.dot(-left_im, right_im, re, input_precision="ieee")
        im = tl.dot(left_re, right_im, im, input_precision="ieee")
        im = tl.dot(left_im, right_re, im, input_precision="ieee")
        left_tile += BLOCK_K * stride_ak
        right_tile += BLOCK_K * stride_ak

    inside = (i[:, None] < n) & (j[None, :] < n)
    if LOWER:
        inside &= i[:, None] >= j[None, :]
    else:
        inside &= i[:, None] <= j[None, :]
    if WHOLE:
        c_tile = c_ptr + i[:, None] + j[None, :] * ldc
        update(c_tile, inside, re, im, alpha_re, alpha_im, beta_re, beta_im, READ_C)
    else:
        slot = partial_ptr + tl.program_id(2).to(tl.int64) * n * n
        tl.store(slot + i[:, None] + j[None, :] * n, word(re, im), mask=inside)


@triton.jit
def finish_kernel(
    n, chunks, partial_ptr, c_ptr, ldc, alpha_re, alpha_im, beta_re, beta_im,
    LOWER: tl.constexpr, READ_C: tl.constexpr, BLOCK: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    i = (tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK))[:, None]
    j = (tl.program_id(1).to(tl.int64) * WIDTH + tl.arange(0, WIDTH))[None, :]
    inside = (i < n) & (j < n)
    if LOWER:
        inside &= i >= j
    else:
        inside &= i <= j
    re = tl.zeros((BLOCK, WIDTH), dtype=tl.float32)
    im = tl.zeros((BLOCK, WIDTH), dtype=tl.float32)
    slot = partial_ptr + i + j * n
    for _ in range(chunks):
        part_re, part_im = parts(tl.load(slot, mask=inside, other=0))
        re += part_re
        im += part_im
        slot += n * n
    c_tile = c_ptr + i + j * ldc
    update(c_tile, inside, re, im, alpha_re, alpha_im, beta_re, beta_im, READ_C)


def cublasCsyrkEx(
    uplo: int, trans: int, n: int, k: int, alpha: complex, A: torch.Tensor, Atype: int, lda: int,
    beta: complex, C: torch.Tensor, Ctype: int, ldc: int,
) -> None:  # fmt: skip
    if n == 0:
        return
    stride_an, stride_ak = (1, lda) if trans == 0 else (lda, 1)
    scalars = alpha.real, alpha.imag, beta.real, beta.imag
    lower, read = uplo == 0, beta != 0
    a, c = A.view(torch.int64), C.view(torch.int64)

    active = triton.runtime.driver.active
    device = active.utils.get_device_properties(active.get_current_device())
    block, depth = 64, 16
    tiles = triton.cdiv(n, block)
    most = triton.cdiv(2 * device["multiprocessor_count"], tiles * (tiles + 1) // 2)
    chunks = max(1, min(most, k // 512))
    chunk = triton.cdiv(triton.cdiv(k, chunks), depth) * depth
    chunks = max(1, triton.cdiv(k, max(chunk, 1)))
    scratch = chunks * n * n if chunks > 1 else 1
    partial = torch.empty(scratch, dtype=torch.int64, device=C.device)
    syrk_kernel[(tiles, tiles, chunks)](
        n, k, chunk, a, stride_an, stride_ak, c, ldc, partial, *scalars,
        LOWER=lower, READ_C=read, WHOLE=chunks == 1, BLOCK=block, BLOCK_K=depth,
        num_warps=8, num_stages=3,
    )  # fmt: skip
    if chunks > 1:
        finish_kernel[(triton.cdiv(n, 64), triton.cdiv(n, 16))](
            n, chunks, partial, c, ldc, *scalars, LOWER=lower, READ_C=read, BLOCK=64, WIDTH=16
        )
