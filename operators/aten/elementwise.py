"""Parts that the elementwise families of ATen share: layouts, promotion, condition, mutants.

No operators here. The tolerance of every floating-point elementwise operator is the same: a limit
of 1, where a correctly rounded result costs at most 0.5, and a condition scale S in float32 eps
that carries what arithmetic in float32 may lose (`condition`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from kernelmark.operators.building import FLOATS, dtype_name, spec, wide
from kernelmark.operators.draws import map_tensors
from kernelmark.operators.records import (
    Argument,
    Case,
    Cost,
    Expected,
    Mutant,
    TensorSpec,
    Tolerance,
    contiguous_strides,
)

F32, F16, BF16 = FLOATS
I64, I32, I16, I8, U8 = torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8
BOOL, C64 = torch.bool, torch.complex64

#: What S gives to results that hardware may flush to zero (below float32's 2**-126): this times
#: eps is the smallest normal number.
FLUSH = 2.0**-103

ARITHMETIC = Tolerance(
    limit=1.0,
    accumulator=torch.float32,
    why="rounding to the output costs 0.5; S allows float32 arithmetic one rounding per operation",
)
TRANSCENDENTAL = Tolerance(
    limit=1.0,
    accumulator=torch.float32,
    why="rounding to the output costs 0.5; S allows a float32 function 2 to 4 ulp and a rounding "
    "of its argument (|x f'(x)|)",
)

Function = Callable[..., torch.Tensor]


def condition(value: torch.Tensor, *terms: torch.Tensor, ulps: float = 1.0) -> torch.Tensor:
    """S: `ulps` float32 roundings of the value and of each term, and room for flushed results."""
    total = sum((t.abs() for t in terms), value.abs())
    return torch.nan_to_num(total * ulps, 0.0, 0.0, 0.0) + FLUSH


def sensitivity(function: Function, *inputs: torch.Tensor) -> torch.Tensor:
    """Sum over inputs of |x df/dx|, by automatic differentiation in float64.

    `inputs` have the result's shape. Elements where it is not finite count 0.
    """
    with torch.inference_mode(False), torch.enable_grad():
        leaves = [x.detach().clone().requires_grad_() for x in inputs]
        gradients = torch.autograd.grad(function(*leaves).sum(), leaves)
    parts = (
        torch.nan_to_num(x * g, 0.0, 0.0, 0.0).abs() for x, g in zip(inputs, gradients, strict=True)
    )
    return sum(parts, torch.zeros_like(inputs[0]))


def normal_inputs(*tensors: torch.Tensor) -> torch.Tensor:
    """True where no float32 input is subnormal: chips differ in whether they read those as 0."""
    mask = torch.ones((), dtype=torch.bool, device=tensors[0].device)
    for x in tensors:
        if x.dtype == torch.float32:
            mask = mask & ~((x != 0) & (x.abs() < torch.finfo(torch.float32).smallest_normal))
    return mask.expand(np.broadcast_shapes(*(x.shape for x in tensors)))


def array(value: Any) -> np.ndarray:
    """A tensor as NumPy in the oracle's precision (float64, complex128, int64, bool)."""
    return wide(value).cpu().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)


def float_dtype(dtype: torch.dtype) -> torch.dtype:
    """What a floating-point function of integers returns: torch's default dtype."""
    return dtype if dtype.is_floating_point or dtype.is_complex else torch.get_default_dtype()


def unary_layouts(dtypes: Sequence[torch.dtype] = FLOATS, **fill: Any) -> dict[str, TensorSpec]:
    """Small inputs of one tensor: dtypes, ranks, tails, strides, offsets, size 1, empty, 0-d."""
    first, low = dtypes[0], dtypes[min(1, len(dtypes) - 1)]
    return {
        **{f"rows-{dtype_name(t)}": spec((37, 53), t, **fill) for t in dtypes},
        "vector-tail": spec((2049,), first, **fill),
        "transposed": spec((33, 31), first, strides=(1, 33), **fill),
        "gaps": spec((17, 40), low, strides=(160, 2), offset=5, **fill),
        "channels-last": spec((2, 3, 8, 8), low, strides=(192, 1, 24, 3), **fill),
        "misaligned": spec((3, 257), low, offset=1, **fill),
        "expanded": spec((9, 65), first, strides=(0, 1), **fill),
        "five-dimensions": spec((2, 3, 4, 5, 7), first, **fill),
        "one-element": spec((1,), low, **fill),
        "zero-dimensions": spec((), first, **fill),
        "empty": spec((0, 5), first, **fill),
    }


