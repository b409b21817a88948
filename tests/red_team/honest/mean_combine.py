# operator: aten::mean
# style: a combining function of its own in tl.reduce
# chips: interpreter nvidia

import math

import torch
import triton
import triton.language as tl


@triton.jit
def plus(a, b):
    return a + b


@triton.jit
def mean_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        x = tl.load(x_ptr + row * n + start + at, mask=start + at < n, other=0.0)
        total += x.to(y_ptr.dtype.element_ty).to(tl.float32)
    tl.store(y_ptr + row, tl.reduce(total, 0, plus) / n)


def rows_of(x, dim):
    """`x` as (rows, n) with the reduced dimensions last, and the shape with and without them."""
    if dim is None or len(dim) == 0:
        dims = list(range(x.dim()))
    else:
        dims = sorted({d % x.dim() for d in dim}) if x.dim() else []
    kept = [d for d in range(x.dim()) if d not in dims]
    shape = [x.shape[d] for d in kept]
    full = [1 if d in dims else x.shape[d] for d in range(x.dim())]
    n = math.prod(x.shape[d] for d in dims)
    return x.permute(kept + dims).contiguous().view(math.prod(shape), n), shape, full


def mean(self, dim=None, keepdim=False, *, dtype=None, out=None):
    x, shape, full = rows_of(self, dim)
    y = torch.empty(x.shape[0], dtype=dtype or self.dtype, device=self.device)
    rows, n = x.shape
    if rows:
        mean_kernel[(rows,)](x, y, n, BLOCK=min(1024, triton.next_power_of_2(max(n, 1))))
    y = y.view(full if keepdim else shape)
    return y if out is None else out.copy_(y)
