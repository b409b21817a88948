"""C = alpha op(A) op(B) + beta C in float64 for each matrix of a strided batch, column-major.

One program owns a tile of C of one member of the batch; the second grid axis walks the batch.
Products go through the matrix units where a chip has them for float64. `alpha: tl.float64` matters:
without it Triton hands a Python float over as float32.
"""

import torch
import triton
import triton.language as tl


def _worth_trying(configs, arguments, **_):
    """Leaves out tiles that shared memory does not hold, that lie half outside the result, or that
    are less than an eighth of the largest; of long products that fill the device, all but that."""
    m, n, k, out = arguments["m"], arguments["n"], arguments["k"], arguments["c_ptr"]
    active = triton.runtime.driver.active
    device = active.utils.get_device_properties(active.get_current_device())
    target = active.get_current_target()  # Triton 3.7 compiles no taller ones for sm_100
    most_rows = 32 if target.backend == "cuda" and target.arch // 10 == 10 else 128

    def shared_bytes(c):
        sides = c.kwargs["BLOCK_M"] + c.kwargs["BLOCK_N"]
        return sides * c.kwargs["BLOCK_K"] * c.num_stages * out.element_size()

    def size(c):  # what of the tile lies in the result
        return min(m, c.kwargs["BLOCK_M"]) * min(n, c.kwargs["BLOCK_N"])

    left = [
        c
        for c in configs
        if shared_bytes(c) <= device["max_shared_mem"]
        and c.kwargs["BLOCK_M"] <= min(most_rows, max(2 * m, 32))
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
        triton.Config({"BLOCK_M": 128, "BLOCK_N": 64, "BLOCK_K": 16}, num_warps=8, num_stages=3),
        triton.Config({"BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 16}, num_warps=4, num_stages=3),
    ],
    key=["m", "n", "k"],
    prune_configs_by={"early_config_prune": _worth_trying},
    restore_value=["c_ptr"],  # trials of the tuner would apply beta again and again
)
@triton.jit
def gemm_kernel(
    a_ptr, b_ptr, c_ptr, m, n, k, alpha: tl.float64, beta: tl.float64,
    stride_am, stride_ak, stride_bk, stride_bn, ldc, batch_a, batch_b, batch_c,
    READ_C: tl.constexpr,
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
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float64)
    for start in range(0, k, BLOCK_K):
        inside = p < k - start
        a = tl.load(a_tile, mask=(i[:, None] < m) & inside[None, :], other=0.0)
        b = tl.load(b_tile, mask=inside[:, None] & (j[None, :] < n), other=0.0)
        total = tl.dot(a, b, total, input_precision="ieee", out_dtype=tl.float64)
        a_tile += BLOCK_K * stride_ak
        b_tile += BLOCK_K * stride_bk

    c_tile = c_ptr + i[:, None] + j[None, :] * ldc
    inside_c = (i[:, None] < m) & (j[None, :] < n)
    result = alpha * total
    if READ_C:
        result += beta * tl.load(c_tile, mask=inside_c, other=0.0)
    tl.store(c_tile, result, mask=inside_c)


def strides(trans: int, ld: int) -> tuple[int, int]:
    """Row and column stride of op(X), X column-major with leading dimension `ld`."""
    return (1, ld) if trans == 0 else (ld, 1)


def cublasDgemmStridedBatched(
    transa: int, transb: int, m: int, n: int, k: int, alpha: float,
    A: torch.Tensor, lda: int, strideA: int, B: torch.Tensor, ldb: int, strideB: int,
    beta: float, C: torch.Tensor, ldc: int, strideC: int, batchCount: int,
) -> None:  # fmt: skip
    if m == 0 or n == 0 or batchCount == 0:
        return

    def grid(meta):
        return (triton.cdiv(m, meta["BLOCK_M"]) * triton.cdiv(n, meta["BLOCK_N"]), batchCount)

    gemm_kernel[grid](
        A, B, C, m, n, k, alpha, beta,
        *strides(transa, lda), *strides(transb, ldb), ldc, strideA, strideB, strideC,
        READ_C=beta != 0,
    )  # fmt: skip
