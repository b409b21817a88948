# operator: aten::softmax
# style: asks a warmed-up kernel for its registers to size a persistent grid
# chips: nvidia

import torch
import triton
import triton.language as tl
from triton.runtime import driver


@triton.jit
def softmax_kernel(x_ptr, y_ptr, rows, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        x = tl.load(x_ptr + row * n + at, mask=at < n, other=float("-inf")).to(tl.float32)
        e = tl.exp(x - tl.max(x, 0))
        tl.store(y_ptr + row * n + at, e / tl.sum(e, 0), mask=at < n)


def programs(x, y, rows, n, block):
    properties = driver.active.utils.get_device_properties(x.device.index or 0)
    kernel = softmax_kernel.warmup(x, y, rows, n, BLOCK=block, num_warps=8, grid=(1,))
    kernel._init_handles()
    occupancy = properties["max_num_regs"] // (max(kernel.n_regs, 1) * 32 * 8)
    return min(properties["multiprocessor_count"] * max(occupancy, 1), rows)


def softmax(self, dim, dtype=None, *, out=None):
    x = self.reshape(1) if self.dim() == 0 else self.movedim(dim, -1)
    x = x.contiguous()
    y = torch.empty(x.shape, dtype=dtype or self.dtype, device=self.device)
    n = x.shape[-1]
    if y.numel():
        rows = y.numel() // n
        block = triton.next_power_of_2(n)
        softmax_kernel[(programs(x, y, rows, n, block), 1, 1)](x, y, rows, n, BLOCK=block, num_warps=8)
    y = y.reshape(()) if self.dim() == 0 else y.movedim(-1, dim)
    return y if out is None else out.copy_(y)
