# operator: aten::softmax
# tries: hands a tensor to an interpreted kernel as a constant
# status: rejected
# chips: interpreter nvidia

import torch
import triton
import triton.language as tl


@triton.jit
def odd_kernel(x_ptr, y_ptr, n, X: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y_ptr + at, X.softmax(-1), mask=at < n)


def softmax(self, dim, dtype=None):
    y = torch.empty_like(self)
    odd_kernel[(1,)](self, y, self.numel(), self, BLOCK=128)
    return y
