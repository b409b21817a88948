"""polygamma: a derivative of the digamma function, in one pass over memory.

The dimensions are ordered as they lie in the result's memory and merged where one stride describes
both tensors: a contiguous tensor is one run. The two innermost of what is left are walked in tiles,
one a program, the outer ones are counted by the program's number. Tiles run along memory; where the
input runs across the result (a transposition), square tiles keep both sides coalesced.
Arithmetic is float32, of integers too: eight steps of the recurrence, then the asymptotic series in
the reciprocal (Abramowitz and Stegun 6.3.18, 6.4.6 and 6.4.11), whose factors come from the host,
since they depend on the order alone. Orders 0 and 1 of negative values go by reflection.
"""

import math

import torch
import triton
import triton.language as tl

#: Bernoulli numbers B_2, B_4, ...
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730)


@triton.jit
def _power(x, EXPONENT: tl.constexpr):
    result = x
    for _ in tl.static_range(EXPONENT - 1):
        result *= x
    return result


@triton.jit
def _polygamma(x, f1, f2, f3, f4, f5, f6, lead, factorial, ORDER: tl.constexpr):
    """(-1)^(ORDER + 1) times the derivative, for x > 0."""
    y = 1.0 / (x + 8.0)
    z = y * y
    series = z * (f1 + z * (f2 + z * (f3 + z * (f4 + z * (f5 + z * f6)))))
    total = series + 0.5 * factorial * y
    if ORDER == 0:
        total -= tl.log(x + 8.0)
    else:
        total = (total + lead) * _power(y, ORDER)
    for k in tl.static_range(7, -1, -1):  # the smallest first
        total += factorial * _power(1.0 / (x + k), ORDER + 1)
    return total


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


@triton.jit(do_not_specialize=["lead", "factorial"])
def _kernel(
    x, out, f1, f2, f3, f4, f5, f6, lead, factorial, n, m, n2, n1, x_0, x_1, x_2, x_m, x_n,
    out_0, out_1, out_2, out_m, out_n,
    ORDER: tl.constexpr, M: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    row, column, i0, i1, i2 = _place(n, m, n2, n1, M, N)
    inside = (row < m) & (column < n)
    x_at = i0 * x_0 + i1 * x_1 + i2 * x_2 + row * x_m + column * x_n
    out_at = i0 * out_0 + i1 * out_1 + i2 * out_2 + row * out_m + column * out_n
    x = tl.load(x + x_at, mask=inside).to(tl.float32)
    mirrored = tl.where(x < 0.0, 1.0 - x, x) if ORDER < 2 else x
    y = _polygamma(mirrored, f1, f2, f3, f4, f5, f6, lead, factorial, ORDER)
    if ORDER < 2:
        angle = 3.141592653589793 * (x - tl.floor(x + 0.5))
        sine = tl.sin(angle)
        if ORDER == 0:
            y = tl.where(x < 0.0, y + 3.141592653589793 * tl.cos(angle) / sine, y)
        else:
            y = tl.where(x < 0.0, 9.869604401089358 / (sine * sine) - y, y)
    if ORDER % 2 == 0:
        y = -y
    tl.store(out + out_at, y.to(out.dtype.element_ty), mask=inside)


def polygamma(n: int, self: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    dtype = self.dtype if self.dtype.is_floating_point else torch.float32
    if out is None:
        out = torch.empty_like(self, dtype=dtype)
    factors = [
        number * math.factorial(2 * k + n - 1) / math.factorial(2 * k)
        for k, number in enumerate(_BERNOULLI, 1)
    ]
    lead = float(math.factorial(n - 1)) if n else 0.0
    _launch(self, out, [*factors, lead, float(math.factorial(n))], n)
    return out


def _launch(x: torch.Tensor, out: torch.Tensor, factors: list[float], order: int) -> None:
    """One program a tile; `x` and `out` have one shape."""
    if out.numel() == 0:
        return
    sizes, x_strides, out_strides = _merged(list(out.shape), list(x.stride()), list(out.stride()))
    if len(sizes) > 5:  # rare: the outermost of the dimensions goes to the host
        for x_part, out_part in zip(x.unbind(0), out.unbind(0), strict=True):
            _launch(x_part, out_part, factors, order)
        return
    n0, n1, n2, m, n = [1] * (5 - len(sizes)) + sizes
    x_s, out_s = _padded(x_strides), _padded(out_strides)
    tile = 1024  # more would not fit in registers
    across = m > 1 and 0 < x_s[3] < x_s[4]
    columns = min(triton.next_power_of_2(n), 64 if across else tile)
    rows = min(triton.next_power_of_2(m), tile // columns)
    grid = (n0 * n1 * n2 * triton.cdiv(m, rows) * triton.cdiv(n, columns),)
    _kernel[grid](
        x, out, *factors, n, m, n2, n1, *x_s, *out_s,
        ORDER=order, M=rows, N=columns, num_warps=4,
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
