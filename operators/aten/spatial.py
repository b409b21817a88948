"""ATen operators on grids: affine_grid_generator, reflection_pad1d_backward.

Oracle: torch in float64, sums over explicit source positions. Second statement: NumPy.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from kernelmark.operators.building import (
    FLOATS,
    dtype_name,
    expect,
    full,
    small,
    spec,
    traffic,
    wide,
)
from kernelmark.operators.records import (
    Case,
    Cost,
    Expected,
    Mutant,
    Operator,
    Tolerance,
)

_F16, _BF16 = torch.float16, torch.bfloat16

# --- affine_grid_generator ----------------------------------------------------------------------


@functools.cache
def _grid_cases() -> Sequence[Case]:
    return (
        *(small(f"flat-{dtype_name(t)}", spec((2, 2, 3), t), [2, 3, 9, 13], False) for t in FLOATS),
        *(
            small(f"corners-{dtype_name(t)}", spec((2, 2, 3), t), [2, 1, 8, 5], True)
            for t in FLOATS
        ),
        small("volume", spec((2, 3, 4)), [2, 1, 4, 5, 6], False),
        small("volume-corners", spec((1, 3, 4), _F16), [1, 2, 3, 7, 5], True),
        small("one-pixel", spec((3, 2, 3)), [3, 1, 1, 1], False),
        small("one-row-corners", spec((2, 2, 3)), [2, 1, 1, 9], True),
        small("theta-transposed", spec((2, 2, 3), strides=(6, 1, 2)), [2, 3, 7, 7], False),
        small("theta-shared", spec((4, 2, 3), strides=(0, 3, 1)), [4, 1, 6, 5], True),
        small("misaligned", spec((2, 2, 3), _F16, offset=1), [2, 3, 5, 6], False),
        small("empty", spec((0, 2, 3)), [0, 3, 4, 4], False),
        small("out", spec((2, 2, 3)), [2, 3, 7, 5], False, overload=1, out=spec((2, 7, 5, 2))),
        full(
            "spatial-transformer",
            "spatial transformer network, ImageNet batch 128",
            spec((128, 2, 3)),
            [128, 3, 224, 224],
            False,
        ),
        full(
            "detector-crops",
            "Mask R-CNN rotated crops, 16384 of 28 x 28",
            spec((16384, 2, 3), _F16),
            [16384, 256, 28, 28],
            False,
        ),
        full(
            "registration",
            "VoxelMorph volumes, batch 4",
            spec((4, 3, 4)),
            [4, 1, 160, 192, 224],
            True,
        ),
        full(
            "augmentation",
            "StyleGAN2-ADA augmentation, batch 64 of 512 x 512",
            spec((64, 2, 3), _BF16),
            [64, 3, 512, 512],
            False,
        ),
        full(
            "video",
            "stabilisation of 64 frames of 1080p",
            spec((64, 2, 3), _F16),
            [64, 3, 1080, 1920],
            True,
        ),
        full(
            "volume-half",
            "nnU-Net augmentation, batch 8",
            spec((8, 3, 4), _F16),
            [8, 1, 128, 128, 128],
            False,
        ),
    )


def _axis(size: int, align_corners: bool, device: torch.device) -> torch.Tensor:
    """Coordinates of `size` points in [-1, 1]: of pixel edges' ends, or of their centres."""
    place = torch.arange(size, dtype=torch.float64, device=device)
    if align_corners:
        return -1 + 2 * place / (size - 1) if size > 1 else torch.zeros_like(place)
    return (2 * place + 1) / size - 1


def _grid_oracle(
    theta: torch.Tensor,
    size: Sequence[int],
    align_corners: bool,
    *,
    out: torch.Tensor | None = None,
) -> list[Expected]:
    axes = [_axis(n, align_corners, theta.device) for n in size[2:]]
    points = torch.meshgrid(*axes, indexing="ij")[::-1]  # x varies fastest and comes first
    shape = [theta.shape[0]] + [1] * len(axes) + [len(axes)]
    value = wide(theta)[:, :, -1].reshape(shape)
    # Coordinates are rounded as parts of [-1, 1]: near 0 their error is not relative.
    scale = wide(theta).abs().sum(-1).reshape(shape)
    for i, point in enumerate(points):
        value = value + wide(theta)[:, :, i].reshape(shape) * point.unsqueeze(-1)
    return [expect(value, theta.dtype, scale=scale.expand(value.shape))]


def _grid_second(
    theta: torch.Tensor, size: Sequence[int], align_corners: bool, **more: Any
) -> list[Any]:
    axes = []
    for n in size[2:]:
        points = np.linspace(-1, 1, n) if n > 1 else np.zeros(1)
        axes.append(points if align_corners else points * ((n - 1) / n))
    grid = np.meshgrid(*axes, indexing="ij")[::-1]
    base = np.stack([*grid, np.ones_like(grid[0])], axis=-1)
    return [np.einsum("...k,nik->n...i", base, theta.double().numpy())]


