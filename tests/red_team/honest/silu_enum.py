# operator: aten::silu
# style: an enumeration of ways, chosen by size, with match
# chips: interpreter nvidia

import enum

import torch
import triton
import triton.language as tl


class Way(enum.Enum):
    SMALL = 128
    LARGE = 2048


@triton.jit
def silu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n).to(tl.float32)
    tl.store(y_ptr + at, x / (1.0 + tl.exp(-x)), mask=at < n)


def way(n: int) -> Way:
    return Way.SMALL if n <= 1 << 12 else Way.LARGE


def silu(self, *, out=None):
    x = self.contiguous()
    y = torch.empty_like(x)
    n = x.numel()
    if n:
        match way(n):
            case Way.SMALL:
                warps = 1
            case _:
                warps = 8
        block = way(n).value
        silu_kernel[(triton.cdiv(n, block),)](x, y, n, BLOCK=block, num_warps=warps)
    if out is None:
        return y
    out.copy_(y)
    return out
