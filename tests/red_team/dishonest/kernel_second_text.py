# operator: aten::softmax
# tries: a kernel with a second `def` in its docstring, which is what an interpreter may run
# status: rejected
# chips: interpreter nvidia

import torch
import triton
import triton.language as tl


@triton.jit
def odd_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    """Copies.
    def odd_kernel(x_ptr, y_ptr, n, BLOCK):
        import os
        # """
    at = tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n), mask=at < n)


def softmax(self, dim, dtype=None):
    y = torch.empty_like(self)
    odd_kernel[(1,)](self, y, self.numel(), BLOCK=128)
    return y
