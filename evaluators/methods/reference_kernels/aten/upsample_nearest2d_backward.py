"""Gradient of nearest-neighbour resizing: each input pixel sums the rectangle that came from it.

Turned round from scattering with atomics: enlarged row Y came from input row floor(Y s), so an
input row y owns the rows from ceil(y / s) up to ceil((y + 1) / s); columns likewise. Bounds are
exact integers where no scale is given. A program owns a run of input pixels and walks the largest
rectangle in steps, masking what its own pixels do not own; sums are made in float32 and written
once. Reads of neighbouring pixels adjoin, so all of a sector is used.
"""

import math

import torch
import triton
import triton.language as tl

_BLOCK = 512


@triton.jit
def _owned(place, size, into, scale, GIVEN: tl.constexpr):
    """First and past-the-end enlarged place of input `place`: ceil of place / s."""
    if GIVEN:
        first = tl.ceil(place.to(tl.float32) * scale).to(tl.int32)
        end = tl.ceil((place + 1).to(tl.float32) * scale).to(tl.int32)
    else:
        first = (place * size + into - 1) // into
        end = ((place + 1) * size + into - 1) // into
    return tl.minimum(first, size), tl.where(place == into - 1, size, tl.minimum(end, size))


@triton.jit
def _sum_rectangles(
    grad, out, numel, channels, height, width, out_height, out_width,
    scale_h, scale_w, reach_h, reach_w,
    grad_n, grad_c, grad_h, grad_w, out_n, out_c, out_h, out_w,
    GIVEN_H: tl.constexpr, GIVEN_W: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """`height`, `width`: of the input; `out_height`, `out_width`: of the enlarged image."""
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = place % width
    y = place // width % height
    c = (place // width // height % channels).to(tl.int64)
    n = (place // width // height // channels).to(tl.int64)
    top, bottom = _owned(y, out_height, height, scale_h, GIVEN_H)
    left, right = _owned(x, out_width, width, scale_w, GIVEN_W)
    base = grad + n * grad_n + c * grad_c
    total = tl.zeros([BLOCK], tl.float32)
    for dy in range(reach_h):
        row = base + (top + dy).to(tl.int64) * grad_h
        for dx in range(reach_w):
            owned = (place < numel) & (top + dy < bottom) & (left + dx < right)
            value = tl.load(row + (left + dx).to(tl.int64) * grad_w, mask=owned, other=0.0)
            total += value.to(tl.float32)
    target = out + n * out_n + c * out_c + y.to(tl.int64) * out_h + x.to(tl.int64) * out_w
    tl.store(target, total, mask=place < numel)


def upsample_nearest2d_backward(
    grad_output: torch.Tensor,
    output_size: list[int],
    input_size: list[int],
    scales_h: float | None = None,
    scales_w: float | None = None,
    *,
    grad_input: torch.Tensor | None = None,
) -> torch.Tensor:
    out = grad_input
    if out is None:
        out = torch.empty(input_size, dtype=grad_output.dtype, device=grad_output.device)
    if out.numel() == 0:
        return out
    _, channels, height, width = input_size
    _sum_rectangles[(triton.cdiv(out.numel(), _BLOCK),)](
        grad_output, out, out.numel(), channels, height, width, *output_size,
        scales_h or 0.0, scales_w or 0.0,
        _reach(height, output_size[0], scales_h), _reach(width, output_size[1], scales_w),
        *grad_output.stride(), *out.stride(),
        GIVEN_H=scales_h is not None, GIVEN_W=scales_w is not None, BLOCK=_BLOCK, num_warps=4,
    )  # fmt: skip
    return out


def _reach(into: int, size: int, scale: float | None) -> int:
    """The most enlarged places that one input place owns (the last one takes the rest)."""
    scale = scale or size / into
    last = size - math.ceil((into - 1) * scale)
    return max(math.ceil(scale), last + 1)
