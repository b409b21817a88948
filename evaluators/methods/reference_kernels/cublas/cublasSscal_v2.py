"""x = alpha x in float32, in place, over every incx-th element.

Reads and writes the vector once. Triton knows an increment of 1 when compiling and makes accesses
16 bytes wide. As in the reference BLAS nothing happens for increments below 1.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def scal_kernel(n, alpha, x_ptr, incx, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i * incx, mask=i < n)
    tl.store(x_ptr + i * incx, alpha * x, mask=i < n)


def cublasSscal_v2(n: int, alpha: float, x: torch.Tensor, incx: int) -> None:
    if n == 0 or incx < 1:
        return
    block = 1024
    scal_kernel[(triton.cdiv(n, block),)](n, alpha, x, incx, BLOCK=block, num_warps=4)
