"""GGML's block formats: how bytes become weights, and blocks drawn at random.

A row of weights is a run of blocks of 32 (the `_0`, `_1` and `NL` types) or 256 weights. Stated
from the struct definitions of ggml-common.h (llama.cpp; the copy in vLLM 0.13,
csrc/quantization/gguf). Types with look-up grids of hundreds of entries (IQ1, IQ2, IQ3) are left
out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from kernelmark.operators.vllm.parts import split_dim

#: (weights, their size: the sum of the absolute values of the terms that make them up)
Decoded = tuple[torch.Tensor, torch.Tensor]

#: values of the non-linear 4-bit codes
IQ4_VALUES = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)


@dataclass(frozen=True)
class Format:
    """One type. `decode` turns blocks (uint8 [blocks, nbytes]) into weights [blocks, weights] in a
    working dtype. `halves`: where float16 numbers lie, with the largest value to draw.
    """

    name: str
    weights: int
    nbytes: int
    halves: tuple[tuple[int, float], ...]
    decode: Callable[[torch.Tensor, torch.dtype], Decoded]
    layout: str


def _half(blocks: torch.Tensor, at: int, work: torch.dtype) -> torch.Tensor:
    """The float16 at byte `at` of each block, [blocks, 1]."""
    return blocks[:, at : at + 2].contiguous().view(torch.float16).to(work)


def _bytes(blocks: torch.Tensor, start: int, stop: int) -> torch.Tensor:
    return blocks[:, start:stop].to(torch.int32)


def _nibbles(data: torch.Tensor) -> torch.Tensor:
    """Low nibbles, then high nibbles, of [..., bytes]."""
    return torch.cat([data & 15, data >> 4], -1)


def _signed(data: torch.Tensor) -> torch.Tensor:
    return data - 256 * (data > 127).to(data.dtype)


def _scaled(factor: torch.Tensor, codes: torch.Tensor) -> Decoded:
    value = factor * codes.to(factor.dtype)
    return value, value.abs()


def _affine(factor: torch.Tensor, codes: torch.Tensor, offset: torch.Tensor) -> Decoded:
    value = factor * codes.to(factor.dtype)
    return value + offset, value.abs() + offset.abs()


def _q4_0(blocks: torch.Tensor, work: torch.dtype) -> Decoded:
    return _scaled(_half(blocks, 0, work), _nibbles(_bytes(blocks, 2, 18)) - 8)


def _q4_1(blocks: torch.Tensor, work: torch.dtype) -> Decoded:
    codes = _nibbles(_bytes(blocks, 4, 20))
    return _affine(_half(blocks, 0, work), codes, _half(blocks, 2, work))


def _fifth_bits(data: torch.Tensor) -> torch.Tensor:
    """Bits of four bytes, lowest first, as the fifth bit of 32 codes."""
    shifts = torch.arange(8, device=data.device)
    return ((data.unsqueeze(-1) >> shifts & 1) << 4).flatten(-2)


def _q5_0(blocks: torch.Tensor, work: torch.dtype) -> Decoded:
    codes = _nibbles(_bytes(blocks, 6, 22)) | _fifth_bits(_bytes(blocks, 2, 6))
    return _scaled(_half(blocks, 0, work), codes - 16)


def _q5_1(blocks: torch.Tensor, work: torch.dtype) -> Decoded:
    codes = _nibbles(_bytes(blocks, 8, 24)) | _fifth_bits(_bytes(blocks, 4, 8))
    return _affine(_half(blocks, 0, work), codes, _half(blocks, 2, work))


def _q8_0(blocks: torch.Tensor, work: torch.dtype) -> Decoded:
    return _scaled(_half(blocks, 0, work), _signed(_bytes(blocks, 2, 34)))


def _pairs_of_bits(data: torch.Tensor, halves: int) -> torch.Tensor:
    """Two-bit codes: byte l of each half of `data` holds codes l, 32 + l, 64 + l, 96 + l."""
    shifts = torch.arange(0, 8, 2, device=data.device).view(4, 1)
    return (data.reshape(len(data), halves, 1, -1) >> shifts & 3).flatten(1)


def _q2_k(blocks: torch.Tensor, work: torch.dtype) -> Decoded:
    scales = _bytes(blocks, 0, 16)
    codes = split_dim(_pairs_of_bits(_bytes(blocks, 16, 80), 2), 1, (16, 16))
    factor = _half(blocks, 80, work) * (scales & 15).to(work)
    offset = -_half(blocks, 82, work) * (scales >> 4).to(work)
    value, size = _affine(factor.unsqueeze(-1), codes, offset.unsqueeze(-1))
    return value.flatten(1), size.flatten(1)


def _q3_k(blocks: torch.Tensor, work: torch.dtype) -> Decoded:
    low = _pairs_of_bits(_bytes(blocks, 32, 96), 2)
    planes = torch.arange(8, device=blocks.device).view(8, 1)
    third = (_bytes(blocks, 0, 32).unsqueeze(1) >> planes & 1).flatten(1)
    codes = split_dim(low + 4 * third - 4, 1, (16, 16))
    packed = _bytes(blocks, 96, 108)
    shifts = torch.arange(0, 8, 2, device=blocks.device).view(4, 1)
    high = (packed[:, None, 8:] >> shifts & 3).flatten(1)
    scales = (_nibbles(packed[:, :8]) | high << 4) - 32
    factor = _half(blocks, 108, work) * scales.to(work)
    value, size = _scaled(factor.unsqueeze(-1), codes)
    return value.flatten(1), size.flatten(1)


def _scales_and_minima(packed: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Eight 6-bit scales and eight 6-bit minima of 12 bytes."""
    first, second, third = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scales = torch.cat([first & 63, third & 15 | first >> 6 << 4], 1)
    minima = torch.cat([second & 63, third >> 4 | second >> 6 << 4], 1)
    return scales, minima


