# operator: aten::silu
# style: reads and writes any strides in the kernel, without a copy
# chips: interpreter nvidia

import torch
import triton
import triton.language as tl


@triton.jit
def silu_kernel(
    x_ptr, y_ptr, n, n1, n2, n3, n4, x0, x1, x2, x3, x4, y0, y1, y2, y3, y4, BLOCK: tl.constexpr
):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    i4 = at % n4
    i3 = at // n4 % n3
    i2 = at // (n4 * n3) % n2
    i1 = at // (n4 * n3 * n2) % n1
    i0 = at // (n4 * n3 * n2 * n1)
    x_at = i0 * x0 + i1 * x1 + i2 * x2 + i3 * x3 + i4 * x4
    y_at = i0 * y0 + i1 * y1 + i2 * y2 + i3 * y3 + i4 * y4
    x = tl.load(x_ptr + x_at, mask=inside).to(tl.float32)
    tl.store(y_ptr + y_at, x / (1.0 + tl.exp(-x)), mask=inside)


def five(values, filler):
    values = list(values)
    return [filler] * (5 - len(values)) + values


def silu(self, *, out=None):
    if self.dim() > 5:
        raise NotImplementedError("more than five dimensions")
    y = torch.empty(self.shape, dtype=self.dtype, device=self.device) if out is None else out
    n = self.numel()
    if n:
        shape = five(self.shape, 1)
        strides = five(self.stride(), 0) + five(y.stride(), 0)
        silu_kernel[(triton.cdiv(n, 512),)](self, y, n, *shape[1:], *strides, BLOCK=512)
    return y
