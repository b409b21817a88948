"""Product with GGML weights and activations rounded to 8 bits: three kernels.

With many rows every weight is used again and again, so unpacking it once pays: the first kernel
rounds activations to what 8 bits hold, the second unpacks weights, both to float16, which holds
either closely enough; the third is a plain product on the matrix units with float32 sums. In the
second, every thread finds its weight's few bytes by arithmetic on its index.
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
def _dequantize(
    packed, halves, out, numel,
    TYPE: tl.constexpr, WEIGHTS: tl.constexpr, BYTES: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    at = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)
    i = (at % WEIGHTS).to(tl.int32)
    value = _weight(packed, halves, at // WEIGHTS * BYTES, i, at < numel, TYPE)
    tl.store(out + at, value, mask=at < numel)


@triton.jit
def _matmul(
    x, weights, out, m, n, k, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr = 64, GROUP: tl.constexpr = 8,
):  # fmt: skip
    """x [m, k] times weights [n, k] transposed."""
    tiles_m, tiles_n = tl.cdiv(m, BLOCK_M), tl.cdiv(n, BLOCK_N)
    program = tl.program_id(0)
    first = program // (GROUP * tiles_n) * GROUP
    height = tl.minimum(tiles_m - first, GROUP)
    tile_m = first + program % (GROUP * tiles_n) % height
    tile_n = program % (GROUP * tiles_n) // height

    i = (tile_m * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    j = (tile_n * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)
    p = tl.arange(0, BLOCK_K)
    x += i[:, None] * k + p[None, :]
    weights += p[:, None] + j[None, :] * k
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, k, BLOCK_K):
        inside = p < k - start
        left = tl.load(x, mask=(i < m)[:, None] & inside[None, :], other=0.0)
        right = tl.load(weights, mask=inside[:, None] & (j < n)[None, :], other=0.0)
        total = tl.dot(left, right, total)
        x += BLOCK_K
        weights += BLOCK_K
    tl.store(out + i[:, None] * n + j[None, :], total, mask=(i < m)[:, None] & (j < n)[None, :])


def _quantized(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty(x.shape, dtype=torch.float16, device=x.device)
    blocks = x.numel() // 32
    _quantize[(triton.cdiv(blocks, 64),)](x, out, blocks, BLOCKS=64, num_warps=4)
    return out


def _dequantized(packed: torch.Tensor, columns: int, quant_type: int) -> torch.Tensor:
    shape = (*packed.shape[:-1], columns)
    out = torch.empty(shape, dtype=torch.float16, device=packed.device)
    weights, nbytes = _BLOCKS[quant_type]
    numel = out.numel()
    _dequantize[(triton.cdiv(numel, 2048),)](
        packed, packed.view(torch.float16), out, numel,
        TYPE=quant_type, WEIGHTS=weights, BYTES=nbytes, TILE=2048, num_warps=8,
    )  # fmt: skip
    return out


def ggml_mul_mat_a8(W: torch.Tensor, X: torch.Tensor, quant_type: int, row: int) -> torch.Tensor:
    m, k = X.shape
    out = torch.empty((m, row), dtype=X.dtype, device=X.device)
    if out.numel() == 0:
        return out
    x, weights = _quantized(X), _dequantized(W, k, quant_type)
    if m <= 64:
        block_m, block_n, warps = max(triton.next_power_of_2(m), 16), 64, 4
    else:
        block_m, block_n, warps = 128, 128, 8
    _matmul[(triton.cdiv(m, block_m) * triton.cdiv(row, block_n),)](
        x, weights, out, m, row, k, BLOCK_M=block_m, BLOCK_N=block_n, num_warps=warps, num_stages=3
    )
    return out
