# operator: aten::softmax
# style: a row in one block
# chips: interpreter nvidia

import torch
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * n
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row + at, mask=at < n, other=float("-inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + row + at, e / tl.sum(e, axis=0), mask=at < n)


def softmax(self, dim, dtype=None, *, out=None):
    x = self.reshape(1) if self.dim() == 0 else self.movedim(dim, -1)
    x = x.contiguous()
    y = torch.empty(x.shape, dtype=dtype or self.dtype, device=self.device)
    n = x.shape[-1]
    if y.numel():
        rows = y.numel() // n
        block = triton.next_power_of_2(n)
        warps = min(max(block // 256, 1), 16)
        softmax_kernel[(rows,)](x, y, n, BLOCK=block, num_warps=warps)
    y = y.reshape(()) if self.dim() == 0 else y.movedim(-1, dim)
    return y if out is None else out.copy_(y)
