"""Windows of images as columns: every element of the result is one read of the image.

A program owns TAPS rows of the result (a channel and a tap of the window each) and PLACES columns
(window positions), so writes are contiguous and neighbouring reads are `stride` apart; what several
taps read comes from cache. Reads outside the image are masked, which gives the padding's zeros.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _unfold(
    x, out, height, width, taps, places, kernel_w, window, out_width,
    dilation_h, dilation_w, padding_h, padding_w, stride_h, stride_w,
    x_n, x_c, x_h, x_w, out_n, out_tap, out_place,
    TAPS: tl.constexpr, PLACES: tl.constexpr,
):  # fmt: skip
    """`window`: taps of one channel."""
    tiles_tap, tiles_place = tl.cdiv(taps, TAPS), tl.cdiv(places, PLACES)
    tile = tl.program_id(0) % (tiles_tap * tiles_place)
    image = (tl.program_id(0) // (tiles_tap * tiles_place)).to(tl.int64)
    tap = (tile // tiles_place) * TAPS + tl.arange(0, TAPS)
    place = (tile % tiles_place) * PLACES + tl.arange(0, PLACES)
    channel, within = tap // window, tap % window
    y = (place // out_width * stride_h - padding_h)[None, :]
    y += (within // kernel_w * dilation_h)[:, None]
    z = (place % out_width * stride_w - padding_w)[None, :]
    z += (within % kernel_w * dilation_w)[:, None]
    valid = (tap < taps)[:, None] & (place < places)[None, :]
    seen = valid & (y >= 0) & (y < height) & (z >= 0) & (z < width)
    source = image * x_n + channel.to(tl.int64)[:, None] * x_c
    source += y.to(tl.int64) * x_h + z.to(tl.int64) * x_w
    value = tl.load(x + source, mask=seen, other=0)
    target = image * out_n + tap.to(tl.int64)[:, None] * out_tap
    tl.store(out + target + place.to(tl.int64)[None, :] * out_place, value, mask=valid)


def im2col(
    self: torch.Tensor,
    kernel_size: list[int],
    dilation: list[int],
    padding: list[int],
    stride: list[int],
    *,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    x = self if self.dim() == 4 else self.unsqueeze(0)
    n, channels, height, width = x.shape
    out_height = _positions(height, kernel_size[0], dilation[0], padding[0], stride[0])
    out_width = _positions(width, kernel_size[1], dilation[1], padding[1], stride[1])
    window, places = kernel_size[0] * kernel_size[1], out_height * out_width
    taps = channels * window
    if out is None:
        shape = (n, taps, places) if self.dim() == 4 else (taps, places)
        out = torch.empty(shape, dtype=self.dtype, device=self.device)
    if out.numel():
        y = out if self.dim() == 4 else out.unsqueeze(0)
        wide = min(triton.next_power_of_2(places), 1024)
        high = min(triton.next_power_of_2(taps), max(1, 2048 // wide))
        _unfold[(n * triton.cdiv(taps, high) * triton.cdiv(places, wide),)](
            x, y, height, width, taps, places, kernel_size[1], window, out_width,
            *dilation, *padding, *stride, *x.stride(), *y.stride(),
            TAPS=high, PLACES=wide, num_warps=4,
        )  # fmt: skip
    return out


def _positions(size: int, kernel: int, dilation: int, padding: int, stride: int) -> int:
    return (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1
