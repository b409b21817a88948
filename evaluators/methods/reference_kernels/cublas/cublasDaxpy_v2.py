"""y = alpha x + y in float64 over vectors with increments; a negative increment walks backwards.

Streams both vectors once. `alpha: tl.float64` matters: without it Triton hands a Python float over
as float32. Increments of 1 are known when compiling, so accesses become 16 bytes wide there.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def axpy_kernel(n, alpha: tl.float64, x_ptr, incx, y_ptr, incy, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    at_x = tl.where(incx < 0, (i - n + 1) * incx, i * incx)
    at_y = tl.where(incy < 0, (i - n + 1) * incy, i * incy)
    x = tl.load(x_ptr + at_x, mask=inside)
    y = tl.load(y_ptr + at_y, mask=inside)
    tl.store(y_ptr + at_y, alpha * x + y, mask=inside)


def cublasDaxpy_v2(
    n: int, alpha: float, x: torch.Tensor, incx: int, y: torch.Tensor, incy: int
) -> None:
    if n == 0:
        return
    block = 1024
    axpy_kernel[(triton.cdiv(n, block),)](n, alpha, x, incx, y, incy, BLOCK=block, num_warps=4)
