# operator: vllm::scaled_fp8_quant
# style: reads the one given scale, and hands it to the kernel as it is
# chips: interpreter nvidia

import torch
import triton
import triton.language as tl

_PARTS = 1024


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


@triton.jit(do_not_specialize=["scale"])
def _with_scale(x, codes, scale, width, stride, TILE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * TILE + tl.arange(0, TILE)
    value = tl.load(x + row * stride + column, mask=column < width, other=0.0).to(tl.float32)
    code = _float8_code(value / scale)
    tl.store(codes + row * width + column, code, mask=column < width)


@triton.jit
def _per_token(x, codes, scales, bound, width, stride, HAS_BOUND: tl.constexpr, TILE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, TILE)
    value = tl.load(x + row * stride + column, mask=column < width, other=0.0).to(tl.float32)
    top = tl.max(tl.abs(value), axis=0)
    if HAS_BOUND:
        top = tl.minimum(top, tl.load(bound))
    scale = tl.maximum(tl.div_rn(top, 448.0), 1.0 / (448.0 * 512.0))
    tl.store(scales + row, scale)
    code = _float8_code(tl.div_rn(value, scale))
    tl.store(codes + row * width + column, code, mask=column < width)


@triton.jit
def _largest(x, parts, rows, width, stride, TILE: tl.constexpr):
    part, count = tl.program_id(0), tl.num_programs(0)
    top = tl.zeros([TILE], tl.float32)
    for row in range(part, rows, count):
        for first in range(0, width, TILE):
            column = first + tl.arange(0, TILE)
            at = tl.cast(row, tl.int64) * stride + column
            value = tl.load(x + at, mask=column < width, other=0.0).to(tl.float32)
            top = tl.maximum(top, tl.abs(value))
    tl.store(parts + part, tl.max(top, axis=0))


@triton.jit
def _per_tensor(
    x, codes, scale_out, parts, count, width, stride, PARTS: tl.constexpr, TILE: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * TILE + tl.arange(0, TILE)
    part = tl.arange(0, PARTS)
    top = tl.max(tl.load(parts + part, mask=part < count, other=0.0), axis=0)
    scale = tl.div_rn(top, 448.0)
    if (row == 0) & (tl.program_id(1) == 0):
        tl.store(scale_out, scale)
    value = tl.load(x + row * stride + column, mask=column < width, other=0.0).to(tl.float32)
    code = _float8_code(tl.div_rn(value, scale))
    tl.store(codes + row * width + column, code, mask=column < width)


def scaled_fp8_quant(
    input, scale=None, num_token_padding=None, scale_ub=None, use_per_token_if_dynamic=False,
    output=None,
):  # fmt: skip
    rows, width = input.shape
    padded = max(num_token_padding or 0, rows)
    if output is None:
        output = torch.empty((padded, width), dtype=torch.float8_e4m3fn, device=input.device)
    codes = output.view(torch.uint8)
    tile = min(triton.next_power_of_2(width), 4096)
    grid = (rows, triton.cdiv(width, tile))
    shape, stride = {"dtype": torch.float32, "device": input.device}, input.stride(0)
    if scale is not None:
        if rows:
            _with_scale[grid](input, codes, scale.item(), width, stride, TILE=tile, num_warps=8)
        return output, scale
    if use_per_token_if_dynamic:
        scales = torch.empty((padded, 1), **shape)
        whole = triton.next_power_of_2(width)
        _per_token[(rows,)](
            input, codes, scales, scale_ub, width, stride, HAS_BOUND=scale_ub is not None,
            TILE=whole, num_warps=min(max(whole // 512, 1), 16),
        )  # fmt: skip
        return output, scales
    found, count = torch.empty((1,), **shape), min(rows, _PARTS)
    parts = torch.empty((count,), **shape)
    _largest[(count,)](input, parts, rows, width, stride, TILE=tile, num_warps=8)
    _per_tensor[grid](
        input, codes, found, parts, count, width, stride, PARTS=triton.next_power_of_2(count),
        TILE=tile, num_warps=8,
    )  # fmt: skip
    return output, found
