# operator: cublas::cublasSaxpy_v2
# style: a kernel of its own for unit increments, chosen from a table
# chips: interpreter nvidia

import torch
import triton
import triton.language as tl


@triton.jit
def dense_kernel(n, alpha, x_ptr, incx, y_ptr, incy, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    y = tl.load(y_ptr + i, mask=i < n)
    tl.store(y_ptr + i, tl.fma(x, alpha, y), mask=i < n)


@triton.jit
def strided_kernel(n, alpha, x_ptr, incx, y_ptr, incy, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x_at = tl.where(incx < 0, i - n + 1, i) * incx
    y_at = tl.where(incy < 0, i - n + 1, i) * incy
    x = tl.load(x_ptr + x_at, mask=i < n)
    y = tl.load(y_ptr + y_at, mask=i < n)
    tl.store(y_ptr + y_at, alpha * x + y, mask=i < n)


KERNELS = {True: dense_kernel, False: strided_kernel}


def cublasSaxpy_v2(n: int, alpha: float, x, incx: int, y, incy: int) -> None:
    if n <= 0 or alpha == 0:
        return
    kernel = KERNELS[incx == 1 and incy == 1]
    kernel.run(n, alpha, x, incx, y, incy, BLOCK=256, grid=(triton.cdiv(n, 256),), warmup=False)
