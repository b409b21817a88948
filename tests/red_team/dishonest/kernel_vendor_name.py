# operator: aten::softmax
# tries: names a kernel like a vendor's, for a trace to confuse
# status: rejected
# chips: interpreter nvidia

import torch
import triton
import triton.language as tl


@triton.jit
def ampere_sgemm_128x64_nn(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n), mask=at < n)


def softmax(self, dim, dtype=None):
    y = torch.empty_like(self)
    ampere_sgemm_128x64_nn[(1,)](self, y, self.numel(), BLOCK=128)
    return y