def _k_affine(blocks: torch.Tensor, codes: torch.Tensor, work: torch.dtype) -> Decoded:
    """Codes [blocks, 8, 32] with scales and minima at bytes 0 to 16."""
    scales, minima = _scales_and_minima(_bytes(blocks, 4, 16))
    factor = _half(blocks, 0, work) * scales.to(work)
    offset = -_half(blocks, 2, work) * minima.to(work)
    value, size = _affine(factor.unsqueeze(-1), codes, offset.unsqueeze(-1))
    return value.flatten(1), size.flatten(1)


def _q4_k(blocks: torch.Tensor, work: torch.dtype) -> Decoded:
    codes = _nibbles(split_dim(_bytes(blocks, 16, 144), 1, (4, 32))).view(-1, 8, 32)
    return _k_affine(blocks, codes, work)


def _q5_k(blocks: torch.Tensor, work: torch.dtype) -> Decoded:
    codes = _nibbles(split_dim(_bytes(blocks, 48, 176), 1, (4, 32))).view(-1, 8, 32)
    planes = torch.arange(8, device=blocks.device).view(8, 1)
    fifth = _bytes(blocks, 16, 48).unsqueeze(1) >> planes & 1
    return _k_affine(blocks, codes | fifth << 4, work)


def _q6_k(blocks: torch.Tensor, work: torch.dtype) -> Decoded:
    low = _nibbles(split_dim(_bytes(blocks, 0, 128), 1, (2, 64))).flatten(1)
    high = _pairs_of_bits(_bytes(blocks, 128, 192), 2)
    codes = split_dim((low | high << 4) - 32, 1, (16, 16))
    scales = _signed(_bytes(blocks, 192, 208))
    factor = _half(blocks, 208, work) * scales.to(work)
    value, size = _scaled(factor.unsqueeze(-1), codes)
    return value.flatten(1), size.flatten(1)


def _iq4_values(codes: torch.Tensor) -> torch.Tensor:
    table = torch.tensor(IQ4_VALUES, dtype=torch.int32, device=codes.device)
    return table[codes.long()]


def _iq4_nl(blocks: torch.Tensor, work: torch.dtype) -> Decoded:
    return _scaled(_half(blocks, 0, work), _iq4_values(_nibbles(_bytes(blocks, 2, 18))))


def _iq4_xs(blocks: torch.Tensor, work: torch.dtype) -> Decoded:
    codes = _nibbles(split_dim(_bytes(blocks, 8, 136), 1, (8, 16)))
    two = torch.arange(0, 8, 2, device=blocks.device)
    high = (_bytes(blocks, 2, 4).unsqueeze(-1) >> two & 3).flatten(1)
    low = torch.stack([_bytes(blocks, 4, 8) & 15, _bytes(blocks, 4, 8) >> 4], -1).flatten(1)
    factor = _half(blocks, 0, work) * ((low | high << 4) - 32).to(work)
    value, size = _scaled(factor.unsqueeze(-1), _iq4_values(codes))
    return value.flatten(1), size.flatten(1)


_TAIL = "codes: byte j of `qs` holds code j in its low nibble, code j + 16 in its high nibble"
_TWO_BITS = (
    "byte l of each half of `qs` (32 bytes) holds codes l, 32 + l, 64 + l, 96 + l of its 128 "
    "weights, lowest bits first"
)
_SIX_BITS = (
    "the 12 bytes b hold eight 6-bit scales and minima: for j < 4 scale b[j] & 63, minimum "
    "b[j + 4] & 63; for j >= 4 scale (b[j + 4] & 15) | (b[j - 4] >> 6) << 4, minimum "
    "(b[j + 4] >> 4) | (b[j] >> 6) << 4"
)
_NIBBLES = "`qs` in four parts of 32 bytes: low nibbles are sub-block 2 i, high nibbles 2 i + 1"

