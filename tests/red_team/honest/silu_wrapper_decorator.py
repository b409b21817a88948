# operator: aten::silu
# style: a decorator of its own around the entry point
# chips: interpreter nvidia

import functools

import torch
import triton
import triton.language as tl


def with_result(function):
    """Gives `function` a contiguous input and a result to write into."""

    @functools.wraps(function)
    def wrapped(self, *, out=None):
        x = self.contiguous()
        y = torch.empty_like(x)
        function(x, y)
        if out is not None:
            return out.copy_(y)
        return y

    return wrapped


@triton.jit
def silu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n).to(tl.float32)
    tl.store(y_ptr + at, x / (1.0 + tl.exp(-x)), mask=at < n)


@with_result
def silu(x, y):
    if x.numel() > 0:
        silu_kernel[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), BLOCK=256)
