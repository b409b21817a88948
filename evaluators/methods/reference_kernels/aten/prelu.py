"""prelu: self where positive, else weight times self, one weight for all or for each channel.

The weight is broadcast by strides of 0. The dimensions are ordered as they lie in the result's
memory and merged where one stride describes all tensors: contiguous tensors are one run. The two
innermost of what is left are walked in tiles, one a program, the outer ones are counted by the
program's number. Tiles run along memory; where an operand runs across the result, square tiles keep
both coalesced.
Products are float32 and rounded once.
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


@triton.jit
def _kernel(
    x, y, out, n, m, n2, n1, x_0, x_1, x_2, x_m, x_n,
    y_0, y_1, y_2, y_m, y_n, out_0, out_1, out_2, out_m, out_n,
    M: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    row, column, i0, i1, i2 = _place(n, m, n2, n1, M, N)
    inside = (row < m) & (column < n)
    x_at = i0 * x_0 + i1 * x_1 + i2 * x_2 + row * x_m + column * x_n
    y_at = i0 * y_0 + i1 * y_1 + i2 * y_2 + row * y_m + column * y_n
    out_at = i0 * out_0 + i1 * out_1 + i2 * out_2 + row * out_m + column * out_n
    a = tl.load(x + x_at, mask=inside).to(tl.float32)
    b = tl.load(y + y_at, mask=inside).to(tl.float32)
    value = tl.where(a > 0.0, a, a * b)
    tl.store(out + out_at, value.to(out.dtype.element_ty), mask=inside)


def prelu(self: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(self)
    if weight.numel() == 1 or self.dim() < 2:
        weight = weight.view((1,) * self.dim())
    else:
        weight = weight.view((1, -1) + (1,) * (self.dim() - 2))
    _launch(self, weight.expand(self.shape), out)
    return out


def _launch(x: torch.Tensor, y: torch.Tensor, out: torch.Tensor) -> None:
    """One program a tile; all three have one shape."""
    if out.numel() == 0:
        return
    dims = _merged(list(out.shape), list(x.stride()), list(y.stride()), list(out.stride()))
    if len(dims) > 5:  # rare: the outermost of the dimensions goes to the host
        for x_part, y_part, part in zip(x.unbind(0), y.unbind(0), out.unbind(0), strict=True):
            _launch(x_part, y_part, part)
        return
    dims = [(1, 0, 0, 0)] * (5 - len(dims)) + dims
    n0, n1, n2, m, n = [d[0] for d in dims]
    x_s, y_s, out_s = [d[1] for d in dims], [d[2] for d in dims], [d[3] for d in dims]
    tile = 4096 if out.numel() >= 1 << 20 else 1024
    across = m > 1 and (0 < x_s[3] < x_s[4] or 0 < y_s[3] < y_s[4])
    columns = min(triton.next_power_of_2(n), 64 if across else tile)
    rows = min(triton.next_power_of_2(m), tile // columns)
    grid = (n0 * n1 * n2 * triton.cdiv(m, rows) * triton.cdiv(n, columns),)
    _kernel[grid](
        x, y, out, n, m, n2, n1, *x_s, *y_s, *out_s,
        M=rows, N=columns, num_warps=4,
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
