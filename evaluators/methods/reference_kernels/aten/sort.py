"""Stable sort along a dimension: tiles sorted on chip, then runs merged by rank.

A first kernel makes every element an integer key that orders like the value: a float's key is its
magnitude bits under its sign, so both zeros are 0, and NaN the largest; descending turns all bits
round, which keeps equal elements in order. What follows knows keys alone, whatever they came from.
Tiles are sorted: a key is joined with its position into one number of 64 bits (32 for short keys),
so no two are equal and a bitonic sort (`tl.sort`) is stable; 64-bit keys of a smaller tile find
their rank by counting. Then runs are merged in pairs until one is left: an element knows its place
in its own run and finds by binary search how many of the other run come before it (of equal ones,
those of the left run do). The last kernel fetches the values by index.
"""

import torch
import triton
import triton.language as tl

_LEAF = 1024  # elements of a tile of 32-bit keys
_LEAF_WIDE = 64  # and of 64-bit keys
_BLOCK = 1024  # elements merged by a program

_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
#: bits of the infinities; whatever lies above is NaN
_INFINITY = {
    torch.float16: 0x7C00,
    torch.bfloat16: 0x7F80,
    torch.float32: 0x7F800000,
    torch.float64: 0x7FF0000000000000,
}


@triton.jit
def _make_keys(
    x, keys, infinity, n, x_row, x_n,
    FLOAT: tl.constexpr, DESCENDING: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    tiles = tl.cdiv(n, BLOCK)
    row = (tl.program_id(0) // tiles).to(tl.int64)
    i = ((tl.program_id(0) % tiles) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    bits = tl.load(x + row * x_row + i * x_n, mask=i < n, other=0)
    largest: tl.constexpr = (1 << (bits.dtype.primitive_bitwidth - 1)) - 1
    key = bits.to(keys.dtype.element_ty)
    if FLOAT:
        magnitude = tl.where((key & largest) > infinity, largest, key & largest)
        is_negative = (key < 0) & (magnitude < largest)  # a NaN is the largest whatever its sign
        key = tl.where(is_negative, -magnitude, magnitude)
    tl.store(keys + row * n + i, ~key if DESCENDING else key, mask=i < n)


@triton.jit(do_not_specialize=["n"])  # it takes long to compile
def _sort_tiles(keys, places, n, SHORT: tl.constexpr, LEAF: tl.constexpr):
    """SHORT: keys have 16 bits, so they and their positions fit 32."""
    both: tl.constexpr = tl.int32 if SHORT else tl.int64
    width: tl.constexpr = 16 if SHORT else 32
    last: tl.constexpr = (1 << (2 * width - 1)) - 1
    tiles = tl.cdiv(n, LEAF)
    start = (tl.program_id(0) % tiles) * LEAF
    i = tl.arange(0, LEAF)
    at = (tl.program_id(0) // tiles).to(tl.int64) * n + start + i
    pair = (tl.load(keys + at, mask=start + i < n, other=0).to(both) << width) | i
    pair = tl.sort(tl.where(start + i < n, pair, last))  # padding comes last
    tl.store(keys + at, (pair >> width).to(tl.int32), mask=start + i < n)
    place = start + (pair & ((1 << width) - 1)).to(tl.int32)
    tl.store(places + at, place, mask=start + i < n)


@triton.jit
def _rank_tiles(keys, places, n, LEAF: tl.constexpr):
    tiles = tl.cdiv(n, LEAF)
    start = (tl.program_id(0) % tiles) * LEAF
    i = start + tl.arange(0, LEAF)
    row = (tl.program_id(0) // tiles).to(tl.int64) * n
    key = tl.load(keys + row + i, mask=i < n, other=0)
    mine, other = key[:, None], tl.trans(key[:, None])
    before = (other < mine) | ((other == mine) & (i[None, :] < i[:, None]))
    rank = tl.sum((before & (i < n)[None, :]).to(tl.int32), axis=1)
    target = row + start + rank
    tl.store(keys + target, key, mask=i < n)
    tl.store(places + target, i, mask=i < n)


@triton.jit
def _merge_runs(
    keys, places, merged_keys, merged_places, n, run, steps, BLOCK: tl.constexpr
):  # fmt: skip
    """Merges sorted runs of `run` elements in pairs; `steps` halvings search a whole run."""
    tiles = tl.cdiv(n, BLOCK)
    row = (tl.program_id(0) // tiles).to(tl.int64) * n
    i = (tl.program_id(0) % tiles) * BLOCK + tl.arange(0, BLOCK)
    key = tl.load(keys + row + i, mask=i < n, other=0)
    pair = i // (2 * run) * (2 * run)
    middle = tl.minimum(pair + run, n)
    is_left = i < middle
    other = tl.where(is_left, middle, pair)
    low = tl.zeros([BLOCK], tl.int32)
    high = tl.where(is_left, tl.minimum(pair + 2 * run, n), middle) - other
    for _ in range(steps):
        half = (low + high) // 2
        searching = (low < high) & (i < n)
        seen = tl.load(keys + row + other + half, mask=searching, other=0)
        goes_before = tl.where(is_left, seen < key, seen <= key)
        low = tl.where(searching & goes_before, half + 1, low)
        high = tl.where(searching & ~goes_before, half, high)
    own = i - tl.where(is_left, pair, middle)
    target = row + pair + own + low
    tl.store(merged_keys + target, key, mask=i < n)
    tl.store(merged_places + target, tl.load(places + row + i, mask=i < n, other=0), mask=i < n)


@triton.jit
def _fetch(
    x, places, values, indices, n, x_row, x_n, values_row, values_n, indices_row, indices_n,
    BLOCK: tl.constexpr,
):  # fmt: skip
    tiles = tl.cdiv(n, BLOCK)
    row = (tl.program_id(0) // tiles).to(tl.int64)
    i = ((tl.program_id(0) % tiles) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    place = tl.load(places + row * n + i, mask=i < n, other=0).to(tl.int64)
    value = tl.load(x + row * x_row + place * x_n, mask=i < n, other=0)
    tl.store(values + row * values_row + i * values_n, value, mask=i < n)
    tl.store(indices + row * indices_row + i * indices_n, place, mask=i < n)


def sort(
    self: torch.Tensor,
    dim: int = -1,
    descending: bool = False,
    *,
    stable: bool | None = None,
    values: torch.Tensor | None = None,
    indices: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    out = torch.empty(self.shape, dtype=self.dtype, device=self.device)
    places = torch.empty(self.shape, dtype=torch.int64, device=self.device)
    if self.numel():
        n = self.shape[dim] if self.dim() else 1
        # Rows along the sorted dimension, which the results then have innermost in memory.
        x = (self.movedim(dim, -1) if self.dim() else self).reshape(-1, n)
        x = x if x.stride(1) == 1 else x.contiguous()
        sorted_shape = [*self.shape[:dim], *self.shape[dim:][1:], n] if self.dim() else []
        out = torch.empty(sorted_shape, dtype=self.dtype, device=self.device)
        places = torch.empty(sorted_shape, dtype=torch.int64, device=self.device)
        _launch(x, out.view(-1, n), places.view(-1, n), descending)
        if self.dim():
            out, places = out.movedim(-1, dim), places.movedim(-1, dim)
    if values is None or indices is None:
        return out, places
    return values.copy_(out), indices.copy_(places)


def _bits(x: torch.Tensor) -> torch.Tensor:
    """Floats as integers of their width, bool as uint8."""
    if x.is_floating_point():
        return x.view(_INTEGERS[x.dtype.itemsize])
    return x.view(torch.uint8) if x.dtype == torch.bool else x


def _launch(x: torch.Tensor, out: torch.Tensor, indices: torch.Tensor, descending: bool) -> None:
    rows, n = x.shape
    infinity = _INFINITY.get(x.dtype)
    x, out = _bits(x), _bits(out)
    wide = x.dtype.itemsize == 8
    leaf = _LEAF_WIDE if wide else _LEAF
    keys = torch.empty((rows, n), dtype=torch.int64 if wide else torch.int32, device=x.device)
    places = torch.empty((rows, n), dtype=torch.int32, device=x.device)
    block = min(_BLOCK, triton.next_power_of_2(n))
    grid = (rows * triton.cdiv(n, block),)
    _make_keys[grid](
        x, keys, infinity or 0, n, *x.stride(),
        FLOAT=infinity is not None, DESCENDING=descending, BLOCK=block,
    )  # fmt: skip
    tiles = (rows * triton.cdiv(n, leaf),)
    if wide:
        _rank_tiles[tiles](keys, places, n, LEAF=leaf, num_warps=1)
    else:
        short = x.dtype.itemsize <= 2
        _sort_tiles[tiles](keys, places, n, SHORT=short, LEAF=leaf, num_warps=8)
    if leaf < n:
        spare_keys, spare_places = torch.empty_like(keys), torch.empty_like(places)
    run = leaf
    while run < n:
        steps = run.bit_length()
        _merge_runs[grid](keys, places, spare_keys, spare_places, n, run, steps, BLOCK=block)
        keys, spare_keys = spare_keys, keys
        places, spare_places = spare_places, places
        run *= 2
    _fetch[grid](
        x, places, out, indices, n, *x.stride(), *out.stride(), *indices.stride(), BLOCK=block
    )
