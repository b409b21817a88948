# operator: aten::softmax
# style: running maximum and sum in one pass
# chips: interpreter nvidia

import torch
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * n
    at = tl.arange(0, BLOCK)
    peak = tl.full((), float("-inf"), tl.float32)
    total = tl.zeros((), tl.float32)
    for start in range(0, n, BLOCK):
        x = tl.load(x_ptr + row + start + at, mask=start + at < n, other=float("-inf"))
        x = x.to(tl.float32)
        higher = tl.maximum(peak, tl.max(x, 0))
        base = tl.where(higher == float("-inf"), 0.0, higher)
        total = total * tl.exp(peak - base) + tl.sum(tl.exp(x - base), 0)
        peak = higher
    for start in range(0, n, BLOCK):
        x = tl.load(x_ptr + row + start + at, mask=start + at < n, other=float("-inf"))
        e = tl.exp(x.to(tl.float32) - peak)
        tl.store(y_ptr + row + start + at, e / total, mask=start + at < n)


def softmax(self, dim, dtype=None, *, out=None):
    x = self.reshape(1) if self.dim() == 0 else self.movedim(dim, -1)
    x = x.contiguous()
    y = torch.empty(x.shape, dtype=dtype or self.dtype, device=self.device)
    n = x.shape[-1]
    if y.numel():
        rows = y.numel() // n
        softmax_kernel[(rows,)](x, y, n, BLOCK=min(1024, triton.next_power_of_2(n)))
    y = y.reshape(()) if self.dim() == 0 else y.movedim(-1, dim)
    return y if out is None else out.copy_(y)
