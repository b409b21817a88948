"""Copies whole blocks within the caches of all layers: many caches a launch.

The caches are separate allocations, and a launch for each would cost more than the copy. A kernel
takes a tuple of up to 16 of them; a program picks its own by number, then moves 16 KB of one pair.
Targets are no pair's source, so the order of the pairs does not matter.
"""

import torch
import triton
import triton.language as tl

_TILE_BYTES = 16384
_CACHES = 16


@triton.jit
def _copy(caches, mapping, tiles, numel, COUNT: tl.constexpr, TILE: tl.constexpr):
    which = tl.program_id(1)
    pair = tl.program_id(0) // tiles
    at = (tl.program_id(0) % tiles) * TILE + tl.arange(0, TILE)
    source = tl.load(mapping + 2 * pair) * numel
    target = tl.load(mapping + 2 * pair + 1) * numel
    for i in tl.static_range(COUNT):
        if which == i:
            block = tl.load(caches[i] + source + at, mask=at < numel)
            tl.store(caches[i] + target + at, block, mask=at < numel)


def copy_blocks(
    key_caches: list[torch.Tensor], value_caches: list[torch.Tensor], block_mapping: torch.Tensor
) -> None:
    caches = [*key_caches, *value_caches]
    pairs = block_mapping.shape[0]
    if pairs == 0 or len(caches) == 0:
        return
    numel = caches[0].stride(0)
    tile = min(_TILE_BYTES // caches[0].element_size(), triton.next_power_of_2(numel))
    tiles = triton.cdiv(numel, tile)
    for start in range(0, len(caches), _CACHES):
        part = tuple(caches[start : start + _CACHES])
        _copy[(pairs * tiles, len(part))](
            part, block_mapping, tiles, numel, COUNT=len(part), TILE=tile, num_warps=4
        )
