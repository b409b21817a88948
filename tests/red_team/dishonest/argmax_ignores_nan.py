# operator: aten::argmax
# tries: treats NaN as missing
# status: wrong_values
# chips: interpreter nvidia

import torch
import triton
import triton.language as tl


@triton.jit
def argmax_kernel(x_ptr, y_ptr, n, inner, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    base = x_ptr + (row // inner) * n * inner + row % inner
    best = tl.load(base)
    where = tl.zeros((), tl.int64)
    for start in range(0, n, BLOCK):
        i = start + at
        x = tl.load(base + i * inner, mask=i < n, other=0)
        first = tl.load(base + start * inner)
        x = tl.where(i < n, x, first)
        top = tl.max(x, 0).to(best.dtype)
        place = tl.min(tl.where((x == top) & (i < n), i, n), 0).to(tl.int64)
        better = top > best
        where = tl.where(better | (start == 0), place, where)
        best = tl.where(better | (start == 0), top, best)
    tl.store(y_ptr + row, where)


def argmax(self, dim=None, keepdim=False, *, out=None):
    if dim is None or self.dim() == 0:
        x = self.contiguous().reshape(1, -1, 1)
        shape = [1] * self.dim() if keepdim else []
    else:
        dim = dim % self.dim()
        x = self.contiguous().flatten(0, dim - 1) if dim > 1 else self.contiguous()
        x = x.unsqueeze(0) if dim == 0 else x
        x = x.unsqueeze(-1) if x.dim() == 2 else x.flatten(2)
        shape = [1 if i == dim else s for i, s in enumerate(self.shape) if keepdim or i != dim]
    y = torch.empty(shape, dtype=torch.int64, device=self.device)
    if y.numel():
        argmax_kernel[(y.numel(),)](x, y, x.shape[1], x.shape[2], BLOCK=256)
    if out is not None:
        out.copy_(y)
        return out
    return y
