"""Solves op(A) x = b in float32, A triangular; x replaces b.

A program owns BLOCK unknowns. While none of the others is known it inverts its own block on the
diagonal. Then it takes off what the unknowns before it add, block by block and as soon as each is
there, multiplies by the inverse, and says that it is done by raising a flag: what one block waits
for the one before it is a product, not a substitution.

Programs draw their block from a counter, so that those they wait for have always begun before them:
nothing depends on the order in which a chip starts programs. Solved unknowns pass from program to
program by way of scratch. An upper triangle is walked from the last block to the first.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def trsv_kernel(
    n, a_ptr, stride_ai, stride_aj, x_ptr, incx, solved_ptr, counter_ptr, flags_ptr,
    FORWARD: tl.constexpr, UNIT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    blocks = tl.num_programs(0)
    turn = tl.atomic_add(counter_ptr, 1)
    block = turn if FORWARD else blocks - 1 - turn
    local = tl.arange(0, BLOCK)
    i = block.to(tl.int64) * BLOCK + local
    at_x = tl.where(incx < 0, (i - n + 1) * incx, i * incx)
    x = tl.load(x_ptr + at_x, mask=i < n, other=0.0)

    # Solves for the columns of the identity, one row after the other.
    inverse = tl.where(local[:, None] == local[None, :], 1.0, 0.0)
    for number in range(BLOCK):
        row = number if FORWARD else BLOCK - 1 - number
        at = block.to(tl.int64) * BLOCK + row
        solved = tl.sum(tl.where(local[:, None] == row, inverse, 0.0), axis=0)[None, :]
        if not UNIT:
            solved /= tl.load(a_ptr + at * (stride_ai + stride_aj), mask=at < n, other=1.0)
        after = i > at if FORWARD else i < at
        below = (i < n) & (at < n) & after
        a = tl.load(a_ptr + i * stride_ai + at * stride_aj, mask=below, other=0.0)[:, None]
        inverse = tl.where(local[:, None] == row, solved, inverse - a * solved)

    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for other in range(turn):
        column = other if FORWARD else blocks - 1 - other
        p = column.to(tl.int64) * BLOCK + local
        tile = a_ptr + i[:, None] * stride_ai + p[None, :] * stride_aj
        a = tl.load(tile, mask=(i[:, None] < n) & (p[None, :] < n), other=0.0)
        while tl.atomic_add(flags_ptr + column, 0, sem="acquire") == 0:
            pass
        tl.debug_barrier()
        total += a * tl.load(solved_ptr + p, mask=p < n, other=0.0, volatile=True)[None, :]
    x -= tl.sum(total, axis=1)
    x = tl.sum(inverse * x[None, :], axis=1)
    tl.store(x_ptr + at_x, x, mask=i < n)
    tl.store(solved_ptr + i, x, mask=i < n)
    tl.debug_barrier()
    tl.atomic_xchg(flags_ptr + block, 1, sem="release")


def cublasStrsv_v2(
    uplo: int, trans: int, diag: int, n: int, A: torch.Tensor, lda: int, x: torch.Tensor, incx: int
) -> None:
    if n == 0:
        return
    plain = trans == 0
    block = 64
    blocks = triton.cdiv(n, block)
    solved = torch.empty(n, dtype=torch.float32, device=x.device)
    state = torch.zeros(1 + blocks, dtype=torch.int32, device=x.device)  # counter, then flags
    trsv_kernel[(blocks,)](
        n, A, *((1, lda) if plain else (lda, 1)), x, incx, solved, state, state[1:],
        FORWARD=(uplo == 0) == plain, UNIT=diag == 1, BLOCK=block, num_warps=4,
    )  # fmt: skip
