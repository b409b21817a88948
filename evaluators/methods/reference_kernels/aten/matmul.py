"""Matrix product with broadcasting: batches by strides, tiles of each result walked along K.

Vectors become matrices of one row or column, and leading dimensions are broadcast by strides of 0.
Up to two batch dimensions are taken as they are, so interleaved heads need no copy; where a plain
matrix meets a batch, the rows of the whole batch form one tall matrix. Each program owns one
BLOCK_M by BLOCK_N tile of one matrix, with float32 sums rounded once. Programs are numbered in
groups of GROUP tile rows, so that those running together share tiles of both operands in cache.
float32 asks for `input_precision="ieee"`, which keeps it out of TF32.
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


def _config(m: int, n: int, k: int, warps: int, stages: int) -> triton.Config:
    blocks = {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k}
    return triton.Config(blocks, num_warps=warps, num_stages=stages)


_KEY = ["m", "n", "k"]
# float32 is multiplied outside the matrix units, where long tiles along K only cost registers.
_matmul_single = triton.autotune([_config(64, 64, 16, 4, 3), _config(128, 128, 16, 8, 3)], _KEY)(
    _matmul
)
_matmul_half = triton.autotune(
    [
        _config(64, 64, 32, 4, 4),
        _config(128, 256, 64, 8, 3),
        _config(128, 128, 64, 8, 3),
        _config(16, 64, 128, 4, 4),
    ],
    _KEY,
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

    def grid(meta):
        return (outer * inner * triton.cdiv(m, meta["BLOCK_M"]) * triton.cdiv(n, meta["BLOCK_N"]),)

    ieee = out.dtype == torch.float32
    kernel = _matmul_single if ieee else _matmul_half
    kernel[grid](a, b, out, m, n, k, inner, *a.stride(), *b.stride(), *out.stride(), IEEE=ieee)
