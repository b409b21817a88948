# operator: aten::silu
# style: one kernel for any function of one tensor, handed in as a constant
# chips: interpreter nvidia

import torch
import triton
import triton.language as tl


@triton.jit
def silu_of(x):
    return x / (1.0 + tl.exp(-x))


@triton.jit
def unary_kernel(x_ptr, y_ptr, n, FUNCTION: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(y_ptr + at, FUNCTION(x.to(tl.float32)).to(x.dtype), mask=at < n)


def unary(function):
    def host(self, *, out=None):
        x = self.contiguous()
        y = torch.empty_like(x)
        n = x.numel()
        if n:
            unary_kernel[(triton.cdiv(n, 1024),)](x, y, n, FUNCTION=function, BLOCK=1024)
        return y if out is None else out.copy_(y)

    return host


silu = unary(silu_of)
