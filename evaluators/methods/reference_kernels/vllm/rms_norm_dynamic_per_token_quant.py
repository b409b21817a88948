"""RMS norm and quantisation of a token in one pass: one program a row, held in registers.

The row is read once: sum of squares, the two roundings to the dtype that the operator states, the
largest magnitude, and the codes, all from registers. float8 codes are made in integer arithmetic,
int8 codes rounded to nearest even by adding and subtracting 1.5 * 2^23.
"""

import torch
import triton
import triton.language as tl


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
def _norm_quant(
    x, weight, residual, bound, codes, scales, hidden, epsilon,
    HAS_RESIDUAL: tl.constexpr, HAS_BOUND: tl.constexpr, INT8: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, TILE)
    inside = column < hidden
    at = row * hidden + column
    value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    if HAS_RESIDUAL:
        value += tl.load(residual + at, mask=inside, other=0.0).to(tl.float32)
        tl.store(residual + at, value, mask=inside)
    dtype: tl.constexpr = x.dtype.element_ty
    factor = tl.rsqrt(tl.sum(value * value, axis=0) / hidden + epsilon)
    w = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    value = ((value * factor).to(dtype).to(tl.float32) * w).to(dtype).to(tl.float32)
    top = tl.max(tl.abs(value), axis=0)
    if HAS_BOUND:
        top = tl.minimum(top, tl.load(bound))
    if INT8:
        scale = tl.maximum(tl.div_rn(top, 127.0), 1.1920928955078125e-07)
        wanted = value * tl.div_rn(1.0, scale)
        rounded = (wanted + 12582912.0) - 12582912.0
        code = tl.minimum(tl.maximum(rounded, -128.0), 127.0).to(tl.int8)
    else:
        scale = tl.maximum(tl.div_rn(top, 448.0), 1.0 / (448.0 * 512.0))
        code = _float8_code(value / scale)
    tl.store(scales + row, scale)
    tl.store(codes + at, code, mask=inside)


def rms_norm_dynamic_per_token_quant(
    input, weight, epsilon, quant_dtype, scale_ub=None, residual=None
):
    tokens, hidden = input.shape
    codes = torch.empty((tokens, hidden), dtype=quant_dtype, device=input.device)
    scales = torch.empty((tokens, 1), dtype=torch.float32, device=input.device)
    if tokens == 0:
        return codes, scales
    int8 = quant_dtype == torch.int8
    tile = triton.next_power_of_2(hidden)
    _norm_quant[(tokens,)](
        input, weight, residual, scale_ub, codes if int8 else codes.view(torch.uint8), scales,
        hidden, epsilon, HAS_RESIDUAL=residual is not None, HAS_BOUND=scale_ub is not None,
        INT8=int8, TILE=tile, num_warps=min(max(tile // 512, 1), 16),
    )  # fmt: skip
    return codes, scales
