"""Rows of a table by index: a program copies ROWS rows, COLUMNS elements of each.

Rows are copied as they lie in memory, in wide vectors; short rows go several to a program, so that
every program moves about the same number of bytes. Indices are read once for each row.
"""

import torch
import triton
import triton.language as tl

_TILE = 2048


@triton.jit
def _copy_rows(
    weight, indices, out, count, width, stride_row, stride_column,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    tiles = tl.cdiv(width, COLUMNS)
    row = (tl.program_id(0) // tiles).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = (tl.program_id(0) % tiles) * COLUMNS + tl.arange(0, COLUMNS)
    index = tl.load(indices + row, mask=row < count, other=0).to(tl.int64)
    inside = (row < count)[:, None] & (column < width)[None, :]
    source = index[:, None] * stride_row + column[None, :].to(tl.int64) * stride_column
    value = tl.load(weight + source, mask=inside)
    tl.store(out + row[:, None] * width + column[None, :], value, mask=inside)


def embedding(
    weight: torch.Tensor,
    indices: torch.Tensor,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
    *,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    width = weight.shape[1]
    shape = (*indices.shape, width)
    result = out
    if out is None or not out.is_contiguous():
        result = torch.empty(shape, dtype=weight.dtype, device=weight.device)
    if result.numel():
        count = indices.numel()
        columns = min(triton.next_power_of_2(width), _TILE)
        rows = min(_TILE // columns, triton.next_power_of_2(count))
        _copy_rows[(triton.cdiv(count, rows) * triton.cdiv(width, columns),)](
            weight, indices.contiguous(), result, count, width, *weight.stride(),
            ROWS=rows, COLUMNS=columns, num_warps=4,
        )  # fmt: skip
    return result if out is None or result is out else out.copy_(result)
