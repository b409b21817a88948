# operator: cublas::cublasSaxpy_v2
# tries: writes into memory between the elements of its own result
# status: wrong_values|mutated_input|wrong_layout
# chips: interpreter nvidia

import torch
import triton
import triton.language as tl


@triton.jit
def axpy_kernel(n, alpha, x_ptr, incx, y_ptr, incy, x_first, y_first, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + x_first + i * incx, mask=i < n)
    y = tl.load(y_ptr + y_first + i * incy, mask=i < n)
    tl.store(y_ptr + y_first + i * incy, alpha * x + y, mask=i < n)
    gap = y_ptr + y_first + i * incy + tl.where(incy > 0, 1, -1)
    tl.store(gap, 0.0, mask=(i < n - 1) & (tl.abs(incy) > 1))


def cublasSaxpy_v2(n, alpha, x, incx, y, incy):
    x_first = 0 if incx > 0 else (1 - n) * incx
    y_first = 0 if incy > 0 else (1 - n) * incy
    axpy_kernel[(triton.cdiv(n, 256),)](n, alpha, x, incx, y, incy, x_first, y_first, BLOCK=256)
