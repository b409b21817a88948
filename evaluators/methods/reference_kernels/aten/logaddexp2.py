"""logaddexp2: log2(2**self + 2**other), with broadcasting.

Operands are broadcast by strides of 0. The dimensions are ordered as they lie in the result's
memory and merged where one stride describes all tensors: contiguous tensors are one run. The two
innermost of what is left are walked in tiles, one a program, the outer ones are counted by the
program's number. Tiles run along memory; where an operand runs across the result, square tiles keep
both coalesced.
The larger operand plus log2(1 + 2**-distance), in float32: nothing overflows.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice


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


@triton.jit
def _kernel(
    x, y, out, n, m, n2, n1, x_0, x_1, x_2, x_m, x_n,
    y_0, y_1, y_2, y_m, y_n, out_0, out_1, out_2, out_m, out_n,
    ACC: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    row, column, i0, i1, i2 = _place(n, m, n2, n1, M, N)
    inside = (row < m) & (column < n)
    x_at = i0 * x_0 + i1 * x_1 + i2 * x_2 + row * x_m + column * x_n
    y_at = i0 * y_0 + i1 * y_1 + i2 * y_2 + row * y_m + column * y_n
    out_at = i0 * out_0 + i1 * out_1 + i2 * out_2 + row * out_m + column * out_n
    a = tl.load(x + x_at, mask=inside).to(ACC)
    b = tl.load(y + y_at, mask=inside).to(ACC)
    distance = tl.exp2(-tl.abs(a - b))
    larger = tl.where(a > b, a, b)
    step = libdevice.log1p(distance) * 1.4426950408889634  # 1 / ln(2)
    value = tl.where(a == b, a + 1.0, tl.where(distance != distance, distance, larger + step))
    tl.store(out + out_at, value.to(out.dtype.element_ty), mask=inside)


def logaddexp2(
    self: torch.Tensor, other: torch.Tensor, *, out: torch.Tensor | None = None
) -> torch.Tensor:
    common = torch.result_type(self, other)
    if out is None:
        out = _result(self, other, common)
    _launch(self.expand(out.shape), other.expand(out.shape), out, _accumulator(common))
    return out


def _accumulator(dtype: torch.dtype) -> tl.dtype:
    """What the dtype is computed in; narrower integers wrap around when they are stored."""
    if dtype.is_floating_point or dtype.is_complex:
        return tl.float64 if dtype == torch.float64 else tl.float32
    return tl.int64 if dtype == torch.int64 else tl.int32


def _result(x: torch.Tensor, y: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Memory for the result, laid out like an operand that has its shape."""
    shape = torch.broadcast_shapes(x.shape, y.shape)
    like = x if x.shape == shape else y if y.shape == shape else None
    if like is None:
        return torch.empty(shape, dtype=dtype, device=x.device)
    return torch.empty_like(like, dtype=dtype)


def _launch(x: torch.Tensor, y: torch.Tensor, out: torch.Tensor, acc: Any) -> None:
    """One program a tile; all three have one shape."""
    if out.numel() == 0:
        return
    dims = _merged(list(out.shape), list(x.stride()), list(y.stride()), list(out.stride()))
    if len(dims) > 5:  # rare: the outermost of the dimensions goes to the host
        for x_part, y_part, part in zip(x.unbind(0), y.unbind(0), out.unbind(0), strict=True):
            _launch(x_part, y_part, part, acc)
        return
    dims = [(1, 0, 0, 0)] * (5 - len(dims)) + dims
    n0, n1, n2, m, n = [d[0] for d in dims]
    x_s, y_s, out_s = [d[1] for d in dims], [d[2] for d in dims], [d[3] for d in dims]
    tile = 4096 if out.numel() >= 1 << 20 else 1024
    across = m > 1 and (0 < x_s[3] < x_s[4] or 0 < y_s[3] < y_s[4])
    columns = min(triton.next_power_of_2(n), 64 if across else tile)
    rows = min(triton.next_power_of_2(m), tile // columns)
    warps = 8 if rows * columns > 2048 else 4
    grid = (n0 * n1 * n2 * triton.cdiv(m, rows) * triton.cdiv(n, columns),)
    _kernel[grid](
        x, y, out, n, m, n2, n1, *x_s, *y_s, *out_s,
        ACC=acc, M=rows, N=columns, num_warps=warps,
    )  # fmt: skip


def _merged(
    sizes: list[int], firsts: list[int], seconds: list[int], thirds: list[int]
) -> list[tuple[int, int, int, int]]:
    """(size, strides) by falling stride of the third tensor, merged; sizes of 1 are dropped."""
    merged: list[tuple[int, int, int, int]] = []
    for i in sorted(range(len(sizes)), key=lambda i: -thirds[i]):
        size, a, b, c = sizes[i], firsts[i], seconds[i], thirds[i]
        if size == 1:
            continue
        if merged and merged[-1][1:] == (a * size, b * size, c * size):
            size *= merged.pop()[0]
        merged.append((size, a, b, c))
    return merged
