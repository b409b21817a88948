"""arange: the numbers start + i * step, each computed from its own index.

One run of 4096 elements a program. Integers are computed in int64, floats in float32 from the
index, and rounded once when they are stored.
"""

import math

import torch
import triton
import triton.language as tl

_BLOCK = 4096


@triton.jit(do_not_specialize=["start", "step"])
def _kernel(out, start, step, n, stride, ACC: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    value = start.to(ACC) + i.to(ACC) * step.to(ACC)
    tl.store(out + i * stride, value.to(out.dtype.element_ty), mask=i < n)


def arange(
    *bounds: float,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    start, end, step = (0, *bounds, 1) if len(bounds) == 1 else (*bounds, 1)[:3]
    if out is None:
        whole = all(isinstance(bound, int) for bound in bounds)
        dtype = dtype or (torch.int64 if whole else torch.get_default_dtype())
        out = torch.empty(math.ceil((end - start) / step), dtype=dtype, device=device)
    n = out.numel()
    if n:
        floats = out.dtype.is_floating_point
        start, step = (float(start), float(step)) if floats else (int(start), int(step))
        acc = tl.float32 if floats else tl.int64
        grid = (triton.cdiv(n, _BLOCK),)
        _kernel[grid](out, start, step, n, out.stride(0), ACC=acc, BLOCK=_BLOCK, num_warps=4)
    return out
