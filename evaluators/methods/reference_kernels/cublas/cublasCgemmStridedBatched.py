"""C = alpha op(A) op(B) + beta C in complex64 for each matrix of a strided batch, column-major.

One program owns a tile of C of one member of the batch; the second grid axis walks the batch. A
complex number is loaded as one 8-byte word, so that accesses stay wide, and taken apart in
registers; a complex product is four real ones. `input_precision="ieee"` keeps them out of TF32.
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


def _worth_trying(configs, arguments, **_):
    """Leaves out tiles that shared memory does not hold, that lie half outside the result, or that
    are less than an eighth of the largest; of long products that fill the device, all but that."""
    m, n, k, out = arguments["m"], arguments["n"], arguments["k"], arguments["c_ptr"]
    active = triton.runtime.driver.active
    device = active.utils.get_device_properties(active.get_current_device())

    def shared_bytes(c):
        sides = c.kwargs["BLOCK_M"] + c.kwargs["BLOCK_N"]
        return sides * c.kwargs["BLOCK_K"] * c.num_stages * out.element_size()

    def size(c):  # what of the tile lies in the result
        return min(m, c.kwargs["BLOCK_M"]) * min(n, c.kwargs["BLOCK_N"])

    left = [
        c
        for c in configs
        if shared_bytes(c) <= device["max_shared_mem"]
        and c.kwargs["BLOCK_M"] < max(2 * m, 32)
        and c.kwargs["BLOCK_N"] < max(2 * n, 64)
    ]
    left.sort(key=size, reverse=True)
    if k >= 1024 and left and out.numel() >= 2 * device["multiprocessor_count"] * size(left[0]):
        return left[:1]
    return [c for c in left if 8 * size(c) >= size(left[0])] or configs


@triton.autotune(
    configs=[
        triton.Config({"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 16}, num_warps=8, num_stages=3),
        triton.Config({"BLOCK_M": 64, "BLOCK_N": 32, "BLOCK_K": 16}, num_warps=4, num_stages=3),
        triton.Config({"BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 16}, num_warps=4, num_stages=3),
    ],
    key=["m", "n", "k"],
    prune_configs_by={"early_config_prune": _worth_trying},
    restore_value=["c_ptr"],  # trials of the tuner would apply beta again and again
)
@triton.jit
def gemm_kernel(
    a_ptr, b_ptr, c_ptr, m, n, k, alpha_re, alpha_im, beta_re, beta_im,
    stride_am, stride_ak, stride_bk, stride_bn, ldc, batch_a, batch_b, batch_c,
    CONJUGATE_A: tl.constexpr, CONJUGATE_B: tl.constexpr, READ_C: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr = 8,
):  # fmt: skip
    member = tl.program_id(1).to(tl.int64)
    a_ptr += member * batch_a
    b_ptr += member * batch_b
    c_ptr += member * batch_c
    program = tl.program_id(0)
    tiles_m, tiles_n = tl.cdiv(m, BLOCK_M), tl.cdiv(n, BLOCK_N)
    first = program // (GROUP * tiles_n) * GROUP
    rows_in_group = tl.minimum(tiles_m - first, GROUP)
    tile_m = first + program % (GROUP * tiles_n) % rows_in_group
    tile_n = program % (GROUP * tiles_n) // rows_in_group

    i = (tile_m * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    j = (tile_n * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)
    p = tl.arange(0, BLOCK_K).to(tl.int64)
    a_tile = a_ptr + i[:, None] * stride_am + p[None, :] * stride_ak
    b_tile = b_ptr + p[:, None] * stride_bk + j[None, :] * stride_bn
    re = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    im = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, k, BLOCK_K):
        inside = p < k - start
        a_re, a_im = parts(tl.load(a_tile, mask=(i[:, None] < m) & inside[None, :], other=0))
        b_re, b_im = parts(tl.load(b_tile, mask=inside[:, None] & (j[None, :] < n), other=0))
        if CONJUGATE_A:
            a_im = -a_im
        if CONJUGATE_B:
            b_im = -b_im
        re = tl.dot(a_re, b_re, re, input_precision="ieee")
        re = tl.dot(-a_im, b_im, re, input_precision="ieee")
        im = tl.dot(a_re, b_im, im, input_precision="ieee")
        im = tl.dot(a_im, b_re, im, input_precision="ieee")
        a_tile += BLOCK_K * stride_ak
        b_tile += BLOCK_K * stride_bk

    c_tile = c_ptr + i[:, None] + j[None, :] * ldc
    inside_c = (i[:, None] < m) & (j[None, :] < n)
    out_re, out_im = alpha_re * re - alpha_im * im, alpha_re * im + alpha_im * re
    if READ_C:
        c_re, c_im = parts(tl.load(c_tile, mask=inside_c, other=0))
        out_re += beta_re * c_re - beta_im * c_im
        out_im += beta_re * c_im + beta_im * c_re
    tl.store(c_tile, word(out_re, out_im), mask=inside_c)


def strides(trans: int, ld: int) -> tuple[int, int]:
    """Row and column stride of op(X), X column-major with leading dimension `ld`."""
    return (1, ld) if trans == 0 else (ld, 1)


def cublasCgemmStridedBatched(
    transa: int, transb: int, m: int, n: int, k: int, alpha: complex,
    A: torch.Tensor, lda: int, strideA: int, B: torch.Tensor, ldb: int, strideB: int,
    beta: complex, C: torch.Tensor, ldc: int, strideC: int, batchCount: int,
) -> None:  # fmt: skip
    if m == 0 or n == 0 or batchCount == 0:
        return

    def grid(meta):
        return (triton.cdiv(m, meta["BLOCK_M"]) * triton.cdiv(n, meta["BLOCK_N"]), batchCount)

    gemm_kernel[grid](
        A.view(torch.int64), B.view(torch.int64), C.view(torch.int64),
        m, n, k, alpha.real, alpha.imag, beta.real, beta.imag,
        *strides(transa, lda), *strides(transb, ldb), ldc, strideA, strideB, strideC,
        CONJUGATE_A=transa == 2, CONJUGATE_B=transb == 2, READ_C=beta != 0,
    )  # fmt: skip
