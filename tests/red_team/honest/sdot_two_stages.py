# operator: cublas::cublasSdot_v2
# style: partial sums in scratch, the same order of adding in every run
# chips: interpreter nvidia

import torch
import triton
import triton.language as tl


@triton.jit
def part_kernel(n, x_ptr, incx, y_ptr, incy, part_ptr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x_at = tl.where(incx < 0, i - n + 1, i) * incx
    y_at = tl.where(incy < 0, i - n + 1, i) * incy
    x = tl.load(x_ptr + x_at, mask=i < n, other=0.0)
    y = tl.load(y_ptr + y_at, mask=i < n, other=0.0)
    tl.store(part_ptr + tl.program_id(0), tl.sum(x * y, 0))


@triton.jit
def sum_kernel(part_ptr, result_ptr, parts, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, parts, BLOCK):
        total += tl.load(part_ptr + start + at, mask=start + at < parts, other=0.0)
    tl.store(result_ptr, tl.sum(total, 0))


def cublasSdot_v2(n, x, incx, y, incy, result):
    parts = max(triton.cdiv(n, 1024), 1)
    part = torch.empty(parts, dtype=torch.float32, device=result.device)
    part_kernel[(parts,)](n, x, incx, y, incy, part, BLOCK=1024)
    sum_kernel[(1,)](part, result, parts, BLOCK=256)
