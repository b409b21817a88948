# operator: aten::cumsum
# style: a block at a time, the carry in a register
# chips: interpreter nvidia

import torch
import triton
import triton.language as tl


@triton.jit
def cumsum_kernel(x_ptr, y_ptr, n, WHOLE: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * n
    at = tl.arange(0, BLOCK)
    kind: tl.constexpr = tl.int64 if WHOLE else tl.float32
    carry = tl.zeros((), kind)
    for start in range(0, n, BLOCK):
        x = tl.load(x_ptr + row + start + at, mask=start + at < n, other=0)
        x = x.to(y_ptr.dtype.element_ty).to(kind)
        tl.store(
            y_ptr + row + start + at,
            (carry + tl.cumsum(x, 0)).to(y_ptr.dtype.element_ty),
            mask=start + at < n,
        )
        carry += tl.sum(x, 0)


def scan_rows(x, y, rows, n):
    whole = not y.dtype.is_floating_point
    block = min(1024, triton.next_power_of_2(n))
    cumsum_kernel[(rows,)](x, y, n, WHOLE=whole, BLOCK=block)


def cumsum(self, dim, *, dtype=None, out=None):
    kind = dtype or (self.dtype if self.dtype.is_floating_point else torch.int64)
    x = self.reshape(1) if self.dim() == 0 else self.movedim(dim, -1)
    x = x.contiguous()
    y = torch.empty(x.shape, dtype=kind, device=self.device)
    n = x.shape[-1]
    if y.numel():
        scan_rows(x, y, y.numel() // n, n)
    y = y.reshape(()) if self.dim() == 0 else y.movedim(-1, dim)
    if out is None:
        return y
    out.copy_(y)
    return out
