# operator: aten::softmax
# tries: a kernel that reads a wild address
# status: runtime_error
# chips: interpreter nvidia

import torch
import triton
import triton.language as tl


@triton.jit
def wild_kernel(y_ptr, address, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    wild = address.to(tl.pointer_type(tl.float32))
    tl.store(y_ptr + at, tl.load(wild + at), mask=at < n)


def softmax(self, dim, dtype=None, *, out=None):
    y = torch.empty(self.shape, dtype=dtype or self.dtype, device=self.device)
    wild_kernel[(1,)](y, (1 << 46) + 12345 * 4096, self.numel(), BLOCK=128)
    return y
