"""poisson: draws from the Poisson distribution, each element with its own rate.

The dimensions are ordered as they lie in the result's memory and merged where one stride describes
both tensors: a contiguous tensor is one run. The two innermost of what is left are walked in tiles,
one a program, the outer ones are counted by the program's number. Tiles run along memory; where the
input runs across the result (a transposition), square tiles keep both sides coalesced.
Random numbers are Philox's, counted by each element's place in the result; the seed is drawn on the
device from the generator, so that every call has its own.
A uniform number is spent on the outcomes one after another, until their probabilities use it up:
from 0 upwards for small rates, for others from the middle outwards in both directions, which takes
a few times sqrt(rate) steps. The probability of the middle is Stirling's, arranged so that no large
numbers cancel. Few elements a program keep one that takes long from holding up many.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _draw(u, rate):
    """The outcome that a uniform number stands for."""
    middle = tl.where(rate < 8.0, 0.0, tl.floor(rate))
    safe = tl.maximum(middle, 1.0)
    over = rate - middle
    # ln of the probability of m for m + over, with ln(1 + over / m) as its series.
    t = over / safe
    log1p = t * (1.0 - t * (0.5 - t * (1 / 3 - t * (0.25 - t * (0.2 - t / 6)))))
    exponent = safe * log1p - over - (1 / 12 - 1 / (360 * safe * safe)) / safe
    stirling = tl.exp(exponent) * tl.rsqrt(6.283185307179586 * safe)
    up = tl.where(middle == 0.0, tl.exp(-rate), stirling)
    down, above, below = up, middle, middle
    result = middle
    u -= up
    searching = (u >= 0.0) & (rate > 0.0)
    while tl.max(tl.max(searching.to(tl.int32), axis=1), axis=0) > 0:
        for _ in tl.static_range(4):
            above += 1.0
            up *= rate / above
            u -= up
            result = tl.where(searching & (u < 0.0), above, result)
            searching &= u >= 0.0
            down *= below / rate
            below = tl.maximum(below - 1.0, 0.0)
            u -= tl.where(searching, down, 0.0)
            result = tl.where(searching & (u < 0.0), below, result)
            searching &= u >= 0.0
        # What rounding has left over when all probabilities are used up goes to the middle.
        searching &= (up + down > 1e-12) | (above < rate)
    return result


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
    x, out, seed, n, m, n2, n1, x_0, x_1, x_2, x_m, x_n,
    out_0, out_1, out_2, out_m, out_n,
    M: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    row, column, i0, i1, i2 = _place(n, m, n2, n1, M, N)
    inside = (row < m) & (column < n)
    x_at = i0 * x_0 + i1 * x_1 + i2 * x_2 + row * x_m + column * x_n
    out_at = i0 * out_0 + i1 * out_1 + i2 * out_2 + row * out_m + column * out_n
    rate = tl.load(x + x_at, mask=inside, other=0.0).to(tl.float32)
    index = ((i0 * n1 + i1) * n2 + i2) * m * n + row * n + column
    y = _draw(tl.rand(tl.load(seed), index.to(tl.uint32)), rate)
    tl.store(out + out_at, y.to(out.dtype.element_ty), mask=inside)


def poisson(
    self: torch.Tensor,
    generator: torch.Generator | None = None,
    *,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(self)
    seed = torch.randint(2**31, (1,), device=self.device, generator=generator)
    _launch(self, out, seed)
    return out


def _launch(x: torch.Tensor, out: torch.Tensor, seed: torch.Tensor) -> None:
    """One program a tile; `x` and `out` have one shape."""
    if out.numel() == 0:
        return
    sizes, x_strides, out_strides = _merged(list(out.shape), list(x.stride()), list(out.stride()))
    if len(sizes) > 5:
        raise NotImplementedError(f"{len(sizes)} dimensions that cannot be merged")
    n0, n1, n2, m, n = [1] * (5 - len(sizes)) + sizes
    x_s, out_s = _padded(x_strides), _padded(out_strides)
    tile = 1024
    across = m > 1 and 0 < x_s[3] < x_s[4]
    columns = min(triton.next_power_of_2(n), 64 if across else tile)
    rows = min(triton.next_power_of_2(m), tile // columns)
    grid = (n0 * n1 * n2 * triton.cdiv(m, rows) * triton.cdiv(n, columns),)
    _kernel[grid](
        x, out, seed, n, m, n2, n1, *x_s, *out_s, M=rows, N=columns, num_warps=4
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
