"""Running sum along any dimension: scans of tiles, with carries that never wait.

`self` is seen as (outer, n, inner); where `dim` is the last dimension its rows take the place of
`inner`, so one kernel serves all: a program holds LANES slices at a time, scans tiles of N elements
and carries the last sum on. Where slices are few and long that would leave the device idle: then
they are cut into chunks, one kernel sums each chunk, a second scans those sums, and the third scans
the chunks from where they start (reduce, then scan; no program waits for another one). Floats
accumulate in float32, integers in int64, which wraps to the result's width.
"""

import torch
import triton
import triton.language as tl

_TILE = 2048  # elements scanned at a time by a program
_PROGRAMS = 512  # enough to keep the device busy


@triton.jit
def _sum_chunks(
    x, sums, n, inner, chunks, share, x_outer, x_n, x_inner,
    CAST: tl.constexpr, ACC: tl.constexpr, LANES: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    """sums[outer, chunk, inner]: the sum of `share` tiles of N elements."""
    chunk = tl.program_id(0) % chunks
    tile = tl.program_id(0) // chunks
    tiles = tl.cdiv(inner, LANES)
    outer = (tile // tiles).to(tl.int64)
    lane = ((tile % tiles) * LANES + tl.arange(0, LANES)).to(tl.int64)[:, None]
    x += outer * x_outer + lane * x_inner
    total = tl.zeros([LANES, N], ACC)
    for t in range(chunk * share, chunk * share + share):
        i = (t * N + tl.arange(0, N)).to(tl.int64)[None, :]
        value = tl.load(x + i * x_n, mask=(lane < inner) & (i < n), other=0)
        total += value.to(CAST).to(ACC)
    result = tl.sum(total, axis=1)[:, None]
    tl.store(sums + (outer * chunks + chunk) * inner + lane, result, mask=lane < inner)


@triton.jit
def _scan(
    x, out, starts, n, inner, chunks, share, x_outer, x_n, x_inner, out_outer, out_n, out_inner,
    CHUNKED: tl.constexpr, CAST: tl.constexpr, ACC: tl.constexpr, OUT: tl.constexpr,
    LANES: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    """Scans `share` tiles of N elements, from 0 or (CHUNKED) from the end of the chunk before."""
    chunk = tl.program_id(0) % chunks
    tile = tl.program_id(0) // chunks
    tiles = tl.cdiv(inner, LANES)
    outer = (tile // tiles).to(tl.int64)
    lane = ((tile % tiles) * LANES + tl.arange(0, LANES)).to(tl.int64)[:, None]
    x += outer * x_outer + lane * x_inner
    out += outer * out_outer + lane * out_inner
    carry = tl.zeros([LANES, 1], ACC)
    if CHUNKED:
        before = starts + (outer * chunks + chunk - 1) * inner + lane
        carry = tl.load(before, mask=(lane < inner) & (chunk > 0), other=0)
    for t in range(chunk * share, chunk * share + share):
        i = (t * N + tl.arange(0, N)).to(tl.int64)[None, :]
        inside = (lane < inner) & (i < n)
        value = tl.load(x + i * x_n, mask=inside, other=0).to(CAST).to(ACC)
        result = carry + tl.cumsum(value, axis=1)
        tl.store(out + i * out_n, result.to(OUT), mask=inside)
        carry += tl.sum(value, axis=1)[:, None]


_TRITON = {
    torch.float64: tl.float64, torch.float32: tl.float32, torch.float16: tl.float16,
    torch.bfloat16: tl.bfloat16, torch.int64: tl.int64, torch.int32: tl.int32,
    torch.int16: tl.int16, torch.int8: tl.int8, torch.uint8: tl.uint8,
}  # fmt: skip


def cumsum(
    self: torch.Tensor,
    dim: int,
    *,
    dtype: torch.dtype | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    whole = not self.dtype.is_floating_point
    target = out.dtype if out is not None else dtype or (torch.int64 if whole else self.dtype)
    result = torch.empty(self.shape, dtype=target, device=self.device)
    if self.numel():
        x = self.view(torch.uint8) if self.dtype == torch.bool else self
        _launch(_three_dimensions(x, dim), _three_dimensions(result, dim))
    return result if out is None else out.copy_(result)


def _launch(x: torch.Tensor, y: torch.Tensor) -> None:
    """Scans the middle one of three dimensions of `x` into `y`."""
    outer, n, inner = x.shape
    cast = _TRITON[y.dtype]
    acc, partial = _accumulator(y.dtype)
    lanes, tile = _tile(inner, n, x.stride(2), x.stride(1))
    programs, tiles = outer * triton.cdiv(inner, lanes), triton.cdiv(n, tile)
    chunks = max(1, min(_PROGRAMS // programs, tiles // 2))
    if chunks == 1:
        _scan[(programs,)](
            x, y, y, n, inner, 1, tiles, *x.stride(), *y.stride(),
            CHUNKED=False, CAST=cast, ACC=acc, OUT=cast, LANES=lanes, N=tile, num_warps=8,
        )  # fmt: skip
        return
    share = triton.cdiv(tiles, chunks)
    chunks = triton.cdiv(tiles, share)
    sums = torch.empty((outer, chunks, inner), dtype=partial, device=x.device)
    starts = torch.empty_like(sums)
    _sum_chunks[(programs * chunks,)](
        x, sums, n, inner, chunks, share, *x.stride(),
        CAST=cast, ACC=acc, LANES=lanes, N=tile, num_warps=8,
    )  # fmt: skip
    few, short = _tile(inner, chunks, 1, inner)
    _scan[(outer * triton.cdiv(inner, few),)](
        sums, starts, starts, chunks, inner, 1, triton.cdiv(chunks, short),
        *sums.stride(), *starts.stride(),
        CHUNKED=False, CAST=acc, ACC=acc, OUT=acc, LANES=few, N=short, num_warps=4,
    )  # fmt: skip
    _scan[(programs * chunks,)](
        x, y, starts, n, inner, chunks, share, *x.stride(), *y.stride(),
        CHUNKED=True, CAST=cast, ACC=acc, OUT=cast, LANES=lanes, N=tile, num_warps=8,
    )  # fmt: skip


def _accumulator(dtype: torch.dtype) -> tuple[tl.dtype, torch.dtype]:
    if not dtype.is_floating_point:
        return tl.int64, torch.int64
    return (tl.float64, torch.float64) if dtype == torch.float64 else (tl.float32, torch.float32)


def _three_dimensions(x: torch.Tensor, dim: int) -> torch.Tensor:
    """`x` as (outer, n, inner); without an inner dimension the outer one moves there."""
    if x.dim() == 0:
        return x.view(1, 1, 1)
    dim %= x.dim()
    n = x.shape[dim]
    outer = 1
    for size in x.shape[:dim]:
        outer *= size
    x = x.reshape(outer, n, x.numel() // (outer * n))
    return x.transpose(0, 2) if x.shape[2] == 1 else x


def _tile(inner: int, n: int, stride_inner: int, stride_n: int) -> tuple[int, int]:
    """Tile widths (LANES, N): wide along what lies closest in memory."""
    if stride_n <= stride_inner or inner == 1:
        width = min(triton.next_power_of_2(n), _TILE)
        return min(triton.next_power_of_2(inner), _TILE // width, 64), width
    lanes = min(triton.next_power_of_2(inner), 64)
    return lanes, min(triton.next_power_of_2(n), _TILE // lanes)
