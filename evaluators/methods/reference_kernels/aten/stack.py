"""Stacks tensors along a new dimension: one strided copy for each, straight into its slice.

The dimensions of a tensor and of its slice of the result are merged where the strides of neither
object. The last dimension is walked in tiles, the others make rows; a program copies ROWS rows by
COLUMNS elements, converting to the dtype of the result. Divisions that find a row's place are made
once a row.
"""

import functools

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
def _copy(
    x, out, rows, width, n1, n2, n3, x_0, x_1, x_2, x_3, x_column,
    out_0, out_1, out_2, out_3, out_column, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    tiles = tl.cdiv(width, COLUMNS)
    row = (tl.program_id(0) // tiles) * ROWS + tl.arange(0, ROWS)
    column = ((tl.program_id(0) % tiles) * COLUMNS + tl.arange(0, COLUMNS)).to(tl.int64)[None, :]
    inside = (row < rows)[:, None] & (column < width)
    source = _row_offset(row, n1, n2, n3, x_0, x_1, x_2, x_3)[:, None] + column * x_column
    target = _row_offset(row, n1, n2, n3, out_0, out_1, out_2, out_3)[:, None]
    value = tl.load(x + source, mask=inside)
    tl.store(out + target + column * out_column, value, mask=inside)


def stack(
    tensors: list[torch.Tensor], dim: int = 0, *, out: torch.Tensor | None = None
) -> torch.Tensor:
    dim %= tensors[0].dim() + 1
    if out is None:
        shape = list(tensors[0].shape)
        shape.insert(dim, len(tensors))
        dtype = functools.reduce(torch.promote_types, [t.dtype for t in tensors])
        out = torch.empty(shape, dtype=dtype, device=tensors[0].device)
    for i, tensor in enumerate(tensors):
        if tensor.numel():
            _launch(_bytes(tensor), _bytes(out.select(dim, i)))
    return out


def _bytes(x: torch.Tensor) -> torch.Tensor:
    """bool is moved as uint8."""
    return x.view(torch.uint8) if x.dtype == torch.bool else x


def _launch(x: torch.Tensor, out: torch.Tensor) -> None:
    """Copies `x` into `out`, a view of the same shape."""
    sizes, x_steps, out_steps = _merge(list(x.shape), list(x.stride()), list(out.stride()))
    if len(sizes) > _OUTER + 1:
        raise NotImplementedError(f"{len(sizes)} dimensions that cannot be merged")
    lead = _OUTER + 1 - len(sizes)
    n = [1] * lead + sizes
    x_s, out_s = [0] * lead + x_steps, [0] * lead + out_steps
    width = n[-1]
    rows = x.numel() // width
    columns = min(triton.next_power_of_2(width), _TILE)
    lanes = min(_TILE // columns, triton.next_power_of_2(rows))
    _copy[(triton.cdiv(rows, lanes) * triton.cdiv(width, columns),)](
        x, out, rows, width, n[1], n[2], n[3], *x_s, *out_s,
        ROWS=lanes, COLUMNS=columns, num_warps=4,
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