def _grid_cost(case: Case) -> Cost:
    theta, size = case.tensors[0], case.args[1]
    numel = math.prod((size[0], *size[2:], len(size) - 2))
    flops = 2 * numel * (len(size) - 2)
    return traffic(case, numel * theta.dtype.itemsize, flops=flops, read=theta.nbytes)


def _grid(theta: torch.Tensor, size: Any, align_corners: bool, **more: Any) -> torch.Tensor:
    return torch.ops.aten.affine_grid_generator(theta, size, align_corners, **more)


_GRID = Operator(
    id="aten::affine_grid_generator",
    family="spatial",
    signatures=(
        "affine_grid_generator(theta: Tensor, size: int[], align_corners: bool) -> Tensor",
        "affine_grid_generator.out(theta: Tensor, size: int[], align_corners: bool, *, "
        "out: Tensor!) -> Tensor!",
    ),
    description=(
        "Sampling grids of affine maps. For `theta` (N, 2, 3) and `size` [N, C, H, W] the result "
        "is (N, H, W, 2): out[n, h, w, i] = theta[n, i, 0] x_w + theta[n, i, 1] y_h + "
        "theta[n, i, 2]. For `theta` (N, 3, 4) and `size` [N, C, D, H, W] it is (N, D, H, W, 3) "
        "with x_w, y_h, z_d in that order. Along a dimension of n points the coordinate of point j "
        "is -1 + 2 j / (n - 1) with `align_corners` (0 for n = 1), else (2 j + 1) / n - 1. C plays "
        "no part. The result has the dtype of `theta`, whose strides may be any; coordinates (as "
        "parts of [-1, 1]), products and sums may be rounded to that dtype. "
        "`affine_grid_generator.out` writes into `out` (contiguous) and returns it."
    ),
    sources=(
        "PyTorch 2.13, torch.ops.aten.affine_grid_generator",
        "aten/src/ATen/native/AffineGridGenerator.cpp",
    ),
    cases=_grid_cases,
    oracle=_grid_oracle,
    second=_grid_second,
    baseline=torch.ops.aten.affine_grid_generator,
    baseline_name="aten",
    cost=_grid_cost,
    tolerance=Tolerance(
        limit=2.0,
        accumulator=None,
        why="S is the sum of |theta|, since a coordinate may be off by an eps of 1; the products "
        "and sums round once more between them",
    ),
    mutants=(
        Mutant("align_corners inverted", lambda t, s, a, **k: _grid(t, s, not a, **k)),
        Mutant(
            "x and y swapped",
            lambda t, s, a, **k: _grid(torch.cat([t[..., :2].flip(-1), t[..., 2:]], -1), s, a, **k),
        ),
        Mutant(
            "no translation",
            lambda t, s, a, **k: _grid(
                torch.cat([t[..., :-1], torch.zeros_like(t[..., -1:])], -1), s, a, **k
            ),
        ),
        Mutant("rows of theta swapped", lambda t, s, a, **k: _grid(t.flip(1), s, a, **k)),
    ),
)

# --- reflection_pad1d_backward ------------------------------------------------------------------


@functools.cache
def _reflection_cases() -> Sequence[Case]:
    def case(
        name: str,
        shape: tuple[int, ...],
        padding: list[int],
        t: torch.dtype = torch.float32,
        origin: str = "",
        **more: Any,
    ) -> Case:
        """`shape` is that of the unpadded input."""
        padded = (*shape[:-1], shape[-1] + sum(padding))
        args = (spec(padded, t, **more), spec(shape, t), padding)
        return full(name, origin, *args) if origin else small(name, *args)

    return (
        *(case(f"batch-{dtype_name(t)}", (2, 3, 40), [5, 7], t) for t in FLOATS),
        case("no-batch", (3, 50), [2, 3]),
        case("uneven", (2, 3, 33), [0, 9], _F16),
        case("left-only", (2, 3, 33), [11, 0]),
        case("widest", (2, 2, 9), [8, 8]),
        case("widest-bfloat16", (1, 2, 20), [19, 19], _BF16),
        case("no-padding", (2, 3, 20), [0, 0]),
        case("cropped", (2, 3, 30), [-2, 4]),
        case("one-element", (2, 3, 1), [0, 0]),
        case("two-elements", (2, 3, 2), [1, 1]),
        case("empty-batch", (0, 3, 8), [1, 1]),
        case("misaligned", (2, 3, 30), [3, 3], _F16, offset=1),
        case("transposed", (2, 3, 30), [3, 3], strides=(108, 1, 3)),
        small(
            "out",
            spec((2, 3, 36)),
            spec((2, 3, 30)),
            [3, 3],
            overload=1,
            grad_input=spec((2, 3, 30)),
        ),
        case(
            "wav2vec", (64, 512, 1500), [64, 64], _F16, "wav2vec 2.0 positional convolution input"
        ),
        case("hifi-gan", (16, 256, 8192), [3, 3], torch.float32, "HiFi-GAN residual block"),
        case(
            "stft", (64, 1, 480000), [200, 200], torch.float32, "Whisper spectrogram, 30 s of audio"
        ),
        case("demucs", (8, 64, 110250), [4, 4], _BF16, "Demucs encoder"),
        case("tcn", (512, 64, 2048), [1, 1], _F16, "TasNet separator, kernel 3"),
        case("melgan", (16, 512, 4096), [27, 27], _BF16, "MelGAN residual block, dilation 27"),
    )


