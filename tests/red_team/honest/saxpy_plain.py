# operator: cublas::cublasSaxpy_v2
# style: pointers moved to the first element where increments are negative
# chips: interpreter nvidia

import torch
import triton
import triton.language as tl


@triton.jit
def axpy_kernel(n, alpha, x_ptr, incx, y_ptr, incy, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x_first = tl.where(incx < 0, (1 - n) * incx, 0)
    y_first = tl.where(incy < 0, (1 - n) * incy, 0)
    x = tl.load(x_ptr + x_first + i * incx, mask=i < n)
    y = tl.load(y_ptr + y_first + i * incy, mask=i < n)
    tl.store(y_ptr + y_first + i * incy, alpha * x + y, mask=i < n)


def cublasSaxpy_v2(n, alpha, x, incx, y, incy):
    if n > 0:
        axpy_kernel[(triton.cdiv(n, 512),)](n, alpha, x, incx, y, incy, BLOCK=512)
