# operator: cublas::cublasSdot_v2
# style: the last program to finish, told by an atomic ticket, adds up
# chips: interpreter nvidia

import torch
import triton
import triton.language as tl


@triton.jit
def dot_kernel(
    n, x_ptr, incx, y_ptr, incy, part_ptr, ticket_ptr, result_ptr, parts,
    P: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x_at = tl.where(incx < 0, i - n + 1, i) * incx
    y_at = tl.where(incy < 0, i - n + 1, i) * incy
    x = tl.load(x_ptr + x_at, mask=i < n, other=0.0)
    y = tl.load(y_ptr + y_at, mask=i < n, other=0.0)
    tl.store(part_ptr + tl.program_id(0), tl.sum(x * y, 0))
    tl.debug_barrier()
    if tl.atomic_add(ticket_ptr, 1) == parts - 1:
        p = tl.arange(0, P)
        tl.store(result_ptr, tl.sum(tl.load(part_ptr + p, mask=p < parts, other=0.0, volatile=True), 0))


def cublasSdot_v2(n, x, incx, y, incy, result):
    parts = max(triton.cdiv(n, 2048), 1)
    part = torch.empty(parts, dtype=torch.float32, device=result.device)
    ticket = torch.zeros(1, dtype=torch.int32, device=result.device)
    dot_kernel[(parts,)](
        n, x, incx, y, incy, part, ticket, result, parts,
        P=triton.next_power_of_2(parts), BLOCK=2048,
    )  # fmt: skip
