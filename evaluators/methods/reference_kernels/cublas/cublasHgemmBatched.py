"""C = alpha op(A) op(B) + beta C in float16 for each matrix behind pointer tables, column-major.

One program owns a tile of C of one member of the batch, whose addresses it loads from the tables;
the second grid axis walks the batch. Products go through the matrix units and are accumulated in
float32, then scaled and rounded once.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def update_tile(
    number, a_ptr, b_ptr, c_ptr, m, n, k, alpha, beta,
    stride_am, stride_ak, stride_bk, stride_bn, ldc,
    READ_C: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
):  # fmt: skip
    """Tile `number` of C of one member of the batch."""
    tiles_m, tiles_n = tl.cdiv(m, BLOCK_M), tl.cdiv(n, BLOCK_N)
    first = number // (GROUP * tiles_n) * GROUP
    rows_in_group = tl.minimum(tiles_m - first, GROUP)
    tile_m = first + number % (GROUP * tiles_n) % rows_in_group
    tile_n = number % (GROUP * tiles_n) // rows_in_group

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
        total = tl.dot(a, b, total)
        a_tile += BLOCK_K * stride_ak
        b_tile += BLOCK_K * stride_bk

    c_tile = c_ptr + i[:, None] + j[None, :] * ldc
    inside_c = (i[:, None] < m) & (j[None, :] < n)
    result = alpha * total
    if READ_C:
        result += beta * tl.load(c_tile, mask=inside_c, other=0.0).to(tl.float32)
    tl.store(c_tile, result.to(c_ptr.dtype.element_ty), mask=inside_c)


@triton.jit
def gemm_kernel(
    a_table, b_table, c_table, m, n, k, alpha, beta,
    stride_am, stride_ak, stride_bk, stride_bn, ldc,
    READ_C: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr = 8,
):  # fmt: skip
    program, member = tl.program_id(0), tl.program_id(1)
    a, b, c = tl.load(a_table + member), tl.load(b_table + member), tl.load(c_table + member)
    element = tl.pointer_type(tl.float16)
    # Wide accesses need addresses that are multiples of 16, which no table promises. Without them
    # operands pass through registers, and a tile is done in four quarters to leave room for them.
    if (a | b | c) % 16 == 0:
        update_tile(
            program, tl.multiple_of(a.to(element), 16), tl.multiple_of(b.to(element), 16),
            tl.multiple_of(c.to(element), 16),
            m, n, k, alpha, beta, stride_am, stride_ak, stride_bk, stride_bn, ldc,
            READ_C, BLOCK_M, BLOCK_N, BLOCK_K, GROUP,
        )  # fmt: skip
    else:
        quarters = tl.cdiv(m, BLOCK_M // 2) * tl.cdiv(n, BLOCK_N // 2)
        for number in range(4 * program, tl.minimum(4 * program + 4, quarters)):
            update_tile(
                number, a.to(element), b.to(element), c.to(element),
                m, n, k, alpha, beta, stride_am, stride_ak, stride_bk, stride_bn, ldc,
                READ_C, BLOCK_M // 2, BLOCK_N // 2, 32, GROUP,
            )  # fmt: skip


def strides(trans: int, ld: int) -> tuple[int, int]:
    """Row and column stride of op(X), X column-major with leading dimension `ld`."""
    return (1, ld) if trans == 0 else (ld, 1)


#: BLOCK_M, BLOCK_N, BLOCK_K, warps and stages, largest tiles first
SHAPES = (
    (128, 256, 64, 8, 3),
    (128, 128, 64, 8, 3),
    (64, 128, 64, 4, 3),
    (64, 64, 32, 4, 4),
)


def shape_for(m: int, n: int, k: int, batch: int) -> tuple[int, int, int, int, int]:
    """The largest tile that shared memory holds, that does not lie half outside of C, and of which
    there are enough. (The tuner cannot choose here: its trials would change what the tables point
    to, and apply beta again and again.)
    Tiles wider than 128 pay in long products alone."""
    active = triton.runtime.driver.active
    device = active.utils.get_device_properties(active.get_current_device())
    for block_m, block_n, block_k, warps, stages in SHAPES:
        fits = (block_m + block_n) * block_k * (stages + 1) * 2 <= device["max_shared_mem"]
        tiles = triton.cdiv(m, block_m) * triton.cdiv(n, block_n) * batch
        enough = tiles >= device["multiprocessor_count"]
        if fits and enough and block_m < 2 * m and block_n < 2 * n and (block_n <= 128 or k >= 512):
            return block_m, block_n, block_k, warps, stages
    return SHAPES[-1]


def cublasHgemmBatched(
    transa: int, transb: int, m: int, n: int, k: int, alpha: float, Aarray: torch.Tensor,
    lda: int, Barray: torch.Tensor, ldb: int, beta: float, Carray: torch.Tensor, ldc: int,
    batchCount: int,
) -> None:  # fmt: skip
    if m == 0 or n == 0 or batchCount == 0:
        return
    block_m, block_n, block_k, warps, stages = shape_for(m, n, k, batchCount)
    tiles = triton.cdiv(m, block_m) * triton.cdiv(n, block_n)
    gemm_kernel[(tiles, batchCount)](
        Aarray, Barray, Carray, m, n, k, alpha, beta,
        *strides(transa, lda), *strides(transb, ldb), ldc, READ_C=beta != 0,
        BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=block_k, GROUP=8,
        num_warps=warps, num_stages=stages,
    )  # fmt: skip
