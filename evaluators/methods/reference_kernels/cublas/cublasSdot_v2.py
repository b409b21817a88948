"""result[0] = sum of x[i] y[i], in two passes without atomics, so that it repeats bit by bit.

Pass one: a fixed number of programs, each walking the vectors with the whole grid's stride and
keeping BLOCK running sums in registers. Pass two: one program adds the partial sums.
"""

import torch
import triton
import triton.language as tl

PROGRAMS = 1024


@triton.jit
def partial_kernel(n, x_ptr, incx, y_ptr, incy, partial_ptr, BLOCK: tl.constexpr):
    program = tl.program_id(0).to(tl.int64)
    step = tl.num_programs(0).to(tl.int64) * BLOCK
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(program * BLOCK, n, step):
        i = start + tl.arange(0, BLOCK)
        inside = i < n
        at_x = tl.where(incx < 0, (i - n + 1) * incx, i * incx)
        at_y = tl.where(incy < 0, (i - n + 1) * incy, i * incy)
        x = tl.load(x_ptr + at_x, mask=inside, other=0.0)
        y = tl.load(y_ptr + at_y, mask=inside, other=0.0)
        total += x * y
    tl.store(partial_ptr + program, tl.sum(total))


@triton.jit
def total_kernel(partial_ptr, result_ptr, count, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(result_ptr, tl.sum(tl.load(partial_ptr + i, mask=i < count, other=0.0)))


def cublasSdot_v2(
    n: int, x: torch.Tensor, incx: int, y: torch.Tensor, incy: int, result: torch.Tensor
) -> None:
    block = 1024 if n < 1 << 20 else 4096
    programs = min(PROGRAMS, max(1, triton.cdiv(n, block)))
    partial = torch.empty(programs, dtype=torch.float32, device=x.device)
    partial_kernel[(programs,)](n, x, incx, y, incy, partial, BLOCK=block, num_warps=8)
    total_kernel[(1,)](partial, result, programs, BLOCK=triton.next_power_of_2(programs))
