"""Matrix product with broadcasting: batches by strides, tiles of each result walked along K.

Vectors become matrices of one row or column, and leading dimensions are broadcast by strides of 0.
Up to two batch dimensions are taken as they are, so interleaved heads need no copy; where a plain
matrix meets a batch, the rows of the whole batch form one tall matrix. A single vector has kernels
of its own: they read the matrix once, in wide rows, with K split over programs. Else each program
owns one BLOCK_M by BLOCK_N tile of one matrix, with float32 sums rounded once. Programs are
numbered in groups of GROUP tile rows, so that those running together share tiles of both operands
in cache. float32 asks for `input_precision="ieee"`, which keeps it out of TF32.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _matmul(
    a, b, out, m, n, k, inner, a_outer, a_inner, a_m, a_k,
    b_outer, b_inner, b_k, b_n, out_outer, out_inner, out_m, out_n,
    IEEE: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr = 8,
):  # fmt: skip
    tiles_m, tiles_n = tl.cdiv(m, BLOCK_M), tl.cdiv(n, BLOCK_N)
    batch = (tl.program_id(0) // (tiles_m * tiles_n)).to(tl.int64)
    program = tl.program_id(0) % (tiles_m * tiles_n)
    first = program // (GROUP * tiles_n) * GROUP
    height = tl.minimum(tiles_m - first, GROUP)
    tile_m = first + program % (GROUP * tiles_n) % height
    tile_n = program % (GROUP * tiles_n) // height

    i = (tile_m * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    j = (tile_n * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)
    p = tl.arange(0, BLOCK_K).to(tl.int64)
    outer, batch = batch // inner, batch % inner
    a += outer * a_outer + batch * a_inner + i[:, None] * a_m + p[None, :] * a_k
    b += outer * b_outer + batch * b_inner + p[:, None] * b_k + j[None, :] * b_n
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, k, BLOCK_K):
        inside = p < k - start
        left = tl.load(a, mask=(i < m)[:, None] & inside[None, :], other=0.0)
        right = tl.load(b, mask=inside[:, None] & (j < n)[None, :], other=0.0)
        if IEEE:
            total = tl.dot(left, right, total, input_precision="ieee")
        else:
            total = tl.dot(left, right, total)
        a += BLOCK_K * a_k
        b += BLOCK_K * b_k
    out += outer * out_outer + batch * out_inner + i[:, None] * out_m + j[None, :] * out_n
    tl.store(out, total, mask=(i < m)[:, None] & (j < n)[None, :])


@triton.jit
def _vector(
    x, v, parts, rows, k, splits, x_row, x_k, v_k, ROWS: tl.constexpr, K: tl.constexpr
):  # fmt: skip
    """parts[split, row]: the sum of x[row, k] v[k] over the tiles of one split, in float32."""
    split = tl.program_id(0) % splits
    row = ((tl.program_id(0) // splits) * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    share = tl.cdiv(tl.cdiv(k, K), splits)
    total = tl.zeros([ROWS, K], tl.float32)
    for t in range(split * share, split * share + share):
        p = (t * K + tl.arange(0, K)).to(tl.int64)[None, :]
        left = tl.load(x + row * x_row + p * x_k, mask=(row < rows) & (p < k), other=0.0)
        right = tl.load(v + p * v_k, mask=p < k, other=0.0)
        total += left.to(tl.float32) * right.to(tl.float32)
    result = tl.sum(total, axis=1)[:, None]
    tl.store(parts + split.to(tl.int64) * rows + row, result, mask=row < rows)


@triton.jit
def _add_splits(parts, out, rows, splits, out_row, ROWS: tl.constexpr, SPLITS: tl.constexpr):
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    split = tl.arange(0, SPLITS).to(tl.int64)[None, :]
    inside = (row < rows) & (split < splits)
    part = tl.load(parts + split * rows + row, mask=inside, other=0.0)
    tl.store(out + row * out_row, tl.sum(part, axis=1)[:, None], mask=row < rows)


def _config(m: int, n: int, k: int, warps: int, stages: int) -> triton.Config:
    blocks = {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k}
    return triton.Config(blocks, num_warps=warps, num_stages=stages)


def _worth_trying(configs, arguments, **_):
    """Leaves out tiles that shared memory does not hold, that lie half outside the result, or that
    are less than an eighth of the largest; of long products that fill the device, all but that."""
    m, n, k, out = arguments["m"], arguments["n"], arguments["k"], arguments["out"]
    active = triton.runtime.driver.active
    device = active.utils.get_device_properties(active.get_current_device())

    def shared_bytes(c):
        sides = c.kwargs["BLOCK_M"] + c.kwargs["BLOCK_N"]
        return sides * c.kwargs["BLOCK_K"] * c.num_stages * out.element_size()

    def size(c):  # what of the tile lies in the result
        return min(m, c.kwargs["BLOCK_M"]) * min(n, c.kwargs["BLOCK_N"])

    left = [
        c
        for c in configs
        if shared_bytes(c) <= device["max_shared_mem"]
        and c.kwargs["BLOCK_M"] < max(2 * m, 32)
        and c.kwargs["BLOCK_N"] < max(2 * n, 128)
    ]
    left.sort(key=size, reverse=True)
    if k >= 1024 and left and out.numel() >= 2 * device["multiprocessor_count"] * size(left[0]):
        return left[:1]
    return [c for c in left if 8 * size(c) >= size(left[0])] or configs


_KEY = ["m", "n", "k"]
_PRUNE = {"early_config_prune": _worth_trying}
# float32 is multiplied outside the matrix units, where long tiles along K only cost registers.
_matmul_single = triton.autotune(
    [_config(64, 64, 16, 4, 3), _config(128, 128, 16, 8, 3)], _KEY, prune_configs_by=_PRUNE
)(_matmul)
_matmul_half = triton.autotune(
    [
        _config(64, 64, 32, 4, 4),
        _config(128, 256, 64, 8, 3),
        _config(16, 64, 128, 4, 4),
    ],
    _KEY,
    prune_configs_by=_PRUNE,
)(_matmul)


def matmul(
    self: torch.Tensor, other: torch.Tensor, *, out: torch.Tensor | None = None
) -> torch.Tensor:
    a = self.unsqueeze(0) if self.dim() == 1 else self
    b = other.unsqueeze(1) if other.dim() == 1 else other
    batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    m, n = a.shape[-2], b.shape[-1]
    result = torch.empty((*batch, m, n), dtype=self.dtype, device=self.device)
    if result.numel():
        if b.dim() == 2 and a.dim() > 2:  # one tall matrix
            y = result.view(-1, n)
            _launch(_four(a.reshape(-1, a.shape[-1])), _four(b), _four(y))
        else:
            a, b = a.expand(*batch, *a.shape[-2:]), b.expand(*batch, *b.shape[-2:])
            _launch(_four(a), _four(b), _four(result))
    if self.dim() == 1:
        result = result.squeeze(-2)
    if other.dim() == 1:
        result = result.squeeze(-1)
    return result if out is None else out.copy_(result)


def _four(x: torch.Tensor) -> torch.Tensor:
    """`x` with exactly two batch dimensions; further ones are flattened into the first."""
    while x.dim() < 4:
        x = x.unsqueeze(0)
    return x if x.dim() == 4 else x.reshape(-1, *x.shape[-3:])


def _launch(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
    outer, inner, m, n = out.shape
    k = a.shape[3]
    if outer * inner == 1 and min(m, n) == 1 and k > 64:
        if n == 1:
            _launch_vector(a[0, 0], b[0, 0, :, 0], out[0, 0, :, 0])
        else:
            _launch_vector(b[0, 0].t(), a[0, 0, 0], out[0, 0, 0])
        return

    def grid(meta):
        return (outer * inner * triton.cdiv(m, meta["BLOCK_M"]) * triton.cdiv(n, meta["BLOCK_N"]),)

    ieee = out.dtype == torch.float32
    kernel = _matmul_single if ieee else _matmul_half
    kernel[grid](a, b, out, m, n, k, inner, *a.stride(), *b.stride(), *out.stride(), IEEE=ieee)


def _launch_vector(x: torch.Tensor, v: torch.Tensor, out: torch.Tensor) -> None:
    """out = x v for a matrix `x` of any layout, bound by reading it once."""
    rows, k = x.shape
    if x.stride(1) <= x.stride(0) or rows == 1:
        tile_k = min(triton.next_power_of_2(k), 1024)
        tile_rows = min(triton.next_power_of_2(rows), 4096 // tile_k)
    else:
        tile_rows = min(triton.next_power_of_2(rows), 128)
        tile_k = min(triton.next_power_of_2(k), 4096 // tile_rows)
    programs, tiles = triton.cdiv(rows, tile_rows), triton.cdiv(k, tile_k)
    splits = max(1, min(1024 // programs, tiles // 4))
    parts = torch.empty((splits, rows), dtype=torch.float32, device=x.device)
    _vector[(programs * splits,)](
        x, v, parts, rows, k, splits, *x.stride(), v.stride(0), ROWS=tile_rows, K=tile_k,
        num_warps=8,
    )  # fmt: skip
    width = triton.next_power_of_2(splits)
    lanes = min(triton.next_power_of_2(rows), max(1, 2048 // width))
    _add_splits[(triton.cdiv(rows, lanes),)](
        parts, out, rows, splits, out.stride(0), ROWS=lanes, SPLITS=width, num_warps=4
    )
