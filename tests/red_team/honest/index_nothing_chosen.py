# operator: aten::index
# style: reads how many elements a mask chooses; nothing is launched where there are none
# chips: interpreter nvidia

import torch
import triton
import triton.language as tl

_TILE = 2048
_BLOCK = 2048  # mask elements of a program


@triton.jit
def _count(mask, counts, numel, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(mask + i, mask=i < numel, other=0)
    tl.store(counts + tl.program_id(0), tl.sum((value != 0).to(tl.int64), axis=0))


@triton.jit
def _start(counts, starts, blocks, BLOCK: tl.constexpr):
    """starts[b]: sum of counts before b; starts[blocks]: of all."""
    total = tl.zeros([], tl.int64)
    for first in range(0, blocks, BLOCK):
        b = first + tl.arange(0, BLOCK)
        count = tl.load(counts + b, mask=b < blocks, other=0)
        tl.store(starts + b, total + tl.cumsum(count, axis=0) - count, mask=b < blocks)
        total += tl.sum(count, axis=0)
    tl.store(starts + blocks, total)


@triton.jit
def _write_places(mask, starts, places, numel, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    chosen = (tl.load(mask + i, mask=i < numel, other=0) != 0).to(tl.int64)
    target = tl.load(starts + tl.program_id(0)) + tl.cumsum(chosen, axis=0) - chosen
    tl.store(places + target, i, mask=chosen != 0)


@triton.jit
def _coordinate(places, out, count, step, size, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    place = tl.load(places + i, mask=i < count, other=0)
    tl.store(out + i, place // step % size, mask=i < count)


@triton.jit
def _along(index, j, inside, size, stride):
    """Offset in `self` that one index tensor gives to the chosen places `j`."""
    place = tl.load(index + j, mask=inside, other=0).to(tl.int64)
    return tl.where(place < 0, place + size, place) * stride


@triton.jit
def _gather(
    x, out, i0, i1, i2, i3, rows, chosen, width, c1, c2,
    size_0, size_1, size_2, size_3, x_before, x_i0, x_i1, x_i2, x_i3, x_c0, x_c1, x_c2,
    COUNT: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """COUNT: index tensors, up to four; `c1`, `c2`: sizes of the last two groups after them."""
    tiles = tl.cdiv(width, COLUMNS)
    row = (tl.program_id(0) // tiles) * ROWS + tl.arange(0, ROWS)
    column = (tl.program_id(0) % tiles) * COLUMNS + tl.arange(0, COLUMNS)
    inside = row < rows
    j = row % chosen
    offset = (row // chosen).to(tl.int64) * x_before + _along(i0, j, inside, size_0, x_i0)
    if COUNT > 1:
        offset += _along(i1, j, inside, size_1, x_i1)
    if COUNT > 2:
        offset += _along(i2, j, inside, size_2, x_i2)
    if COUNT > 3:
        offset += _along(i3, j, inside, size_3, x_i3)
    place = (column % c2).to(tl.int64) * x_c2 + (column // c2 % c1).to(tl.int64) * x_c1
    place += (column // c2 // c1).to(tl.int64) * x_c0
    both = inside[:, None] & (column < width)[None, :]
    value = tl.load(x + offset[:, None] + place[None, :], mask=both)
    tl.store(out + row[:, None].to(tl.int64) * width + column[None, :], value, mask=both)


def index(
    self: torch.Tensor,
    indices: list[torch.Tensor | None],
    *,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    x, given, shape, before, after = _plan(self, indices)
    result = torch.empty(shape, dtype=self.dtype, device=self.device)
    if result.numel():
        _launch(_bytes(x), _bytes(result), given, before, after)
    return result if out is None else out.copy_(result)


def _launch(
    x: torch.Tensor, out: torch.Tensor, given: list[tuple[int, torch.Tensor]],
    before: list[int], after: list[int],
) -> None:  # fmt: skip
    """`given`: (dimension, flat index); `before`, `after`: dimensions that are not indexed."""
    groups = _merged(x, after)
    front = _merged(x, before)
    pad = 3 - len(groups)
    c, c_steps = [1] * pad + [g[0] for g in groups], [0] * pad + [g[1] for g in groups]
    width = c[0] * c[1] * c[2]
    chosen = given[0][1].numel()
    rows = out.numel() // width
    filled = given + [given[0]] * (4 - len(given))
    columns = min(triton.next_power_of_2(width), _TILE)
    lanes = min(_TILE // columns, triton.next_power_of_2(rows))
    _gather[(triton.cdiv(rows, lanes) * triton.cdiv(width, columns),)](
        x, out, *[flat for _, flat in filled], rows, chosen, width, c[1], c[2],
        *[x.shape[axis] for axis, _ in filled], front[0][1] if front else 0,
        *[x.stride(axis) for axis, _ in filled], *c_steps,
        COUNT=len(given), ROWS=lanes, COLUMNS=columns, num_warps=4,
    )  # fmt: skip


def _plan(
    x: torch.Tensor, indices: list[torch.Tensor | None]
) -> tuple[torch.Tensor, list[tuple[int, torch.Tensor]], list[int], list[int], list[int]]:
    """(self, flat indices by dimension, result's shape, dimensions before, dimensions after)."""
    expanded: list[torch.Tensor | None] = []
    for entry in indices:
        if entry is not None and entry.dtype == torch.bool:
            expanded += _coordinates(entry)
        else:
            expanded.append(entry)
    axes = [axis for axis, entry in enumerate(expanded) if entry is not None]
    if len(axes) > 4:
        raise NotImplementedError("more than four indexed dimensions")
    chosen = torch.broadcast_shapes(*[expanded[axis].shape for axis in axes])
    given = [(axis, expanded[axis].expand(chosen).contiguous().view(-1)) for axis in axes]
    free = [axis for axis in range(x.dim()) if axis not in axes]
    adjacent = axes == list(range(axes[0], axes[-1] + 1))
    before = [axis for axis in free if adjacent and axis < axes[0]]
    after = [axis for axis in free if axis not in before]
    if len(_merged(x, before)) > 1 or len(_merged(x, after)) > 3:
        x = x.contiguous()
    shape = [*[x.shape[a] for a in before], *chosen, *[x.shape[a] for a in after]]
    return x, given, shape, before, after


def _coordinates(mask: torch.Tensor) -> list[torch.Tensor]:
    """For each dimension of a mask the coordinates of its True elements, in row-major order."""
    flat = mask.contiguous().view(torch.uint8).view(-1)
    numel = flat.numel()
    blocks = triton.cdiv(numel, _BLOCK)
    counts = torch.empty(blocks, dtype=torch.int64, device=mask.device)
    starts = torch.zeros(blocks + 1, dtype=torch.int64, device=mask.device)
    if blocks:
        _count[(blocks,)](flat, counts, numel, BLOCK=_BLOCK)
    _start[(1,)](counts, starts, blocks, BLOCK=1024)
    total = int(starts[blocks].item())
    if total == 0:
        return [torch.empty(0, dtype=torch.int64, device=mask.device) for _ in mask.shape]
    places = torch.empty(total, dtype=torch.int64, device=mask.device)
    found = [torch.empty_like(places) for _ in mask.shape]
    if total:
        _write_places[(blocks,)](flat, starts, places, numel, BLOCK=_BLOCK)
    step = numel
    for size, coordinate in zip(mask.shape, found, strict=True):
        step //= max(size, 1)
        if total:
            grid = (triton.cdiv(total, 1024),)
            _coordinate[grid](places, coordinate, total, step, size, BLOCK=1024)
    return found


def _merged(x: torch.Tensor, axes: list[int]) -> list[tuple[int, int]]:
    """(size, stride) of dimensions of `x`, neighbours merged where one stride describes them."""
    merged: list[tuple[int, int]] = []
    for axis in axes:
        size, stride = x.shape[axis], x.stride(axis)
        if size == 1:
            continue
        if merged and merged[-1][1] == size * stride:
            merged[-1] = (merged[-1][0] * size, stride)
        else:
            merged.append((size, stride))
    return merged


def _bytes(x: torch.Tensor) -> torch.Tensor:
    """bool is moved as uint8."""
    return x.view(torch.uint8) if x.dtype == torch.bool else x
