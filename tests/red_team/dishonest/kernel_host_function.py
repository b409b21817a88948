# operator: aten::softmax
# tries: calls host code from a kernel
# status: rejected
# chips: interpreter nvidia

import torch
import triton
import triton.language as tl


def helper(x):
    return x


@triton.jit
def odd_kernel(x_ptr, y_ptr, n, X: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y_ptr + at, helper(x_ptr), mask=at < n)


def softmax(self, dim, dtype=None):
    y = torch.empty_like(self)
    odd_kernel[(1,)](self, y, self.numel(), 0, BLOCK=128)
    return y
