"""huber_loss: half the square near the target, linear beyond delta; then a mean or sum.

Operands are broadcast by strides of 0. The dimensions are ordered as they lie in the result's
memory and merged where one stride describes all tensors: contiguous tensors are one run. The two
innermost of what is left are walked in tiles, one a program, the outer ones are counted by the
program's number. Tiles run along memory; where an operand runs across the result, square tiles keep
both coalesced.
Without a reduction each program writes its tile. With one it writes the sum of its tile in float32,
and a second kernel adds those in a fixed order: every run gives the same bits.
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


@triton.jit(do_not_specialize=["delta"])
def _kernel(
    x, y, out, delta, n, m, n2, n1,
    x_0, x_1, x_2, x_m, x_n,
    y_0, y_1, y_2, y_m, y_n,
    out_0, out_1, out_2, out_m, out_n,
    REDUCE: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    row, column, i0, i1, i2 = _place(n, m, n2, n1, M, N)
    inside = (row < m) & (column < n)
    x_at = i0 * x_0 + i1 * x_1 + i2 * x_2 + row * x_m + column * x_n
    y_at = i0 * y_0 + i1 * y_1 + i2 * y_2 + row * y_m + column * y_n
    out_at = i0 * out_0 + i1 * out_1 + i2 * out_2 + row * out_m + column * out_n
    x = tl.load(x + x_at, mask=inside).to(tl.float32)
    y = tl.load(y + y_at, mask=inside).to(tl.float32)
    z = tl.abs(x - y)
    value = tl.where(z < delta, 0.5 * z * z, delta * (z - 0.5 * delta))
    if REDUCE:
        total = tl.sum(tl.where(inside, value, 0.0))
        tl.store(out + tl.program_id(0), total)
    else:
        tl.store(out + out_at, value.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _finish(parts, out, count, divisor, BLOCK: tl.constexpr):
    """Partial sums, added by one program in an order of their own."""
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, count, BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.load(parts + at, mask=at < count, other=0.0)
    tl.store(out, (tl.sum(total) / divisor).to(out.dtype.element_ty))


def huber_loss(
    self: torch.Tensor,
    target: torch.Tensor,
    reduction: int = 1,
    delta: float = 1.0,
    *,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(self) if reduction == 0 else self.new_empty(())
    return _launch([self, target], out, reduction, float(delta))


def _launch(
    operands: list[torch.Tensor], out: torch.Tensor, reduction: int, delta: float
) -> torch.Tensor:
    """One program a tile. `operands` have the shape of all elements; `out` too, or none."""
    shape, count = operands[0].shape, operands[0].numel()
    whole = reduction == 0
    layout = list(out.stride()) if whole else _row_major(list(shape))
    dims = _merged(list(shape), [list(t.stride()) for t in operands] + [layout])
    dims = [[1] + [0] * 3] * (5 - len(dims)) + dims  # no loss here has more
    n0, n1, n2, m, n = [d[0] for d in dims]
    strides = [d[i + 1] for i in range(3) for d in dims]
    tile = 4096 if count >= 1 << 20 else 1024
    columns = min(triton.next_power_of_2(max(n, 1)), tile)
    rows = min(triton.next_power_of_2(max(m, 1)), tile // columns)
    warps = 8 if rows * columns > 2048 else 4
    programs = n0 * n1 * n2 * triton.cdiv(m, rows) * triton.cdiv(n, columns)
    target = out
    if not whole:
        target = torch.empty(max(programs, 1), dtype=torch.float32, device=out.device)
    if count:
        _kernel[(programs,)](
            *operands, target, delta, n, m, n2, n1, *strides,
            REDUCE=not whole, M=rows, N=columns, num_warps=warps,
        )  # fmt: skip
    if not whole:
        divisor = float(count) if reduction == 1 else 1.0
        _finish[(1,)](target, out, programs if count else 0, divisor, BLOCK=1024, num_warps=4)
    return out


def _row_major(sizes: list[int]) -> list[int]:
    strides = [1] * len(sizes)
    for i in range(len(sizes) - 2, -1, -1):
        strides[i] = strides[i + 1] * sizes[i + 1]
    return strides


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
