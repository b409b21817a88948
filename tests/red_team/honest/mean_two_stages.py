# operator: aten::mean
# style: partial sums into scratch, finished by a second kernel
# chips: interpreter nvidia

import math

import torch
import triton
import triton.language as tl


@triton.jit
def stage_kernel(x_ptr, part_ptr, n, parts, CAST: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(1).to(tl.int64)
    part = tl.program_id(0)
    at = part * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + at, mask=at < n, other=0.0)
    if CAST == 16:
        x = x.to(tl.float16)
    tl.store(part_ptr + row * parts + part, tl.sum(x.to(tl.float32), 0))


@triton.jit
def finish_kernel(part_ptr, y_ptr, n, parts, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, parts, BLOCK):
        inside = start + at < parts
        total += tl.load(part_ptr + row * parts + start + at, mask=inside, other=0.0)
    tl.store(y_ptr + row, tl.sum(total, 0) / n)


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
    kind = dtype if dtype is not None else self.dtype
    y = torch.empty(x.shape[0], dtype=kind, device=self.device)
    rows, n = x.shape
    if rows:
        parts = max(triton.cdiv(n, 512), 1)
        part = x.new_empty((rows, parts), dtype=torch.float32)
        cast = 16 if kind == torch.float16 else 0
        stage_kernel[(parts, rows)](x, part, n, parts, CAST=cast, BLOCK=512)
        finish_kernel[(rows,)](part, y, n, parts, BLOCK=64)
    y = y.reshape(full if keepdim else shape)
    if out is not None:
        return out.copy_(y)
    return y
