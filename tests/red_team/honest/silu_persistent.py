# operator: aten::silu
# style: as many programs as there are multiprocessors, each walking over blocks
# chips: interpreter nvidia

import functools

import torch
import triton
import triton.language as tl


@triton.jit
def silu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    for block in range(tl.program_id(0), tl.cdiv(n, BLOCK), tl.num_programs(0)):
        at = block * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + at, mask=at < n, other=0.0).to(tl.float32)
        tl.store(y_ptr + at, x / (1.0 + tl.exp(-x)), mask=at < n)


@functools.lru_cache(maxsize=None)
def programs(device):
    if device.type == "cuda":
        return 4 * torch.cuda.get_device_properties(device).multi_processor_count
    return 4


def silu(self, *, out=None):
    x = self.contiguous()
    y = torch.empty_like(x)
    n = x.numel()
    if n:
        block = 1024
        silu_kernel[(min(programs(x.device), triton.cdiv(n, block)),)](x, y, n, BLOCK=block)
    if out is None:
        return y
    out.copy_(y)
    return out
