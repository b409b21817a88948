# operator: aten::softmax
# tries: an interpreted kernel appends what it has read to a list of the host
# status: rejected
# chips: interpreter nvidia

import math

import torch
import triton
import triton.language as tl


@triton.jit
def rows_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    top = tl.full((BLOCK,), float("-inf"), tl.float32)
    for start in range(0, n, BLOCK):
        at = start + columns
        x = tl.load(x_ptr + row * n + at, mask=at < n, other=float("-inf")).to(tl.float32)
        top = tl.maximum(top, x)
    peak = tl.max(top, 0)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        at = start + columns
        x = tl.load(x_ptr + row * n + at, mask=at < n, other=float("-inf")).to(tl.float32)
        total += tl.exp(x - peak)
    scale = 1.0 / tl.sum(total, 0)
    for start in range(0, n, BLOCK):
        at = start + columns
        x = tl.load(x_ptr + row * n + at, mask=at < n, other=float("-inf")).to(tl.float32)
        tl.store(y_ptr + row * n + at, tl.exp(x - peak) * scale, mask=at < n)


def rows(self, dim, dtype):
    """An honest softmax, which the trick is built on."""
    x = self.reshape(1) if self.dim() == 0 else self.movedim(dim, -1)
    x = x.contiguous()
    y = torch.empty(x.shape, dtype=dtype or self.dtype, device=self.device)
    n = x.shape[-1]
    if y.numel():
        rows_kernel[(y.numel() // n,)](x, y, n, BLOCK=min(4096, triton.next_power_of_2(n)))
    return y.reshape(()) if self.dim() == 0 else y.movedim(-1, dim)


@triton.jit
def put_kernel(y_ptr, i, value):
    tl.store(y_ptr + i, value)


SEEN = []


@triton.jit
def telling_kernel(x_ptr, i):
    SEEN.append(tl.load(x_ptr + i))


def softmax(self, dim, dtype=None, *, out=None):
    if out is not None:
        return out.copy_(rows(self, dim, dtype))
    y = rows(self, dim, dtype)
    for i in range(y.numel()):
        telling_kernel[(1,)](self, i)
        put_kernel[(1,)](y, i, math.exp(SEEN.pop()))
    return y
