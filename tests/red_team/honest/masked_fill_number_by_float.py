# operator: aten::masked_fill_
# style: reads a 0-d value as a float where that is exact
# chips: interpreter nvidia

import torch
import triton
import triton.language as tl

_TILE = 4096
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
def _fill(
    x, mask, value, rows, width, n1, n2, n3, x_0, x_1, x_2, x_3, x_column,
    mask_0, mask_1, mask_2, mask_3, mask_column,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, NUMBER: tl.constexpr,
):  # fmt: skip
    tiles = tl.cdiv(width, COLUMNS)
    row = (tl.program_id(0) // tiles) * ROWS + tl.arange(0, ROWS)
    column = ((tl.program_id(0) % tiles) * COLUMNS + tl.arange(0, COLUMNS)).to(tl.int64)[None, :]
    inside = (row < rows)[:, None] & (column < width)
    source = _row_offset(row, n1, n2, n3, mask_0, mask_1, mask_2, mask_3)[:, None]
    chosen = tl.load(mask + source + column * mask_column, mask=inside, other=0) != 0
    if NUMBER:
        new = tl.full((), value, tl.float32).to(x.dtype.element_ty)
    else:
        new = tl.load(value).to(x.dtype.element_ty)
    target = x + _row_offset(row, n1, n2, n3, x_0, x_1, x_2, x_3)[:, None] + column * x_column
    tl.store(target, tl.broadcast_to(new, [ROWS, COLUMNS]), mask=inside & chosen)


def masked_fill_(
    self: torch.Tensor, mask: torch.Tensor, value: torch.Tensor | float
) -> torch.Tensor:
    if self.numel() == 0:
        return self
    x = self.view(torch.uint8) if self.dtype == torch.bool else self
    m = mask.expand(self.shape).view(torch.uint8)
    if not isinstance(value, torch.Tensor):
        value = torch.full((), value, dtype=self.dtype, device=self.device)
    number = value.dtype in (torch.float16, torch.bfloat16, torch.float32)
    if number:
        value = float(value)
    elif value.dtype == torch.bool:
        value = value.view(torch.uint8)
    sizes, x_steps, mask_steps = _merge(list(x.shape), list(x.stride()), list(m.stride()))
    if len(sizes) > _OUTER + 1:
        raise NotImplementedError(f"{len(sizes)} dimensions that cannot be merged")
    lead = _OUTER + 1 - len(sizes)
    n, x_s, mask_s = [1] * lead + sizes, [0] * lead + x_steps, [0] * lead + mask_steps
    width = n[-1]
    rows = x.numel() // width
    columns = min(triton.next_power_of_2(width), _TILE)
    lanes = min(_TILE // columns, triton.next_power_of_2(rows))
    _fill[(triton.cdiv(rows, lanes) * triton.cdiv(width, columns),)](
        x, m, value, rows, width, n[1], n[2], n[3], *x_s, *mask_s,
        ROWS=lanes, COLUMNS=columns, NUMBER=number, num_warps=8,
    )  # fmt: skip
    return self


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
