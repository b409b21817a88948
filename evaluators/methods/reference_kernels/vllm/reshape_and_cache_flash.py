"""Paged cache writes, tokens whole: a program stores 16 tokens by 256 elements of both caches.

In this layout all heads of a token lie in one run, in the input as in the cache, so heads need not
be told apart. float8 codes are made with integer arithmetic, which every target has: round to
nearest even, saturate, keep the sign of zero (see reshape_and_cache for the two formats).
"""

import torch
import triton
import triton.language as tl

_TOKENS = 16
_COLUMNS = 256
#: mantissa bits, exponent bias, largest value, NaN code
_FORMATS = {
    "auto": (0, 0, 0.0, 0),
    "fp8": (3, 7, 448.0, 0x7F),
    "fp8_e4m3": (3, 7, 448.0, 0x7F),
    "fp8_e5m2": (2, 15, 57344.0, 0x7F),
}


@triton.jit
def _float8_code(x, MANTISSA: tl.constexpr, BIAS: tl.constexpr, TOP: tl.constexpr,
                 NAN: tl.constexpr):  # fmt: skip
    """Codes of float32 values, as uint8."""
    DROPPED: tl.constexpr = 23 - MANTISSA
    magnitude = tl.minimum(tl.abs(x), TOP)
    bits = magnitude.to(tl.int32, bitcast=True)
    odd = (bits >> DROPPED) & 1
    normal = ((bits + ((1 << (DROPPED - 1)) - 1) + odd) >> DROPPED) - ((127 - BIAS) << MANTISSA)
    # Adding this power of two leaves a multiple of the smallest subnormal in the last bits.
    MAGIC: tl.constexpr = (127 + 23 + 1 - BIAS - MANTISSA) << 23
    magic = tl.full(x.shape, MAGIC, tl.int32)
    sum_bits = (magnitude + magic.to(tl.float32, bitcast=True)).to(tl.int32, bitcast=True)
    code = tl.where(bits < ((128 - BIAS) << 23), sum_bits - magic, normal)
    code = tl.where(x != x, NAN, code)
    sign = (x.to(tl.int32, bitcast=True) >> 24) & 0x80
    return (code | sign).to(tl.uint8)


@triton.jit
def _stored(x, scale, MANTISSA: tl.constexpr, BIAS: tl.constexpr, TOP: tl.constexpr,
            NAN: tl.constexpr):  # fmt: skip
    if MANTISSA == 0:
        return x
    else:  # the branches return different types: only one may be seen
        wanted = tl.div_rn(x.to(tl.float32), tl.load(scale))
        return _float8_code(wanted, MANTISSA, BIAS, TOP, NAN)


@triton.jit
def _reshape_and_cache(
    key, value, key_cache, value_cache, slots, k_scale, v_scale, count, entry, block_size,
    key_stride, value_stride, block_stride,
    MANTISSA: tl.constexpr, BIAS: tl.constexpr, TOP: tl.constexpr, NAN: tl.constexpr,
    TOKENS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0) * TOKENS + tl.arange(0, TOKENS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    slot = tl.load(slots + token, mask=token < count, other=-1)
    target = slot // block_size * block_stride + slot % block_size * entry
    target = target[:, None] + column[None, :]
    inside = (slot >= 0)[:, None] & (column < entry)[None, :]
    token = token.to(tl.int64)[:, None]
    k = tl.load(key + token * key_stride + column[None, :], mask=inside)
    v = tl.load(value + token * value_stride + column[None, :], mask=inside)
    tl.store(key_cache + target, _stored(k, k_scale, MANTISSA, BIAS, TOP, NAN), mask=inside)
    tl.store(value_cache + target, _stored(v, v_scale, MANTISSA, BIAS, TOP, NAN), mask=inside)


def reshape_and_cache_flash(
    key: torch.Tensor,
    value: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
    kv_cache_dtype: str,
    k_scale: torch.Tensor,
    v_scale: torch.Tensor,
) -> None:
    count, entry = slot_mapping.shape[0], key.shape[1] * key.shape[2]
    if count == 0:
        return
    mantissa, bias, top, nan = _FORMATS[kv_cache_dtype]
    columns = min(triton.next_power_of_2(entry), _COLUMNS)
    _reshape_and_cache[(triton.cdiv(count, _TOKENS), triton.cdiv(entry, columns))](
        key, value, key_cache, value_cache, slot_mapping, k_scale, v_scale, count, entry,
        key_cache.shape[1], key.stride(0), value.stride(0), key_cache.stride(0),
        MANTISSA=mantissa, BIAS=bias, TOP=top, NAN=nan, TOKENS=_TOKENS, COLUMNS=columns,
        num_warps=4,
    )  # fmt: skip
