"""Copies whole blocks from one cache to another: a program moves 16 KB of one pair.

A block is a run of bytes, whatever its shape, so pairs and tiles of a block are all that there is
to count. A thread has 128 bytes in flight, in pieces of 16.
"""

import torch
import triton
import triton.language as tl

_TILE_BYTES = 16384


@triton.jit
def _copy(source, target, mapping, tiles, numel, TILE: tl.constexpr):
    pair = tl.program_id(0) // tiles
    at = (tl.program_id(0) % tiles) * TILE + tl.arange(0, TILE)
    source += tl.load(mapping + 2 * pair) * numel
    target += tl.load(mapping + 2 * pair + 1) * numel
    tl.store(target + at, tl.load(source + at, mask=at < numel), mask=at < numel)


def swap_blocks(src: torch.Tensor, dst: torch.Tensor, block_mapping: torch.Tensor) -> None:
    pairs, numel = block_mapping.shape[0], src.stride(0)
    if pairs == 0 or numel == 0:
        return
    tile = min(_TILE_BYTES // src.element_size(), triton.next_power_of_2(numel))
    tiles = triton.cdiv(numel, tile)
    _copy[(pairs * tiles,)](src, dst, block_mapping, tiles, numel, TILE=tile, num_warps=4)
