"""Eight multiples of every float8 scale, side by side, for a table look-up.

A program reads a run of scales and writes eight times as much; a thread's eight codes are one
store. Codes are taken apart and made in integer arithmetic, which every target has.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _float8_value(code):
    """float32 values of float8_e4m3fn codes (see convert_fp8)."""
    code = code.to(tl.int32)
    fraction = code & 0x7F
    normal = ((fraction << 20) + (120 << 23)).to(tl.float32, bitcast=True)
    magnitude = tl.where(fraction < 8, fraction.to(tl.float32) * 0.001953125, normal)
    magnitude = tl.where(fraction == 0x7F, float("nan"), magnitude)
    return tl.where(code > 127, -magnitude, magnitude)


@triton.jit
def _float8_code(x):
    """Codes of float8_e4m3fn as uint8 (see convert_fp8)."""
    magnitude = tl.minimum(tl.abs(x), 448.0)
    bits = magnitude.to(tl.int32, bitcast=True)
    normal = ((bits + 0x7FFFF + ((bits >> 20) & 1)) >> 20) - (120 << 3)
    subnormal = (magnitude + 16384.0).to(tl.int32, bitcast=True) - 0x46800000
    code = tl.where(bits < (121 << 23), subnormal, normal)
    code = tl.where(x != x, 0x7F, code)
    return (code | ((x.to(tl.int32, bitcast=True) >> 24) & 0x80)).to(tl.uint8)


@triton.jit
def _pack(scales, packed, count, TILE: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)
    scale = _float8_value(tl.load(scales + at, mask=at < count, other=0))
    place = tl.arange(0, 8)
    multiple = scale[:, None] * (place - 8).to(tl.float32)[None, :]
    target = packed + at[:, None] * 8 + place[None, :]
    tl.store(target, _float8_code(multiple), mask=(at < count)[:, None])


def cutlass_pack_scale_fp8(scales: torch.Tensor) -> torch.Tensor:
    count = scales.numel()
    packed = torch.empty((8 * count,), dtype=scales.dtype, device=scales.device)
    if count:
        _pack[(triton.cdiv(count, 1024),)](
            scales.view(torch.uint8), packed.view(torch.uint8), count, TILE=1024, num_warps=4
        )
    return packed
