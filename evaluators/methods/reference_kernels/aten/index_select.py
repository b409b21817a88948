"""Slices along a dimension by index, for tensors of any strides.

The dimensions of the result are merged where the strides of `self` do not object, which leaves
few: the last one is walked in tiles, the others make rows. A program holds ROWS rows by COLUMNS
elements; divisions that find a row's place are made once a row. Unless `dim` is the last dimension
a row has one index: it is read once, and the row is copied in wide vectors.
"""

import torch
import triton
import triton.language as tl

_TILE = 2048
_OUTER = 4  # outer dimensions that the kernel takes


@triton.jit
def _row_offset(row, n1, n2, n3, s0, s1, s2, s3):
    """Offset of a row whose number (below 2**31) counts four dimensions, the last fastest."""
    offset = (row % n3).to(tl.int64) * s3
    row = row // n3
    offset += (row % n2).to(tl.int64) * s2
    row = row // n2
    return offset + (row % n1).to(tl.int64) * s1 + (row // n1).to(tl.int64) * s0


@triton.jit
def _select(
    x, index, out, rows, width, x_dim, n1, n2, n3, x_0, x_1, x_2, x_3, x_column,
    index_0, index_1, index_2, index_3, index_column,
    ONE_INDEX: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    tiles = tl.cdiv(width, COLUMNS)
    row = (tl.program_id(0) // tiles) * ROWS + tl.arange(0, ROWS)
    column = ((tl.program_id(0) % tiles) * COLUMNS + tl.arange(0, COLUMNS)).to(tl.int64)[None, :]
    inside = (row < rows)[:, None] & (column < width)
    of_row = index + _row_offset(row, n1, n2, n3, index_0, index_1, index_2, index_3)
    if ONE_INDEX:
        place = tl.load(of_row, mask=row < rows, other=0)[:, None].to(tl.int64)
    else:
        place = tl.load(of_row[:, None] + column * index_column, mask=inside, other=0).to(tl.int64)
    base = _row_offset(row, n1, n2, n3, x_0, x_1, x_2, x_3)[:, None]
    value = tl.load(x + base + column * x_column + place * x_dim, mask=inside)
    tl.store(out + row[:, None].to(tl.int64) * width + column, value, mask=inside)


def index_select(
    self: torch.Tensor,
    dim: int,
    index: torch.Tensor,
    *,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    x = self.view(1) if self.dim() == 0 else self
    dim %= x.dim()
    shape = [index.numel() if axis == dim else n for axis, n in enumerate(x.shape)]
    result = torch.empty(shape, dtype=self.dtype, device=self.device)
    if result.numel():
        if self.dtype == torch.bool:
            x, y = x.view(torch.uint8), result.view(torch.uint8)
        else:
            y = result
        index = index.reshape(-1)
        steps = [0 if axis == dim else stride for axis, stride in enumerate(x.stride())]
        along = [index.stride(0) if axis == dim else 0 for axis in range(x.dim())]
        _launch(x, index, y, x.stride(dim), shape, steps, along)
    result = result.view(()) if self.dim() == 0 else result
    return result if out is None else out.copy_(result)


def _launch(
    x: torch.Tensor, index: torch.Tensor, out: torch.Tensor, x_dim: int,
    sizes: list[int], x_steps: list[int], index_steps: list[int],
) -> None:  # fmt: skip
    sizes, x_steps, index_steps = _merge(sizes, x_steps, index_steps)
    if len(sizes) > _OUTER + 1:
        raise NotImplementedError(f"{len(sizes)} dimensions that cannot be merged")
    lead = _OUTER + 1 - len(sizes)
    n = [1] * lead + sizes
    x_s, index_s = [0] * lead + x_steps, [0] * lead + index_steps
    width = n[-1]
    rows = out.numel() // width
    columns = min(triton.next_power_of_2(width), _TILE)
    lanes = min(_TILE // columns, triton.next_power_of_2(rows))
    _select[(triton.cdiv(rows, lanes) * triton.cdiv(width, columns),)](
        x, index, out, rows, width, x_dim, n[1], n[2], n[3], *x_s, *index_s,
        ONE_INDEX=index_s[-1] == 0, ROWS=lanes, COLUMNS=columns, num_warps=4,
    )  # fmt: skip


def _merge(
    sizes: list[int], firsts: list[int], seconds: list[int]
) -> tuple[list[int], list[int], list[int]]:
    """Merges neighbouring dimensions that one stride describes, in both tensors; at least one."""
    merged: list[tuple[int, int, int]] = []
    for size, first, second in zip(sizes, firsts, seconds, strict=True):
        if size == 1:
            continue
        if merged:
            n, a, b = merged[-1]
            if a == size * first and b == size * second:
                merged[-1] = (n * size, first, second)
                continue
        merged.append((size, first, second))
    merged = merged or [(1, 0, 0)]
    return [m[0] for m in merged], [m[1] for m in merged], [m[2] for m in merged]
