"""result[0] = sum of x[i] y[i] in complex64, in two passes without atomics.

A complex number is loaded as one 8-byte word and taken apart in registers, so that accesses are as
wide as those of real vectors. Pass one: a fixed number of programs, each walking the vectors with
the whole grid's stride and keeping BLOCK running sums. Pass two: one program adds the partial sums.
"""

import torch
import triton
import triton.language as tl

PROGRAMS = 1024  # several for each multiprocessor of the largest chips


@triton.jit
def parts(word):
    """Real and imaginary part of complex64 numbers that were loaded as int64 words."""
    re = word.to(tl.int32).to(tl.float32, bitcast=True)
    im = (word >> 32).to(tl.int32).to(tl.float32, bitcast=True)
    return re, im


@triton.jit
def partial_kernel(n, x_ptr, incx, y_ptr, incy, partial_ptr, BLOCK: tl.constexpr):
    program = tl.program_id(0).to(tl.int64)
    step = tl.num_programs(0).to(tl.int64) * BLOCK
    total_re = tl.zeros((BLOCK,), dtype=tl.float32)
    total_im = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(program * BLOCK, n, step):
        i = start + tl.arange(0, BLOCK)
        at_x = tl.where(incx < 0, (i - n + 1) * incx, i * incx)
        at_y = tl.where(incy < 0, (i - n + 1) * incy, i * incy)
        x_re, x_im = parts(tl.load(x_ptr + at_x, mask=i < n, other=0))
        y_re, y_im = parts(tl.load(y_ptr + at_y, mask=i < n, other=0))
        total_re += x_re * y_re - x_im * y_im
        total_im += x_re * y_im + x_im * y_re
    tl.store(partial_ptr + 2 * program, tl.sum(total_re))
    tl.store(partial_ptr + 2 * program + 1, tl.sum(total_im))


@triton.jit
def total_kernel(partial_ptr, result_ptr, count, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    re = tl.load(partial_ptr + 2 * i, mask=i < count, other=0.0)
    im = tl.load(partial_ptr + 2 * i + 1, mask=i < count, other=0.0)
    tl.store(result_ptr, tl.sum(re))
    tl.store(result_ptr + 1, tl.sum(im))


def cublasCdotu_v2(
    n: int, x: torch.Tensor, incx: int, y: torch.Tensor, incy: int, result: torch.Tensor
) -> None:
    block = 1024 if n < 1 << 20 else 2048
    programs = min(PROGRAMS, max(1, triton.cdiv(n, block)))
    partial = torch.empty((programs, 2), dtype=torch.float32, device=x.device)
    words = x.view(torch.int64), y.view(torch.int64)
    partial_kernel[(programs,)](
        n, words[0], incx, words[1], incy, partial, BLOCK=block, num_warps=8
    )
    total_kernel[(1,)](
        partial, torch.view_as_real(result), programs, BLOCK=triton.next_power_of_2(programs)
    )
