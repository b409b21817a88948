"""Gather of rows: a program copies a tile of one row of the result.

Rows are copied as integers of their elements' width, so that every dtype goes the same way; with
4096 bytes a program, loads and stores are 16 bytes a thread where rows are aligned.
"""

import torch
import triton
import triton.language as tl

_AS_INTEGER = {1: torch.uint8, 2: torch.int16, 4: torch.int32}


@triton.jit
def _shuffle_rows(x, index, out, columns, TILE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * TILE + tl.arange(0, TILE)
    inside = column < columns
    source = tl.load(index + row).to(tl.int64)
    value = tl.load(x + source * columns + column, mask=inside)
    tl.store(out + row * columns + column, value, mask=inside)


def shuffle_rows(input_tensor, dst2src_map):
    rows, columns = dst2src_map.shape[0], input_tensor.shape[1]
    out = torch.empty((rows, columns), dtype=input_tensor.dtype, device=input_tensor.device)
    if out.numel() == 0:
        return out
    integer = _AS_INTEGER[input_tensor.dtype.itemsize]
    tile = min(triton.next_power_of_2(columns), 4096 // input_tensor.dtype.itemsize)
    grid = (rows, triton.cdiv(columns, tile))
    _shuffle_rows[grid](
        input_tensor.view(integer), dst2src_map, out.view(integer), columns, TILE=tile, num_warps=4
    )
    return out
