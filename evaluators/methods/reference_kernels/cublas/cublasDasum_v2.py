"""result[0] = sum of |x[i]| in float64, in two passes without atomics: it repeats bit by bit.

Pass one: a fixed number of programs, each walking the vector with the whole grid's stride and
keeping BLOCK running sums in registers. Pass two: one program adds the partial sums. As in the
reference BLAS the sum is 0 for increments below 1.
"""

import torch
import triton
import triton.language as tl

PROGRAMS = 1024  # several for each multiprocessor of the largest chips


@triton.jit
def partial_kernel(n, x_ptr, incx, partial_ptr, BLOCK: tl.constexpr):
    program = tl.program_id(0).to(tl.int64)
    step = tl.num_programs(0).to(tl.int64) * BLOCK
    total = tl.zeros((BLOCK,), dtype=tl.float64)
    for start in range(program * BLOCK, n, step):
        i = start + tl.arange(0, BLOCK)
        total += tl.abs(tl.load(x_ptr + i * incx, mask=i < n, other=0.0))
    tl.store(partial_ptr + program, tl.sum(total))


@triton.jit
def total_kernel(partial_ptr, result_ptr, count, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(result_ptr, tl.sum(tl.load(partial_ptr + i, mask=i < count, other=0.0)))


def cublasDasum_v2(n: int, x: torch.Tensor, incx: int, result: torch.Tensor) -> None:
    if incx < 1:
        n = 0
    block = 1024 if n < 1 << 20 else 2048
    programs = min(PROGRAMS, max(1, triton.cdiv(n, block)))
    partial = torch.empty(programs, dtype=torch.float64, device=x.device)
    partial_kernel[(programs,)](n, x, incx, partial, BLOCK=block, num_warps=8)
    total_kernel[(1,)](partial, result, programs, BLOCK=triton.next_power_of_2(programs))
