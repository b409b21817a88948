# operator: aten::sum
# style: rows of a permuted copy, in the accumulator of the dtype
# chips: interpreter nvidia

import math

import torch
import triton
import triton.language as tl


@triton.jit
def sum_kernel(x_ptr, y_ptr, n, WHOLE: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    kind: tl.constexpr = tl.int64 if WHOLE else tl.float32
    total = tl.zeros((BLOCK,), kind)
    for start in range(0, n, BLOCK):
        x = tl.load(x_ptr + row * n + start + at, mask=start + at < n, other=0)
        x = x.to(y_ptr.dtype.element_ty)
        total += x.to(kind)
    tl.store(y_ptr + row, tl.sum(total, 0).to(y_ptr.dtype.element_ty))


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


def reduce_rows(x, y):
    whole = not y.dtype.is_floating_point
    block = min(1024, triton.next_power_of_2(max(x.shape[1], 1)))
    sum_kernel[(x.shape[0],)](x, y, x.shape[1], WHOLE=whole, BLOCK=block)


def sum(self, dim=None, keepdim=False, *, dtype=None, out=None):
    x, shape, full = rows_of(self, dim)
    whole = not self.dtype.is_floating_point
    kind = dtype or (torch.int64 if whole else self.dtype)
    y = torch.empty(x.shape[0], dtype=kind, device=self.device)
    if y.numel():
        reduce_rows(x, y)
    y = y.view(full if keepdim else shape)
    if out is None:
        return y
    out.copy_(y)
    return out
