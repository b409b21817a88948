# operator: aten::silu
# style: logs, opens a device context, is wrapped in no_grad
# chips: interpreter nvidia

import contextlib
import logging

import torch
import triton
import triton.language as tl


logger = logging.getLogger(__name__)


@triton.jit
def silu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n).to(tl.float32)
    tl.store(y_ptr + at, x / (1.0 + tl.exp(-x)), mask=at < n)


@torch.no_grad()
def silu(self, *, out=None):
    logger.debug("silu of %s", tuple(self.shape))
    x = self.contiguous()
    y = torch.empty_like(x)
    if x.numel():
        if x.is_cuda:
            with torch.cuda.device(x.device):
                launch(x, y)
        else:
            with contextlib.nullcontext():
                launch(x, y)
    if out is None:
        return y
    out.copy_(y)
    return out


def launch(x, y):
    n = x.numel()
    silu_kernel[(triton.cdiv(n, 1024), 1, 1)](x, y, n, BLOCK=1024, num_warps=4, num_stages=1)
