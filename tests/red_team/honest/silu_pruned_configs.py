# operator: aten::silu
# style: a generated table of configurations, pruned by a function
# chips: interpreter nvidia

import itertools

import torch
import triton
import triton.language as tl


def configs():
    return [
        triton.Config({"BLOCK": 1 << power}, num_warps=warps)
        for power, warps in itertools.product(range(8, 12), (2, 4, 8))
        if (1 << power) // warps >= 32
    ]


def keep(configs, named_args, **kwargs):
    limit = max(triton.next_power_of_2(named_args["n"]), 256)
    return [c for c in configs if c.kwargs["BLOCK"] <= limit] or configs[:1]


@triton.autotune(configs=configs(), key=["n"], prune_configs_by={"early_config_prune": keep})
@triton.jit
def silu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n).to(tl.float32)
    tl.store(y_ptr + at, x / (1.0 + tl.exp(-x)), mask=at < n)


def silu(self, *, out=None):
    x = self.contiguous()
    y = torch.empty_like(x)
    n = x.numel()
    if n:
        silu_kernel[lambda META: (triton.cdiv(n, META["BLOCK"]),)](x, y, n)
    if out is None:
        return y
    out.copy_(y)
    return out
