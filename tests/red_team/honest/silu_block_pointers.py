# operator: aten::silu
# style: block pointers over rows
# chips: interpreter nvidia

import torch
import triton
import triton.language as tl


@triton.jit
def silu_kernel(x_ptr, y_ptr, rows, columns, R: tl.constexpr, C: tl.constexpr):
    r = tl.program_id(0) * R
    c = tl.program_id(1) * C
    x_block = tl.make_block_ptr(x_ptr, (rows, columns), (columns, 1), (r, c), (R, C), (1, 0))
    y_block = tl.make_block_ptr(y_ptr, (rows, columns), (columns, 1), (r, c), (R, C), (1, 0))
    x = tl.load(x_block, boundary_check=(0, 1)).to(tl.float32)
    y = x / (1.0 + tl.exp(-x))
    tl.store(y_block, y.to(y_ptr.dtype.element_ty), boundary_check=(0, 1))


def silu(self, *, out=None):
    x = self.contiguous()
    y = torch.empty_like(x)
    if x.numel():
        columns = x.shape[-1] if x.dim() else 1
        rows = x.numel() // columns
        grid = (triton.cdiv(rows, 16), triton.cdiv(columns, 64))
        silu_kernel[grid](x, y, rows, columns, R=16, C=64)
    if out is None:
        return y
    out.copy_(y)
    return out
