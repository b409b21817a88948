"""C = alpha op(A) op(A)^T + beta C over one triangle of C, in IEEE float32, column-major.

A tiled product in which both operands are the same matrix. Programs whose tile lies wholly in the
other triangle leave at once; tiles on the diagonal mask their store.

A diagonal element is a sum of squares, and beta C may cancel nearly all of it. The error of one
running sum of k terms, each rounded near the final size, grows as the root of k; therefore runs of
SPAN terms are summed on their own, and then added.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def syrk_kernel(
    n, k, alpha, a_ptr, stride_an, stride_ak, beta, c_ptr, ldc,
    LOWER: tl.constexpr, READ_C: tl.constexpr, BLOCK: tl.constexpr, BLOCK_K: tl.constexpr,
    SPAN: tl.constexpr = 256,
):  # fmt: skip
    tile_i, tile_j = tl.program_id(0), tl.program_id(1)
    if LOWER:
        if tile_i < tile_j:
            return
    elif tile_i > tile_j:
        return
    i = (tile_i * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    j = (tile_j * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    p = tl.arange(0, BLOCK_K).to(tl.int64)
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for first in range(0, k, SPAN):
        part = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
        for start in range(first, tl.minimum(first + SPAN, k), BLOCK_K):
            q = start + p
            left_at = a_ptr + i[:, None] * stride_an + q[None, :] * stride_ak
            right_at = a_ptr + q[:, None] * stride_ak + j[None, :] * stride_an
            left = tl.load(left_at, mask=(i[:, None] < n) & (q[None, :] < k), other=0.0)
            right = tl.load(right_at, mask=(q[:, None] < k) & (j[None, :] < n), other=0.0)
            part = tl.dot(left, right, part, input_precision="ieee")
        total += part
    inside = (i[:, None] < n) & (j[None, :] < n)
    if LOWER:
        inside &= i[:, None] >= j[None, :]
    else:
        inside &= i[:, None] <= j[None, :]
    c_tile = c_ptr + i[:, None] + j[None, :] * ldc
    result = alpha * total
    if READ_C:
        result += beta * tl.load(c_tile, mask=inside, other=0.0)
    tl.store(c_tile, result, mask=inside)


def cublasSsyrk_v2(
    uplo: int, trans: int, n: int, k: int, alpha: float, A: torch.Tensor, lda: int, beta: float,
    C: torch.Tensor, ldc: int,
) -> None:  # fmt: skip
    if n == 0:
        return
    stride_an, stride_ak = (1, lda) if trans == 0 else (lda, 1)

    active = triton.runtime.driver.active
    device = active.utils.get_device_properties(active.get_current_device())
    enough = device["multiprocessor_count"] / 2
    # BLOCK, BLOCK_K and warps of the widest tiles of which the triangle has enough
    shapes = ((128, 16, 8), (64, 16, 4), (32, 32, 4))
    triangles = [triton.cdiv(n, block) * (triton.cdiv(n, block) + 1) / 2 for block, _, _ in shapes]
    fitting = [shape for shape, count in zip(shapes, triangles, strict=True) if count >= enough]
    block, depth, warps = (fitting or shapes[-1:])[0]
    tiles = triton.cdiv(n, block)
    syrk_kernel[(tiles, tiles)](
        n, k, alpha, A, stride_an, stride_ak, beta, C, ldc, LOWER=uplo == 0, READ_C=beta != 0.0,
        BLOCK=block, BLOCK_K=depth, num_warps=warps, num_stages=3,
    )  # fmt: skip
