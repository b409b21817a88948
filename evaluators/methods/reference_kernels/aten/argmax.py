"""Index of the largest element: integer keys that order like the values, NaN on top.

Every element becomes an integer key: floats by their bits, with negative ones turned round, -0
made 0, and NaN the largest. Equal keys are equal elements, so ties and NaN need no special care
later. `self` is seen as (outer, n, inner); a program owns LANES of `inner` (of the rows, where
`dim` is last) and walks n in tiles, keeping in each place of the tile the best key and where it
first stood; one reduction at the end takes the largest key, then the lowest index among equals.
Where few results would leave the device idle the walk is split, and the same kernel reduces the
keys and indices of the parts.
"""

import torch
import triton
import triton.language as tl

_TILE = 4096  # elements read at a time by a program
_PROGRAMS = 1024  # enough to fill the device


@triton.jit
def _key(value, WIDE: tl.constexpr):
    """An int32 (WIDE: int64) in the order of `value`."""
    if value.dtype.is_floating():
        if WIDE:
            value = value.to(tl.float64)
            bits = tl.where(value == 0, 0.0, value).to(tl.int64, bitcast=True)
            key = bits ^ ((bits >> 63) & 0x7FFFFFFFFFFFFFFF)
            key = tl.where(value != value, 0x7FFFFFFFFFFFFFFF, key)
        else:
            value = value.to(tl.float32)
            bits = tl.where(value == 0, 0.0, value).to(tl.int32, bitcast=True)
            key = bits ^ ((bits >> 31) & 0x7FFFFFFF)
            key = tl.where(value != value, 0x7FFFFFFF, key)
    else:
        key = value.to(tl.int64) if WIDE else value.to(tl.int32)
    return key


@triton.jit
def _argmax(
    x, places, out, keys, n, inner, splits, x_outer, x_n, x_inner, out_outer, out_inner, out_split,
    READY: tl.constexpr, PARTIAL: tl.constexpr, WIDE: tl.constexpr, PLACE: tl.constexpr,
    LANES: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    """READY: `x` holds keys already, with their indices in `places`. PARTIAL: keys are kept.

    PLACE: type of indices while they are compared.
    """
    nowhere: tl.constexpr = 0x7FFFFFFFFFFFFFFF if tl.int64 == PLACE else 0x7FFFFFFF
    lowest: tl.constexpr = -0x8000000000000000 if WIDE else -0x80000000
    INT: tl.constexpr = tl.int64 if WIDE else tl.int32
    split = tl.program_id(0) % splits
    tile = tl.program_id(0) // splits
    tiles = tl.cdiv(inner, LANES)
    outer = (tile // tiles).to(tl.int64)
    lane = ((tile % tiles) * LANES + tl.arange(0, LANES)).to(tl.int64)[:, None]
    base = outer * x_outer + lane * x_inner
    share = tl.cdiv(tl.cdiv(n, N), splits)

    best = tl.full([LANES, N], lowest, INT)
    where = tl.full([LANES, N], nowhere, PLACE)
    for t in range(split * share, tl.minimum(split * share + share, tl.cdiv(n, N))):
        i = (t * N + tl.arange(0, N)).to(tl.int64)[None, :]
        inside = (lane < inner) & (i < n)
        value = tl.load(x + base + i * x_n, mask=inside, other=0)
        if READY:
            key = value
            place = tl.load(places + base + i * x_n, mask=inside, other=0).to(PLACE)
        else:
            key = _key(value, WIDE)
            place = tl.broadcast_to(i.to(PLACE), [LANES, N])
        # Later elements of one place of the tile stand further on: only a larger key wins.
        better = inside & ((key > best) | (where == nowhere))
        best = tl.where(better, key, best)
        where = tl.where(better, place, where)
    top = tl.max(best, axis=1)[:, None]
    first = tl.min(tl.where(best == top, where, nowhere), axis=1)[:, None]
    target = split * out_split + outer * out_outer + lane * out_inner
    tl.store(out + target, first, mask=lane < inner)
    if PARTIAL:
        tl.store(keys + target, top, mask=lane < inner)


def argmax(
    self: torch.Tensor,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    x = self.reshape(-1) if dim is None or self.dim() == 0 else self
    axis = 0 if dim is None else dim % x.dim()
    if dim is None or self.dim() == 0:
        shape = [1] * self.dim() if keepdim else []
    else:
        shape = [1 if i == axis else size for i, size in enumerate(x.shape) if keepdim or i != axis]
    result = torch.empty(shape, dtype=torch.int64, device=x.device)
    if result.numel():
        _launch(x, axis, result)
    return result if out is None else out.copy_(result)


def _launch(x: torch.Tensor, axis: int, result: torch.Tensor) -> None:
    """Fills `result` (contiguous) with the indices of the largest elements along `axis`."""
    n = x.shape[axis]
    outer = 1
    for size in x.shape[:axis]:
        outer *= size
    inner = result.numel() // outer
    x = x.reshape(outer, n, inner)
    if inner == 1:  # the rows take the place of the inner dimension
        x, outer, inner = x.transpose(0, 2), 1, outer
    wide = x.dtype in (torch.int64, torch.float64)
    lanes, tile = _tile(inner, n, x.stride(2), x.stride(1))
    programs, tiles = outer * triton.cdiv(inner, lanes), triton.cdiv(n, tile)
    splits = max(1, min(_PROGRAMS // programs, tiles // 4))
    place = tl.int32 if n < 2**31 - 1 else tl.int64
    if splits == 1:
        _argmax[(programs,)](
            x, x, result, result, n, inner, 1, *x.stride(), inner, 1, 0,
            READY=False, PARTIAL=False, WIDE=wide, PLACE=place, LANES=lanes, N=tile, num_warps=8,
        )  # fmt: skip
        return
    size = (splits, outer, inner)
    places = torch.empty(size, dtype=torch.int64, device=x.device)
    keys = torch.empty(size, dtype=torch.int64 if wide else torch.int32, device=x.device)
    _argmax[(programs * splits,)](
        x, x, places, keys, n, inner, splits, *x.stride(), inner, 1, outer * inner,
        READY=False, PARTIAL=True, WIDE=wide, PLACE=place, LANES=lanes, N=tile, num_warps=8,
    )  # fmt: skip
    lanes, tile = _tile(inner, splits, 1, outer * inner)
    _argmax[(outer * triton.cdiv(inner, lanes),)](
        keys, places, result, result, splits, inner, 1, inner, outer * inner, 1, inner, 1, 0,
        READY=True, PARTIAL=False, WIDE=wide, PLACE=place, LANES=lanes, N=tile, num_warps=4,
    )  # fmt: skip


def _tile(inner: int, n: int, stride_inner: int, stride_n: int) -> tuple[int, int]:
    """Tile widths (LANES, N): wide along what lies closest in memory."""
    if stride_n <= stride_inner or inner == 1:
        width = min(triton.next_power_of_2(n), _TILE // 2)
        return min(triton.next_power_of_2(inner), _TILE // width, 64), width
    lanes = min(triton.next_power_of_2(inner), 128)
    return lanes, min(triton.next_power_of_2(n), _TILE // lanes)
