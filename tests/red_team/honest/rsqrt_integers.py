# operator: aten::rsqrt
# style: promotes integers on the way, inside the kernel
# chips: interpreter nvidia

import torch
import triton
import triton.language as tl


@triton.jit
def rsqrt_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=1).to(tl.float32)
    tl.store(y_ptr + at, 1.0 / tl.sqrt_rn(x), mask=at < n)


def rsqrt(self, *, out=None):
    x = self.contiguous()
    dtype = x.dtype if x.dtype.is_floating_point else torch.get_default_dtype()
    y = torch.empty(x.shape, dtype=dtype, device=x.device)
    if x.numel():
        rsqrt_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    if out is None:
        return y
    out.copy_(y)
    return out
