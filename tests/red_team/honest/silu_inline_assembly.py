# operator: aten::silu
# style: inline assembly of the chip
# chips: nvidia

import torch
import triton
import triton.language as tl


@triton.jit
def exponential(x):
    return tl.inline_asm_elementwise(
        "ex2.approx.ftz.f32 $0, $1;", "=f,f", [x * 1.4426950408889634], tl.float32, True, 1
    )


@triton.jit
def silu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n).to(tl.float32)
    tl.store(y_ptr + at, x / (1.0 + exponential(-x)), mask=at < n)


def silu(self, *, out=None):
    x = self.contiguous()
    y = torch.empty_like(x)
    if x.numel():
        silu_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    if out is None:
        return y
    out.copy_(y)
    return out
