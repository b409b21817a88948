"""reshape: a view where the strides of self allow one, else a copy in row-major order.

Dimensions of self that one stride describes are merged to runs; each dimension of the result must
divide what is left of one run. Where that fails, elements are copied: the dimensions are walked as
in contiguous, tiles along memory, square tiles where the input runs across the result.
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
    x, out, n, m, n2, n1, x_0, x_1, x_2, x_m, x_n,
    out_0, out_1, out_2, out_m, out_n,
    M: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    row, column, i0, i1, i2 = _place(n, m, n2, n1, M, N)
    inside = (row < m) & (column < n)
    x_at = i0 * x_0 + i1 * x_1 + i2 * x_2 + row * x_m + column * x_n
    out_at = i0 * out_0 + i1 * out_1 + i2 * out_2 + row * out_m + column * out_n
    x = tl.load(x + x_at, mask=inside)
    y = x
    tl.store(out + out_at, y.to(out.dtype.element_ty), mask=inside)


def reshape(self: torch.Tensor, shape: list[int]) -> torch.Tensor:
    known = 1
    for n in shape:
        known *= 1 if n == -1 else n
    wanted = [self.numel() // known if n == -1 else n for n in shape]
    if list(self.shape) == wanted:
        return torch.as_strided(self, wanted, self.stride(), self.storage_offset())
    strides = _view_strides(wanted, list(self.shape), list(self.stride()))
    if strides is not None:
        return torch.as_strided(self, wanted, strides, self.storage_offset())
    out = torch.empty(self.shape, dtype=self.dtype, device=self.device)
    _launch(_movable(self), _movable(out))
    return out.view(wanted)


def _view_strides(wanted: list[int], sizes: list[int], strides: list[int]) -> list[int] | None:
    """Strides of a view of the wanted sizes, or None; from the last dimension to the first."""
    if 0 in wanted:
        steps, step = [], 1
        for n in reversed(wanted):
            steps.append(step)
            step *= max(n, 1)
        return steps[::-1]
    runs: list[tuple[int, int]] = []  # (elements, stride), the last first
    for size, stride in zip(reversed(sizes), reversed(strides), strict=True):
        if size == 1:
            continue
        if runs and stride == runs[-1][0] * runs[-1][1]:
            count, step = runs.pop()
            runs.append((count * size, step))
        else:
            runs.append((size, stride))
    found: list[int] = []
    at, left, step = 0, 1, runs[0][1] if runs else 1
    for n in reversed(wanted):
        if left == 1 and n != 1 and at < len(runs):
            left, step = runs[at]
            at += 1
        if left % n:
            return None
        found.append(step)
        left //= n
        step *= n
    return found[::-1]


def _movable(x: torch.Tensor) -> torch.Tensor:
    """bool is moved as uint8, a complex number as two floats."""
    if x.is_complex():
        return torch.view_as_real(x)
    return x.view(torch.uint8) if x.dtype == torch.bool else x


def _launch(x: torch.Tensor, out: torch.Tensor) -> None:
    """One program a tile; `x` and `out` have one shape."""
    if out.numel() == 0:
        return
    sizes, x_strides, out_strides = _merged(list(out.shape), list(x.stride()), list(out.stride()))
    if len(sizes) > 5:  # rare: the outermost of the dimensions goes to the host
        for x_part, out_part in zip(x.unbind(0), out.unbind(0), strict=True):
            _launch(x_part, out_part)
        return
    n0, n1, n2, m, n = [1] * (5 - len(sizes)) + sizes
    x_s, out_s = _padded(x_strides), _padded(out_strides)
    tile = 4096 if out.numel() >= 1 << 20 else 1024
    across = m > 1 and 0 < x_s[3] < x_s[4]
    columns = min(triton.next_power_of_2(n), 64 if across else tile)
    rows = min(triton.next_power_of_2(m), tile // columns)
    warps = 8 if rows * columns > 2048 else 4
    grid = (n0 * n1 * n2 * triton.cdiv(m, rows) * triton.cdiv(n, columns),)
    _kernel[grid](
        x, out, n, m, n2, n1, *x_s, *out_s, M=rows, N=columns, num_warps=warps
    )  # fmt: skip


def _merged(
    sizes: list[int], firsts: list[int], seconds: list[int]
) -> tuple[list[int], list[int], list[int]]:
    """Dimensions by falling stride of the second tensor, merged; those of size 1 are dropped."""
    order = sorted(range(len(sizes)), key=lambda i: -seconds[i])
    merged: list[tuple[int, int, int]] = []
    for i in order:
        size, first, second = sizes[i], firsts[i], seconds[i]
        if size == 1:
            continue
        if merged and merged[-1][1] == first * size and merged[-1][2] == second * size:
            size *= merged.pop()[0]
        merged.append((size, first, second))
    return [d[0] for d in merged] or [1], [d[1] for d in merged], [d[2] for d in merged]


def _padded(strides: list[int]) -> list[int]:
    return [0] * (5 - len(strides)) + strides
