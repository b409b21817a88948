"""rrelu_with_noise: self times a slope where it is not positive, drawn anew in training.

Operands are broadcast by strides of 0. The dimensions are ordered as they lie in the result's
memory and merged where one stride describes all tensors: contiguous tensors are one run. The two
innermost of what is left are walked in tiles, one a program, the outer ones are counted by the
program's number. Tiles run along memory; where an operand runs across the result, square tiles keep
both coalesced.
Random numbers are Philox's, counted by each element's place in the result; the seed is drawn on the
device from the generator, so that every call has its own.
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


@triton.jit(do_not_specialize=["lower", "upper"])
def _kernel(
    x, noise, out, seed, lower, upper, n, m, n2, n1,
    x_0, x_1, x_2, x_m, x_n,
    noise_0, noise_1, noise_2, noise_m, noise_n,
    out_0, out_1, out_2, out_m, out_n,
    TRAINING: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    row, column, i0, i1, i2 = _place(n, m, n2, n1, M, N)
    inside = (row < m) & (column < n)
    x_at = i0 * x_0 + i1 * x_1 + i2 * x_2 + row * x_m + column * x_n
    out_at = i0 * out_0 + i1 * out_1 + i2 * out_2 + row * out_m + column * out_n
    x = tl.load(x + x_at, mask=inside).to(tl.float32)
    if TRAINING:
        index = ((i0 * n1 + i1) * n2 + i2) * m * n + row * n + column
        u = tl.rand(tl.load(seed), index.to(tl.uint32))  # in [0, 1)
        slope = tl.where(x <= 0.0, lower + u * (upper - lower), 1.0)
        noise_at = i0 * noise_0 + i1 * noise_1 + i2 * noise_2 + row * noise_m + column * noise_n
        tl.store(noise + noise_at, slope.to(noise.dtype.element_ty), mask=inside)
    else:
        slope = tl.where(x <= 0.0, (lower + upper) / 2.0, 1.0)
    tl.store(out + out_at, (x * slope).to(out.dtype.element_ty), mask=inside)


def rrelu_with_noise(
    self: torch.Tensor,
    noise: torch.Tensor,
    lower: float = 0.125,
    upper: float = 0.3333333333333333,
    training: bool = False,
    generator: torch.Generator | None = None,
    *,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    if out is None:
        out = torch.empty_like(self)
    seed = self  # not read
    if training:
        seed = torch.randint(2**31, (1,), device=self.device, generator=generator)
    _launch([self, noise, out], seed, float(lower), float(upper), training)
    return out


def _launch(
    tensors: list[torch.Tensor], seed: torch.Tensor, lower: float, upper: float, training: bool
) -> None:
    """One program a tile; all tensors have one shape."""
    out = tensors[-1]
    if out.numel() == 0:
        return
    dims = _merged(list(out.shape), [list(t.stride()) for t in tensors])
    if len(dims) > 5:
        raise NotImplementedError(f"{len(dims)} dimensions that cannot be merged")
    dims = [[1] + [0] * 3] * (5 - len(dims)) + dims
    n0, n1, n2, m, n = [d[0] for d in dims]
    strides = [d[i + 1] for i in range(3) for d in dims]
    tile = 4096 if out.numel() >= 1 << 20 else 1024
    columns = min(triton.next_power_of_2(n), tile)
    rows = min(triton.next_power_of_2(m), tile // columns)
    grid = (n0 * n1 * n2 * triton.cdiv(m, rows) * triton.cdiv(n, columns),)
    _kernel[grid](
        *tensors, seed, lower, upper, n, m, n2, n1, *strides,
        TRAINING=training, M=rows, N=columns, num_warps=4,
    )  # fmt: skip


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
