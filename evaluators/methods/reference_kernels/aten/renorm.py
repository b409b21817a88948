"""Slices scaled down to a largest norm: one pass for the norms, one that scales.

`self` is seen as (outer, n, inner) with the strides it has; slice i is everything at place i of n.
The first kernel adds powers over a share of a slice, K slices at a time, walking tiles wide along
whichever of `inner` and n lies closest in memory; few slices are split over programs. The second
adds the shares and makes a factor for each slice; the third multiplies. Whole p up to 4 are
products; any other p, and the root, take exp2 and log2 in float64.
"""

import math

import torch
import triton
import triton.language as tl

_TILE = 4096
_PROGRAMS = 1024


@triton.jit
def _add_powers(
    x, parts, n, outer, inner, splits, p, x_outer, x_n, x_inner,
    WHOLE: tl.constexpr, LARGEST: tl.constexpr, K: tl.constexpr, R: tl.constexpr,
):  # fmt: skip
    """parts[split, i]. WHOLE: p, if it is 1, 2, 3 or 4, else 0. LARGEST: p is infinite."""
    split = tl.program_id(0) % splits
    k = ((tl.program_id(0) // splits) * K + tl.arange(0, K)).to(tl.int64)[:, None]
    tiles = tl.cdiv(inner, R)
    share = tl.cdiv(outer * tiles, splits)
    exact: tl.constexpr = tl.float32 if WHOLE > 0 or LARGEST else tl.float64
    total = tl.zeros([K, R], exact)
    for t in range(split * share, tl.minimum(split * share + share, outer * tiles)):
        r = ((t % tiles) * R + tl.arange(0, R)).to(tl.int64)[None, :]
        offset = (t // tiles).to(tl.int64) * x_outer + k * x_n + r * x_inner
        value = tl.load(x + offset, mask=(k < n) & (r < inner), other=0.0)
        size = tl.abs(value.to(tl.float32))
        if LARGEST:
            total = tl.maximum(total, size)
        elif WHOLE == 1:
            total += size
        elif WHOLE == 2:
            total += size * size
        elif WHOLE == 3:
            total += size * size * size
        elif WHOLE == 4:
            total += (size * size) * (size * size)
        else:
            total += tl.where(size == 0, 0.0, tl.exp2(p * tl.log2(size.to(tl.float64))))
    result = (tl.max(total, axis=1) if LARGEST else tl.sum(total, axis=1))[:, None]
    tl.store(parts + split.to(tl.int64) * n + k, result.to(exact), mask=k < n)


@triton.jit
def _make_factors(
    parts, factors, n, splits, p, limit,
    LARGEST: tl.constexpr, K: tl.constexpr, SPLITS: tl.constexpr,
):  # fmt: skip
    k = (tl.program_id(0) * K + tl.arange(0, K)).to(tl.int64)[:, None]
    split = tl.arange(0, SPLITS).to(tl.int64)[None, :]
    part = tl.load(parts + split * n + k, mask=(k < n) & (split < splits), other=0.0)
    if LARGEST:
        norm = tl.max(part, axis=1).to(tl.float64)
    else:
        total = tl.sum(part, axis=1).to(tl.float64)
        norm = tl.where(total == 0, 0.0, tl.exp2(tl.log2(total) / p))
    factor = tl.where(norm > limit, limit / (norm + 1e-7), 1.0)
    tl.store(factors + k, factor.to(tl.float32)[:, None], mask=k < n)


@triton.jit
def _scale(
    x, out, factors, n, inner, x_outer, x_n, x_inner, rows, ROWS: tl.constexpr, INNER: tl.constexpr
):  # fmt: skip
    tiles = tl.cdiv(inner, INNER)
    row = ((tl.program_id(0) // tiles) * ROWS + tl.arange(0, ROWS))[:, None]
    lane = ((tl.program_id(0) % tiles) * INNER + tl.arange(0, INNER)).to(tl.int64)[None, :]
    outer, i = (row // n).to(tl.int64), (row % n).to(tl.int64)
    inside = (row < rows) & (lane < inner)
    factor = tl.load(factors + i, mask=row < rows, other=1.0)
    value = tl.load(x + outer * x_outer + i * x_n + lane * x_inner, mask=inside, other=0.0)
    scaled = tl.where(factor == 1.0, value.to(tl.float32), value.to(tl.float32) * factor)
    tl.store(out + row.to(tl.int64) * inner + lane, scaled, mask=inside)


def renorm(
    self: torch.Tensor,
    p: float,
    dim: int,
    maxnorm: float,
    *,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    result = torch.empty(self.shape, dtype=self.dtype, device=self.device)
    if self.numel():
        dim %= self.dim()
        n, outer = self.shape[dim], 1
        for size in self.shape[:dim]:
            outer *= size
        x = self.reshape(outer, n, self.numel() // (outer * n))
        _launch(x, result, float(p), float(maxnorm))
    return result if out is None else out.copy_(result)


def _launch(x: torch.Tensor, out: torch.Tensor, p: float, limit: float) -> None:
    outer, n, inner = x.shape
    terms = x.transpose(0, 2) if inner == 1 else x  # rows are what is added up then
    width_k, width_r = _tile(n, terms.shape[2], terms.stride(1), terms.stride(2))
    programs, tiles = triton.cdiv(n, width_k), terms.shape[0] * triton.cdiv(terms.shape[2], width_r)
    splits = max(1, min(_PROGRAMS // programs, tiles // 4))
    whole, largest = int(p) if p in (1, 2, 3, 4) else 0, math.isinf(p)
    exact = torch.float32 if whole or largest else torch.float64
    parts = torch.empty((splits, n), dtype=exact, device=x.device)
    factors = torch.empty(n, dtype=torch.float32, device=x.device)
    _add_powers[(programs * splits,)](
        terms, parts, n, terms.shape[0], terms.shape[2], splits, p, *terms.stride(),
        WHOLE=whole, LARGEST=largest, K=width_k, R=width_r, num_warps=8,
    )  # fmt: skip
    width = triton.next_power_of_2(splits)
    lanes = min(triton.next_power_of_2(n), max(1, 1024 // width))
    _make_factors[(triton.cdiv(n, lanes),)](
        parts, factors, n, splits, p, limit, LARGEST=largest, K=lanes, SPLITS=width, num_warps=4
    )
    columns = min(triton.next_power_of_2(inner), 2048)
    rows = min(triton.next_power_of_2(outer * n), 2048 // columns)
    _scale[(triton.cdiv(outer * n, rows) * triton.cdiv(inner, columns),)](
        x, out, factors, n, inner, *x.stride(), outer * n, ROWS=rows, INNER=columns, num_warps=4
    )


def _tile(n: int, inner: int, stride_n: int, stride_inner: int) -> tuple[int, int]:
    """Tile widths (slices, terms): wide along what lies closest in memory."""
    if stride_inner <= stride_n or n == 1:
        width = min(triton.next_power_of_2(inner), _TILE // 2)
        return min(triton.next_power_of_2(n), _TILE // width, 64), width
    width = min(triton.next_power_of_2(n), 128)
    return width, min(triton.next_power_of_2(inner), _TILE // width)
