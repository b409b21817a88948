"""Residual addition and RMS norm in one pass: one program a row, the row held in registers.

The sum is rounded to the dtype before it is stored and before its squares are summed: the residual
that later layers see is the one that was normalised. Reads two rows and writes two, which is all
the traffic that the operator has. Rows beyond 16384 elements are walked twice in tiles.
"""

import triton
import triton.language as tl

_LONGEST_TILE = 16384


@triton.jit
def _fused_add_row(
    x, residual, weight, hidden, inner, stride_outer, stride_inner, epsilon, TILE: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    x += (row // inner) * stride_outer + (row % inner) * stride_inner
    residual += row * hidden
    column = tl.arange(0, TILE)
    inside = column < hidden
    added = tl.load(x + column, mask=inside, other=0.0).to(tl.float32)
    total = (tl.load(residual + column, mask=inside, other=0.0).to(tl.float32) + added).to(
        residual.dtype.element_ty
    )
    tl.store(residual + column, total, mask=inside)
    total = total.to(tl.float32)
    factor = tl.rsqrt(tl.sum(total * total, axis=0) / hidden + epsilon)
    w = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(x + column, total * factor * w, mask=inside)


@triton.jit
def _fused_add_long_row(
    x, residual, weight, hidden, inner, stride_outer, stride_inner, epsilon, TILE: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    x += (row // inner) * stride_outer + (row % inner) * stride_inner
    residual += row * hidden
    squares = tl.zeros([TILE], tl.float32)
    for start in range(0, hidden, TILE):
        column = start + tl.arange(0, TILE)
        inside = column < hidden
        added = tl.load(x + column, mask=inside, other=0.0).to(tl.float32)
        total = (tl.load(residual + column, mask=inside, other=0.0).to(tl.float32) + added).to(
            residual.dtype.element_ty
        )
        tl.store(residual + column, total, mask=inside)
        squares += total.to(tl.float32) * total.to(tl.float32)
    factor = tl.rsqrt(tl.sum(squares, axis=0) / hidden + epsilon)
    for start in range(0, hidden, TILE):
        column = start + tl.arange(0, TILE)
        inside = column < hidden
        # Every thread reads back what it wrote itself: the tiles are laid out alike.
        total = tl.load(residual + column, mask=inside, other=0.0).to(tl.float32)
        w = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
        tl.store(x + column, total * factor * w, mask=inside)


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


def fused_add_rms_norm(input, residual, weight, epsilon):
    hidden = input.shape[-1]
    if input.numel() == 0:
        return
    rows = input.numel() // hidden
    strides = _row_strides(input)
    if hidden > _LONGEST_TILE:
        _fused_add_long_row[(rows,)](
            input, residual, weight, hidden, *strides, epsilon, TILE=4096, num_warps=8
        )
        return
    tile = triton.next_power_of_2(hidden)
    warps = min(max(tile // 512, 1), 16)
    _fused_add_row[(rows,)](
        input, residual, weight, hidden, *strides, epsilon, TILE=tile, num_warps=warps
    )
