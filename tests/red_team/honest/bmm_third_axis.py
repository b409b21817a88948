# operator: aten::bmm
# style: the batch on the third axis of the grid
# chips: interpreter nvidia

import torch
import triton
import triton.language as tl


@triton.jit
def bmm_kernel(
    a_ptr, b_ptr, c_ptr, m, n, k, az, am, ak, bz, bk, bn, cz, cm, cn,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr
):  # fmt: skip
    z = tl.program_id(2).to(tl.int64)
    i = tl.program_id(0) * M + tl.arange(0, M)
    j = tl.program_id(1) * N + tl.arange(0, N)
    total = tl.zeros((M, N), tl.float32)
    for start in range(0, k, K):
        s = start + tl.arange(0, K)
        a = tl.load(
            a_ptr + z * az + i[:, None] * am + s[None, :] * ak,
            mask=(i[:, None] < m) & (s[None, :] < k),
            other=0.0,
        )
        b = tl.load(
            b_ptr + z * bz + s[:, None] * bk + j[None, :] * bn,
            mask=(s[:, None] < k) & (j[None, :] < n),
            other=0.0,
        )
        total = tl.dot(a, b, total, input_precision="ieee")
    at = c_ptr + z * cz + i[:, None] * cm + j[None, :] * cn
    tl.store(at, total.to(c_ptr.dtype.element_ty), mask=(i[:, None] < m) & (j[None, :] < n))


def bmm(self, mat2, *, out=None):
    z, m, k = self.shape
    n = mat2.shape[2]
    c = self.new_empty((z, m, n)) if out is None else out
    if c.numel():
        bmm_kernel[(triton.cdiv(m, 32), triton.cdiv(n, 32), z)](
            self, mat2, c, m, n, k, *self.stride(), *mat2.stride(), *c.stride(), M=32, N=32, K=32
        )
    return c
