"""Paged cache writes: a program stores one head of 16 tokens, in the order of the caches.

New tokens of a prompt fill a block's places one after another, so tiles are shaped as the caches
lie in memory: keys as [head_size / x, tokens * x] (16 bytes a token, neighbours adjacent), values
as [head_size, tokens], read by rows and turned around on chip. float8 codes are made with integer
arithmetic, which every target has: round to nearest even, saturate, keep the sign of zero.
"""

import triton
import triton.language as tl

_TOKENS = 16
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
    key, value, key_cache, value_cache, slots, k_scale, v_scale,
    count, heads, head_size, block_size, key_stride, value_stride,
    MANTISSA: tl.constexpr, BIAS: tl.constexpr, TOP: tl.constexpr, NAN: tl.constexpr,
    TOKENS: tl.constexpr, GROUPS: tl.constexpr, X: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    first = tl.program_id(0) * TOKENS
    head = tl.program_id(1)

    column = tl.arange(0, TOKENS * X)
    token, within = first + column // X, column % X
    slot = tl.load(slots + token, mask=token < count, other=-1)
    block, place = slot // block_size, slot % block_size
    group = tl.arange(0, GROUPS)[:, None]
    inside = (slot >= 0)[None, :] & (group < head_size // X)
    source = token.to(tl.int64) * key_stride + head * head_size + within
    x = tl.load(key + source[None, :] + group * X, mask=inside)
    target = (block * heads + head) * head_size * block_size + place * X + within
    tl.store(
        key_cache + target[None, :] + group * (block_size * X),
        _stored(x, k_scale, MANTISSA, BIAS, TOP, NAN),
        mask=inside,
    )

    token = first + tl.arange(0, TOKENS)
    slot = tl.load(slots + token, mask=token < count, other=-1)
    block, place = slot // block_size, slot % block_size
    element = tl.arange(0, SIZE)
    source = token.to(tl.int64) * value_stride + head * head_size
    inside = (slot >= 0)[:, None] & (element < head_size)[None, :]
    x = tl.load(value + source[:, None] + element[None, :], mask=inside)
    target = (block * heads + head) * head_size * block_size + place
    tl.store(
        value_cache + target[None, :] + (element * block_size)[:, None],
        tl.trans(_stored(x, v_scale, MANTISSA, BIAS, TOP, NAN)),
        mask=(slot >= 0)[None, :] & (element < head_size)[:, None],
    )


def reshape_and_cache(
    key, value, key_cache, value_cache, slot_mapping, kv_cache_dtype, k_scale, v_scale
):
    count, (_, heads, head_size) = slot_mapping.shape[0], key.shape
    if count == 0:
        return
    block_size, x = key_cache.shape[3], key_cache.shape[4]
    mantissa, bias, top, nan = _FORMATS[kv_cache_dtype]
    _reshape_and_cache[(triton.cdiv(count, _TOKENS), heads)](
        key, value, key_cache, value_cache, slot_mapping, k_scale, v_scale,
        count, heads, head_size, block_size, key.stride(0), value.stride(0),
        MANTISSA=mantissa, BIAS=bias, TOP=top, NAN=nan,
        TOKENS=_TOKENS, GROUPS=triton.next_power_of_2(head_size // x), X=x,
        SIZE=triton.next_power_of_2(head_size), num_warps=8,
    )  # fmt: skip
