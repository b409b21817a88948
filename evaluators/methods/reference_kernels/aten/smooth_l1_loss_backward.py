"""smooth_l1_loss_backward: the slope of the smooth L1 loss, times grad_output.

Operands are broadcast by strides of 0. The dimensions are ordered as they lie in the result's
memory and merged where one stride describes all tensors: contiguous tensors are one run. The two
innermost of what is left are walked in tiles, one a program, the outer ones are counted by the
program's number. Tiles run along memory; where an operand runs across the result, square tiles keep
both coalesced.
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


@triton.jit(do_not_specialize=["norm", "beta"])
def _kernel(
    g, x, y, out, norm, beta, n, m, n2, n1,
    g_0, g_1, g_2, g_m, g_n,
    x_0, x_1, x_2, x_m, x_n,
    y_0, y_1, y_2, y_m, y_n,
    out_0, out_1, out_2, out_m, out_n,
    M: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    row, column, i0, i1, i2 = _place(n, m, n2, n1, M, N)
    inside = (row < m) & (column < n)
    g_at = i0 * g_0 + i1 * g_1 + i2 * g_2 + row * g_m + column * g_n
    x_at = i0 * x_0 + i1 * x_1 + i2 * x_2 + row * x_m + column * x_n
    y_at = i0 * y_0 + i1 * y_1 + i2 * y_2 + row * y_m + column * y_n
    out_at = i0 * out_0 + i1 * out_1 + i2 * out_2 + row * out_m + column * out_n
    g = tl.load(g + g_at, mask=inside).to(tl.float32)
    x = tl.load(x + x_at, mask=inside).to(tl.float32)
    y = tl.load(y + y_at, mask=inside).to(tl.float32)
    slope = (x - y) / beta
    slope = tl.where(slope <= -1.0, -1.0, tl.where(slope >= 1.0, 1.0, slope))
    value = norm * g * slope
    tl.store(out + out_at, value.to(out.dtype.element_ty), mask=inside)


def smooth_l1_loss_backward(
    grad_output: torch.Tensor,
    self: torch.Tensor,
    target: torch.Tensor,
    reduction: int,
    beta: float,
    *,
    grad_input: torch.Tensor | None = None,
) -> torch.Tensor:
    if grad_input is None:
        grad_input = torch.empty_like(self)
    norm = 1.0 / self.numel() if reduction == 1 and self.numel() else 1.0
    operands = [grad_output.expand(self.shape), self, target]
    return _launch(operands, grad_input, norm, float(beta))


def _launch(
    operands: list[torch.Tensor], out: torch.Tensor, norm: float, beta: float
) -> torch.Tensor:
    """One program a tile; all tensors have one shape."""
    if out.numel() == 0:
        return out
    dims = _merged(list(out.shape), [list(t.stride()) for t in [*operands, out]])
    if len(dims) > 5:
        raise NotImplementedError(f"{len(dims)} dimensions that cannot be merged")
    dims = [[1] + [0] * 4] * (5 - len(dims)) + dims
    n0, n1, n2, m, n = [d[0] for d in dims]
    strides = [d[i + 1] for i in range(4) for d in dims]
    tile = 4096 if out.numel() >= 1 << 20 else 1024
    columns = min(triton.next_power_of_2(n), tile)
    rows = min(triton.next_power_of_2(m), tile // columns)
    warps = 8 if rows * columns > 2048 else 4
    grid = (n0 * n1 * n2 * triton.cdiv(m, rows) * triton.cdiv(n, columns),)
    _kernel[grid](
        *operands, out, norm, beta, n, m, n2, n1, *strides,
        M=rows, N=columns, num_warps=warps,
    )  # fmt: skip
    return out


def _merged(sizes: list[int], strides: list[list[int]]) -> list[list[int]]:
    """Dimensions as [size, strides...], by falling stride of the last tensor, merged."""
    merged: list[list[int]] = []
    for i in sorted(range(len(sizes)), key=lambda i: -strides[-1][i]):
        size, steps = sizes[i], [s[i] for s in strides]
        if size == 1:
            continue
        if merged and merged[-1][1:] == [s * size for s in steps]:
            size *= merged.pop()[0]
        merged.append([size, *steps])
    return merged
