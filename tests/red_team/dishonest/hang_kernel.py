# operator: aten::softmax
# tries: a kernel that never ends
# status: timed_out
# chips: interpreter nvidia

import torch
import triton
import triton.language as tl


@triton.jit
def endless_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    going = 1
    while going > 0:
        x = tl.load(x_ptr + at, mask=at < n, other=0.0).to(tl.float32)
        tl.store(y_ptr + at, x, mask=at < n)
        going += tl.max((x * 0.0 == 0.0).to(tl.int32), 0)
        going = going % 1000 + 1


def softmax(self, dim, dtype=None, *, out=None):
    y = torch.empty(self.shape, dtype=dtype or self.dtype, device=self.device)
    endless_kernel[(1,)](self, y, self.numel(), BLOCK=128)
    return y
