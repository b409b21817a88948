"""RMS norm: one program a row, the row held in registers, one pass over memory.

The row is read once with its own strides (a slice of a fused projection has gaps between rows),
squared and summed in float32, scaled, multiplied by the weight and rounded once. Rows beyond
16384 elements are walked twice in tiles; the second walk mostly hits the cache. Few warps for
short rows keep many rows in flight; bandwidth is the only limit.
"""

import triton
import triton.language as tl

_LONGEST_TILE = 16384


@triton.jit
def _rms_norm_row(
    out, x, weight, hidden, inner, stride_outer, stride_inner, epsilon, TILE: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    x += (row // inner) * stride_outer + (row % inner) * stride_inner
    out += row * hidden
    column = tl.arange(0, TILE)
    inside = column < hidden
    value = tl.load(x + column, mask=inside, other=0.0).to(tl.float32)
    factor = tl.rsqrt(tl.sum(value * value, axis=0) / hidden + epsilon)
    w = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + column, value * factor * w, mask=inside)


@triton.jit
def _rms_norm_long_row(
    out, x, weight, hidden, inner, stride_outer, stride_inner, epsilon, TILE: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    x += (row // inner) * stride_outer + (row % inner) * stride_inner
    out += row * hidden
    squares = tl.zeros([TILE], tl.float32)
    for start in range(0, hidden, TILE):
        column = start + tl.arange(0, TILE)
        value = tl.load(x + column, mask=column < hidden, other=0.0).to(tl.float32)
        squares += value * value
    factor = tl.rsqrt(tl.sum(squares, axis=0) / hidden + epsilon)
    for start in range(0, hidden, TILE):
        column = start + tl.arange(0, TILE)
        inside = column < hidden
        value = tl.load(x + column, mask=inside, other=0.0).to(tl.float32)
        w = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
        tl.store(out + column, value * factor * w, mask=inside)


def _row_strides(x):
    """(inner rows, stride of the outer, stride of the inner rows) of a tensor with rows last."""
    if x.dim() == 1:
        return 1, 0, 0
    if x.dim() == 2:
        return 1, x.stride(0), 0
    if x.dim() == 3:
        return max(x.shape[1], 1), x.stride(0), x.stride(1)
    x = x.view(-1, x.shape[-1])
    return 1, x.stride(0), 0


def rms_norm(out, input, weight, epsilon):
    hidden = input.shape[-1]
    if input.numel() == 0:
        return
    rows = input.numel() // hidden
    strides = _row_strides(input)
    if hidden > _LONGEST_TILE:
        _rms_norm_long_row[(rows,)](
            out, input, weight, hidden, *strides, epsilon, TILE=4096, num_warps=8
        )
        return
    tile = triton.next_power_of_2(hidden)
    warps = min(max(tile // 512, 1), 16)
    _rms_norm_row[(rows,)](
        out, input, weight, hidden, *strides, epsilon, TILE=tile, num_warps=warps
    )
