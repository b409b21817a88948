"""Hadamard transform of rows: butterflies on a tile of rows, n log2(n) additions a row.

A stage adds and subtracts neighbours and deals the results to the two halves of the row, the
perfect shuffle that makes all stages alike. All run on one tile, float32, rounded once; shuffles
that cross threads go through shared memory. Short rows share a program to fill it.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _butterflies(x, ROWS: tl.constexpr, N: tl.constexpr, STAGES: tl.constexpr):
    for _ in tl.static_range(STAGES):
        a, b = tl.split(tl.reshape(x, [ROWS, N // 2, 2]))
        # Sums to the first half, differences to the second: the lowest bit of the position becomes
        # the highest, and after all stages every element is back where it was.
        x = tl.reshape(tl.permute(tl.join(a + b, a - b), [0, 2, 1]), [ROWS, N])
    return x


@triton.jit
def _hadamard(x, out, rows, factor, ROWS: tl.constexpr, N: tl.constexpr, STAGES: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    at = row[:, None] * N + tl.arange(0, N)[None, :]
    inside = (row < rows)[:, None]
    value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    value = _butterflies(value, ROWS, N, STAGES)
    tl.store(out + at, value * factor, mask=inside)


def hadacore_transform(x, inplace=True):
    out = x if inplace else torch.empty_like(x)
    n = x.shape[-1]
    rows = x.numel() // n
    if rows == 0:
        return out
    together = max(1, 4096 // n)
    _hadamard[(triton.cdiv(rows, together),)](
        x, out, rows, n**-0.5, ROWS=together, N=n, STAGES=n.bit_length() - 1,
        num_warps=8 if n * together >= 4096 else 4,
    )  # fmt: skip
    return out
