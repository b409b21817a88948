# operator: aten::bmm
# style: one launch of a matrix kernel for each of the batch
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


def bmm(self, mat2, *, out=None):
    z, m, k = self.shape
    n = mat2.shape[-1]
    c = torch.empty((z, m, n), dtype=self.dtype, device=self.device) if out is None else out
    if m * n == 0:
        return c
    grid = (triton.cdiv(m, 32), triton.cdiv(n, 32))
    for a, b, to in zip(self.unbind(0), mat2, c, strict=True):
        strides = [*a.stride(), *b.stride(), *to.stride()]
        mm_kernel[grid](a, b, to, m, n, k, *strides, M=32, N=32, K=32)
    return c
