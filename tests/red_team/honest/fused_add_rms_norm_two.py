# operator: vllm::fused_add_rms_norm
# style: an adding kernel, then a normalising one
# chips: interpreter nvidia

import torch
import triton
import triton.language as tl


@triton.jit
def add_kernel(x_ptr, r_ptr, rows, n, stride, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < rows * n
    x = tl.load(x_ptr + at // n * stride + at % n, mask=inside).to(tl.float32)
    r = tl.load(r_ptr + at, mask=inside).to(tl.float32)
    tl.store(r_ptr + at, x + r, mask=inside)


@triton.jit
def norm_kernel(x_ptr, r_ptr, w_ptr, n, stride, epsilon, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    squares = tl.zeros((BLOCK,), tl.float32)
    for start in tl.range(0, n, BLOCK):
        s = tl.load(r_ptr + row * n + start + at, mask=start + at < n, other=0.0).to(tl.float32)
        squares += s * s
    scale = 1.0 / tl.sqrt_rn(tl.sum(squares, 0) / n + epsilon)
    for start in tl.range(0, n, BLOCK):
        inside = start + at < n
        s = tl.load(r_ptr + row * n + start + at, mask=inside).to(tl.float32)
        w = tl.load(w_ptr + start + at, mask=inside).to(tl.float32)
        tl.store(x_ptr + row * stride + start + at, s * scale * w, mask=inside)


def fused_add_rms_norm(input, residual, weight, epsilon):
    n = input.shape[-1]
    if not input.numel():
        return
    rows = input.numel() // n
    stride = n if input.is_contiguous() else input.stride(-2)
    add_kernel[(triton.cdiv(rows * n, 1024),)](input, residual, rows, n, stride, BLOCK=1024)
    block = min(triton.next_power_of_2(n), 512)
    norm_kernel[(rows,)](input, residual, weight, n, stride, epsilon, BLOCK=block)
