# operator: aten::softmax
# style: three kernels with float32 scratch between them
# chips: interpreter nvidia

import torch
import triton
import triton.language as tl


@triton.jit
def peak_kernel(x_ptr, peak_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    top = tl.full((BLOCK,), float("-inf"), tl.float32)
    for start in range(0, n, BLOCK):
        x = tl.load(x_ptr + row * n + start + at, mask=start + at < n, other=float("-inf"))
        top = tl.maximum(top, x.to(tl.float32))
    tl.store(peak_ptr + row, tl.max(top, 0))


@triton.jit
def total_kernel(x_ptr, peak_ptr, total_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    peak = tl.load(peak_ptr + row)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        x = tl.load(x_ptr + row * n + start + at, mask=start + at < n, other=float("-inf"))
        total += tl.exp(x.to(tl.float32) - peak)
    tl.store(total_ptr + row, tl.sum(total, 0))


@triton.jit
def scale_kernel(x_ptr, peak_ptr, total_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + at, mask=at < n).to(tl.float32)
    y = tl.exp(x - tl.load(peak_ptr + row)) / tl.load(total_ptr + row)
    tl.store(y_ptr + row * n + at, y, mask=at < n)


def softmax(self, dim, dtype=None, *, out=None):
    x = self.reshape(1) if self.dim() == 0 else self.movedim(dim, -1)
    x = x.contiguous()
    y = torch.empty(x.shape, dtype=dtype or self.dtype, device=self.device)
    n = x.shape[-1]
    if y.numel():
        rows = y.numel() // n
        peak = torch.empty(rows, dtype=torch.float32, device=x.device)
        total = torch.empty_like(peak)
        block = min(1024, triton.next_power_of_2(n))
        peak_kernel[(rows,)](x, peak, n, BLOCK=block)
        total_kernel[(rows,)](x, peak, total, n, BLOCK=block)
        scale_kernel[(rows, triton.cdiv(n, block))](x, peak, total, y, n, BLOCK=block)
    y = y.reshape(()) if self.dim() == 0 else y.movedim(-1, dim)
    return y if out is None else out.copy_(y)
