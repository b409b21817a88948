"""Gradient of select: zeros written once, with the slice put in on the way.

The result is seen as (outer, n, inner); a program writes a tile of it, reading `grad_output` only
where the tile crosses the slice, so every byte is written once and no second pass clears.
"""

import torch
import triton
import triton.language as tl

_TILE = 4096


@triton.jit
def _embed(
    grad, out, index, rows, n, inner, grad_outer, grad_inner, out_outer, out_n, out_inner,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    tiles = tl.cdiv(inner, COLUMNS)
    row = ((tl.program_id(0) // tiles) * ROWS + tl.arange(0, ROWS))[:, None]
    lane = ((tl.program_id(0) % tiles) * COLUMNS + tl.arange(0, COLUMNS)).to(tl.int64)[None, :]
    outer, i = (row // n).to(tl.int64), row % n
    inside = (row < rows) & (lane < inner)
    source = grad + outer * grad_outer + lane * grad_inner
    value = tl.load(source, mask=inside & (i == index), other=0)
    tl.store(
        out + outer * out_outer + i.to(tl.int64) * out_n + lane * out_inner, value, mask=inside
    )


def select_backward(
    grad_output: torch.Tensor,
    input_sizes: list[int],
    dim: int,
    index: int,
    *,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    dim %= len(input_sizes)
    if out is None:
        out = torch.empty(input_sizes, dtype=grad_output.dtype, device=grad_output.device)
    if out.numel() == 0:
        return out
    n, outer, inner = input_sizes[dim], 1, 1
    for size in input_sizes[:dim]:
        outer *= size
    for size in input_sizes[dim + 1 :]:
        inner *= size
    g = grad_output.reshape(outer, inner)
    y = out.view(outer, n, inner)  # a view, or an error: never a copy
    columns = min(triton.next_power_of_2(inner), _TILE)
    rows = min(_TILE // columns, triton.next_power_of_2(outer * n))
    _embed[(triton.cdiv(outer * n, rows) * triton.cdiv(inner, columns),)](
        g, y, index % n, outer * n, n, inner, *g.stride(), *y.stride(),
        ROWS=rows, COLUMNS=columns, num_warps=8,
    )  # fmt: skip
    return out
