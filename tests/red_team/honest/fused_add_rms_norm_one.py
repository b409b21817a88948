# operator: vllm::fused_add_rms_norm
# style: both results in place, in one kernel
# chips: interpreter nvidia

import torch
import triton
import triton.language as tl


@triton.jit
def norm_kernel(x_ptr, r_ptr, w_ptr, n, stride, epsilon, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + at, mask=at < n, other=0.0).to(tl.float32)
    r = tl.load(r_ptr + row * n + at, mask=at < n, other=0.0).to(tl.float32)
    s = (x + r).to(r_ptr.dtype.element_ty)
    tl.store(r_ptr + row * n + at, s, mask=at < n)
    s = s.to(tl.float32)
    scale = 1.0 / tl.sqrt_rn(tl.sum(s * s, 0) / n + epsilon)
    w = tl.load(w_ptr + at, mask=at < n, other=0.0).to(tl.float32)
    tl.store(x_ptr + row * stride + at, s * scale * w, mask=at < n)


def fused_add_rms_norm(input, residual, weight, epsilon):
    n = input.shape[-1]
    rows = residual.numel() // max(n, 1)
    if rows:
        stride = input.stride(0) if input.dim() == 2 else n
        block = triton.next_power_of_2(n)
        norm_kernel[(rows,)](input, residual, weight, n, stride, epsilon, BLOCK=block)