FORMATS: dict[int, Format] = {
    2: Format("Q4_0", 32, 18, ((0, 0.02),), _q4_0, f"d, qs[16]; d (code - 8); {_TAIL}"),
    3: Format("Q4_1", 32, 20, ((0, 0.02), (2, 0.2)), _q4_1, "d, m, qs[16]; d code + m"),
    6: Format(
        "Q5_0", 32, 22, ((0, 0.01),), _q5_0,
        "d, qh[4], qs[16]; d (code - 16); bit j of the 32 bits of qh is bit 4 of code j",
    ),
    7: Format("Q5_1", 32, 24, ((0, 0.01), (2, 0.2)), _q5_1, "d, m, qh[4], qs[16]; d code + m"),
    8: Format("Q8_0", 32, 34, ((0, 0.002),), _q8_0, "d, qs[32] (int8); d code"),
    10: Format(
        "Q2_K", 256, 84, ((80, 0.01), (82, 0.01)), _q2_k,
        "scales[16], qs[64], d, m; 16 sub-blocks of 16 weights with d (scales & 15) code - "
        f"m (scales >> 4); {_TWO_BITS}",
    ),
    11: Format(
        "Q3_K", 256, 110, ((108, 0.003),), _q3_k,
        "hmask[32], qs[64], scales[12], d; 16 sub-blocks of 16 with d (scale - 32) (code - 4); "
        "two low bits of a code as in Q2_K, its third bit is bit i // 32 of hmask[i % 32]; scale "
        "i: low 4 bits are the i-th nibble of scales[0..7] (low nibbles first), high 2 bits are "
        "(scales[8 + i % 4] >> 2 (i // 4)) & 3",
    ),
    12: Format(
        "Q4_K", 256, 144, ((0, 0.002), (2, 0.01)), _q4_k,
        f"d, m, b[12], qs[128]; 8 sub-blocks of 32 with d scale code - m minimum; {_SIX_BITS}; "
        + _NIBBLES,
    ),
    13: Format(
        "Q5_K", 256, 176, ((0, 0.001), (2, 0.01)), _q5_k,
        "d, m, b[12], qh[32], qs[128]; as Q4_K, with bit s of qh[l] as bit 4 of code l of "
        "sub-block s",
    ),
    14: Format(
        "Q6_K", 256, 210, ((208, 0.0001),), _q6_k,
        "ql[128], qh[64], scales[16] (int8), d; 16 sub-blocks of 16 with d scale (code - 32); of "
        "each 128 weights, low bits are the low nibbles of 64 bytes of ql, then their high "
        "nibbles; the two high bits as in Q2_K from 32 bytes of qh",
    ),
    20: Format("IQ4_NL", 32, 18, ((0, 0.001),), _iq4_nl, "d, qs[16]; d value[code]"),
    23: Format(
        "IQ4_XS", 256, 136, ((0, 0.0001),), _iq4_xs,
        "d, h (16 bits), l[4], qs[128]; 8 sub-blocks of 32 with d (scale - 32) value[code]; scale "
        "s: low 4 bits are nibble s of l, high 2 bits are bits 2 s and 2 s + 1 of h; qs in 8 parts "
        "of 16 bytes, low nibbles first",
    ),
}  # fmt: skip

DESCRIPTION = (
    "A row of weights is a run of blocks of 32 or 256 weights; d and m are float16. Types: "
    + "; ".join(f"{number} {f.name}: {f.layout}" for number, f in FORMATS.items())
    + f". value = {IQ4_VALUES}. "
)


def row_bytes(quant_type: int, columns: int) -> int:
    """Bytes of a row of `columns` weights (a multiple of the block's weights)."""
    form = FORMATS[quant_type]
    return columns // form.weights * form.nbytes


def decode(packed: torch.Tensor, quant_type: int, work: torch.dtype) -> Decoded:
    """Weights [..., columns] of rows of blocks uint8 [..., bytes], and their size, in `work`."""
    form = FORMATS[quant_type]
    value, size = form.decode(packed.reshape(-1, form.nbytes), work)
    shape = (*packed.shape[:-1], packed.shape[-1] // form.nbytes * form.weights)
    return value.view(shape), size.view(shape)


def draw_halves(packed: torch.Tensor, quant_type: int, generator: torch.Generator) -> None:
    """Puts float16 numbers of either sign where a type has them, a tenth of the largest and up."""
    form = FORMATS[quant_type]
    blocks = packed.view(-1, form.nbytes)
    for at, largest in form.halves:
        size = torch.rand(len(blocks), generator=generator, device=packed.device) * 0.9 + 0.1
        sign = torch.rand(len(blocks), generator=generator, device=packed.device) < 0.25
        value = (size * largest * torch.where(sign, -1.0, 1.0)).to(torch.float16)
        blocks[:, at : at + 2] = value.view(torch.uint8).view(-1, 2)
