# operator: aten::softmax
# tries: binds getattr to another name inside a kernel
# status: rejected
# chips: interpreter nvidia

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
def reaching_kernel(x_ptr):
    reach = getattr
    reach(tl.load, "__glob" + "als__")


def softmax(self, dim, dtype=None, *, out=None):
    if out is not None:
        return out.copy_(rows(self, dim, dtype))
    reaching_kernel[(1,)](self)
    return rows(self, dim, dtype)
