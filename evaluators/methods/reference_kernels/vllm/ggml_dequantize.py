"""GGML weights to floats: every thread finds its weight's few bytes by arithmetic on its index.

A program writes a run of weights, neighbouring weights in neighbouring threads. The result is
two to eight times the size of the blocks, so stores decide the time; bytes are read several
times over, but from the first-level cache. One branch for each format, chosen at compile time.
The float16 numbers of a block lie at even bytes, so they are read through a float16 view.
"""

import torch
import triton
import triton.language as tl

#: type -> (weights of a block, its bytes)
_BLOCKS = {
    2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 10: (256, 84),
    11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210), 20: (32, 18), 23: (256, 136),
}  # fmt: skip


@triton.jit
def _byte(block, at, inside):
    return tl.load(block + at, mask=inside, other=0).to(tl.int32)


@triton.jit
def _signed_byte(block, at, inside):
    value = _byte(block, at, inside)
    return value - (value > 127).to(tl.int32) * 256


@triton.jit
def _half(halves, start, at, inside):
    return tl.load(halves + (start + at) // 2, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def _nibble(block, at, i, inside):
    """Code i of 32: low nibbles of 16 bytes, then their high nibbles."""
    return (_byte(block, at + i % 16, inside) >> (i % 32 // 16 * 4)) & 15


@triton.jit
def _two_bits(block, at, i, inside):
    """Code i of 256: four to a byte, 32 apart."""
    return (_byte(block, at + i // 128 * 32 + i % 32, inside) >> (i % 128 // 32 * 2)) & 3


@triton.jit
def _iq4_value(code):
    """The value of a non-linear 4-bit code, chosen by comparisons."""
    v = tl.where(code == 0, -127, -104)
    v = tl.where(code == 2, -83, v)
    v = tl.where(code == 3, -65, v)
    v = tl.where(code == 4, -49, v)
    v = tl.where(code == 5, -35, v)
    v = tl.where(code == 6, -22, v)
    v = tl.where(code == 7, -10, v)
    v = tl.where(code == 8, 1, v)
    v = tl.where(code == 9, 13, v)
    v = tl.where(code == 10, 25, v)
    v = tl.where(code == 11, 38, v)
    v = tl.where(code == 12, 53, v)
    v = tl.where(code == 13, 69, v)
    v = tl.where(code == 14, 89, v)
    return tl.where(code == 15, 113, v)


@triton.jit
def _dequantize(
    packed, halves, out, numel,
    TYPE: tl.constexpr, WEIGHTS: tl.constexpr, BYTES: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    at = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)
    inside = at < numel
    start = at // WEIGHTS * BYTES
    i = (at % WEIGHTS).to(tl.int32)
    block = packed + start
    if TYPE == 2:  # Q4_0
        d = _half(halves, start, 0, inside)
        value = d * (_nibble(block, 2, i, inside) - 8)
    elif TYPE == 3:  # Q4_1
        d, low = _half(halves, start, 0, inside), _half(halves, start, 2, inside)
        value = d * _nibble(block, 4, i, inside) + low
    elif TYPE == 6:  # Q5_0
        d = _half(halves, start, 0, inside)
        fifth = (_byte(block, 2 + i // 8, inside) >> (i % 8)) & 1
        value = d * (_nibble(block, 6, i, inside) + 16 * fifth - 16)
    elif TYPE == 7:  # Q5_1
        d, low = _half(halves, start, 0, inside), _half(halves, start, 2, inside)
        fifth = (_byte(block, 4 + i // 8, inside) >> (i % 8)) & 1
        value = d * (_nibble(block, 8, i, inside) + 16 * fifth) + low
    elif TYPE == 8:  # Q8_0
        value = _half(halves, start, 0, inside) * _signed_byte(block, 2 + i, inside)
    elif TYPE == 10:  # Q2_K
        d, low = _half(halves, start, 80, inside), _half(halves, start, 82, inside)
        scale = _byte(block, i // 16, inside)
        value = d * ((scale & 15) * _two_bits(block, 16, i, inside)) - low * (scale >> 4)
    elif TYPE == 11:  # Q3_K
        s = i // 16
        high = (_byte(block, 104 + s % 4, inside) >> (s // 4 * 2)) & 3
        scale = ((_byte(block, 96 + s % 8, inside) >> (s // 8 * 4)) & 15) + 16 * high - 32
        third = (_byte(block, i % 32, inside) >> (i // 32)) & 1
        code = _two_bits(block, 32, i, inside) + 4 * third - 4
        value = _half(halves, start, 108, inside) * (scale * code)
    elif TYPE == 12 or TYPE == 13:  # Q4_K, Q5_K
        d, low = _half(halves, start, 0, inside), _half(halves, start, 2, inside)
        s = i // 32
        first, second = _byte(block, 4 + s % 4, inside), _byte(block, 8 + s % 4, inside)
        third = _byte(block, 12 + s % 4, inside)
        scale = tl.where(s < 4, first & 63, (third & 15) | (first >> 6 << 4))
        least = tl.where(s < 4, second & 63, (third >> 4) | (second >> 6 << 4))
        codes = 16 if TYPE == 12 else 48
        code = (_byte(block, codes + s // 2 * 32 + i % 32, inside) >> (s % 2 * 4)) & 15
        if TYPE == 13:
            code += 16 * ((_byte(block, 16 + i % 32, inside) >> s) & 1)
        value = d * (scale * code) - low * least
    elif TYPE == 14:  # Q6_K
        low = (_byte(block, i // 128 * 64 + i % 64, inside) >> (i % 128 // 64 * 4)) & 15
        code = low + 16 * _two_bits(block, 128, i, inside) - 32
        scale = _signed_byte(block, 192 + i // 16, inside)
        value = _half(halves, start, 208, inside) * (scale * code)
    elif TYPE == 20:  # IQ4_NL
        value = _half(halves, start, 0, inside) * _iq4_value(_nibble(block, 2, i, inside))
    else:  # IQ4_XS
        s = i // 32
        high = (_byte(block, 2 + s // 4, inside) >> (s % 4 * 2)) & 3
        scale = ((_byte(block, 4 + s // 2, inside) >> (s % 2 * 4)) & 15) + 16 * high - 32
        code = _iq4_value(_nibble(block, 8 + 16 * s, i, inside))
        value = _half(halves, start, 0, inside) * (scale * code)
    tl.store(out + at, value, mask=inside)


def ggml_dequantize(
    W: torch.Tensor, quant_type: int, m: int, n: int, dtype: torch.dtype
) -> torch.Tensor:
    out = torch.empty((m, n), dtype=dtype or torch.float16, device=W.device)
    if out.numel() == 0:
        return out
    weights, nbytes = _BLOCKS[quant_type]
    tile = 2048
    _dequantize[(triton.cdiv(m * n, tile),)](
        W, W.view(torch.float16), out, m * n,
        TYPE=quant_type, WEIGHTS=weights, BYTES=nbytes, TILE=tile, num_warps=8,
    )  # fmt: skip
    return out
