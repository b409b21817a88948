"""p-norms of differences: rows reduced in registers, broadcasting by strides of 0.

Both operands are seen as (outer, inner, n); what is broadcast has stride 0 and is read again from
cache. A program owns ROWS rows and walks n in tiles of N, adding powers in float32. Whole p up to 4
are products, which are exact to rounding; any other p takes exp2 and log2 in float64, where their
error does not matter, and so does the root, once a row.
"""

import math

import torch
import triton
import triton.language as tl

_TILE = 4096


@triton.jit
def _distance(
    a, b, out, rows, inner, n, p, epsilon,
    a_outer, a_inner, a_n, b_outer, b_inner, b_n,
    WHOLE: tl.constexpr, LARGEST: tl.constexpr, ROWS: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    """WHOLE: p, if it is 1, 2, 3 or 4, else 0. LARGEST: p is infinite."""
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS))[:, None]
    outer, lane = (row // inner).to(tl.int64), (row % inner).to(tl.int64)
    a += outer * a_outer + lane * a_inner
    b += outer * b_outer + lane * b_inner
    exact: tl.constexpr = tl.float32 if WHOLE > 0 or LARGEST else tl.float64
    total = tl.zeros([ROWS, N], exact)
    for start in range(0, n, N):
        i = (start + tl.arange(0, N)).to(tl.int64)[None, :]
        inside = (row < rows) & (i < n)
        left = tl.load(a + i * a_n, mask=inside, other=0.0).to(tl.float32)
        right = tl.load(b + i * b_n, mask=inside, other=0.0).to(tl.float32)
        size = tl.where(inside, tl.abs(left - right + epsilon), 0.0)
        if LARGEST:
            total = tl.where((size > total) | (size != size), size, total)
        elif WHOLE == 1:
            total += size
        elif WHOLE == 2:
            total += size * size
        elif WHOLE == 3:
            total += size * size * size
        elif WHOLE == 4:
            total += (size * size) * (size * size)
        else:
            total += tl.where(size == 0, 0.0, tl.exp2(p * tl.log2(size.to(tl.float64))))
    if LARGEST:
        result = tl.max(total, axis=1) + tl.sum(tl.where(total != total, total, 0.0), axis=1)
    else:
        result = tl.sum(total, axis=1)
        if WHOLE == 2:
            result = tl.sqrt_rn(result)
        elif WHOLE != 1:
            root = tl.exp2(tl.log2(result.to(tl.float64)) / p)
            result = tl.where(result == 0, 0.0, root)
    tl.store(out + row, result[:, None], mask=row < rows)


def pairwise_distance(
    x1: torch.Tensor,
    x2: torch.Tensor,
    p: float = 2.0,
    eps: float = 1e-6,
    keepdim: bool = False,
) -> torch.Tensor:
    shape = torch.broadcast_shapes(x1.shape, x2.shape)
    n, leading = shape[-1], shape[:-1]
    out = torch.empty((*leading, 1), dtype=x1.dtype, device=x1.device)
    rows = out.numel()
    if rows:
        a, b = _three_dimensions(x1.expand(shape)), _three_dimensions(x2.expand(shape))
        width = min(triton.next_power_of_2(n), 1024)
        lanes = min(triton.next_power_of_2(rows), max(1, _TILE // width), 32)
        _distance[(triton.cdiv(rows, lanes),)](
            a, b, out, rows, a.shape[1], n, p, eps, *a.stride(), *b.stride(),
            WHOLE=int(p) if p in (1, 2, 3, 4) else 0, LARGEST=math.isinf(p),
            ROWS=lanes, N=width, num_warps=4 if lanes * width <= 2048 else 8,
        )  # fmt: skip
    return out if keepdim else out.squeeze(-1)


def _three_dimensions(x: torch.Tensor) -> torch.Tensor:
    """`x` as (outer, inner, n)."""
    while x.dim() < 3:
        x = x.unsqueeze(0)
    return x.reshape(-1, *x.shape[-2:])
