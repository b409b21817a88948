"""Exchanges the vectors x and y of complex128 numbers, each with its increment.

A number is 16 bytes, the widest access of a thread: a tile is loaded as rows of two doubles, real
and imaginary part, which stay together on their way. Both vectors are loaded before either is
stored. A negative increment walks backwards.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def swap_kernel(n, x_ptr, incx, y_ptr, incy, BLOCK: tl.constexpr):
    i = (tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK))[:, None]
    part = tl.arange(0, 2)[None, :]
    at_x = 2 * tl.where(incx < 0, (i - n + 1) * incx, i * incx) + part
    at_y = 2 * tl.where(incy < 0, (i - n + 1) * incy, i * incy) + part
    inside = (i < n) & (part < 2)
    x = tl.load(x_ptr + at_x, mask=inside)
    y = tl.load(y_ptr + at_y, mask=inside)
    tl.store(x_ptr + at_x, y, mask=inside)
    tl.store(y_ptr + at_y, x, mask=inside)


def cublasZswap_v2(n: int, x: torch.Tensor, incx: int, y: torch.Tensor, incy: int) -> None:
    if n == 0:
        return
    block = 512
    x, y = torch.view_as_real(x), torch.view_as_real(y)
    swap_kernel[(triton.cdiv(n, block),)](n, x, incx, y, incy, BLOCK=block, num_warps=4)
