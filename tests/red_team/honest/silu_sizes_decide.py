# operator: aten::silu
# style: sizes decide between kernels, blocks and loops, by every means of the language
# chips: interpreter nvidia

import torch
import triton
import triton.language as tl


@triton.jit
def flat_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n).to(tl.float32)
    tl.store(y_ptr + at, x / (1.0 + tl.exp(-x)), mask=at < n)


@triton.jit
def looping_kernel(x_ptr, y_ptr, n, ROUNDS: tl.constexpr, BLOCK: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * BLOCK * ROUNDS
    for i in tl.static_range(ROUNDS):
        at = start + i * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + at, mask=at < n).to(tl.float32)
        tl.store(y_ptr + at, x / (1.0 + tl.exp(-x)), mask=at < n)


def block_for(n):
    """A power of two, found by doubling."""
    block = 64
    while block < n:
        block *= 2
        if block >= 1024:
            break
    return block


def silu(self, *, out=None):
    x = self.contiguous()
    y = torch.empty_like(x)
    n = x.numel()
    try:
        rounds = 4 // (1 if n > 4096 else 8) or 1
    except ZeroDivisionError:
        rounds = 1
    match rounds:
        case 1:
            kernel, options = flat_kernel, {}
        case _:
            kernel, options = looping_kernel, {"ROUNDS": rounds}
    if n:
        block = block_for(n)
        kernel[(triton.cdiv(n, block * rounds),)](x, y, n, BLOCK=block, **options)
    return y if out is None else out.copy_(y)
