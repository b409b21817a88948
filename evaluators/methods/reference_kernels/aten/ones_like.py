"""ones_like: every element of a new tensor like self is 1.

The dimensions are ordered as they lie in memory and merged where one stride describes them: a dense
tensor is one run. The two innermost of what is left are walked in tiles, one a program, the outer
ones are counted by the program's number.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _place(n, m, n2, n1, M: tl.constexpr, N: tl.constexpr):
    """The tile of this program: rows, columns, and the numbers of the three outer dimensions."""
    tiles_n, tiles_m = tl.cdiv(n, N), tl.cdiv(m, M)
    tile = tl.program_id(0)
    column = (tile % tiles_n).to(tl.int64) * N + tl.arange(0, N)[None, :]
    tile //= tiles_n
    row = (tile % tiles_m).to(tl.int64) * M + tl.arange(0, M)[:, None]
    outer = (tile // tiles_m).to(tl.int64)
    return row, column, outer // (n1 * n2), outer // n2 % n1, outer % n2


@triton.jit(do_not_specialize=["number"])
def _kernel(
    out, number, n, m, n2, n1, out_0, out_1, out_2, out_m, out_n,
    M: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    row, column, i0, i1, i2 = _place(n, m, n2, n1, M, N)
    out_at = i0 * out_0 + i1 * out_1 + i2 * out_2 + row * out_m + column * out_n
    value = tl.full([1, 1], number, out.dtype.element_ty)
    tl.store(out + out_at, value, mask=(row < m) & (column < n))


def ones_like(
    self: torch.Tensor,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
    memory_format: torch.memory_format | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    if out is None:
        kept = memory_format or torch.preserve_format
        out = torch.empty_like(self, dtype=dtype or self.dtype, memory_format=kept)
    _launch(out, 1)
    return out


def _launch(out: torch.Tensor, number: float) -> None:
    """One program a tile; the parts of a complex number are `number` and 0."""
    if out.numel() == 0:
        return
    if out.is_complex():
        parts = torch.view_as_real(out)
        _launch(parts.select(-1, 0), number)
        _launch(parts.select(-1, 1), 0)
        return
    sizes, strides = _merged(list(out.shape), list(out.stride()))
    if len(sizes) > 5:  # rare: the outermost of the dimensions goes to the host
        for part in out.unbind(0):
            _launch(part, number)
        return
    n0, n1, n2, m, n = [1] * (5 - len(sizes)) + sizes
    tile = 4096 if out.numel() >= 1 << 20 else 1024
    columns = min(triton.next_power_of_2(n), tile)
    rows = min(triton.next_power_of_2(m), tile // columns)
    warps = 8 if rows * columns > 2048 else 4
    grid = (n0 * n1 * n2 * triton.cdiv(m, rows) * triton.cdiv(n, columns),)
    cast = float(number) if out.dtype.is_floating_point else int(number)
    if out.dtype == torch.bool:
        cast = int(number != 0)
    _kernel[grid](
        out, cast, n, m, n2, n1, *([0] * (5 - len(strides)) + strides),
        M=rows, N=columns, num_warps=warps,
    )  # fmt: skip


def _merged(sizes: list[int], strides: list[int]) -> tuple[list[int], list[int]]:
    """Dimensions by falling stride, merged; those of size 1 are dropped."""
    merged: list[tuple[int, int]] = []
    for i in sorted(range(len(sizes)), key=lambda i: -strides[i]):
        size, stride = sizes[i], strides[i]
        if size == 1:
            continue
        if merged and merged[-1][1] == stride * size:
            size *= merged.pop()[0]
        merged.append((size, stride))
    return [d[0] for d in merged] or [1], [d[1] for d in merged]
