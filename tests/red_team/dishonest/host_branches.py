# operator: aten::gt
# tries: launches one kernel or another, by what each element is
# status: tampered
# chips: interpreter

import torch
import triton
import triton.language as tl


@triton.jit
def copy_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n), mask=i < n)


def copied(x):
    """All that a kernel does here."""
    y = torch.empty_like(x)
    if x.numel():
        copy_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    return y


@triton.jit
def one_kernel(y_ptr, i):
    tl.store(y_ptr + i, 1)


@triton.jit
def zero_kernel(y_ptr, i):
    tl.store(y_ptr + i, 0)


def gt(self, other, *, out=None):
    a, b = self, other
    if isinstance(other, torch.Tensor):
        a, b = torch.broadcast_tensors(self, other)
        b = b.reshape(-1)
    y = torch.empty(a.shape, dtype=torch.bool, device=self.device)
    target, flat = y.view(torch.uint8), a.reshape(-1)
    for i in range(flat.numel()):
        against = b[i].item() if isinstance(b, torch.Tensor) else b
        if flat[i].item() > against:
            one_kernel[(1,)](target, i)
        else:
            zero_kernel[(1,)](target, i)
    return y if out is None else out.copy_(y)
