# operator: aten::softmax
# style: any dimension in place: strides of the row and of what is outside it
# chips: interpreter nvidia

import math

import torch
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, y_ptr, n, inner, BLOCK: tl.constexpr):
    program = tl.program_id(0).to(tl.int64)
    start = program // inner * n * inner + program % inner
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + start + at * inner, mask=at < n, other=float("-inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, 0))
    tl.store(y_ptr + start + at * inner, e / tl.sum(e, 0), mask=at < n)


def softmax(self, dim, dtype=None, *, out=None):
    x = self.contiguous()
    y = torch.empty(x.shape, dtype=x.dtype if dtype is None else dtype, device=x.device)
    shape = x.shape if x.dim() else (1,)
    dim = dim % len(shape)
    n = shape[dim]
    inner = math.prod(shape[dim + 1 :])
    if x.numel():
        grid = (x.numel() // n,)
        softmax_kernel[grid](x, y, n, inner, BLOCK=triton.next_power_of_2(n))
    if out is not None:
        out.copy_(y)
        return out
    return y
