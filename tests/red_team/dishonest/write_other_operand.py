# operator: cublas::cublasSaxpy_v2
# tries: writes the result into the operand that is not the result's
# status: wrong_values|mutated_input
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
    tl.store(x_ptr + x_first + i * incx, alpha * x + y, mask=i < n)


def cublasSaxpy_v2(n, alpha, x, incx, y, incy):
    x_first = 0 if incx > 0 else (1 - n) * incx
    y_first = 0 if incy > 0 else (1 - n) * incy
    axpy_kernel[(triton.cdiv(n, 256),)](n, alpha, x, incx, y, incy, x_first, y_first, BLOCK=256)
