"""Eight 4-bit codes of a word turned into sign and size at once, without taking them apart.

Without zero points a code q loses 8 if it has that bit, and becomes 15 - q, which is ~q, if not:
one exclusive or. With zero points codes are spread over bytes, four at a time: 16 + q - z keeps the
comparison in bit 4 and the difference below, and no byte borrows from its neighbour. All neighbours
of eight rows share their zero points, which are read once for them.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _symmetric(words, out, count, TILE: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)
    word = tl.load(words + at, mask=at < count, other=0)
    at_least_8 = (word >> 3) & 0x11111111
    tl.store(out + at, ~word ^ (at_least_8 * 7), mask=at < count)


@triton.jit
def _four(codes, points):
    """Four codes in the low halves of bytes."""
    difference = (codes | 0x10101010) - points
    not_below = ((difference >> 4) & 0x01010101) * 15
    return (difference & not_below) | ((codes ^ 0x0F0F0F0F) & (not_below ^ 0x0F0F0F0F))


@triton.jit
def _with_points(words, zeros, out, width, group, COLUMNS: tl.constexpr):
    tiles = tl.cdiv(width, COLUMNS)
    row = (tl.program_id(0) // tiles * 8).to(tl.int64)
    column = tl.program_id(0) % tiles * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < width
    zero = tl.load(zeros + row // group * width + column, mask=inside, other=0)[None, :]
    at = (row + tl.arange(0, 8))[:, None] * width + column[None, :]
    word = tl.load(words + at, mask=inside[None, :], other=0)
    low = _four(word & 0x0F0F0F0F, zero & 0x0F0F0F0F)
    high = _four((word >> 4) & 0x0F0F0F0F, (zero >> 4) & 0x0F0F0F0F)
    tl.store(out + at, low | (high << 4), mask=inside[None, :])


def marlin_int4_fp8_preprocess(
    qweight: torch.Tensor, qzeros_or_none: torch.Tensor | None = None, inplace: bool = False
) -> torch.Tensor:
    out = qweight if inplace else torch.empty_like(qweight)
    if qzeros_or_none is None:
        count = qweight.numel()
        _symmetric[(triton.cdiv(count, 4096),)](qweight, out, count, TILE=4096, num_warps=8)
        return out
    (rows, width), groups = qweight.shape, qzeros_or_none.shape[0]
    columns = min(triton.next_power_of_2(width), 512)
    _with_points[(rows // 8 * triton.cdiv(width, columns),)](
        qweight, qzeros_or_none, out, width, rows // groups, COLUMNS=columns, num_warps=4
    )
    return out
