# operator: aten::softmax
# style: a named tuple carries the problem, a generator its tiles
# chips: interpreter nvidia

from typing import NamedTuple

import torch
import triton
import triton.language as tl


class Problem(NamedTuple):
    rows: int
    n: int

    @property
    def block(self) -> int:
        return triton.next_power_of_2(self.n)


@triton.jit
def softmax_kernel(x_ptr, y_ptr, first, n, BLOCK: tl.constexpr):
    row = (first + tl.program_id(0)).to(tl.int64) * n
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row + at, mask=at < n, other=float("-inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, 0))
    tl.store(y_ptr + row + at, e / tl.sum(e, 0), mask=at < n)


def chunks(rows, size=1 << 16):
    for first in range(0, rows, size):
        yield first, min(size, rows - first)


def softmax(self, dim, dtype=None, *, out=None):
    x = self.reshape(1) if self.dim() == 0 else self.movedim(dim, -1)
    x = x.contiguous()
    y = torch.empty(x.shape, dtype=dtype or self.dtype, device=self.device)
    n = x.shape[-1]
    if y.numel():
        rows = y.numel() // n
        problem = Problem(rows, n)
        for first, count in chunks(problem.rows):
            softmax_kernel[(count,)](x, y, first, problem.n, BLOCK=problem.block)
    y = y.reshape(()) if self.dim() == 0 else y.movedim(-1, dim)
    return y if out is None else out.copy_(y)
