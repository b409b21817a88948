# operator: vllm::rms_norm
# style: a row in one block, warps by a table, through a partial
# chips: interpreter nvidia

import functools

import torch
import triton
import triton.language as tl


@triton.jit
def rms_norm_kernel(y_ptr, x_ptr, w_ptr, n, epsilon, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * n
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row + at, mask=at < n, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + at, mask=at < n, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x, 0) / n + epsilon)
    tl.store(y_ptr + row + at, x * scale * w, mask=at < n)


WARPS = ((512, 1), (2048, 4), (8192, 8))


def warps(block):
    return next((w for limit, w in WARPS if block <= limit), 16)


def launch(out, x, weight, epsilon, *, n, block):
    grid = (x.numel() // n,)
    rms_norm_kernel[grid](out, x, weight, n, epsilon, BLOCK=block, num_warps=warps(block))


def rms_norm(out, input, weight, epsilon):
    n = weight.numel()
    if input.numel():
        norm = functools.partial(launch, n=n, block=triton.next_power_of_2(n))
        norm(out, input.contiguous(), weight, epsilon)
