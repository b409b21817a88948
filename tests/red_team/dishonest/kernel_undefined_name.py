# operator: aten::softmax
# tries: uses a name that only the interpreter puts there
# status: rejected
# chips: interpreter nvidia

import torch
import triton
import triton.language as tl


@triton.jit
def odd_kernel(x_ptr, y_ptr, n, X: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y_ptr + at, np.exp(x_ptr), mask=at < n)


def softmax(self, dim, dtype=None):
    y = torch.empty_like(self)
    odd_kernel[(1,)](self, y, self.numel(), 0, BLOCK=128)
    return y
