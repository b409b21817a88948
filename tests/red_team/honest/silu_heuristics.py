# operator: aten::silu
# style: heuristics choose the block and whether masks are needed
# chips: interpreter nvidia

import torch
import triton
import triton.language as tl


@triton.heuristics(
    {
        "BLOCK": lambda args: min(2048, triton.next_power_of_2(args["n"])),
        "EVEN": lambda args: args["n"] % min(2048, triton.next_power_of_2(args["n"])) == 0,
    }
)
@triton.jit
def silu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        x = tl.load(x_ptr + at).to(tl.float32)
        tl.store(y_ptr + at, x * tl.sigmoid(x))
    else:
        x = tl.load(x_ptr + at, mask=at < n, other=0.0).to(tl.float32)
        tl.store(y_ptr + at, x * tl.sigmoid(x), mask=at < n)


def silu(self, *, out=None):
    x = self if self.is_contiguous() else self.contiguous()
    y = torch.empty_like(x)
    n = x.numel()
    if n == 0:
        return y if out is None else out

    def grid(args):
        return (triton.cdiv(args["n"], args["BLOCK"]),)

    silu_kernel[grid](x, y, n)
    if out is None:
        return y
    out.copy_(y)
    return out
