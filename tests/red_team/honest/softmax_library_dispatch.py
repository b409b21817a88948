# operator: aten::softmax
# style: a small library in one file: helpers, a table of ways, dispatch on size
# chips: interpreter nvidia

import torch
import triton
import triton.language as tl


@triton.jit
def exponentials(x):
    e = tl.exp(x - tl.max(x, 0))
    return e, tl.sum(e, 0)


@triton.jit
def short_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * n
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row + at, mask=at < n, other=float("-inf")).to(tl.float32)
    e, total = exponentials(x)
    tl.store(y_ptr + row + at, e / total, mask=at < n)


@triton.jit
def long_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * n
    at = tl.arange(0, BLOCK)
    top = tl.full((BLOCK,), float("-inf"), tl.float32)
    for start in range(0, n, BLOCK):
        x = tl.load(x_ptr + row + start + at, mask=start + at < n, other=float("-inf"))
        top = tl.maximum(top, x.to(tl.float32))
    peak = tl.max(top, 0)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        x = tl.load(x_ptr + row + start + at, mask=start + at < n, other=float("-inf"))
        total += tl.exp(x.to(tl.float32) - peak)
    scale = tl.sum(total, 0)
    for start in range(0, n, BLOCK):
        x = tl.load(x_ptr + row + start + at, mask=start + at < n)
        y = tl.exp(x.to(tl.float32) - peak) / scale
        tl.store(y_ptr + row + start + at, y, mask=start + at < n)


WAYS = [
    (lambda n: n <= 128, short_kernel, {"num_warps": 1}),
    (lambda n: n <= 4096, short_kernel, {"num_warps": 4}),
    (lambda n: True, long_kernel, {"num_warps": 8}),
]


def launch(x, y, rows, n):
    for fits, kernel, options in WAYS:
        if fits(n):
            kernel[(rows,)](x, y, n, BLOCK=min(4096, triton.next_power_of_2(n)), **options)
            return
    raise AssertionError("no way fits")


def softmax(self, dim, dtype=None, *, out=None):
    x = self.reshape(1) if self.dim() == 0 else self.movedim(dim, -1)
    x = x.contiguous()
    y = torch.empty(x.shape, dtype=dtype or self.dtype, device=self.device)
    n = x.shape[-1]
    if y.numel():
        rows = y.numel() // n
        launch(x, y, rows, n)
    y = y.reshape(()) if self.dim() == 0 else y.movedim(-1, dim)
    return y if out is None else out.copy_(y)
