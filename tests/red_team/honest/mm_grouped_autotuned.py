# operator: aten::mm
# style: grouped order of tiles for the cache, autotuned, with a helper kernel function
# chips: interpreter nvidia

import torch
import triton
import triton.language as tl


@triton.jit
def tile_of(program, tiles_m, tiles_n, GROUP: tl.constexpr):
    width = GROUP * tiles_n
    group = program // width
    first = group * GROUP
    size = tl.minimum(tiles_m - first, GROUP)
    return first + program % width % size, program % width // size


@triton.autotune(
    configs=[
        triton.Config({"M": 64, "N": 64, "K": 32, "GROUP": 8}, num_stages=3, num_warps=4),
        triton.Config({"M": 32, "N": 64, "K": 32, "GROUP": 4}, num_stages=4, num_warps=2),
    ],
    key=["m", "n", "k"],
)
@triton.jit
def mm_kernel(
    a_ptr, b_ptr, c_ptr, m, n, k, am, ak, bk, bn, cm, cn,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, GROUP: tl.constexpr
):  # fmt: skip
    row, column = tile_of(tl.program_id(0), tl.cdiv(m, M), tl.cdiv(n, N), GROUP)
    i = row * M + tl.arange(0, M)
    j = column * N + tl.arange(0, N)
    s = tl.arange(0, K)
    a_at = a_ptr + (i % m)[:, None] * am + s[None, :] * ak
    b_at = b_ptr + s[:, None] * bk + (j % n)[None, :] * bn
    total = tl.zeros((M, N), tl.float32)
    for step in range(0, tl.cdiv(k, K)):
        a = tl.load(a_at, mask=s[None, :] < k - step * K, other=0.0)
        b = tl.load(b_at, mask=s[:, None] < k - step * K, other=0.0)
        total = tl.dot(a, b, total, input_precision="ieee")
        a_at += K * ak
        b_at += K * bk
    at = c_ptr + i[:, None] * cm + j[None, :] * cn
    tl.store(at, total.to(c_ptr.dtype.element_ty), mask=(i[:, None] < m) & (j[None, :] < n))


def mm(self, mat2, *, out=None):
    assert self.shape[1] == mat2.shape[0], "inner dimensions differ"
    m, k = self.shape
    k, n = mat2.shape
    c = torch.empty((m, n), device=self.device, dtype=self.dtype) if out is None else out
    if c.numel() == 0:
        return c
    grid = lambda META: (triton.cdiv(m, META["M"]) * triton.cdiv(n, META["N"]),)
    mm_kernel[grid](
        self, mat2, c, m, n, k,
        self.stride(0), self.stride(1), mat2.stride(0), mat2.stride(1), c.stride(0), c.stride(1),
    )  # fmt: skip
    return c
