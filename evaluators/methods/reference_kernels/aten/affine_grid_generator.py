"""Sampling grids of affine maps, made on the spot: nothing is read but `theta`.

A program writes a run of points of one grid. It finds the place of each point, its coordinates in
float32, and the products with the rows of `theta`, whose few values it loads once; the coordinates
of a point lie next to each other in memory, so a tile of (points, coordinates) is one wide store.
"""

import torch
import triton
import triton.language as tl

_POINTS = 1024


@triton.jit
def _coordinate(place, size, CORNERS: tl.constexpr):
    if CORNERS:
        value = 2.0 * place / tl.maximum(size - 1, 1) - 1.0
        value = tl.where(size > 1, value, 0.0)
    else:
        value = (2.0 * place + 1.0) / size - 1.0
    return value


@triton.jit
def _grid(
    theta, out, depth, height, width, theta_n, theta_i, theta_k,
    AXES: tl.constexpr, CORNERS: tl.constexpr, POINTS: tl.constexpr,
):  # fmt: skip
    points = depth * height * width
    tiles = tl.cdiv(points, POINTS)
    image = (tl.program_id(0) // tiles).to(tl.int64)
    point = ((tl.program_id(0) % tiles) * POINTS + tl.arange(0, POINTS))[:, None]
    i = tl.arange(0, 4 if AXES == 3 else 2)[None, :]
    row = theta + image * theta_n + i * theta_i
    inside = i < AXES
    x = _coordinate((point % width).to(tl.float32), width, CORNERS)
    y = _coordinate((point // width % height).to(tl.float32), height, CORNERS)
    value = tl.load(row + AXES * theta_k, mask=inside, other=0.0).to(tl.float32)
    value += tl.load(row, mask=inside, other=0.0).to(tl.float32) * x
    value += tl.load(row + theta_k, mask=inside, other=0.0).to(tl.float32) * y
    if AXES == 3:
        z = _coordinate((point // width // height).to(tl.float32), depth, CORNERS)
        value += tl.load(row + 2 * theta_k, mask=inside, other=0.0).to(tl.float32) * z
    target = out + image * points * AXES + point.to(tl.int64) * AXES + i
    tl.store(target, value, mask=inside & (point < points))


def affine_grid_generator(
    theta: torch.Tensor,
    size: list[int],
    align_corners: bool,
    *,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    axes = len(size) - 2
    shape = (theta.shape[0], *size[2:], axes)
    result = out
    if out is None or not out.is_contiguous():
        result = torch.empty(shape, dtype=theta.dtype, device=theta.device)
    if result.numel():
        depth, height, width = size[2:] if axes == 3 else (1, *size[2:])
        points = min(_POINTS, triton.next_power_of_2(depth * height * width))
        tiles = triton.cdiv(depth * height * width, points)
        _grid[(theta.shape[0] * tiles,)](
            theta, result, depth, height, width, *theta.stride(),
            AXES=axes, CORNERS=align_corners, POINTS=points, num_warps=4,
        )  # fmt: skip
    return result if out is None or result is out else out.copy_(result)
