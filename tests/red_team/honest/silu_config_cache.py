# operator: aten::silu
# style: remembers chosen configurations (not tensors) between calls
# chips: interpreter nvidia

import torch
import triton
import triton.language as tl


_CHOSEN = {}


@triton.jit
def silu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n).to(tl.float32)
    tl.store(y_ptr + at, x / (1.0 + tl.exp(-x)), mask=at < n)


def choose(n, dtype):
    key = (n, dtype)
    config = _CHOSEN.get(key)
    if config is None:
        config = {"BLOCK": 256 if n < 4096 else 1024, "num_warps": 2 if n < 4096 else 4}
        _CHOSEN[key] = config
    return config


def silu(self, *, out=None):
    x = self.contiguous()
    y = torch.empty_like(x)
    n = x.numel()
    if n:
        config = choose(n, x.dtype)
        silu_kernel[(triton.cdiv(n, config["BLOCK"]),)](x, y, n, **config)
    if out is None:
        return y
    out.copy_(y)
    return out
