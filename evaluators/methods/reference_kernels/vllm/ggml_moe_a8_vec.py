"""A few tokens times the GGML weights of their experts, activations rounded to 8 bits.

The first kernel rounds activations to what 8 bits hold. In the second a program owns four rows of
one pair of token and expert and walks them in runs of 512: a thread finds its weight's bytes by
arithmetic on its index and keeps float32 sums. Programs that run together have the same rows of
all pairs, so that an expert chosen several times is read from memory once.
"""

import torch
import triton
import triton.language as tl

#: type -> (weights of a block, its bytes)
_BLOCKS = {
    2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 10: (256, 84),
    11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210),
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
    else:  # Q6_K
        low = (_byte(block, i // 128 * 64 + i % 64, inside) >> (i % 128 // 64 * 4)) & 15
        code = low + 16 * _two_bits(block, 128, i, inside) - 32
        scale = _signed_byte(block, 192 + i // 16, inside)
        value = _half(halves, start, 208, inside) * (scale * code)
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
    packed, halves, x, experts, out, pairs, top_k, n, k,
    TYPE: tl.constexpr, WEIGHTS: tl.constexpr, BYTES: tl.constexpr,
    ROWS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    pair = tl.program_id(0) % pairs
    row = tl.program_id(0) // pairs * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, TILE)
    expert = tl.load(experts + pair).to(tl.int64)
    begin = (expert * n + row)[:, None] * (k // WEIGHTS * BYTES)
    x += pair // top_k * k
    total = tl.zeros((ROWS, TILE), dtype=tl.float32)
    for first in range(0, k, TILE):
        at = first + column
        inside = (row < n)[:, None] & (at < k)[None, :]
        start = begin + (at // WEIGHTS * BYTES)[None, :]
        i = (at % WEIGHTS)[None, :]
        weight = _weight(packed, halves, start, i, inside, TYPE)
        value = tl.load(x + at, mask=at < k, other=0.0).to(tl.float32)
        total += value[None, :] * weight
    tl.store(out + pair.to(tl.int64) * n + row, tl.sum(total, axis=1), mask=row < n)


def _quantized(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty(x.shape, dtype=torch.float16, device=x.device)
    blocks = x.numel() // 32
    _quantize[(triton.cdiv(blocks, 64),)](x, out, blocks, BLOCKS=64, num_warps=4)
    return out


def ggml_moe_a8_vec(
    X: torch.Tensor,
    W: torch.Tensor,
    topk_ids: torch.Tensor,
    top_k: int,
    quant_type: int,
    row: int,
    tokens: int,
) -> torch.Tensor:
    pairs, k = tokens * top_k, X.shape[1]
    out = torch.empty((pairs, row), dtype=X.dtype, device=X.device)
    if out.numel() == 0:
        return out
    weights, nbytes = _BLOCKS[quant_type]
    _multiply[(triton.cdiv(row, 4) * pairs,)](
        W, W.view(torch.float16), _quantized(X), topk_ids, out, pairs, top_k, row, k,
        TYPE=quant_type, WEIGHTS=weights, BYTES=nbytes, ROWS=4, TILE=512, num_warps=4,
    )  # fmt: skip
    return out
