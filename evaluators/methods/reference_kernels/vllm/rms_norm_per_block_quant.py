"""RMS norm and quantisation of groups in one pass: one program a row, held in registers.

The row is held as [groups, group], so that the sum of squares goes over both axes, and the largest
magnitude of each group over the second alone. Groups have a power of two of elements. float8 codes
are made in integer arithmetic, int8 codes rounded to nearest even by adding and subtracting
1.5 * 2^23.
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
    x, weight, residual, bound, codes, scales, hidden, groups, epsilon, scale_row, scale_group,
    HAS_RESIDUAL: tl.constexpr, HAS_BOUND: tl.constexpr, INT8: tl.constexpr,
    GROUPS: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    g = tl.arange(0, GROUPS)
    column = g[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    inside = column < hidden
    at = row * hidden + column
    value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    if HAS_RESIDUAL:
        value += tl.load(residual + at, mask=inside, other=0.0).to(tl.float32)
        tl.store(residual + at, value, mask=inside)
    dtype: tl.constexpr = x.dtype.element_ty
    squares = tl.sum(tl.sum(value * value, axis=1), axis=0)
    factor = tl.rsqrt(squares / hidden + epsilon)
    w = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    value = ((value * factor).to(dtype).to(tl.float32) * w).to(dtype).to(tl.float32)
    top = tl.max(tl.abs(value), axis=1)
    if HAS_BOUND:
        top = tl.minimum(top, tl.load(bound))
    if INT8:
        scale = tl.maximum(tl.div_rn(top, 127.0), 1.1920928955078125e-07)
        wanted = value * tl.div_rn(1.0, scale)[:, None]
        rounded = (wanted + 12582912.0) - 12582912.0
        code = tl.minimum(tl.maximum(rounded, -128.0), 127.0).to(tl.int8)
    else:
        scale = tl.maximum(tl.div_rn(top, 448.0), 1.0 / (448.0 * 512.0))
        code = _float8_code(value / scale[:, None])
    tl.store(scales + row * scale_row + g * scale_group, scale, mask=g < groups)
    tl.store(codes + at, code, mask=inside)


def rms_norm_per_block_quant(
    input: torch.Tensor,
    weight: torch.Tensor,
    epsilon: float,
    quant_dtype: torch.dtype,
    group_size: list[int],
    scale_ub: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
    is_scale_transposed: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    tokens, hidden = input.shape
    group = group_size[1]
    groups = hidden // group
    codes = torch.empty((tokens, hidden), dtype=quant_dtype, device=input.device)
    if is_scale_transposed:
        scales = torch.empty((groups, tokens), dtype=torch.float32, device=input.device).t()
    else:
        scales = torch.empty((tokens, groups), dtype=torch.float32, device=input.device)
    if tokens == 0:
        return codes, scales
    int8 = quant_dtype == torch.int8
    padded = triton.next_power_of_2(groups)
    _norm_quant[(tokens,)](
        input, weight, residual, scale_ub, codes if int8 else codes.view(torch.uint8), scales,
        hidden, groups, epsilon, *scales.stride(), HAS_RESIDUAL=residual is not None,
        HAS_BOUND=scale_ub is not None, INT8=int8, GROUPS=padded, GROUP=group,
        num_warps=min(max(padded * group // 512, 1), 16),
    )  # fmt: skip
    return codes, scales
