"""Softmax along any dimension: rows in registers, or in chunks where a row is long.

`self` is seen as (outer, n, inner) with the strides it has. Where `dim` is the last dimension its
rows take the place of `inner`, so one kernel serves all: a program holds LANES slices of n elements
each as a tile, reads it once, and writes it once. Rows beyond `_LONGEST` elements are cut into
chunks, so that few long rows still fill the device: one kernel finds maximum and sum of each chunk,
a second combines those of its row and writes its chunk (mostly read back from cache).
"""

import torch
import triton
import triton.language as tl

_LONGEST = 8192
_TILE = 4096  # elements of a tile of short slices


@triton.jit
def _load(x, offset, inside, CAST: tl.constexpr):
    return tl.load(x + offset, mask=inside, other=float("-inf")).to(CAST).to(tl.float32)


@triton.jit
def _whole_slices(
    x, out, n, inner, x_outer, x_n, x_inner, out_outer, out_n, out_inner,
    CAST: tl.constexpr, LANES: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    tiles = tl.cdiv(inner, LANES)
    program = tl.program_id(0)
    outer = (program // tiles).to(tl.int64)
    lane = ((program % tiles) * LANES + tl.arange(0, LANES)).to(tl.int64)[:, None]
    i = tl.arange(0, N).to(tl.int64)[None, :]
    inside = (lane < inner) & (i < n)
    value = _load(x, outer * x_outer + lane * x_inner + i * x_n, inside, CAST)
    value = tl.exp(value - tl.max(value, axis=1)[:, None])
    value = value / tl.sum(value, axis=1)[:, None]
    tl.store(out + outer * out_outer + lane * out_inner + i * out_n, value, mask=inside)


@triton.jit
def _chunk_sums(
    x, maxima, sums, n, inner, chunks, x_outer, x_n, x_inner,
    CAST: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) // chunks
    chunk = tl.program_id(0).to(tl.int64) % chunks
    i = chunk * N + tl.arange(0, N)
    value = _load(x, row // inner * x_outer + row % inner * x_inner + i * x_n, i < n, CAST)
    top = tl.max(value, axis=0)
    # A chunk of -inf alone adds nothing; exp(-inf - -inf) would be NaN.
    base = tl.where(top == float("-inf"), 0.0, top)
    tl.store(maxima + tl.program_id(0), top)
    tl.store(sums + tl.program_id(0), tl.sum(tl.exp(value - base), axis=0))


@triton.jit
def _chunk_results(
    x, out, maxima, sums, n, inner, chunks, x_outer, x_n, x_inner, out_outer, out_n, out_inner,
    CAST: tl.constexpr, N: tl.constexpr, CHUNKS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) // chunks
    chunk = tl.program_id(0).to(tl.int64) % chunks
    c = tl.arange(0, CHUNKS)
    top = tl.load(maxima + row * chunks + c, mask=c < chunks, other=float("-inf"))
    part = tl.load(sums + row * chunks + c, mask=c < chunks, other=0.0)
    highest = tl.max(top, axis=0)
    total = tl.sum(part * tl.exp(top - highest), axis=0)
    i = chunk * N + tl.arange(0, N)
    outer, lane = row // inner, row % inner
    value = _load(x, outer * x_outer + lane * x_inner + i * x_n, i < n, CAST)
    value = tl.exp(value - highest) / total
    tl.store(out + outer * out_outer + lane * out_inner + i * out_n, value, mask=i < n)


_TRITON = {torch.float16: tl.float16, torch.bfloat16: tl.bfloat16, torch.float32: tl.float32}


def softmax(
    self: torch.Tensor,
    dim: int,
    dtype: torch.dtype | None = None,
    *,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    result = _launch(self, dim, dtype or self.dtype)
    return result if out is None else out.copy_(result)


def _launch(self: torch.Tensor, dim: int, target: torch.dtype) -> torch.Tensor:
    """The softmax of `self`, in a new tensor of dtype `target`."""
    out = torch.empty(self.shape, dtype=target, device=self.device)
    if self.numel() == 0:
        return out
    x, y = _three_dimensions(self, dim), _three_dimensions(out, dim)
    outer, n, inner = x.shape
    cast = _TRITON[target]
    if n <= _LONGEST:
        tile = triton.next_power_of_2(n)
        lanes = min(max(_TILE // tile, 1), triton.next_power_of_2(inner))
        grid = (outer * triton.cdiv(inner, lanes),)
        _whole_slices[grid](
            x, y, n, inner, *x.stride(), *y.stride(),
            CAST=cast, LANES=lanes, N=tile, num_warps=min(max(lanes * tile // 512, 1), 16),
        )  # fmt: skip
        return out
    chunks = triton.cdiv(n, _LONGEST // 2)
    rows = outer * inner
    maxima = torch.empty(rows * chunks, dtype=torch.float32, device=self.device)
    sums = torch.empty_like(maxima)
    tile = _LONGEST // 2
    _chunk_sums[(rows * chunks,)](
        x, maxima, sums, n, inner, chunks, *x.stride(), CAST=cast, N=tile, num_warps=8
    )
    _chunk_results[(rows * chunks,)](
        x, y, maxima, sums, n, inner, chunks, *x.stride(), *y.stride(),
        CAST=cast, N=tile, CHUNKS=triton.next_power_of_2(chunks), num_warps=8,
    )  # fmt: skip
    return out


def _three_dimensions(x: torch.Tensor, dim: int) -> torch.Tensor:
    """`x` as (outer, n, inner); without an inner dimension the outer one moves there."""
    if x.dim() == 0:
        return x.reshape(1, 1, 1)
    dim %= x.dim()
    n = x.shape[dim]
    outer = 1
    for size in x.shape[:dim]:
        outer *= size
    x = x.reshape(outer, n, x.numel() // (outer * n))
    return x.transpose(0, 2) if x.shape[2] == 1 else x
