# operator: aten::silu
# style: carries a reference and a test under `__main__`, as models like to write
# chips: interpreter nvidia

import torch
import triton
import triton.language as tl


@triton.jit
def silu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n).to(tl.float32)
    tl.store(y_ptr + at, x / (1.0 + tl.exp(-x)), mask=at < n)


def reference(x):
    return x * torch.sigmoid(x)


def silu(self, *, out=None):
    x = self.contiguous()
    y = torch.empty_like(x)
    if x.numel():
        silu_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    if out is None:
        return y
    out.copy_(y)
    return out


if __name__ == "__main__":
    torch.manual_seed(0)
    sample = torch.randn(4096, device="cuda")
    assert torch.allclose(silu(sample), reference(sample), atol=1e-6)
    print(triton.testing.do_bench(lambda: silu(sample)))
