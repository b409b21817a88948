# operator: aten::silu
# style: chooses a kernel by the alignment of addresses
# chips: interpreter nvidia

import torch
import triton
import triton.language as tl


@triton.jit
def silu_kernel(x_ptr, y_ptr, n, ALIGNED: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if ALIGNED:
        at = tl.max_contiguous(tl.multiple_of(at, BLOCK), BLOCK)
        x = tl.load(x_ptr + at).to(tl.float32)
        tl.store(y_ptr + at, x / (1.0 + tl.exp(-x)))
    else:
        x = tl.load(x_ptr + at, mask=at < n).to(tl.float32)
        tl.store(y_ptr + at, x / (1.0 + tl.exp(-x)), mask=at < n)


def aligned(*tensors):
    return all(t.data_ptr() % 16 == 0 for t in tensors)


def silu(self, *, out=None):
    x = self.contiguous()
    y = torch.empty_like(x)
    n = x.numel()
    if n:
        block = 1024
        fast = aligned(x, y) and n % block == 0
        silu_kernel[(triton.cdiv(n, block),)](x, y, n, ALIGNED=fast, BLOCK=block)
    if out is None:
        return y
    out.copy_(y)
    return out
