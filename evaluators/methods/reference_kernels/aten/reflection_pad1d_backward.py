"""Gradient of reflection padding: each input place gathers the at most three that mirror it.

Turned round from scattering with atomics: input place j was copied to padded place j + left, and,
if it lies within the mirrored ends, to left - j and to left + 2 (W - 1) - j. A program owns a tile
of rows and places and makes three masked loads, two of which touch only the ends; sums are made in
float32 and written once.
"""

import torch
import triton
import triton.language as tl

_TILE = 2048


@triton.jit
def _gather(
    grad, out, rows, inner, width, left, right, grad_n, grad_c, grad_w, out_n, out_c, out_w,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    tiles = tl.cdiv(width, COLUMNS)
    row = ((tl.program_id(0) // tiles) * ROWS + tl.arange(0, ROWS))[:, None]
    j = ((tl.program_id(0) % tiles) * COLUMNS + tl.arange(0, COLUMNS)).to(tl.int64)[None, :]
    n, c = (row // inner).to(tl.int64), (row % inner).to(tl.int64)
    inside = (row < rows) & (j < width)
    padded = width + left + right
    grad += n * grad_n + c * grad_c
    own = j + left
    total = tl.load(grad + own * grad_w, mask=inside & (own >= 0) & (own < padded), other=0.0).to(
        tl.float32
    )
    before = left - j  # mirrored at the left edge, which is not repeated
    seen = inside & (j > 0) & (before >= 0) & (before < padded)
    total += tl.load(grad + before * grad_w, mask=seen, other=0.0).to(tl.float32)
    after = left + 2 * (width - 1) - j
    seen = inside & (j < width - 1) & (after < padded) & (after >= 0)
    total += tl.load(grad + after * grad_w, mask=seen, other=0.0).to(tl.float32)
    tl.store(out + n * out_n + c * out_c + j * out_w, total, mask=inside)


def reflection_pad1d_backward(
    grad_output: torch.Tensor,
    self: torch.Tensor,
    padding: list[int],
    *,
    grad_input: torch.Tensor | None = None,
) -> torch.Tensor:
    out = grad_input
    if out is None:
        out = torch.empty(self.shape, dtype=self.dtype, device=self.device)
    if out.numel() == 0:
        return out
    g = grad_output if grad_output.dim() == 3 else grad_output.unsqueeze(0)
    y = out if out.dim() == 3 else out.unsqueeze(0)
    n, channels, width = y.shape
    columns = min(triton.next_power_of_2(width), _TILE)
    rows = min(_TILE // columns, triton.next_power_of_2(n * channels))
    _gather[(triton.cdiv(n * channels, rows) * triton.cdiv(width, columns),)](
        g, y, n * channels, channels, width, *padding, *g.stride(), *y.stride(),
        ROWS=rows, COLUMNS=columns, num_warps=4,
    )  # fmt: skip
    return out
