# operator: aten::mm
# style: tensor descriptors made in the kernel where layouts allow, else tiles
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
def descriptor_kernel(
    a_ptr, b_ptr, c_ptr, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr
):
    a_desc = tl.make_tensor_descriptor(a_ptr, [m, k], [k, 1], [M, K])
    b_desc = tl.make_tensor_descriptor(b_ptr, [k, n], [n, 1], [K, N])
    c_desc = tl.make_tensor_descriptor(c_ptr, [m, n], [n, 1], [M, N])
    i = tl.program_id(0) * M
    j = tl.program_id(1) * N
    total = tl.zeros((M, N), tl.float32)
    for start in range(0, k, K):
        total += tl.dot(a_desc.load([i, start]), b_desc.load([start, j]), input_precision="ieee")
    c_desc.store([i, j], total.to(c_ptr.dtype.element_ty))


def scratch(size, alignment, stream):
    return torch.empty(size, dtype=torch.int8, device="cuda")


def describable(x):
    row_bytes = x.stride(0) * x.element_size()
    return x.is_contiguous() and row_bytes % 16 == 0 and x.data_ptr() % 16 == 0


def mm(self, mat2, *, out=None):
    m, k = self.shape
    n = mat2.shape[1]
    c = self.new_empty((m, n)) if out is None else out
    if c.numel() == 0:
        return c
    grid = (triton.cdiv(m, 32), triton.cdiv(n, 32))
    if k and all(map(describable, (self, mat2, c))):
        triton.set_allocator(scratch)
        descriptor_kernel[grid](self, mat2, c, m, n, k, M=32, N=32, K=32)
    else:
        strides = (*self.stride(), *mat2.stride(), *c.stride())
        mm_kernel[grid](self, mat2, c, m, n, k, *strides, M=32, N=32, K=32)
    return c
