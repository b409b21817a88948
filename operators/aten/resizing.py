"""ATen resizing of images, backwards: upsample_nearest2d_backward.

Oracle: torch in float64, sums over explicit source positions. Second statement: NumPy loops.
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
from kernelmark.operators.records import Case, Cost, Expected, Mutant, Operator, Tolerance

_F16, _BF16 = torch.float16, torch.bfloat16


@functools.cache
def _upsample_cases() -> Sequence[Case]:
    def case(
        name: str,
        into: list[int],
        size: tuple[int, int],
        t: torch.dtype = torch.float32,
        *scales: float | None,
        origin: str = "",
        **more: Any,
    ) -> Case:
        """`into` is the shape of the input, `size` that of the enlarged image."""
        args = (spec((into[0], into[1], *size), t, **more), list(size), into, *scales)
        return full(name, origin, *args) if origin else small(name, *args)

    return (
        *(case(f"twice-{dtype_name(t)}", [2, 3, 5, 7], (10, 14), t) for t in FLOATS),
        case("one-and-a-half", [2, 3, 8, 6], (12, 9)),
        case("uneven", [1, 2, 4, 5], (12, 10), _F16),
        case("odd-factor", [1, 2, 3, 4], (7, 9)),
        case("same-size", [2, 3, 6, 5], (6, 5)),
        case("smaller", [1, 2, 12, 9], (4, 3)),
        case("scales-given", [2, 3, 5, 7], (10, 14), torch.float32, 2.0, 2.0),
        case("scales-odd", [1, 2, 5, 6], (11, 13), torch.float32, 2.3, 2.3),
        case("scales-height-only", [1, 2, 4, 6], (16, 12), _BF16, 4.0, None),
        case("one-pixel", [2, 3, 1, 1], (6, 5)),
        case("channels-last", [2, 6, 5, 4], (10, 8), strides=(480, 1, 48, 6)),
        case("misaligned", [1, 3, 5, 5], (10, 10), _F16, offset=1),
        case("empty-batch", [0, 3, 4, 4], (8, 8)),
        small(
            "out",
            spec((2, 3, 8, 8)),
            [8, 8],
            [2, 3, 4, 4],
            overload=1,
            grad_input=spec((2, 3, 4, 4)),
        ),
        case(
            "stable-diffusion",
            [8, 320, 64, 64],
            (128, 128),
            _F16,
            origin="Stable Diffusion 1.5 U-Net upsampling",
        ),
        case("stylegan", [16, 128, 128, 128], (256, 256), origin="StyleGAN2 synthesis, 256 x 256"),
        case(
            "feature-pyramid",
            [16, 256, 100, 168],
            (200, 336),
            _BF16,
            origin="Mask R-CNN feature pyramid",
        ),
        case("yolo", [64, 256, 40, 40], (80, 80), _F16, 2.0, 2.0, origin="YOLOv8 neck"),
        case("fourfold", [8, 64, 128, 128], (512, 512), _F16, 4.0, 4.0, origin="ESRGAN, fourfold"),
        case(
            "one-and-a-half-full", [16, 64, 160, 160], (240, 240), origin="HRNet fusion, factor 1.5"
        ),
        case(
            "channels-last-full",
            [16, 256, 64, 64],
            (128, 128),
            _F16,
            origin="ConvNeXt decoder in channels-last memory",
            strides=(4194304, 1, 32768, 256),
        ),
    )


def _nearest(out: int, into: int, scale: float | None, device: torch.device) -> torch.Tensor:
    """Source place of each enlarged place, by the exact quotient."""
    place = torch.arange(out, device=device)
    if scale is None:
        return place * into // out
    return (place.double() / scale).floor().long().clamp_max(into - 1)


def _upsample_oracle(
    grad_output: torch.Tensor,
    output_size: Sequence[int],
    input_size: Sequence[int],
    scales_h: float | None = None,
    scales_w: float | None = None,
    *,
    grad_input: torch.Tensor | None = None,
) -> list[Expected]:
    g = wide(grad_output)
    rows = _nearest(output_size[0], input_size[2], scales_h, g.device)
    columns = _nearest(output_size[1], input_size[3], scales_w, g.device)

    def gathered(values: torch.Tensor) -> torch.Tensor:
        n, c, height, width = input_size
        tall = values.new_zeros(n, c, height, values.shape[-1]).index_add_(2, rows, values)
        return values.new_zeros(n, c, height, width).index_add_(3, columns, tall)

    return [expect(gathered(g), grad_output.dtype, scale=gathered(g.abs()))]


def _upsample_second(
    grad_output: torch.Tensor,
    output_size: Sequence[int],
    input_size: Sequence[int],
    scales_h: float | None = None,
    scales_w: float | None = None,
    **more: Any,
) -> list[Any]:
    g, result = grad_output.double().numpy(), np.zeros(input_size)
    factors = [
        scale or out / into
        for scale, out, into in zip((scales_h, scales_w), output_size, input_size[2:], strict=True)
    ]
    for y in range(output_size[0]):
        for x in range(output_size[1]):
            row = min(int(y / factors[0] + 1e-9), input_size[2] - 1)
            column = min(int(x / factors[1] + 1e-9), input_size[3] - 1)
            result[:, :, row, column] += g[:, :, y, x]
    return [result]


def _upsample_cost(case: Case) -> Cost:
    grad = case.tensors[0]
    written = math.prod(case.args[2]) * grad.dtype.itemsize
    return traffic(case, written, flops=grad.numel, read=grad.nbytes)


def _upsample(*args: Any, **more: Any) -> torch.Tensor:
    return torch.ops.aten.upsample_nearest2d_backward(*args, **more)


def _one_of_each(
    g: torch.Tensor, output_size: Any, input_size: Any, *scales: Any, **more: Any
) -> torch.Tensor:
    """Takes one enlarged pixel for each input pixel instead of their sum."""
    right = _upsample(g, output_size, input_size, *scales, **more)
    rows = torch.arange(input_size[2]) * output_size[0] // input_size[2]
    columns = torch.arange(input_size[3]) * output_size[1] // input_size[3]
    return right.copy_(g[:, :, rows][:, :, :, columns])


def _mean_of_each(
    g: torch.Tensor, output_size: Any, input_size: Any, *scales: Any, **more: Any
) -> torch.Tensor:
    factor = (output_size[0] * output_size[1]) / (input_size[2] * input_size[3])
    return _upsample(g, output_size, input_size, *scales, **more).div_(factor)


_UPSAMPLE = Operator(
    id="aten::upsample_nearest2d_backward",
    family="spatial",
    signatures=(
        "upsample_nearest2d_backward(grad_output: Tensor, output_size: int[2], "
        "input_size: int[4], scales_h: float?=None, scales_w: float?=None) -> Tensor",
        "upsample_nearest2d_backward.grad_input(grad_output: Tensor, output_size: int[2], "
        "input_size: int[4], scales_h: float?=None, scales_w: float?=None, *, "
        "grad_input: Tensor!) -> Tensor!",
    ),
    description=(
        "Gradient of nearest-neighbour resizing. `input_size` is [N, C, h, w], `output_size` "
        "[H, W]; `grad_output` is (N, C, H, W) of any strides; the result is (N, C, h, w) of its "
        "dtype. Enlarged row Y came from input row min(floor(Y s), h - 1) with s = 1 / scales_h if "
        "that is given, else h / H; columns likewise. The result sums for each input pixel the "
        "elements of `grad_output` that came from it (0 if none did). No case has a product Y s "
        "that rounding to float32 would carry across an integer, and scales fit the sizes (H is "
        "floor(h scales_h)): for others PyTorch's CPU and CUDA kernels differ. float16 and "
        "bfloat16 accumulate in float32 and are rounded once. "
        "`upsample_nearest2d_backward.grad_input` writes into `grad_input` (contiguous), whatever "
        "it held, and returns it."
    ),
    sources=(
        "PyTorch 2.13, torch.ops.aten.upsample_nearest2d_backward",
        "aten/src/ATen/native/UpSampleNearest2d.cpp",
    ),
    cases=_upsample_cases,
    oracle=_upsample_oracle,
    second=_upsample_second,
    baseline=torch.ops.aten.upsample_nearest2d_backward,
    baseline_name="aten",
    cost=_upsample_cost,
    tolerance=Tolerance(
        limit=1.0,
        accumulator=torch.float32,
        why="float32 sums of few terms, S their magnitudes; one final rounding 0.5",
    ),
    mutants=(
        Mutant("one pixel of each", _one_of_each),
        Mutant("mean instead of sum", _mean_of_each),
    ),
)

OPERATORS = (_UPSAMPLE,)
