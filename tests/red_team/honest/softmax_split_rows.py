# operator: aten::softmax
# style: rows split over programs, partial results combined by a second kernel
# chips: interpreter nvidia

import torch
import triton
import triton.language as tl


@triton.jit
def part_kernel(x_ptr, peaks_ptr, totals_ptr, n, parts, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1)
    at = part * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + at, mask=at < n, other=float("-inf")).to(tl.float32)
    peak = tl.max(x, 0)
    safe = tl.where(peak == float("-inf"), 0.0, peak)
    tl.store(peaks_ptr + row * parts + part, peak)
    tl.store(totals_ptr + row * parts + part, tl.sum(tl.exp(x - safe), 0))


@triton.jit
def whole_kernel(x_ptr, peaks_ptr, totals_ptr, y_ptr, n, parts, P: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    p = tl.arange(0, P)
    peaks = tl.load(peaks_ptr + row * parts + p, mask=p < parts, other=float("-inf"))
    totals = tl.load(totals_ptr + row * parts + p, mask=p < parts, other=0.0)
    peak = tl.max(peaks, 0)
    weights = tl.where(peaks == float("-inf"), 0.0, tl.exp(peaks - peak))
    total = tl.sum(totals * weights, 0)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + at, mask=at < n).to(tl.float32)
    tl.store(y_ptr + row * n + at, tl.exp(x - peak) / total, mask=at < n)


def softmax(self, dim, dtype=None, *, out=None):
    x = self.reshape(1) if self.dim() == 0 else self.movedim(dim, -1)
    x = x.contiguous()
    y = torch.empty(x.shape, dtype=dtype or self.dtype, device=self.device)
    n = x.shape[-1]
    if y.numel():
        rows = y.numel() // n
        block = min(256, triton.next_power_of_2(n))
        parts = triton.cdiv(n, block)
        peaks, totals = torch.empty((2, rows, parts), dtype=torch.float32, device=x.device).unbind(0)
        part_kernel[(rows, parts)](x, peaks, totals, n, parts, BLOCK=block)
        whole_kernel[(rows, parts)](
            x, peaks, totals, y, n, parts, P=triton.next_power_of_2(parts), BLOCK=block
        )
    y = y.reshape(()) if self.dim() == 0 else y.movedim(-1, dim)
    return y if out is None else out.copy_(y)
