"""Scatter: a copy of `self`, then every element of `index` writes, adds or multiplies its own.

The dimensions of `index` are merged where neither its own strides nor those of the source and the
result object; the last one is walked in tiles, the others make rows. Adding uses atomic additions,
in float32 where the dtype is narrower, so each element is rounded once. There is no atomic product:
a program repeats compare-and-swap for those of its elements whose place was changed in between; the
others swap a value for itself, which changes nothing.
"""

import torch
import triton
import triton.language as tl

_TILE = 1024
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
def _multiply(target, value, todo, BITS: tl.constexpr):
    """target *= value where `todo`, one after the other where places coincide."""
    place = target.to(tl.pointer_type(BITS))
    left = tl.sum(tl.sum(todo.to(tl.int32), axis=1), axis=0)
    while left > 0:
        old = tl.load(target, volatile=True)
        new = tl.where(todo, old * value, old)
        before = old.to(BITS, bitcast=True)
        found = tl.atomic_cas(place, before, new.to(BITS, bitcast=True))
        todo = todo & (found != before)
        left = tl.sum(tl.sum(todo.to(tl.int32), axis=1), axis=0)


@triton.jit
def _scatter(
    out, index, src, rows, width, out_dim, n1, n2, n3, out_0, out_1, out_2, out_3, out_column,
    index_0, index_1, index_2, index_3, index_column, src_0, src_1, src_2, src_3, src_column,
    REDUCE: tl.constexpr, BITS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    tiles = tl.cdiv(width, COLUMNS)
    row = (tl.program_id(0) // tiles) * ROWS + tl.arange(0, ROWS)
    column = ((tl.program_id(0) % tiles) * COLUMNS + tl.arange(0, COLUMNS)).to(tl.int64)[None, :]
    inside = (row < rows)[:, None] & (column < width)
    of_index = _row_offset(row, n1, n2, n3, index_0, index_1, index_2, index_3)[:, None]
    place = tl.load(index + of_index + column * index_column, mask=inside, other=0)
    of_src = _row_offset(row, n1, n2, n3, src_0, src_1, src_2, src_3)[:, None]
    value = tl.load(src + of_src + column * src_column, mask=inside, other=0)
    value = value.to(out.dtype.element_ty)
    base = _row_offset(row, n1, n2, n3, out_0, out_1, out_2, out_3)[:, None]
    # Lanes beyond the edge point at the first element, which exists.
    offset = tl.where(inside, base + column * out_column + place * out_dim, 0)
    if REDUCE == "add":
        tl.atomic_add(out + offset, value, mask=inside, sem="relaxed")
    elif REDUCE == "multiply":
        _multiply(out + offset, value, inside, BITS)
    else:
        tl.store(out + offset, value, mask=inside)


def scatter(
    self: torch.Tensor,
    dim: int,
    index: torch.Tensor,
    src: torch.Tensor | float,
    *,
    reduce: str = "",
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    wide = self.dtype
    if reduce and self.dtype.is_floating_point and self.dtype.itemsize < 4:
        wide = torch.float32
    result = torch.empty(self.shape, dtype=wide, device=self.device).copy_(self)
    if index.numel():
        x = result.view(torch.uint8) if wide == torch.bool else result
        if isinstance(src, torch.Tensor):
            values, steps = src, list(src.stride())
        else:
            values = torch.full((1,), src, dtype=self.dtype, device=self.device)
            steps = [0] * self.dim()
        if values.dtype == torch.bool:
            values = values.view(torch.uint8)
        if x.dim() == 0:
            x, index, steps = x.view(1), index.view(1), [0]
        _launch(x, dim % x.dim(), index, values, steps, reduce)
    result = result.to(self.dtype)
    return result if out is None else out.copy_(result)


def _launch(
    out: torch.Tensor, dim: int, index: torch.Tensor, src: torch.Tensor, src_steps: list[int],
    reduce: str,
) -> None:  # fmt: skip
    out_steps = [0 if axis == dim else stride for axis, stride in enumerate(out.stride())]
    groups = _merge(list(index.shape), out_steps, list(index.stride()), src_steps)
    if len(groups) > _OUTER + 1:
        raise NotImplementedError(f"{len(groups)} dimensions that cannot be merged")
    groups = [(1, 0, 0, 0)] * (_OUTER + 1 - len(groups)) + groups
    n = [group[0] for group in groups]
    width = n[-1]
    rows = index.numel() // width
    columns = min(triton.next_power_of_2(width), _TILE)
    lanes = min(_TILE // columns, triton.next_power_of_2(rows))
    _scatter[(triton.cdiv(rows, lanes) * triton.cdiv(width, columns),)](
        out, index, src, rows, width, out.stride(dim), n[1], n[2], n[3],
        *[group[1] for group in groups], *[group[2] for group in groups],
        *[group[3] for group in groups], REDUCE=reduce,
        BITS=tl.int64 if out.dtype.itemsize == 8 else tl.int32,
        ROWS=lanes, COLUMNS=columns, num_warps=4,
    )  # fmt: skip


def _merge(
    sizes: list[int], firsts: list[int], seconds: list[int], thirds: list[int]
) -> list[tuple[int, int, int, int]]:
    """(size, three strides) of each dimension, neighbours merged where all three allow it."""
    merged: list[tuple[int, int, int, int]] = []
    for size, first, second, third in zip(sizes, firsts, seconds, thirds, strict=True):
        if size == 1:
            continue
        if merged:
            n, a, b, c = merged[-1]
            if a == size * first and b == size * second and c == size * third:
                merged[-1] = (n * size, first, second, third)
                continue
        merged.append((size, first, second, third))
    return merged or [(1, 0, 0, 0)]
