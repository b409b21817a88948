"""ATen writes of values that need no index tensor: masked_fill_, select_backward.

Results are exact. Oracle: `torch.where` in float64 or int64. Second statement: NumPy assignments.
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
from kernelmark.operators.records import EXACT, Case, Cost, Expected, Mutant, Operator, TensorSpec

_F16, _BF16 = torch.float16, torch.bfloat16
_ONCE = ("base", "base")

# --- masked_fill_ -------------------------------------------------------------------------------


@functools.cache
def _masked_fill_cases() -> Sequence[Case]:
    def mask(shape: tuple[int, ...], **more: Any) -> TensorSpec:
        return spec(shape, torch.bool, fill="bool", **more)

    return (
        *(small(f"rows-{dtype_name(t)}", spec((7, 133), t), mask((7, 133)), -2.5) for t in FLOATS),
        *(
            small(
                f"tensor-{dtype_name(t)}", spec((7, 33), t), mask((7, 33)), spec((), t), overload=1
            )
            for t in FLOATS
        ),
        small("minus-infinity", spec((6, 40), _F16), mask((6, 40)), float("-inf")),
        small("nan", spec((90,)), mask((90,)), float("nan")),
        small("mask-row", spec((9, 50)), mask((50,)), 0.0),
        small("mask-column", spec((4, 9, 30), _BF16), mask((9, 1)), 1e4),
        small("mask-0-d", spec((9, 5)), mask(()), 3.0),
        small("mask-transposed", spec((20, 30)), mask((20, 30), strides=(1, 20)), 1.5),
        small("self-transposed", spec((20, 30), strides=(1, 20)), mask((20, 30)), 1.5),
        small(
            "strided-misaligned",
            spec((6, 50), _F16, strides=(101, 2), offset=1),
            mask((6, 50), offset=3),
            7.0,
        ),
        small(
            "int64",
            spec((90,), torch.int64, fill="integers", high=2**62),
            mask((90,)),
            -5,
            draws=_ONCE,
        ),
        small("bool", spec((90,), torch.bool, fill="bool"), mask((90,)), True, draws=_ONCE),
        small("scalar", spec(()), mask(()), 4.0),
        small("empty", spec((0, 4)), mask((0, 4)), 4.0),
        small("specials", spec((40, 33), _F16), mask((40, 33)), 0.5, draws=("specials", "base")),
        full(
            "causal-scores",
            "GPT-2 small attention scores, batch 32, one mask for all",
            spec((32, 12, 1024, 1024), _F16),
            mask((1024, 1024)),
            float("-inf"),
        ),
        full(
            "padding-scores",
            "BERT-large attention scores, batch 32, key padding",
            spec((32, 16, 512, 512)),
            mask((32, 1, 1, 512)),
            -1e9,
        ),
        full(
            "logits-banned",
            "Llama 3 logits, 512 sequences, banned tokens",
            spec((512, 128256), _BF16),
            mask((128256,)),
            float("-inf"),
        ),
        full(
            "masked-tokens",
            "wav2vec 2.0 masked frames, 64 x 1500",
            spec((64, 1500, 1024), _F16),
            mask((64, 1500, 1)),
            0.0,
        ),
        full(
            "gradients",
            "non-finite gradients of a Llama 3 8B MLP matrix",
            spec((14336, 4096)),
            mask((14336, 4096)),
            0.0,
        ),
        full(
            "scores-tensor",
            "T5 11B attention scores, batch 8, value in a tensor",
            spec((8, 128, 512, 512), _BF16),
            mask((8, 1, 512, 512)),
            spec((), _BF16),
            overload=1,
        ),
    )


def _masked_fill_oracle(
    self: torch.Tensor, mask: torch.Tensor, value: torch.Tensor | complex
) -> list[Expected]:
    new = torch.as_tensor(value, device=self.device).to(self.dtype)
    return [expect(torch.where(mask, wide(new), wide(self)), self.dtype)]


def _masked_fill_second(
    self: torch.Tensor, mask: torch.Tensor, value: torch.Tensor | complex
) -> list[Any]:
    x = wide(self).numpy().copy()
    new = wide(torch.as_tensor(value).to(self.dtype)).numpy()
    np.copyto(x, new, where=np.broadcast_to(mask.numpy(), x.shape))
    return [x]


def _masked_fill_cost(case: Case) -> Cost:
    x, mask = case.tensors[0], case.tensors[1]
    # A writer needs to touch only what is masked: half of it, by the draw.
    return traffic(case, x.numel * x.dtype.itemsize // 2, flops=0, read=mask.nbytes)


def _masked_fill(self: torch.Tensor, mask: torch.Tensor, value: Any) -> torch.Tensor:
    return torch.ops.aten.masked_fill_(self, mask, value)


_MASKED_FILL = Operator(
    id="aten::masked_fill_",
    family="indexing",
    signatures=(
        "masked_fill_.Scalar(self: Tensor!, mask: Tensor, value: Scalar) -> Tensor!",
        "masked_fill_.Tensor(self: Tensor!, mask: Tensor, value: Tensor) -> Tensor!",
    ),
    description=(
        "Sets the elements of `self` to `value` where `mask` is True, in place, and returns "
        "`self`; the others keep their bits. `mask` is bool and is broadcast to the shape of "
        "`self`. `value` is a number, or a 0-d tensor, converted to the dtype of `self` (any). "
        "`self` may have any strides without overlap, `mask` any strides."
    ),
    sources=(
        "PyTorch 2.13, torch.ops.aten.masked_fill_",
        "aten/src/ATen/native/TensorAdvancedIndexing.cpp",
    ),
    cases=_masked_fill_cases,
    oracle=_masked_fill_oracle,
    second=_masked_fill_second,
    baseline=_masked_fill,
    baseline_name="aten",
    cost=_masked_fill_cost,
    tolerance=EXACT,
    mutants=(
        Mutant("mask inverted", lambda x, m, v: _masked_fill(x, ~m, v)),
        Mutant("all filled", lambda x, m, v: _masked_fill(x, torch.ones_like(m), v)),
        Mutant("filled with 0", lambda x, m, v: _masked_fill(x, m, 0)),
        Mutant("the rest cleared", lambda x, m, v: _masked_fill(_masked_fill(x, ~m, 0), m, v)),
    ),
)

# --- select_backward ----------------------------------------------------------------------------


@functools.cache
def _select_backward_cases() -> Sequence[Case]:
    return (
        *(small(f"rows-{dtype_name(t)}", spec((33,), t), [5, 33], 0, 2) for t in FLOATS),
        small("last-dim", spec((9, 7)), [9, 7, 20], -1, -1),
        small("middle-dim", spec((3, 5), _F16), [3, 40, 5], 1, 0),
        small("negative-index", spec((4, 30)), [4, 6, 30], -2, -6),
        small("grad-transposed", spec((9, 20), strides=(1, 9)), [4, 9, 20], 0, 3),
        small("grad-expanded", spec((9, 20), strides=(0, 0)), [9, 20, 3], 2, 1),
        small("misaligned", spec((7, 9), _BF16, offset=1), [7, 5, 9], 1, 4),
        small("vector", spec(()), [70], 0, 33),
        small("one-element", spec((1,)), [1, 1], 0, 0),
        small("empty", spec((0, 4)), [0, 3, 4], 1, 2),
        small("float64", spec((6, 20), torch.float64), [6, 5, 20], 1, 2),
        small("specials", spec((40, 33), _F16), [40, 3, 33], 1, 1, draws=("specials", "base")),
        small(
            "out",
            spec((6, 20)),
            [6, 4, 20],
            1,
            3,
            overload=1,
            out=spec((6, 4, 20), strides=(80, 1, 4)),
        ),
        full(
            "class-token",
            "ViT-L: gradient of the class token, batch 256",
            spec((256, 1024), _F16),
            [256, 577, 1024],
            1,
            0,
        ),
        full(
            "last-token",
            "Llama 3 8B reward head: last of 2048 tokens, batch 16",
            spec((16, 4096), _BF16),
            [16, 2048, 4096],
            1,
            -1,
        ),
        full(
            "query-of-three",
            "GPT-2 fused projection: gradient of the keys",
            spec((32, 1024, 768)),
            [32, 1024, 3, 768],
            2,
            1,
        ),
        full(
            "one-frame",
            "VideoMAE: one of 16 frames, batch 16",
            spec((16, 3, 224, 224)),
            [16, 16, 3, 224, 224],
            1,
            7,
        ),
        full(
            "channel",
            "segmentation logits: one of 150 classes",
            spec((8, 256, 256), _F16),
            [8, 150, 256, 256],
            1,
            12,
        ),
        full(
            "imaginary-parts",
            "complex pairs: imaginary parts, Llama 3 8B rotary, 8192 tokens",
            spec((8192, 32, 64)),
            [8192, 32, 64, 2],
            -1,
            1,
        ),
    )


def _select_backward_oracle(
    grad_output: torch.Tensor,
    input_sizes: Sequence[int],
    dim: int,
    index: int,
    *,
    out: torch.Tensor | None = None,
) -> list[Expected]:
    g = wide(grad_output).unsqueeze(dim)
    shape = [-1 if i == dim % len(input_sizes) else 1 for i in range(len(input_sizes))]
    size = input_sizes[dim]
    here = (torch.arange(size, device=g.device) == index % size).view(shape)
    return [expect(torch.where(here, g, 0.0), grad_output.dtype)]


def _select_backward_second(
    grad_output: torch.Tensor, input_sizes: Sequence[int], dim: int, index: int, **more: Any
) -> list[Any]:
    result = np.zeros(input_sizes)
    np.moveaxis(result, dim, 0)[index] = wide(grad_output).numpy()
    return [result]


def _select_backward_cost(case: Case) -> Cost:
    grad = case.tensors[0]
    written = math.prod(case.args[1]) * grad.dtype.itemsize
    return traffic(case, written, flops=0, read=grad.nbytes)


_SELECT_BACKWARD = Operator(
    id="aten::select_backward",
    family="indexing",
    signatures=(
        "select_backward(grad_output: Tensor, input_sizes: int[], dim: int, index: int) -> Tensor",
        "select_backward.out(grad_output: Tensor, input_sizes: int[], dim: int, index: int, *, "
        "out: Tensor!) -> Tensor!",
    ),
    description=(
        "Gradient of select: a tensor of shape `input_sizes` and the dtype of `grad_output`, all "
        "0 but for slice `index` along `dim`, which is `grad_output` (whose shape is `input_sizes` "
        "without `dim`). A negative `dim` or `index` counts from the end. `grad_output` may have "
        "any strides, 0 included. `select_backward.out` writes the whole of `out`, whatever it "
        "held, and returns it."
    ),
    sources=(
        "PyTorch 2.13, torch.ops.aten.select_backward",
        "aten/src/ATen/native/TensorShape.cpp",
    ),
    cases=_select_backward_cases,
    oracle=_select_backward_oracle,
    second=_select_backward_second,
    baseline=torch.ops.aten.select_backward,
    baseline_name="aten",
    cost=_select_backward_cost,
    tolerance=EXACT,
    mutants=(
        Mutant(
            "next slice",
            lambda g, sizes, dim, index, **k: torch.ops.aten.select_backward(
                g, sizes, dim, (index + 1) % sizes[dim], **k
            ),
        ),
        Mutant(
            "first slice",
            lambda g, sizes, dim, index, **k: torch.ops.aten.select_backward(g, sizes, dim, 0, **k),
        ),
        Mutant(
            "every slice",
            lambda g, sizes, dim, index, **k: torch.ops.aten.select_backward(
                g, sizes, dim, index, **k
            ).copy_(g.unsqueeze(dim)),
        ),
    ),
)

OPERATORS = (_MASKED_FILL, _SELECT_BACKWARD)
