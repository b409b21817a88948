# operator: aten::silu
# style: makes its kernel by calling triton.jit
# chips: interpreter nvidia

import torch
import triton
import triton.language as tl


def body(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n).to(tl.float32)
    tl.store(y_ptr + at, x / (1.0 + tl.exp(-x)), mask=at < n)


kernel = triton.jit(body)


def silu(self, *, out=None):
    x = self.contiguous()
    y = x.new_empty(x.shape)
    if not x.numel():
        return y if out is None else out
    kernel[triton.cdiv(x.numel(), 512),](x, y, x.numel(), 512)
    if out is None:
        return y
    out.copy_(y)
    return out
