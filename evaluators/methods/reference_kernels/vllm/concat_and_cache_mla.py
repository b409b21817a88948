"""Paged latent cache writes: a program stores 32 tokens by 256 elements of one of the two parts.

An entry is the latent part followed by the rotary part. Programs are numbered so that the first few
along the second axis take the latent part and the last ones the rotary part: which part is asked
once a program, not once an element. float8 codes are made with integer arithmetic, which every
target has: round to nearest even, saturate, keep the sign of zero.
"""

import torch
import triton
import triton.language as tl

_TOKENS = 32
_COLUMNS = 256


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
def _write(
    part, cache, scale, token, slot, first, width, stride, entry, begin,
    CODES: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Elements `first` on of `part`, whose own begin in the entry is `begin`."""
    column = first + tl.arange(0, COLUMNS)
    inside = (slot >= 0)[:, None] & (column < width)[None, :]
    x = tl.load(part + (token.to(tl.int64) * stride)[:, None] + column[None, :], mask=inside)
    if CODES:
        x = _float8_code(tl.div_rn(x.to(tl.float32), tl.load(scale)))
    tl.store(cache + (slot * entry + begin)[:, None] + column[None, :], x, mask=inside)


@triton.jit
def _concat(
    latent, rotary, cache, slots, scale, tokens, rank, rope, latent_stride, rotary_stride,
    CODES: tl.constexpr, TOKENS: tl.constexpr, COLUMNS: tl.constexpr, ROPE: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0) * TOKENS + tl.arange(0, TOKENS)
    slot = tl.load(slots + token, mask=token < tokens, other=-1)
    tiles = tl.cdiv(rank, COLUMNS)
    tile = tl.program_id(1)
    entry = rank + rope
    if tile < tiles:
        _write(latent, cache, scale, token, slot, tile * COLUMNS, rank, latent_stride, entry, 0,
               CODES, COLUMNS)  # fmt: skip
    else:
        _write(rotary, cache, scale, token, slot, (tile - tiles) * ROPE, rope, rotary_stride,
               entry, rank, CODES, ROPE)  # fmt: skip


def concat_and_cache_mla(
    kv_c: torch.Tensor,
    k_pe: torch.Tensor,
    kv_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
    kv_cache_dtype: str,
    scale: torch.Tensor,
) -> None:
    tokens, rank, rope = slot_mapping.shape[0], kv_c.shape[1], k_pe.shape[1]
    if tokens == 0:
        return
    columns = min(triton.next_power_of_2(rank), _COLUMNS)
    rope_columns = min(triton.next_power_of_2(rope), _COLUMNS)
    tiles = triton.cdiv(rank, columns) + triton.cdiv(rope, rope_columns)
    _concat[(triton.cdiv(tokens, _TOKENS), tiles)](
        kv_c, k_pe, kv_cache, slot_mapping, scale, tokens, rank, rope,
        kv_c.stride(0), k_pe.stride(0), CODES=kv_cache_dtype != "auto",
        TOKENS=_TOKENS, COLUMNS=columns, ROPE=rope_columns, num_warps=8,
    )  # fmt: skip
