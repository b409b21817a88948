# operator: aten::mm
# tries: leaves out the tail of the inner dimension
# status: wrong_values
# chips: interpreter nvidia

import torch
import triton
import triton.language as tl


@triton.jit
def tiles_kernel(a_ptr, b_ptr, c_ptr, m, n, k, am, ak, bk, bn, cm, cn, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, k - BLOCK + 1, BLOCK):
        inner = start + tl.arange(0, BLOCK)
        a = tl.load(
            a_ptr + rows[:, None] * am + inner[None, :] * ak,
            mask=(rows[:, None] < m) & (inner[None, :] < k),
            other=0.0,
        )
        b = tl.load(
            b_ptr + inner[:, None] * bk + columns[None, :] * bn,
            mask=(inner[:, None] < k) & (columns[None, :] < n),
            other=0.0,
        )
        total += tl.dot(a, b, input_precision="ieee")
    tl.store(
        c_ptr + rows[:, None] * cm + columns[None, :] * cn,
        total,
        mask=(rows[:, None] < m) & (columns[None, :] < n),
    )


def mm(self, mat2, *, out=None):
    m, k = self.shape
    n = mat2.shape[1]
    c = out if out is not None else self.new_empty((m, n))
    if c.numel():
        tiles_kernel[(triton.cdiv(m, 32), triton.cdiv(n, 32))](
            self, mat2, c, m, n, k, *self.stride(), *mat2.stride(), *c.stride(), BLOCK=32
        )
    return c