def _sources(length: int, padding: Sequence[int], device: torch.device) -> torch.Tensor:
    """For each padded place the place in the input that it mirrors."""
    place = torch.arange(length + sum(padding), device=device) - padding[0]
    place = place.abs()
    return torch.where(place >= length, 2 * (length - 1) - place, place)


def _reflection_oracle(
    grad_output: torch.Tensor,
    self: torch.Tensor,
    padding: Sequence[int],
    *,
    grad_input: torch.Tensor | None = None,
) -> list[Expected]:
    g, length = wide(grad_output), self.shape[-1]
    source = _sources(length, padding, g.device)
    value = g.new_zeros(self.shape).index_add_(-1, source, g)
    magnitude = g.new_zeros(self.shape).index_add_(-1, source, g.abs())
    counts = g.new_zeros(length).index_add_(0, source, torch.ones_like(source, dtype=g.dtype))
    return [expect(value, self.dtype, scale=magnitude * (counts > 1))]


def _reflection_second(
    grad_output: torch.Tensor, self: torch.Tensor, padding: Sequence[int], **more: Any
) -> list[Any]:
    g, length = grad_output.double().numpy(), self.shape[-1]
    result = np.zeros(self.shape)
    for i in range(g.shape[-1]):
        j = abs(i - padding[0])
        result[..., j if j < length else 2 * (length - 1) - j] += g[..., i]
    return [result]


def _reflection_cost(case: Case) -> Cost:
    grad, x = case.tensors[:2]
    return traffic(case, x.numel * x.dtype.itemsize, flops=grad.numel - x.numel, read=grad.nbytes)


def _reflection(*args: Any, **more: Any) -> torch.Tensor:
    return torch.ops.aten.reflection_pad1d_backward(*args, **more)


def _middle_only(g: torch.Tensor, x: torch.Tensor, padding: Any, **more: Any) -> torch.Tensor:
    """What was mirrored is dropped."""
    kept = g.clone()
    kept[..., : max(padding[0], 0)] = 0
    kept[..., kept.shape[-1] - max(padding[1], 0) :] = 0
    return _reflection(kept, x, padding, **more)


def _edge_repeated(g: torch.Tensor, x: torch.Tensor, padding: Any, **more: Any) -> torch.Tensor:
    """Mirrors at the edge's outer side: the edge element is hit too."""
    right = _reflection(g, x, padding, **more)
    place = torch.arange(g.shape[-1], device=g.device) - padding[0]
    place = torch.where(place < 0, -place - 1, place)
    place = torch.where(place >= x.shape[-1], 2 * x.shape[-1] - 1 - place, place)
    empty = torch.zeros(x.shape, dtype=torch.float64, device=g.device)
    wrong = empty.index_add_(-1, place, g.double())
    return right.copy_(wrong)


_REFLECTION = Operator(
    id="aten::reflection_pad1d_backward",
    family="spatial",
    signatures=(
        "reflection_pad1d_backward(grad_output: Tensor, self: Tensor, padding: int[2]) -> Tensor",
        "reflection_pad1d_backward.grad_input(grad_output: Tensor, self: Tensor, padding: int[2], "
        "*, grad_input: Tensor!) -> Tensor!",
    ),
    description=(
        "Gradient of reflection padding of the last dimension. `self` is the input (N, C, W) or "
        "(C, W), of which only the shape matters; `padding` is [left, right], each below W, and "
        "may be negative (cropping); `grad_output` has left + W + right elements in the last "
        "dimension. Padded place i mirrors input place j = |i - left|, or 2 (W - 1) - j where that "
        "is W or more; the edge itself is not repeated. The result, with the shape and dtype of "
        "`self`, sums for each input place the elements of `grad_output` that mirror it (at most "
        "three), in any order; each addition may round to the dtype. "
        "`reflection_pad1d_backward.grad_input` writes into `grad_input` (contiguous), whatever it "
        "held, and returns it."
    ),
    sources=(
        "PyTorch 2.13, torch.ops.aten.reflection_pad1d_backward",
        "aten/src/ATen/native/ReflectionPad.cpp",
    ),
    cases=_reflection_cases,
    oracle=_reflection_oracle,
    second=_reflection_second,
    baseline=torch.ops.aten.reflection_pad1d_backward,
    baseline_name="aten",
    cost=_reflection_cost,
    tolerance=Tolerance(
        limit=1.0,
        accumulator=None,
        why="copies are exact (S is 0), two or three terms round at most twice, by half an eps of "
        "the sum of magnitudes each",
    ),
    mutants=(
        Mutant("mirrored parts dropped", _middle_only),
        Mutant("edge repeated", _edge_repeated),
        Mutant(
            "left and right swapped",
            lambda g, x, p, **k: _reflection(g, x, p[::-1], **k),
        ),
    ),
)

OPERATORS = (_GRID, _REFLECTION)
