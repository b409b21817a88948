# operator: vllm::rms_norm
# style: a program a row, in two passes
# chips: interpreter nvidia

import torch
import triton
import triton.language as tl


@triton.jit
def rms_norm_kernel(y_ptr, x_ptr, w_ptr, n, stride, epsilon, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    squares = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        x = tl.load(x_ptr + row * stride + start + at, mask=start + at < n, other=0.0)
        x = x.to(tl.float32)
        squares += x * x
    scale = 1.0 / tl.sqrt_rn(tl.sum(squares, 0) / n + epsilon)
    for start in range(0, n, BLOCK):
        inside = start + at < n
        x = tl.load(x_ptr + row * stride + start + at, mask=inside).to(tl.float32)
        w = tl.load(w_ptr + start + at, mask=inside).to(tl.float32)
        tl.store(y_ptr + row * n + start + at, x * scale * w, mask=inside)


def rms_norm(out, input, weight, epsilon):
    n = input.shape[-1]
    x = input if input.dim() == 2 and input.stride(1) == 1 else input.contiguous().view(-1, n)
    if x.numel():
        block = min(1024, triton.next_power_of_2(n))
        rms_norm_kernel[(x.shape[0],)](out, x, weight, n, x.stride(0), epsilon, BLOCK=block)
