# operator: aten::mm
# style: the inner dimension split over programs, joined by atomics
# chips: interpreter nvidia

import torch
import triton
import triton.language as tl


@triton.jit
def mm_kernel(
    a_ptr, b_ptr, c_ptr, m, n, k, am, ak, bk, bn,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, SPLIT: tl.constexpr
):  # fmt: skip
    i = tl.program_id(0) * M + tl.arange(0, M)
    j = tl.program_id(1) * N + tl.arange(0, N)
    total = tl.zeros((M, N), tl.float32)
    for start in range(tl.program_id(2) * K, k, K * SPLIT):
        s = start + tl.arange(0, K)
        a = tl.load(
            a_ptr + i[:, None] * am + s[None, :] * ak,
            mask=(i[:, None] < m) & (s[None, :] < k),
            other=0.0,
        )
        b = tl.load(
            b_ptr + s[:, None] * bk + j[None, :] * bn,
            mask=(s[:, None] < k) & (j[None, :] < n),
            other=0.0,
        )
        total += tl.dot(a, b, input_precision="ieee")
    inside = (i[:, None] < m) & (j[None, :] < n)
    tl.atomic_add(c_ptr + i[:, None] * n + j[None, :], total, mask=inside)


@triton.jit
def round_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(y_ptr + at, x.to(y_ptr.dtype.element_ty), mask=at < n)


def mm(self, mat2, *, out=None):
    (m, k), n = self.shape, mat2.shape[1]
    c = torch.zeros((m, n), dtype=torch.float32, device=self.device)
    if c.numel() and k:
        split = 4
        grid = (triton.cdiv(m, 32), triton.cdiv(n, 32), split)
        strides = self.stride() + mat2.stride()
        mm_kernel[grid](self, mat2, c, m, n, k, *strides, M=32, N=32, K=32, SPLIT=split)
    y = torch.empty((m, n), dtype=self.dtype, device=self.device)
    if y.numel():
        round_kernel[(triton.cdiv(y.numel(), 1024),)](c, y, y.numel(), BLOCK=1024)
    return y if out is None else out.copy_(y)
