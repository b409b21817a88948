"""C = alpha op(A) op(B) + beta C, accumulated in float32; A and B float32, float16 or bfloat16.

Each program owns one BLOCK_M by BLOCK_N tile of C and walks k, in groups of GROUP tile rows, so
that programs running together share tiles of A and B in cache. Half-precision products go through
the matrix units, in deep steps and large tiles; float32 ones are kept out of TF32 by
`input_precision="ieee"` and have shorter steps. The result is rounded once, to the dtype of C.
"""

import torch
import triton
import triton.language as tl


def _worth_trying(configs, arguments, **_):
    """Leaves out tiles whose steps suit the other dtype, that shared memory does not hold, that lie
    half outside the result, or that are less than an eighth of the largest; of long products that
    fill the device, all but that."""
    m, n, k, out = arguments["m"], arguments["n"], arguments["k"], arguments["c_ptr"]
    item = arguments["a_ptr"].element_size()
    configs = [c for c in configs if (c.kwargs["BLOCK_K"] > 16) == (item == 2)]
    active = triton.runtime.driver.active
    device = active.utils.get_device_properties(active.get_current_device())

    def shared_bytes(c):
        sides = c.kwargs["BLOCK_M"] + c.kwargs["BLOCK_N"]
        return sides * c.kwargs["BLOCK_K"] * c.num_stages * item

    def size(c):  # what of the tile lies in the result
        return min(m, c.kwargs["BLOCK_M"]) * min(n, c.kwargs["BLOCK_N"])

    left = [
        c
        for c in configs
        if shared_bytes(c) <= device["max_shared_mem"]
        and c.kwargs["BLOCK_M"] < max(2 * m, 32)
        and c.kwargs["BLOCK_N"] < max(2 * n, 128)
    ]
    left.sort(key=size, reverse=True)
    if k >= 1024 and left and out.numel() >= 2 * device["multiprocessor_count"] * size(left[0]):
        return left[:1]
    return [c for c in left if 8 * size(c) >= size(left[0])] or configs


@triton.autotune(
    configs=[
        triton.Config({"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 16}, num_warps=4, num_stages=3),
        triton.Config({"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 16}, num_warps=8, num_stages=3),
        triton.Config({"BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 16}, num_warps=4, num_stages=3),
        triton.Config({"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32}, num_warps=4, num_stages=4),
        triton.Config({"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64}, num_warps=8, num_stages=3),
        triton.Config({"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64}, num_warps=8, num_stages=3),
    ],
    key=["m", "n", "k"],
    prune_configs_by={"early_config_prune": _worth_trying},
    restore_value=["c_ptr"],  # trials of the tuner would apply beta again and again
)
@triton.jit
def gemm_kernel(
    a_ptr, b_ptr, c_ptr, m, n, k, alpha, beta,
    stride_am, stride_ak, stride_bk, stride_bn, ldc,
    READ_C: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr = 8,
):  # fmt: skip
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
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, k, BLOCK_K):
        inside = p < k - start
        a = tl.load(a_tile, mask=(i[:, None] < m) & inside[None, :], other=0.0)
        b = tl.load(b_tile, mask=inside[:, None] & (j[None, :] < n), other=0.0)
        total = tl.dot(a, b, total, input_precision="ieee")
        a_tile += BLOCK_K * stride_ak
        b_tile += BLOCK_K * stride_bk

    c_tile = c_ptr + i[:, None] + j[None, :] * ldc
    inside_c = (i[:, None] < m) & (j[None, :] < n)
    result = alpha * total
    if READ_C:
        result += beta * tl.load(c_tile, mask=inside_c, other=0.0).to(tl.float32)
    tl.store(c_tile, result.to(c_ptr.dtype.element_ty), mask=inside_c)


def strides(trans: int, ld: int) -> tuple[int, int]:
    """Row and column stride of op(X), X column-major with leading dimension `ld`."""
    return (1, ld) if trans == 0 else (ld, 1)


def cublasSgemmEx(
    transa: int, transb: int, m: int, n: int, k: int, alpha: float, A: torch.Tensor, Atype: int,
    lda: int, B: torch.Tensor, Btype: int, ldb: int, beta: float, C: torch.Tensor, Ctype: int,
    ldc: int,
) -> None:  # fmt: skip
    if m == 0 or n == 0:
        return

    def grid(meta):
        return (triton.cdiv(m, meta["BLOCK_M"]) * triton.cdiv(n, meta["BLOCK_N"]),)

    gemm_kernel[grid](
        A, B, C, m, n, k, alpha, beta,
        *strides(transa, lda), *strides(transb, ldb), ldc, READ_C=beta != 0.0,
    )  # fmt: skip
