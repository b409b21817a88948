# operator: aten::mm
# style: a kernel without dot for thin matrices, tiles for the others
# chips: interpreter nvidia

import torch
import triton
import triton.language as tl


@triton.jit
def mm_kernel(
    a_ptr, b_ptr, c_ptr, m, n, k, am, ak, bk, bn, cm, cn,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr
):  # fmt: skip
    i = tl.program_id(0) * M + tl.arange(0, M)
    j = tl.program_id(1) * N + tl.arange(0, N)
    total = tl.zeros((M, N), tl.float32)
    for start in range(0, k, K):
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
        total = tl.dot(a, b, total, input_precision="ieee")
    at = c_ptr + i[:, None] * cm + j[None, :] * cn
    tl.store(at, total.to(c_ptr.dtype.element_ty), mask=(i[:, None] < m) & (j[None, :] < n))


@triton.jit
def thin_kernel(a_ptr, b_ptr, c_ptr, n, k, am, ak, bk, bn, cm, cn, N: tl.constexpr, K: tl.constexpr):
    row = tl.program_id(1)
    j = tl.program_id(0) * N + tl.arange(0, N)
    total = tl.zeros((K, N), tl.float32)
    for start in range(0, k, K):
        s = start + tl.arange(0, K)
        a = tl.load(a_ptr + row * am + s * ak, mask=s < k, other=0.0).to(tl.float32)
        b = tl.load(
            b_ptr + s[:, None] * bk + j[None, :] * bn,
            mask=(s[:, None] < k) & (j[None, :] < n),
            other=0.0,
        )
        total += a[:, None] * b.to(tl.float32)
    c = tl.sum(total, 0)
    tl.store(c_ptr + row * cm + j * cn, c.to(c_ptr.dtype.element_ty), mask=j < n)


def mm(self, mat2, *, out=None):
    m, k = self.shape
    n = mat2.shape[1]
    c = self.new_empty((m, n)) if out is None else out
    strides = self.stride() + mat2.stride() + c.stride()
    if c.numel() == 0:
        pass
    elif m <= 4:
        thin_kernel[(triton.cdiv(n, 32), m)](self, mat2, c, n, k, *strides, N=32, K=32)
    else:
        grid = (triton.cdiv(m, 32), triton.cdiv(n, 32))
        mm_kernel[grid](self, mat2, c, m, n, k, *strides, M=32, N=32, K=32)
    return c
