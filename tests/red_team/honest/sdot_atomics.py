# operator: cublas::cublasSdot_v2
# style: partial sums joined by an atomic, after zeroing the result
# chips: interpreter nvidia

import torch
import triton
import triton.language as tl


@triton.jit
def dot_kernel(n, x_ptr, incx, y_ptr, incy, result_ptr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x_at = tl.where(incx < 0, i - n + 1, i) * incx
    y_at = tl.where(incy < 0, i - n + 1, i) * incy
    x = tl.load(x_ptr + x_at, mask=i < n, other=0.0)
    y = tl.load(y_ptr + y_at, mask=i < n, other=0.0)
    tl.atomic_add(result_ptr, tl.sum(x * y, 0))


def cublasSdot_v2(n, x, incx, y, incy, result):
    result.zero_()
    if n > 0:
        dot_kernel[(triton.cdiv(n, 1024),)](n, x, incx, y, incy, result, BLOCK=1024)