def unary_full(**fill: Any) -> dict[str, tuple[TensorSpec, str]]:
    """Activations of known models: (input, origin)."""
    llama, half = (4096, 14336), torch.float16
    return {
        "llama-3-mlp": (spec(llama, BF16, **fill), "Llama 3 8B MLP, 4096 tokens"),
        "llama-3-fused-gate": (
            spec(llama, BF16, strides=(2 * 14336, 1), **fill),
            "Llama 3 8B, gate half of the fused gate and up projection, 4096 tokens",
        ),
        "llama-2-mlp-float32": (spec((2048, 11008), **fill), "Llama 2 7B MLP, 2048 tokens"),
        "gpt2-mlp": (spec((32, 1024, 3072), half, **fill), "GPT-2 small MLP, batch 32"),
        "clip-mlp": (spec((32, 577, 4096), half, **fill), "CLIP ViT-L/14 at 336 px, batch 32"),
        "unet-float32": (spec((16, 320, 64, 64), **fill), "Stable Diffusion 1.5 U-Net, batch 16"),
        "resnet-channels-last": (
            spec((64, 256, 56, 56), half, strides=(256 * 3136, 1, 56 * 256, 256), **fill),
            "ResNet-50 stage 1, batch 64, channels last",
        ),
        "gpt2-mlp-misaligned": (
            spec((32, 1024, 3071), half, offset=1, **fill),
            "GPT-2 small MLP, batch 32, cut by one column",
        ),
    }


Pair = tuple[TensorSpec, TensorSpec]


def layout_cases(layouts: dict[str, TensorSpec] | dict[str, Pair], *more: Argument) -> list[Case]:
    """Cases of `unary_layouts` or `binary_layouts`; only the plain ones walk through all draws."""
    cases = []
    for name, tensors in layouts.items():
        args = tensors if isinstance(tensors, tuple) else (tensors,)
        plain = name.startswith("rows-") or name == "vector-tail"
        draws = Case.draws if plain else ("base",)
        cases.append(Case(name, (*args, *more), draws=draws))
    return cases


def binary_layouts(
    dtypes: Sequence[torch.dtype] = FLOATS,
    left: dict[str, Any] | None = None,
    right: dict[str, Any] | None = None,
) -> dict[str, Pair]:
    """Small inputs of two tensors: dtypes, broadcasting, strides, offsets, size 1, empty, 0-d."""
    a, b = left or {}, right or {}
    first, low = dtypes[0], dtypes[min(1, len(dtypes) - 1)]

    def pair(x: tuple[int, ...], y: tuple[int, ...], dtype: torch.dtype) -> Pair:
        return spec(x, dtype, **a), spec(y, dtype, **b)

    return {
        **{f"rows-{dtype_name(t)}": pair((37, 53), (37, 53), t) for t in dtypes},
        "row-broadcast": pair((13, 65), (65,), low),
        "both-broadcast": pair((7, 1, 9), (1, 11, 1), first),
        "left-broadcast": pair((5, 1), (3, 5, 33), first),
        "transposed": (spec((31, 33), first, strides=(1, 31), **a), spec((31, 33), first, **b)),
        "gaps": (
            spec((17, 40), low, strides=(160, 2), offset=5, **a),
            spec((17, 40), low, strides=(1, 17), **b),
        ),
        "misaligned": (
            spec((3, 257), low, offset=1, **a),
            spec((3, 257), low, offset=3, **b),
        ),
        "expanded": (spec((9, 65), first, strides=(0, 1), **a), spec((9, 65), first, **b)),
        "tensor-and-zero-dimensions": pair((301,), (), first),
        "zero-dimensions": pair((), (), first),
        "five-dimensions": pair((2, 3, 4, 5, 7), (3, 1, 5, 1), first),
        "one-element": pair((1,), (1,), low),
        "empty": pair((0, 3), (1, 3), first),
    }


def binary_full(
    left: dict[str, Any] | None = None, right: dict[str, Any] | None = None
) -> dict[str, tuple[TensorSpec, TensorSpec, str]]:
    """Pairs of tensors from known models: (left, right, origin)."""
    a, b = left or {}, right or {}
    half = torch.float16
    return {
        "llama-3-residual": (
            spec((8192, 4096), BF16, **a),
            spec((8192, 4096), BF16, **b),
            "Llama 3 8B residual stream, 8192 tokens",
        ),
        "llama-3-fused-halves": (
            spec((4096, 14336), BF16, strides=(2 * 14336, 1), **a),
            spec((4096, 14336), BF16, strides=(2 * 14336, 1), **b),
            "Llama 3 8B, gate and up as halves of fused projections, 4096 tokens",
        ),
        "gpt2-bias": (
            spec((32768, 3072), half, **a),
            spec((3072,), half, **b),
            "GPT-2 small MLP bias, batch 32 of 1024 tokens",
        ),
        "attention-mask": (
            spec((8, 16, 1024, 1024), half, **a),
            spec((8, 1, 1024, 1024), half, **b),
            "GPT-2 medium attention scores and mask, batch 8",
        ),
        "resnet-float32": (
            spec((32, 256, 56, 56), **a),
            spec((32, 256, 56, 56), **b),
            "ResNet-50 shortcut, batch 32",
        ),
        "unet-channel": (
            spec((16, 320, 64, 64), **a),
            spec((16, 320, 1, 1), **b),
            "Stable Diffusion 1.5 U-Net time embedding, batch 16",
        ),
        "transposed-heads": (
            spec((16, 12, 1024, 64), strides=(786432, 64, 768, 1), **a),
            spec((16, 12, 1024, 64), **b),
            "GPT-2 small heads, batch 16, one operand permuted",
        ),
    }


