"""Matrix product: tiles of the result, walked along K, with float32 sums.

Each program owns one BLOCK_M by BLOCK_N tile. Any layout of the operands is only a pair of strides;
the result is written once, rounded once. Programs are numbered in groups of GROUP tile rows, so
that those running together share tiles of both operands in cache. Products of float16 and bfloat16
go to the matrix units; float32 asks for `input_precision="ieee"`, which keeps them out of TF32.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _mm(
    a, b, out, m, n, k, a_m, a_k, b_k, b_n, out_m, out_n,
    IEEE: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr = 8,
):  # fmt: skip
    program = tl.program_id(0)
    tiles_m, tiles_n = tl.cdiv(m, BLOCK_M), tl.cdiv(n, BLOCK_N)
    first = program // (GROUP * tiles_n) * GROUP
    height = tl.minimum(tiles_m - first, GROUP)
    tile_m = first + program % (GROUP * tiles_n) % height
    tile_n = program % (GROUP * tiles_n) // height

    i = (tile_m * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    j = (tile_n * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)
    p = tl.arange(0, BLOCK_K).to(tl.int64)
    a += i[:, None] * a_m + p[None, :] * a_k
    b += p[:, None] * b_k + j[None, :] * b_n
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
    out += i[:, None] * out_m + j[None, :] * out_n
    tl.store(out, total, mask=(i < m)[:, None] & (j < n)[None, :])


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
_mm_single = triton.autotune(
    [_config(64, 64, 16, 4, 3), _config(128, 128, 16, 8, 3)], _KEY, prune_configs_by=_PRUNE
)(_mm)
_mm_half = triton.autotune(
    [
        _config(64, 64, 32, 4, 4),
        _config(128, 256, 64, 8, 3),
        _config(16, 64, 128, 4, 4),
    ],
    _KEY,
    prune_configs_by=_PRUNE,
)(_mm)


def mm(self: torch.Tensor, mat2: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    m, k = self.shape
    n = mat2.shape[1]
    if out is None:
        out = torch.empty((m, n), dtype=self.dtype, device=self.device)
    if out.numel() == 0:
        return out

    def grid(meta):
        return (triton.cdiv(m, meta["BLOCK_M"]) * triton.cdiv(n, meta["BLOCK_N"]),)

    ieee = self.dtype == torch.float32
    kernel = _mm_single if ieee else _mm_half
    kernel[grid](
        self, mat2, out, m, n, k, *self.stride(), *mat2.stride(), *out.stride(),
        IEEE=ieee,
    )  # fmt: skip
    return out
