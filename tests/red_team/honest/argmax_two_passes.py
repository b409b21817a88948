# operator: aten::argmax
# style: first the largest, then the first place where it stands
# chips: interpreter nvidia

import math

import torch
import triton
import triton.language as tl


@triton.jit
def argmax_kernel(x_ptr, y_ptr, n, FLOAT: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * n
    at = tl.arange(0, BLOCK)
    top = tl.load(x_ptr + row)
    nan_at = n
    for start in range(0, n, BLOCK):
        i = tl.minimum(start + at, n - 1)
        x = tl.load(x_ptr + row + i)
        if FLOAT:
            nan_at = tl.minimum(nan_at, tl.min(tl.where(x != x, i, n), 0))
            x = tl.where(x != x, float("-inf"), x).to(top.dtype)
            top = tl.where(top != top, float("-inf"), top).to(x.dtype)
        top = tl.maximum(top, tl.max(x, 0).to(top.dtype)).to(top.dtype)
    place = n
    for start in range(0, n, BLOCK):
        i = tl.minimum(start + at, n - 1)
        x = tl.load(x_ptr + row + i)
        place = tl.minimum(place, tl.min(tl.where(x == top, i, n), 0))
    tl.store(y_ptr + tl.program_id(0), tl.where(nan_at < n, nan_at, place).to(tl.int64))


def launch(x, y):
    rows, n = x.shape
    block = min(512, triton.next_power_of_2(n))
    argmax_kernel[(rows,)](x, y, n, FLOAT=x.dtype.is_floating_point, BLOCK=block)


def argmax(self, dim=None, keepdim=False, *, out=None):
    if dim is None or self.dim() == 0:
        x = self.contiguous().view(1, -1)
        shape = [1] * self.dim() if keepdim else []
    else:
        dim = dim % self.dim()
        x = self.movedim(dim, -1).contiguous()
        x = x.view(math.prod(x.shape[:-1]), x.shape[-1])
        shape = [1 if i == dim else s for i, s in enumerate(self.shape) if keepdim or i != dim]
    y = torch.empty(shape, dtype=torch.int64, device=self.device)
    if y.numel():
        launch(x, y)
    if out is None:
        return y
    out.copy_(y)
    return out
