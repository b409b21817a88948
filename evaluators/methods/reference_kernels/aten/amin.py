"""Smallest elements over any dimensions: tiles of minima in registers, split where results are few.

The dimensions that stay and those that are reduced are merged as far as the strides allow, which
leaves at most two of each: (k0, k1) stay, (r0, r1) are reduced. A program owns K elements of k1
and walks tiles of R elements of r1, for one value of r0 after the other: divisions are made once a
tile, and loads run along whichever of k1 and r1 lies closest in memory. Where few results would
leave the device idle, the walk is split over programs, and the same kernel reduces their minima.
NaN wins. Floats compare in float32 and integers in int32 or int64, all of them exactly.
"""

import math

import torch
import triton
import triton.language as tl

_TILE = 4096  # elements read at a time by a program
_PROGRAMS = 1024  # enough to fill the device


@triton.jit
def _least(a, b):
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def _reduce(
    x, out, k1, r0, r1, splits, fill, x_k0, x_k1, x_r0, x_r1, out_k0, out_k1, out_split,
    ACC: tl.constexpr, K: tl.constexpr, R: tl.constexpr,
):  # fmt: skip
    split = tl.program_id(0) % splits
    tile_k = tl.program_id(0) // splits
    tiles_k = tl.cdiv(k1, K)
    outer = (tile_k // tiles_k).to(tl.int64)
    k = ((tile_k % tiles_k) * K + tl.arange(0, K)).to(tl.int64)[:, None]
    x += outer * x_k0 + k * x_k1

    tiles_r = tl.cdiv(r1, R)
    share = tl.cdiv(r0 * tiles_r, splits)
    least = tl.full([K, R], fill, ACC)
    for t in range(split * share, tl.minimum(split * share + share, r0 * tiles_r)):
        r = ((t % tiles_r) * R + tl.arange(0, R)).to(tl.int64)[None, :]
        offset = (t // tiles_r).to(tl.int64) * x_r0 + r * x_r1
        inside = (k < k1) & (r < r1)
        value = tl.load(x + offset, mask=inside, other=0).to(ACC)
        least = _least(least, tl.where(inside, value, fill))
    result = tl.reduce(least, 1, _least)[:, None]
    tl.store(out + split * out_split + outer * out_k0 + k * out_k1, result, mask=k < k1)


def amin(
    self: torch.Tensor,
    dim: int | list[int] | None = None,
    keepdim: bool = False,
    *,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    x = self.view(torch.uint8) if self.dtype == torch.bool else self
    axes = _axes(dim, x.dim())
    kept = [axis for axis in range(x.dim()) if axis not in axes]
    if out is None:
        shape = [1 if i in axes else n for i, n in enumerate(x.shape) if keepdim or i not in axes]
        out = torch.empty(shape, dtype=self.dtype, device=x.device)
    if out.numel() == 0:
        return out
    y = out if keepdim else _with_ones(out, axes)
    result = out
    sizes, k_strides, y_strides = _merge([x.shape[a] for a in kept], _of(x, kept), _of(y, kept))
    counts, r_strides, _ = _merge([x.shape[a] for a in axes], _of(x, axes), _of(x, axes))
    if len(sizes) > 2 or len(counts) > 2:  # no two pairs describe it: bring it into rows
        x = x.permute(kept + axes).contiguous().view(out.numel(), -1)
        result = torch.empty(out.shape, dtype=self.dtype, device=x.device)
        sizes, k_strides, y_strides = [x.shape[0]], [x.shape[1]], [1]
        counts, r_strides = [x.shape[1]], [1]
    (k0, k1), (r0, r1) = _pair(sizes, 1), _pair(counts, 1)
    x_k, x_r, out_k = _pair(k_strides, 0), _pair(r_strides, 0), _pair(y_strides, 0)
    acc, partial, fill = _accumulator(x.dtype)
    target = result.view(torch.uint8) if result.dtype == torch.bool else result

    width_k, width_r = _tile(k1, r1, x_k[1], x_r[1])
    programs, tiles = k0 * triton.cdiv(k1, width_k), r0 * triton.cdiv(r1, width_r)
    splits = max(1, min(_PROGRAMS // programs, tiles // 4))
    if splits == 1:
        _reduce[(programs,)](
            x, target, k1, r0, r1, 1, fill, *x_k, *x_r, *out_k, 0,
            ACC=acc, K=width_k, R=width_r, num_warps=8,
        )  # fmt: skip
        return _delivered(result, out)
    parts = torch.empty((splits, k0, k1), dtype=partial, device=x.device)
    _reduce[(programs * splits,)](
        x, parts, k1, r0, r1, splits, fill, *x_k, *x_r, k1, 1, k0 * k1,
        ACC=acc, K=width_k, R=width_r, num_warps=8,
    )  # fmt: skip
    width_k, width_r = _tile(k1, splits, 1, k0 * k1)
    _reduce[(k0 * triton.cdiv(k1, width_k),)](
        parts, target, k1, 1, splits, 1, fill, k1, 1, 0, k0 * k1, *out_k, 0,
        ACC=acc, K=width_k, R=width_r, num_warps=4,
    )  # fmt: skip
    return _delivered(result, out)


def _accumulator(dtype: torch.dtype) -> tuple[tl.dtype, torch.dtype, float]:
    """The type that holds `dtype` exactly, in both languages, and its largest value."""
    if dtype.is_floating_point:
        wide = dtype == torch.float64
        return (
            (tl.float64 if wide else tl.float32),
            (torch.float64 if wide else torch.float32),
            math.inf,
        )
    if dtype == torch.int64:
        return tl.int64, torch.int64, 2**63 - 1
    return tl.int32, torch.int32, 2**31 - 1


def _axes(dim: int | list[int] | None, rank: int) -> list[int]:
    """Dimensions to reduce, ascending; none given means all."""
    if dim is None or dim == []:
        return list(range(rank))
    dims = [dim] if isinstance(dim, int) else dim
    return sorted(d % rank for d in dims) if rank else []


def _with_ones(out: torch.Tensor, axes: list[int]) -> torch.Tensor:
    """`out` with the reduced dimensions back, of size 1."""
    for axis in axes:
        out = out.unsqueeze(axis)
    return out


def _of(x: torch.Tensor, axes: list[int]) -> list[int]:
    return [x.stride(axis) for axis in axes]


def _merge(
    sizes: list[int], strides: list[int], others: list[int]
) -> tuple[list[int], list[int], list[int]]:
    """Merges neighbours that one stride describes, in both tensors; drops sizes of 1."""
    merged: list[tuple[int, int, int]] = []
    for size, stride, other in zip(sizes, strides, others, strict=True):
        if size == 1:
            continue
        if merged:
            n, s, o = merged[-1]
            if s == size * stride and o == size * other:
                merged[-1] = (n * size, stride, other)
                continue
        merged.append((size, stride, other))
    return [m[0] for m in merged], [m[1] for m in merged], [m[2] for m in merged]


def _pair(values: list[int], default: int) -> tuple[int, int]:
    padded = [default] * (2 - len(values)) + values
    return padded[0], padded[1]


def _tile(k1: int, r1: int, stride_k: int, stride_r: int) -> tuple[int, int]:
    """Tile widths (K, R): wide along what lies closest in memory."""
    widest_k, widest_r = triton.next_power_of_2(k1), triton.next_power_of_2(max(r1, 1))
    if stride_r <= stride_k or k1 == 1:
        width_r = min(widest_r, _TILE // 2)
        return min(widest_k, _TILE // width_r, 64), width_r
    width_k = min(widest_k, 128)
    return width_k, min(widest_r, _TILE // width_k)


def _delivered(result: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    return out if result is out else out.copy_(result)
