"""int8 quantisation: with given scales, or one scale (and zero point) a token.

With a given scale the work is elementwise. A scale a token takes one program a row, which is read
once and held in registers: extremes, scale and codes come from the same values. Quotients are
rounded to nearest even by adding and subtracting 1.5 * 2^23, clamped before so that it is exact.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _code(value, scale, point):
    """clamp(round(value / scale) + point, -128, 127) as int8; zero quotients for a scale of 0."""
    quotient = tl.where(scale == 0.0, 0.0, tl.div_rn(value, scale))
    quotient = tl.minimum(tl.maximum(quotient, -1048576.0), 1048576.0)
    shifted = (quotient + 12582912.0) - 12582912.0 + point
    return tl.minimum(tl.maximum(shifted, -128.0), 127.0).to(tl.int8)


@triton.jit
def _with_scale(x, codes, scale, azp, count, HAS_AZP: tl.constexpr, TILE: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)
    value = tl.load(x + at, mask=at < count, other=0.0).to(tl.float32)
    point = 0.0
    if HAS_AZP:
        point = tl.load(azp).to(tl.float32)
    tl.store(codes + at, _code(value, tl.load(scale), point), mask=at < count)


@triton.jit
def _per_token(x, codes, scales, points, width, SYMMETRIC: tl.constexpr, TILE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, TILE)
    inside = column < width
    value = tl.load(x + row * width + column, mask=inside, other=0.0).to(tl.float32)
    if SYMMETRIC:
        scale = tl.div_rn(tl.max(tl.abs(value), axis=0), 127.0)
        point = 0.0
    else:
        high = tl.max(tl.where(inside, value, float("-inf")), axis=0)
        low = tl.min(tl.where(inside, value, float("inf")), axis=0)
        scale = tl.div_rn(high - low, 255.0)
        point = -128.0 - tl.where(scale == 0.0, 0.0, tl.div_rn(low, scale))
        point = tl.minimum(tl.maximum(point, -1048576.0), 1048576.0)
        point = (point + 12582912.0) - 12582912.0
        tl.store(points + row, point.to(tl.int32))
    tl.store(scales + row, scale)
    tl.store(codes + row * width + column, _code(value, scale, point), mask=inside)


def scaled_int8_quant(
    input: torch.Tensor,
    scale: torch.Tensor | None = None,
    azp: torch.Tensor | None = None,
    symmetric: bool = True,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    codes = torch.empty(input.shape, dtype=torch.int8, device=input.device)
    width, count = input.shape[-1], input.numel()
    tokens = count // width
    if scale is not None:
        if count:
            _with_scale[(triton.cdiv(count, 4096),)](
                input, codes, scale, azp, count, HAS_AZP=azp is not None, TILE=4096, num_warps=8
            )
        return codes, scale, azp
    scales = torch.empty((tokens, 1), dtype=torch.float32, device=input.device)
    points = None
    if not symmetric:
        points = torch.empty((tokens, 1), dtype=torch.int32, device=input.device)
    if count:
        tile = triton.next_power_of_2(width)
        _per_token[(tokens,)](
            input, codes, scales, points, width, SYMMETRIC=symmetric, TILE=tile,
            num_warps=min(max(tile // 512, 1), 16),
        )  # fmt: skip
    return codes, scales, points
