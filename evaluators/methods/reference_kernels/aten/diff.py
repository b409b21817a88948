"""Forward differences along a dimension: joined ends are read in place, nothing is concatenated.

`self` is seen as (outer, n, inner) with the strides it has; a program owns a tile of the result and
reads each pair of neighbours, the second of which is in cache. `prepend` and `append` are further
pointers: an element's place in the joined row says which tensor it comes from. For `n` > 1 the
passes follow each other; only the first one joins.
"""

import torch
import triton
import triton.language as tl

_TILE = 2048


@triton.jit
def _load(
    x, before, after, i, inside, n_before, n_x, at, at_before, at_after, x_n, before_n, after_n,
    JOINED: tl.constexpr,
):  # fmt: skip
    """Elements `i` of the row that `before`, `x` and `after` form together."""
    if JOINED:
        own = i - n_before
        last = own - n_x
        value = tl.load(x + at + own * x_n, mask=inside & (own >= 0) & (last < 0), other=0)
        first = tl.load(before + at_before + i * before_n, mask=inside & (own < 0), other=0)
        end = tl.load(after + at_after + last * after_n, mask=inside & (last >= 0), other=0)
        value = tl.where(own < 0, first, tl.where(last < 0, value, end))
    else:
        value = tl.load(x + at + i * x_n, mask=inside, other=0)
    return value


@triton.jit
def _diff(
    x, before, after, out, n, inner, n_before, n_x, x_outer, x_n, x_inner,
    before_outer, before_n, before_inner, after_outer, after_n, after_inner,
    JOINED: tl.constexpr, BOOL: tl.constexpr, N: tl.constexpr, INNER: tl.constexpr,
):  # fmt: skip
    tiles_n, tiles_inner = tl.cdiv(n, N), tl.cdiv(inner, INNER)
    tile = tl.program_id(0) % (tiles_n * tiles_inner)
    outer = (tl.program_id(0) // (tiles_n * tiles_inner)).to(tl.int64)
    i = ((tile // tiles_inner) * N + tl.arange(0, N)).to(tl.int64)[:, None]
    lane = ((tile % tiles_inner) * INNER + tl.arange(0, INNER)).to(tl.int64)[None, :]
    inside = (i < n) & (lane < inner)
    at = outer * x_outer + lane * x_inner
    at_before = outer * before_outer + lane * before_inner
    at_after = outer * after_outer + lane * after_inner
    low = _load(
        x, before, after, i, inside, n_before, n_x, at, at_before, at_after,
        x_n, before_n, after_n, JOINED,
    )  # fmt: skip
    high = _load(
        x, before, after, i + 1, inside, n_before, n_x, at, at_before, at_after,
        x_n, before_n, after_n, JOINED,
    )  # fmt: skip
    if BOOL:
        result = low ^ high
    elif low.dtype.is_floating() and low.dtype.primitive_bitwidth < 32:
        result = high.to(tl.float32) - low.to(tl.float32)
    else:
        result = high - low
    tl.store(out + (outer * n + i) * inner + lane, result, mask=inside)


@triton.jit
def _copy(x, out, n, inner, x_outer, x_n, x_inner, numel, BLOCK: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    lane, i, outer = place % inner, place // inner % n, place // inner // n
    value = tl.load(x + outer * x_outer + i * x_n + lane * x_inner, mask=place < numel)
    tl.store(out + place, value, mask=place < numel)


def diff(
    self: torch.Tensor,
    n: int = 1,
    dim: int = -1,
    prepend: torch.Tensor | None = None,
    append: torch.Tensor | None = None,
    *,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    dim %= self.dim()
    ends = [] if n == 0 else [t for t in (prepend, append) if t is not None]
    length = self.shape[dim] + sum([t.shape[dim] for t in ends])
    shape = list(self.shape)
    shape[dim] = max(length - n, 0)
    result = torch.empty(shape, dtype=self.dtype, device=self.device)
    if result.numel():
        x = _three_dimensions(self, dim)
        before = x if prepend is None or n == 0 else _three_dimensions(prepend, dim)
        after = x if append is None or n == 0 else _three_dimensions(append, dim)
        n_before = 0 if prepend is None or n == 0 else prepend.shape[dim]
        y = _three_dimensions(result, dim)
        if n == 0:
            _copy[(triton.cdiv(y.numel(), 1024),)](
                x, y, x.shape[1], x.shape[2], *x.stride(), y.numel(), BLOCK=1024
            )
        for step in range(n):
            length -= 1
            target = y
            if step < n - 1:
                size = (x.shape[0], length, x.shape[2])
                target = torch.empty(size, dtype=x.dtype, device=x.device)
            _launch(x, before, after, target, n_before, bool(ends) and step == 0)
            x, before, after = target, target, target
    return result if out is None else out.copy_(result)


def _launch(
    x: torch.Tensor, before: torch.Tensor, after: torch.Tensor, out: torch.Tensor,
    n_before: int, joined: bool,
) -> None:  # fmt: skip
    outer, n, inner = out.shape
    lanes = min(triton.next_power_of_2(inner), _TILE)
    places = min(triton.next_power_of_2(n), max(_TILE // lanes, 1))
    grid = (outer * triton.cdiv(n, places) * triton.cdiv(inner, lanes),)
    _diff[grid](
        x, before, after, out, n, inner, n_before, x.shape[1],
        *x.stride(), *before.stride(), *after.stride(),
        JOINED=joined, BOOL=x.dtype == torch.bool, N=places, INNER=lanes, num_warps=4,
    )  # fmt: skip


def _three_dimensions(x: torch.Tensor, dim: int) -> torch.Tensor:
    """`x` as (outer, n, inner)."""
    outer, inner = 1, 1
    for size in x.shape[:dim]:
        outer *= size
    for size in x.shape[dim + 1 :]:
        inner *= size
    return x.reshape(outer, x.shape[dim], inner)
