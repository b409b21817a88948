# operator: aten::rsqrt
# style: an object that holds the launch parameters and is called
# chips: interpreter nvidia

import torch
import triton
import triton.language as tl


@triton.jit
def rsqrt_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=1).to(tl.float32)
    tl.store(y_ptr + at, 1.0 / tl.sqrt_rn(x), mask=at < n)


class Elementwise:
    def __init__(self, kernel, block=1024, warps=4):
        self.kernel = kernel
        self.block = block
        self.warps = warps

    @staticmethod
    def result_dtype(dtype):
        return dtype if dtype.is_floating_point else torch.float32

    def grid(self, n):
        return (triton.cdiv(n, self.block),)

    def __call__(self, x, out=None):
        x = x.contiguous()
        y = x.new_empty(x.shape, dtype=self.result_dtype(x.dtype))
        n = x.numel()
        if n:
            self.kernel[self.grid(n)](x, y, n, BLOCK=self.block, num_warps=self.warps)
        if out is None:
            return y
        return out.copy_(y)


_rsqrt = Elementwise(rsqrt_kernel)


def rsqrt(self, *, out=None):
    return _rsqrt(self, out)
