"""ATen operators that turn or unfold images: rot90, im2col.

Nothing is computed, so results are exact. Oracle: torch slices in float64 or int64. Second
statement: NumPy.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
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
from kernelmark.operators.records import EXACT, Case, Cost, Expected, Mutant, Operator

_F16, _BF16, _F32 = torch.float16, torch.bfloat16, torch.float32
_ONCE = ("base", "base")

# --- rot90 --------------------------------------------------------------------------------------


@functools.cache
def _rot90_cases() -> Sequence[Case]:
    return (
        *(small(f"once-{dtype_name(t)}", spec((20, 33), t)) for t in FLOATS),
        *(small(f"turns-{k}", spec((9, 21), _F16), k) for k in (0, 2, 3, -1, 5, -6)),
        small("last-dims", spec((3, 17, 20)), 1, [1, 2]),
        small("outer-dims", spec((4, 5, 30), _BF16), 1, [0, 2]),
        small("dims-swapped", spec((12, 7, 5)), 1, [1, 0]),
        small("negative-dims", spec((2, 9, 13)), 3, [-2, -1]),
        small("transposed", spec((12, 30), strides=(1, 12)), 1),
        small("strided-misaligned", spec((6, 25), _F16, strides=(60, 2), offset=1), 2),
        small("one-element", spec((1, 1)), 1),
        small("one-row", spec((1, 90)), 1),
        small("empty", spec((0, 4)), 1),
        small(
            "int64",
            spec((9, 8), torch.int64, fill="integers", low=-(2**62), high=2**62),
            3,
            draws=_ONCE,
        ),
        small("bool", spec((9, 30), torch.bool, fill="bool"), 1, draws=_ONCE),
        small("specials", spec((30, 20), _F16), 1, draws=("specials", "base")),
        small("out", spec((6, 20)), 1, [0, 1], overload=1, out=spec((20, 6), strides=(1, 20))),
        full(
            "images",
            "ImageNet augmentation, 256 images of 224 x 224",
            spec((256, 3, 224, 224)),
            1,
            [2, 3],
        ),
        full(
            "images-half-turn",
            "ImageNet augmentation, half turn",
            spec((256, 3, 224, 224), _F16),
            2,
            [2, 3],
        ),
        full(
            "features",
            "equivariant CNN features, batch 64, third turn",
            spec((64, 256, 64, 64), _BF16),
            3,
            [-2, -1],
        ),
        full(
            "slices", "nnU-Net volumes turned about an axis", spec((8, 2, 192, 192, 128)), 1, [2, 4]
        ),
        full("matrix", "Llama 3 8B MLP matrix turned", spec((14336, 4096), _BF16), 1),
        full(
            "channels-last",
            "ConvNeXt features in channels-last memory",
            spec((64, 192, 56, 56), _F16, strides=(602112, 1, 10752, 192)),
            1,
            [2, 3],
        ),
    )


def _rot90_oracle(
    self: torch.Tensor,
    k: int = 1,
    dims: Sequence[int] = (0, 1),
    *,
    out: torch.Tensor | None = None,
) -> list[Expected]:
    x = wide(self)
    for _ in range(k % 4):  # out[i, j] = x[j, columns - 1 - i] in the plane of `dims`
        x = x.flip(dims[1]).transpose(dims[0], dims[1])
    return [expect(x.contiguous(), self.dtype)]


def _rot90_second(
    self: torch.Tensor, k: int = 1, dims: Sequence[int] = (0, 1), **more: Any
) -> list[Any]:
    return [np.rot90(wide(self).numpy(), k, axes=tuple(dims)).copy()]  # type: ignore[arg-type]


def _moved_cost(case: Case) -> Cost:
    x = case.tensors[0]
    return traffic(case, x.numel * x.dtype.itemsize, flops=0, read=x.nbytes)


def _no_flip(
    self: torch.Tensor, k: int = 1, dims: Sequence[int] = (0, 1), **more: Any
) -> torch.Tensor:
    """Transposes without turning the order round."""
    right = torch.ops.aten.rot90(self, k, dims, **more)
    return right.copy_(self.transpose(dims[0], dims[1]) if k % 2 else self)


_ROT90 = Operator(
    id="aten::rot90",
    family="concat/layout",
    signatures=(
        "rot90(self: Tensor, k: int=1, dims: int[]=[0, 1]) -> Tensor",
        "rot90.out(self: Tensor, k: int=1, dims: int[]=[0, 1], *, out: Tensor!) -> Tensor!",
    ),
    description=(
        "Turns `self` by `k` quarter turns in the plane of the two dimensions `dims`, from the "
        "first towards the second: for a matrix of C columns and `k` = 1, "
        "out[i, j] = self[j, C - 1 - i]. `k` may be any int, negative ones turn back; it counts "
        "modulo 4. `dims` holds two different dimensions, negative ones count from the end. For "
        "odd `k` the two sizes change places. The result is a new tensor (a copy for `k` = 0) of "
        "the dtype of `self` (any). `rot90.out` writes into `out` of any strides and returns it."
    ),
    sources=(
        "PyTorch 2.13, torch.ops.aten.rot90",
        "aten/src/ATen/native/TensorTransformations.cpp",
    ),
    cases=_rot90_cases,
    oracle=_rot90_oracle,
    second=_rot90_second,
    baseline=torch.ops.aten.rot90,
    baseline_name="aten",
    cost=_moved_cost,
    tolerance=EXACT,
    mutants=(
        Mutant(
            "turned the other way", lambda x, k=1, *a, **m: torch.ops.aten.rot90(x, -k, *a, **m)
        ),
        Mutant("transposed only", _no_flip),
        Mutant("half a turn more", lambda x, k=1, *a, **m: torch.ops.aten.rot90(x, k + 2, *a, **m)),
    ),
)

# --- im2col -------------------------------------------------------------------------------------

_THREE = ([3, 3], [1, 1], [1, 1], [1, 1])  # kernel 3, dilation 1, padding 1, stride 1


@functools.cache
def _im2col_cases() -> Sequence[Case]:
    return (
        *(small(f"three-{dtype_name(t)}", spec((2, 3, 9, 8), t), *_THREE) for t in FLOATS),
        small("no-batch", spec((3, 8, 8)), *_THREE),
        small("stride-two", spec((2, 4, 11, 9), _F16), [3, 3], [1, 1], [0, 0], [2, 2]),
        small("dilated-uneven", spec((2, 2, 16, 17)), [5, 4], [2, 2], [2, 1], [1, 2]),
        small("pointwise", spec((2, 5, 6, 7), _BF16), [1, 1], [1, 1], [0, 0], [1, 1]),
        small("patches", spec((2, 3, 16, 16)), [4, 4], [1, 1], [0, 0], [4, 4]),
        small("wide-padding", spec((1, 2, 5, 5)), [2, 3], [1, 1], [3, 2], [2, 1]),
        small("whole-image", spec((2, 3, 6, 5)), [6, 5], [1, 1], [0, 0], [1, 1]),
        small("channels-last", spec((2, 6, 7, 8), _F16, strides=(336, 1, 48, 6)), *_THREE),
        small("misaligned", spec((1, 3, 9, 9), _F16, offset=1), *_THREE),
        small("one-pixel", spec((1, 1, 1, 1)), *_THREE),
        small("specials", spec((2, 3, 9, 8)), *_THREE, draws=("specials", "base")),
        small(
            "out",
            spec((2, 3, 9, 8)),
            *_THREE,
            overload=1,
            out=spec((2, 27, 72)),
        ),
        full(
            "resnet-50",
            "ResNet-50 stage 2 convolution 3 x 3, batch 32",
            spec((32, 128, 28, 28), _F16),
            *_THREE,
        ),
        full("vgg-16", "VGG-16 convolution 2, batch 8", spec((8, 64, 224, 224), _F16), *_THREE),
        full(
            "vit-patches",
            "ViT-B/16 patches, batch 128",
            spec((128, 3, 224, 224)),
            [16, 16],
            [1, 1],
            [0, 0],
            [16, 16],
        ),
        full(
            "resnet-stem",
            "ResNet-50 stem 7 x 7 stride 2, batch 32",
            spec((32, 3, 224, 224)),
            [7, 7],
            [1, 1],
            [3, 3],
            [2, 2],
        ),
        full(
            "deeplab",
            "DeepLab v3 dilated convolution, rate 12, batch 4",
            spec((4, 512, 65, 65), _BF16),
            [3, 3],
            [12, 12],
            [12, 12],
            [1, 1],
        ),
        full(
            "t2t-vit",
            "T2T-ViT soft split 7 x 7 stride 4, batch 64",
            spec((64, 3, 224, 224), _BF16),
            [7, 7],
            [1, 1],
            [2, 2],
            [4, 4],
        ),
        full(
            "channels-last-full",
            "ConvNeXt stage 2 depthwise 7 x 7 in channels-last memory, batch 8",
            spec((8, 192, 28, 28), strides=(150528, 1, 5376, 192)),
            [7, 7],
            [1, 1],
            [3, 3],
            [1, 1],
        ),
    )


def _places(size: int, kernel: int, dilation: int, padding: int, stride: int) -> int:
    """Number of window positions along one dimension."""
    return (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1


def _taps(
    x: torch.Tensor, kernel: Sequence[int], dilation: Sequence[int], stride: Sequence[int]
) -> Iterator[torch.Tensor]:
    """For each tap of the window, in row-major order: what it sees of the padded images."""
    rows = (x.shape[-2] - dilation[0] * (kernel[0] - 1) - 1) // stride[0] + 1
    columns = (x.shape[-1] - dilation[1] * (kernel[1] - 1) - 1) // stride[1] + 1
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            top, left = i * dilation[0], j * dilation[1]
            yield x[
                ...,
                top : top + stride[0] * (rows - 1) + 1 : stride[0],
                left : left + stride[1] * (columns - 1) + 1 : stride[1],
            ]


def _im2col_oracle(
    self: torch.Tensor,
    kernel_size: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
    *,
    out: torch.Tensor | None = None,
) -> list[Expected]:
    pads = (padding[1], padding[1], padding[0], padding[0])
    x = torch.nn.functional.pad(wide(self), pads)
    taps = torch.stack(list(_taps(x, kernel_size, dilation, stride)), dim=-3)
    return [expect(taps.flatten(-4, -3).flatten(-2, -1), self.dtype)]


def _im2col_second(
    self: torch.Tensor,
    kernel_size: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
    **more: Any,
) -> list[Any]:
    x = wide(self).numpy()
    around = [(0, 0)] * (x.ndim - 2) + [(p, p) for p in padding]
    reach = [d * (k - 1) + 1 for k, d in zip(kernel_size, dilation, strict=True)]
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(x, around), reach, axis=(-2, -1))
    seen = windows[..., :: stride[0], :: stride[1], :: dilation[0], :: dilation[1]]
    last = seen.ndim - 4
    seen = np.moveaxis(seen, (last, last + 1), (-2, -1))  # taps first, then places
    taps, places = math.prod(kernel_size), seen.shape[-2] * seen.shape[-1]
    return [seen.reshape(*x.shape[:-3], x.shape[-3] * taps, places).copy()]


def _im2col_cost(case: Case) -> Cost:
    x = case.tensors[0]
    kernel, dilation, padding, stride = case.args[1:5]
    places = math.prod(
        _places(x.shape[i - 2], kernel[i], dilation[i], padding[i], stride[i]) for i in (0, 1)
    )
    numel = math.prod(x.shape[:-2]) * math.prod(kernel) * places
    return traffic(case, numel * x.dtype.itemsize, flops=0, read=x.nbytes)


def _padding_edge(
    self: torch.Tensor,
    kernel_size: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
    **more: Any,
) -> torch.Tensor:
    """Repeats the border instead of padding with 0."""
    right = torch.ops.aten.im2col(self, kernel_size, dilation, padding, stride, **more)
    pads = (padding[1], padding[1], padding[0], padding[0])
    x = torch.nn.functional.pad(self, pads, mode="replicate")
    return right.copy_(torch.ops.aten.im2col(x, kernel_size, dilation, [0, 0], stride))


def _taps_swapped(
    self: torch.Tensor, kernel_size: Sequence[int], *rest: Any, **more: Any
) -> torch.Tensor:
    """Taps in column-major order."""
    right = torch.ops.aten.im2col(self, kernel_size, *rest, **more)
    channels = right.shape[-2] // math.prod(kernel_size)
    taps = right.unflatten(-2, (channels, kernel_size[0], kernel_size[1])).transpose(-3, -2)
    return right.copy_(taps.flatten(-4, -2).clone())


_IM2COL = Operator(
    id="aten::im2col",
    family="concat/layout",
    signatures=(
        "im2col(self: Tensor, kernel_size: int[2], dilation: int[2], padding: int[2], "
        "stride: int[2]) -> Tensor",
        "im2col.out(self: Tensor, kernel_size: int[2], dilation: int[2], padding: int[2], "
        "stride: int[2], *, out: Tensor!) -> Tensor!",
    ),
    description=(
        "Windows of images as columns (unfold). `self` is (N, C, H, W) or (C, H, W); the result "
        "(N, C * kh * kw, L) or (C * kh * kw, L), in the dtype of `self`. With kernel (kh, kw), "
        "oh = (H + 2 padding[0] - dilation[0] (kh - 1) - 1) // stride[0] + 1, ow likewise, "
        "L = oh * ow, out[n, (c * kh + i) * kw + j, y * ow + x] = self[n, c, "
        "y stride[0] - padding[0] + i dilation[0], x stride[1] - padding[1] + j dilation[1]], and "
        "0 where that lies outside the image. `self` may have any strides. `im2col.out` writes "
        "into `out` (contiguous) and returns it."
    ),
    sources=("PyTorch 2.13, torch.ops.aten.im2col", "aten/src/ATen/native/Im2Col.cpp"),
    cases=_im2col_cases,
    oracle=_im2col_oracle,
    second=_im2col_second,
    baseline=torch.ops.aten.im2col,
    baseline_name="aten",
    cost=_im2col_cost,
    tolerance=EXACT,
    mutants=(
        Mutant("border repeated instead of 0", _padding_edge),
        Mutant("taps in column-major order", _taps_swapped),
    ),
)

OPERATORS = (_ROT90, _IM2COL)