def holds_result(pair: Pair) -> bool:
    """Whether the left operand can hold the result of both in place."""
    left = pair[0]
    whole = left.shape == result_shape(Case("", pair)) and 0 not in (left.strides or ())
    kinds = [s.dtype.is_complex * 2 + s.dtype.is_floating_point for s in pair]
    return whole and kinds[0] >= kinds[1]


def full_case(name: str, args: tuple[Argument, ...], origin: str, **more: Any) -> Case:
    """A case of the full tier."""
    return Case(name, args, tier="full", origin=origin, **more)


def result_shape(case: Case) -> tuple[int, ...]:
    """Broadcast shape of the case's inputs (`out` left aside)."""
    out = case.kwargs.get("out")
    shapes = [s.shape for s in case.tensors if s is not out]
    return tuple(np.broadcast_shapes(*shapes))


def elementwise_cost(
    dtype_of: Callable[[Case], torch.dtype], flops_per_element: int
) -> Callable[[Case], Cost]:
    """Cost of reading every input and writing one broadcast result of the given dtype."""

    def cost(case: Case) -> Cost:
        out = case.kwargs.get("out")
        numel = int(np.prod(result_shape(case), dtype=np.int64))
        read = sum(s.nbytes for s in case.tensors if s is not out)
        return Cost(flops_per_element * numel, read + numel * dtype_of(case).itemsize)

    return cost


def first_dtype(case: Case) -> torch.dtype:
    """Dtype of the first tensor."""
    return case.tensors[0].dtype


def promoted(*values: Any) -> torch.dtype:
    """ATen's type promotion over tensors and Python scalars."""
    dtype: Any = values[0]
    for value in values[1:]:
        dtype = torch.result_type(dtype, value)
    return dtype if isinstance(dtype, torch.dtype) else dtype.dtype


def promoted_of_case(case: Case) -> torch.dtype:
    """`promoted` for the first two positional arguments of a case."""
    made = [
        torch.empty((0,) * len(v.shape), dtype=v.dtype) if isinstance(v, TensorSpec) else v
        for v in case.args[:2]
    ]
    return promoted(*made)


def exact_as(value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Integers wrapped to `dtype` (and kept int64 for comparison), or a bool."""
    if dtype == torch.bool:
        return value.to(torch.bool)
    return value.to(torch.int64).to(dtype).to(torch.int64)


def into_out(function: Function) -> Function:
    """`function`, also taking ``out=``: the result is copied there and `out` returned."""

    def wrapped(*args: Any, out: torch.Tensor | None = None, **kwargs: Any) -> torch.Tensor:
        value = function(*args, **kwargs)
        return value if out is None else out.copy_(value)

    return wrapped


def strides_ignored(function: Callable[..., Any]) -> Mutant:
    """Reads every tensor as if it were contiguous from its first element."""

    def flat(x: torch.Tensor) -> torch.Tensor:
        room = x.untyped_storage().nbytes() // x.dtype.itemsize - x.storage_offset()
        strides = contiguous_strides(x.shape)
        return x.as_strided(x.shape, strides) if x.numel() <= room else x

    def mutant(*args: Any, **kwargs: Any) -> Any:
        return function(*map_tensors(args, flat), **kwargs)

    return Mutant("strides ignored", mutant)


def offset_ignored(function: Callable[..., Any]) -> Mutant:
    """Reads the first tensor from its storage's start."""

    def mutant(self: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(self, torch.Tensor):
            self = self.as_strided(self.shape, self.stride(), 0)
        return function(self, *args, **kwargs)

    return Mutant("offset ignored", mutant)


def packet(name: str) -> Callable[..., Any]:
    """``torch.ops.aten.<name>``, which picks the overload from the arguments."""
    return getattr(torch.ops.aten, name)


def of_float(value: torch.Tensor, dtype: torch.dtype, scale: torch.Tensor) -> Expected:
    """An expected floating-point result."""
    return Expected(value, dtype, scale)
