"""A few vectors times GGML weights, activations rounded to 8 bits: weights are read once.

The first kernel rounds activations to what 8 bits hold. In the second a program owns a few rows of
weights and walks them in runs of 512: a thread finds its weight's bytes by arithmetic on its index,
uses the weight for every vector, and keeps float32 sums that are added over threads at the end.
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
def _weight(packed, halves, start, i, inside, TYPE: tl.constexpr):
    """Weights i of the blocks that begin at byte `start`, float32 (see ggml_dequantize)."""
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
    return value


@triton.jit
def _quantize(x, out, blocks, BLOCKS: tl.constexpr):
    """Activations as 8 bits hold them: blocks of 32, float16(d) times a code each."""
    block = tl.program_id(0) * BLOCKS + tl.arange(0, BLOCKS)
    at = block.to(tl.int64)[:, None] * 32 + tl.arange(0, 32)[None, :]
    inside = (block < blocks)[:, None]
    value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    d = tl.div_rn(tl.max(tl.abs(value), axis=1), 127.0)[:, None]
    size = tl.floor(tl.where(d == 0.0, 0.0, tl.div_rn(tl.abs(value), d)) + 0.5)
    code = tl.where(value < 0.0, -size, size)
    tl.store(out + at, code * d.to(tl.float16).to(tl.float32), mask=inside)


@triton.jit
def _multiply(
    packed, halves, x, out, n, k, vectors,
    TYPE: tl.constexpr, WEIGHTS: tl.constexpr, BYTES: tl.constexpr,
    VECTORS: tl.constexpr, ROWS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    vector = tl.arange(0, VECTORS)
    column = tl.arange(0, TILE)
    begin = row.to(tl.int64)[:, None] * (k // WEIGHTS * BYTES)
    total = tl.zeros((VECTORS, ROWS, TILE), dtype=tl.float32)
    for first in range(0, k, TILE):
        at = first + column
        inside = (row < n)[:, None] & (at < k)[None, :]
        start = begin + (at // WEIGHTS * BYTES)[None, :]
        i = (at % WEIGHTS)[None, :]
        weight = _weight(packed, halves, start, i, inside, TYPE)
        known = (vector < vectors)[:, None] & (at < k)[None, :]
        value = tl.load(x + vector[:, None] * k + at[None, :], mask=known, other=0.0)
        total += value.to(tl.float32)[:, None, :] * weight[None, :, :]
    target = out + vector[:, None] * n + row[None, :]
    tl.store(target, tl.sum(total, axis=2), mask=(vector < vectors)[:, None] & (row < n)[None, :])


def _quantized(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty(x.shape, dtype=torch.float16, device=x.device)
    blocks = x.numel() // 32
    _quantize[(triton.cdiv(blocks, 64),)](x, out, blocks, BLOCKS=64, num_warps=4)
    return out


def ggml_mul_mat_vec_a8(
    W: torch.Tensor, X: torch.Tensor, quant_type: int, row: int
) -> torch.Tensor:
    vectors, k = X.shape
    out = torch.empty((vectors, row), dtype=X.dtype, device=X.device)
    if out.numel() == 0:
        return out
    weights, nbytes = _BLOCKS[quant_type]
    padded = triton.next_power_of_2(vectors)
    rows = max(4 // padded, 1)
    _multiply[(triton.cdiv(row, rows),)](
        W, W.view(torch.float16), _quantized(X), out, row, k, vectors,
        TYPE=quant_type, WEIGHTS=weights, BYTES=nbytes,
        VECTORS=padded, ROWS=rows, TILE=512, num_warps=4,
    )  # fmt: skip
    return out
