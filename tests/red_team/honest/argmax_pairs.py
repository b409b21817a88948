# operator: aten::argmax
# style: pairs of value and index reduced by a function of its own
# chips: interpreter nvidia

import math

import torch
import triton
import triton.language as tl


@triton.jit
def better(a, i, b, j):
    a_nan = a != a
    b_nan = b != b
    first = (a > b) | (a_nan & ~b_nan) | (((a == b) | (a_nan & b_nan)) & (i < j))
    return tl.where(first, a, b), tl.where(first, i, j)


@triton.jit
def argmax_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    best = tl.load(x_ptr + row * n)
    place = tl.zeros((), tl.int32)
    for start in range(0, n, BLOCK):
        i = tl.minimum(start + at, n - 1)
        value, index = tl.reduce((tl.load(x_ptr + row * n + i), i), 0, better)
        best, place = better(best, place, value, index)
    tl.store(y_ptr + row, place.to(tl.int64))


def launch(x, y):
    rows, n = x.shape
    block = min(1024, triton.next_power_of_2(n))
    argmax_kernel[(rows,)](x, y, n, BLOCK=block)


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
