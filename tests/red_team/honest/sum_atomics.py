# operator: aten::sum
# style: long rows split over programs, joined by atomics, then rounded by a kernel
# chips: interpreter nvidia

import math

import torch
import triton
import triton.language as tl


@triton.jit
def partial_kernel(x_ptr, total_ptr, n, span, WHOLE: tl.constexpr, CAST: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    kind: tl.constexpr = tl.int64 if WHOLE else tl.float32
    total = tl.zeros((BLOCK,), kind)
    first = tl.program_id(1) * span
    for start in range(first, tl.minimum(first + span, n), BLOCK):
        i = start + at
        x = tl.load(x_ptr + row * n + i, mask=(i < n) & (i < first + span), other=0)
        total += x.to(CAST).to(kind)
    tl.atomic_add(total_ptr + row, tl.sum(total, 0))


@triton.jit
def finish_kernel(total_ptr, y_ptr, rows, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(total_ptr + at, mask=at < rows)
    tl.store(y_ptr + at, total.to(y_ptr.dtype.element_ty), mask=at < rows)


KINDS = {
    torch.float16: tl.float16,
    torch.bfloat16: tl.bfloat16,
    torch.float32: tl.float32,
    torch.int8: tl.int8,
    torch.uint8: tl.uint8,
    torch.int16: tl.int16,
    torch.int32: tl.int32,
    torch.int64: tl.int64,
}


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
    rows, n = x.shape
    whole = not y.dtype.is_floating_point
    wide = torch.int64 if whole else torch.float32
    total = torch.zeros(rows, dtype=wide, device=x.device)
    span = 512
    grid = (rows, max(triton.cdiv(n, span), 1))
    partial_kernel[grid](x, total, n, span, WHOLE=whole, CAST=KINDS[y.dtype], BLOCK=256)
    finish_kernel[(triton.cdiv(rows, 128),)](total, y, rows, BLOCK=128)


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
