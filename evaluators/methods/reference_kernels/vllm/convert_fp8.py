"""float8 conversion both ways: elementwise, in integer arithmetic that every target has.

To codes: round to nearest even, saturate, keep the sign of zero (see reshape_and_cache for the
subnormal trick). From codes: exponent and fraction are moved into a float32, subnormals scaled.
"""

import torch
import triton
import triton.language as tl

_TILE = 2048


@triton.jit
def _float8_code(x):
    magnitude = tl.minimum(tl.abs(x), 448.0)
    bits = magnitude.to(tl.int32, bitcast=True)
    normal = ((bits + 0x7FFFF + ((bits >> 20) & 1)) >> 20) - (120 << 3)
    # 16384 has a last bit of 2^-9, the smallest subnormal: adding it rounds to its multiples.
    subnormal = (magnitude + 16384.0).to(tl.int32, bitcast=True) - 0x46800000
    code = tl.where(bits < (121 << 23), subnormal, normal)
    code = tl.where(x != x, 0x7F, code)
    return (code | ((x.to(tl.int32, bitcast=True) >> 24) & 0x80)).to(tl.uint8)


@triton.jit
def _encode(out, x, scale, count, TILE: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)
    value = tl.load(x + at, mask=at < count, other=0.0).to(tl.float32)
    tl.store(out + at, _float8_code(tl.div_rn(value, scale)), mask=at < count)


@triton.jit
def _decode(out, codes, scale, count, TILE: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)
    code = tl.load(codes + at, mask=at < count, other=0).to(tl.int32)
    fraction = code & 0x7F
    normal = ((fraction << 20) + (120 << 23)).to(tl.float32, bitcast=True)
    subnormal = fraction.to(tl.float32) * 0.001953125  # 2^-9
    magnitude = tl.where(fraction < 8, subnormal, normal)
    magnitude = tl.where(fraction == 0x7F, float("nan"), magnitude)
    value = tl.where(code > 127, -magnitude, magnitude) * scale
    tl.store(out + at, value, mask=at < count)


def convert_fp8(output, input, scale=1.0, kv_dtype="fp8"):
    count = input.numel()
    if count == 0:
        return
    grid = (triton.cdiv(count, _TILE),)
    if input.dtype == torch.uint8:
        _decode[grid](output, input, scale, count, TILE=_TILE, num_warps=8)
    else:
        _encode[grid](output, input, scale, count, TILE=_TILE, num_warps=8)
