"""result[0] = sum of conj(x[i]) y[i] in complex128, in two passes without atomics.

A number is 16 bytes, the widest access of a thread: a tile is loaded as rows of two doubles and
split in registers. Pass one: a fixed number of programs, each walking the vectors with the whole
grid's stride and keeping BLOCK running sums. Pass two: one program adds the partial sums.
"""

import torch
import triton
import triton.language as tl

PROGRAMS = 1024  # several for each multiprocessor of the largest chips


@triton.jit
def parts(pointer, at, inside):
    """Real and imaginary part of the complex128 numbers number `at`; 0 where not `inside`."""
    part = tl.arange(0, 2)[None, :]
    mask = inside[:, None] & (part < 2)
    return tl.split(tl.load(pointer + 2 * at[:, None] + part, mask=mask, other=0.0))


@triton.jit
def partial_kernel(n, x_ptr, incx, y_ptr, incy, partial_ptr, BLOCK: tl.constexpr):
    program = tl.program_id(0).to(tl.int64)
    step = tl.num_programs(0).to(tl.int64) * BLOCK
    total_re = tl.zeros((BLOCK,), dtype=tl.float64)
    total_im = tl.zeros((BLOCK,), dtype=tl.float64)
    for start in range(program * BLOCK, n, step):
        i = start + tl.arange(0, BLOCK)
        at_x = tl.where(incx < 0, (i - n + 1) * incx, i * incx)
        at_y = tl.where(incy < 0, (i - n + 1) * incy, i * incy)
        x_re, x_im = parts(x_ptr, at_x, i < n)
        y_re, y_im = parts(y_ptr, at_y, i < n)
        total_re += x_re * y_re + x_im * y_im
        total_im += x_re * y_im - x_im * y_re
    tl.store(partial_ptr + 2 * program, tl.sum(total_re))
    tl.store(partial_ptr + 2 * program + 1, tl.sum(total_im))


@triton.jit
def total_kernel(partial_ptr, result_ptr, count, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    re = tl.load(partial_ptr + 2 * i, mask=i < count, other=0.0)
    im = tl.load(partial_ptr + 2 * i + 1, mask=i < count, other=0.0)
    tl.store(result_ptr, tl.sum(re))
    tl.store(result_ptr + 1, tl.sum(im))


def cublasZdotc_v2(
    n: int, x: torch.Tensor, incx: int, y: torch.Tensor, incy: int, result: torch.Tensor
) -> None:
    block = 1024
    programs = min(PROGRAMS, max(1, triton.cdiv(n, block)))
    partial = torch.empty((programs, 2), dtype=torch.float64, device=x.device)
    x, y, result = torch.view_as_real(x), torch.view_as_real(y), torch.view_as_real(result)
    partial_kernel[(programs,)](n, x, incx, y, incy, partial, BLOCK=block, num_warps=8)
    total_kernel[(1,)](partial, result, programs, BLOCK=triton.next_power_of_2(programs))
