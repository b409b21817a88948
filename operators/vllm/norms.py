"""Root-mean-square normalisation, as vLLM's layers call it.

Oracle: float64 from the same inputs. Second statement: NumPy. The statistics of an honest kernel
are float32; vLLM's kernel rounds the normalised value to the dtype once more before it multiplies
by the weight, and the limit allows for that.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from kernelmark.operators.building import FLOATS, dtype_name, expect, spec, wide
from kernelmark.operators.records import Case, Cost, Expected, Mutant, Operator, Tolerance
from kernelmark.operators.vllm.baselines import NAME, CustomOp
from kernelmark.operators.vllm.formats import rounded
from kernelmark.operators.vllm.parts import moved

_TOLERANCE = Tolerance(
    limit=2.0,
    accumulator=torch.float32,
    why="one rounding to the dtype costs 0.5, vLLM's second before the weight 0.5 to 1.1 in all; "
    "float32 statistics over 16384 elements stay below 0.5",
)


def _normalise(x: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
    """x / sqrt(mean(x^2) + epsilon) * weight over the last dimension, in the dtype of `x`."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + epsilon) * weight.to(x.dtype)


def _numpy_norm(x: np.ndarray, weight: np.ndarray, epsilon: float) -> np.ndarray:
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + epsilon) * weight


#: (name, tokens, hidden, dtype, model) of cases whose traffic is far beyond the last-level cache
_FULL = (
    ("llama-3-8b", 16384, 4096, torch.bfloat16, "Llama 3 8B hidden size, 16384 tokens"),
    ("llama-3-70b", 8192, 8192, torch.bfloat16, "Llama 3 70B hidden size, 8192 tokens"),
    ("qwen-2.5-7b", 16384, 3584, torch.float16, "Qwen 2.5 7B hidden size, 16384 tokens"),
    ("deepseek-v3", 8192, 7168, torch.bfloat16, "DeepSeek V3 hidden size, 8192 tokens"),
    ("llama-3-405b", 4096, 16384, torch.bfloat16, "Llama 3 405B hidden size, 4096 tokens"),
    ("gpt-oss-20b", 16384, 2880, torch.bfloat16, "gpt-oss 20B hidden size, 16384 tokens"),
    ("llama-3-8b-float32", 8192, 4096, torch.float32, "Llama 3 8B hidden size in float32"),
    ("opt-125m", 32768, 768, torch.float16, "hidden size 768 (OPT 125M), 32768 tokens"),
)


@functools.cache
def _rms_norm_cases() -> Sequence[Case]:
    def case(name: str, shape: tuple[int, ...], dtype: torch.dtype, **more: Any) -> Case:
        epsilon = more.pop("epsilon", 1e-6)
        tier, origin = more.pop("tier", "small"), more.pop("origin", "")
        out = spec(shape, dtype, offset=more.get("offset", 0))
        weight = spec((shape[-1],), dtype, offset=more.get("offset", 0))
        args = (out, spec(shape, dtype, **more), weight, epsilon)
        return Case(name, args, tier=tier, origin=origin)

    half, brain = torch.float16, torch.bfloat16
    small = [case(f"rows-{dtype_name(t)}", (7, 64), t) for t in FLOATS] + [
        case("one-token", (1, 128), half),
        case("hidden-497", (5, 497), brain),
        case("hidden-1", (3, 1), torch.float32),
        case("three-dimensions", (2, 3, 96), half, epsilon=1e-5),
        case("split-from-qkv", (6, 128), brain, strides=(384, 1)),
        case("heads-of-qkv", (4, 3, 64), half, strides=(576, 64, 1)),
        case("misaligned", (4, 65), half, offset=1),
        case("wide-range", (4, 200), torch.float32, fill="wide"),
        case("no-tokens", (0, 64), half),
        case("hidden-2048", (2, 2048), brain, epsilon=1e-5),
        case("large-epsilon", (5, 80), torch.float32, epsilon=0.5),
    ]
    full = [
        case(name, (tokens, hidden), t, tier="full", origin=origin, epsilon=1e-5)
        for name, tokens, hidden, t, origin in _FULL
    ]
    full.append(
        case(
            "llama-3-8b-q-slice",
            (16384, 4096),
            brain,
            tier="full",
            origin="Llama 3 8B: the query part of a fused qkv projection, row stride 6144",
            strides=(6144, 1),
        )
    )
    return (*small, *full)


def _rms_norm_oracle(
    out: torch.Tensor, input: torch.Tensor, weight: torch.Tensor, epsilon: float
) -> list[Expected]:
    value = _normalise(wide(input), wide(weight), epsilon)
    return [expect(value, out.dtype, scale=value.abs())]


def _rms_norm_second(
    out: torch.Tensor, input: torch.Tensor, weight: torch.Tensor, epsilon: float
) -> list[np.ndarray]:
    return [_numpy_norm(input.double().numpy(), weight.double().numpy(), epsilon)]


def _rms_norm(out: torch.Tensor, input: torch.Tensor, weight: torch.Tensor, epsilon: float) -> None:
    out.copy_(_normalise(input.float(), weight, epsilon))


def _rms_norm_cost(case: Case) -> Cost:
    out, x, weight, _ = case.args
    return moved(4 * x.numel, out, x, weight)


def _rms_norm_mutant(variant: str) -> Any:
    def mutant(
        out: torch.Tensor, input: torch.Tensor, weight: torch.Tensor, epsilon: float
    ) -> None:
        out.copy_(_wrong_norm(variant, input.float(), weight.float(), epsilon))

    return mutant


def _wrong_norm(
    variant: str, x: torch.Tensor, weight: torch.Tensor, epsilon: float
) -> torch.Tensor:
    """The normalisation with one step wrong."""
    if variant == "weight":
        weight = torch.ones_like(weight)
    if variant == "epsilon":
        epsilon = 0.0
    seen = x[..., : (x.shape[-1] + 1) // 2] if variant == "half" else x
    mean = seen.square().mean(-1, keepdim=True)
    if variant == "layer":
        x = x - x.mean(-1, keepdim=True)
        mean = x.square().mean(-1, keepdim=True)
    if variant == "sum":
        mean = x.square().sum(-1, keepdim=True)
    if variant == "outside":
        return x / (mean.sqrt() + epsilon) * weight
    return x * torch.rsqrt(mean + epsilon) * weight


_WRONG_NORMS = {
    "weight dropped": "weight",
    "epsilon dropped": "epsilon",
    "half the reduction": "half",
    "mean subtracted, as in layer norm": "layer",
    "sum instead of mean": "sum",
    "epsilon outside the root": "outside",
}


@functools.cache
def _fused_add_cases() -> Sequence[Case]:
    def case(name: str, shape: tuple[int, ...], dtype: torch.dtype, **more: Any) -> Case:
        epsilon, tier = more.pop("epsilon", 1e-6), more.pop("tier", "small")
        origin, fill = more.pop("origin", ""), more.pop("fill", "normal")
        offset = more.get("offset", 0)
        x = spec(shape, dtype, fill=fill, **more)
        residual = spec(shape, dtype, fill=fill, offset=offset)
        weight = spec((shape[-1],), dtype, offset=offset)
        return Case(name, (x, residual, weight, epsilon), tier=tier, origin=origin)

    half, brain = torch.float16, torch.bfloat16
    small = [case(f"rows-{dtype_name(t)}", (7, 64), t) for t in FLOATS] + [
        case("one-token", (1, 128), half),
        case("hidden-497", (5, 497), brain),
        case("hidden-1", (3, 1), torch.float32),
        case("three-dimensions", (2, 3, 96), half, epsilon=1e-5),
        case("strided-input", (6, 128), brain, strides=(384, 1)),
        case("misaligned", (4, 65), half, offset=1),
        case("wide-range", (4, 200), torch.float32, fill="wide"),
        case("no-tokens", (0, 64), half),
        case("hidden-2048", (2, 2048), brain, epsilon=1e-5),
        case("large-epsilon", (5, 80), torch.float32, epsilon=0.5),
    ]
    full = [
        case(name, (tokens, hidden), t, tier="full", origin=origin, epsilon=1e-5)
        for name, tokens, hidden, t, origin in _FULL
    ]
    return (*small, *full)


def _summed(input: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
    """input + residual, rounded once to the dtype (float64 is wide enough for that)."""
    return (input.double() + residual.double()).to(input.dtype)


def _fused_add_oracle(
    input: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, epsilon: float
) -> list[Expected]:
    total = _summed(input, residual)
    value = _normalise(wide(total), wide(weight), epsilon)
    # Where the sum cancels, an implementation that normalises the unrounded sum is right too.
    scale = value.abs()
    return [
        expect(value, input.dtype, scale=scale),
        Expected(wide(total), residual.dtype, scale=torch.zeros_like(value)),
    ]


def _fused_add_second(
    input: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, epsilon: float
) -> list[Any]:
    total = input + residual
    normal = _numpy_norm(total.double().numpy(), weight.double().numpy(), epsilon)
    return [normal, total]


def _fused_add_rms_norm(
    input: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, epsilon: float
) -> None:
    total = rounded(input.float() + residual.float(), residual.dtype)
    input.copy_(_normalise(total, weight, epsilon))
    residual.copy_(total)


def _fused_add_cost(case: Case) -> Cost:
    x, residual, weight, _ = case.args
    return moved(5 * x.numel, x, x, residual, residual, weight)


def _fused_add_mutant(variant: str) -> Any:
    def mutant(
        input: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, epsilon: float
    ) -> None:
        total = input.float() + residual.float()
        if variant == "residual dropped":
            total = input.float()
        if variant != "residual not written":
            residual.copy_(total)
        if variant == "sum not normalised":
            input.copy_(total * weight)
            return
        input.copy_(_wrong_norm(_WRONG_NORMS.get(variant, ""), total, weight.float(), epsilon))

    return mutant


OPERATORS = (
    Operator(
        id="vllm::rms_norm",
        family="norm",
        signatures=("rms_norm(out: Tensor!, input: Tensor, weight: Tensor, epsilon: float) -> ()",),
        description=(
            "Root-mean-square normalisation over the last dimension: "
            "out = input / sqrt(mean(input^2) + epsilon) * weight, written into `out`. "
            "`input` is [..., hidden] with stride 1 in the last dimension and any strides before "
            "it (a slice of a fused projection, with up to two leading dimensions); `out` has the "
            "same shape and is contiguous; `weight` is [hidden]. All three share one dtype: "
            "float16, bfloat16 or float32. The mean is accumulated in float32. There may be no "
            "tokens. Nothing is returned."
        ),
        sources=(
            "vLLM 0.13, vllm._custom_ops.rms_norm",
            "csrc/layernorm_kernels.cu",
            "Zhang and Sennrich, Root Mean Square Layer Normalization (2019)",
        ),
        cases=_rms_norm_cases,
        oracle=_rms_norm_oracle,
        second=_rms_norm_second,
        baseline=CustomOp("rms_norm", _rms_norm),
        baseline_name=NAME,
        cost=_rms_norm_cost,
        tolerance=_TOLERANCE,
        mutants=tuple(Mutant(n, _rms_norm_mutant(v)) for n, v in _WRONG_NORMS.items()),
    ),
    Operator(
        id="vllm::fused_add_rms_norm",
        family="norm",
        signatures=(
            "fused_add_rms_norm(input: Tensor!, residual: Tensor!, weight: Tensor, "
            "epsilon: float) -> ()",
        ),
        description=(
            "Adds the residual stream, then normalises, both in place: first "
            "residual = input + residual, rounded once to the dtype; then "
            "input = residual / sqrt(mean(residual^2) + epsilon) * weight over the last dimension, "
            "computed from the rounded sum. `input` is [..., hidden] with stride 1 in the last "
            "dimension and, where it has two dimensions, any row stride; `residual` has the same "
            "shape and is contiguous; `weight` is [hidden]. One dtype for all: float16, bfloat16 "
            "or float32; the mean is accumulated in float32. Both tensors are results."
        ),
        sources=(
            "vLLM 0.13, vllm._custom_ops.fused_add_rms_norm",
            "csrc/layernorm_kernels.cu",
        ),
        cases=_fused_add_cases,
        oracle=_fused_add_oracle,
        second=_fused_add_second,
        baseline=CustomOp("fused_add_rms_norm", _fused_add_rms_norm),
        baseline_name=NAME,
        cost=_fused_add_cost,
        tolerance=_TOLERANCE,
        mutants=tuple(
            Mutant(n, _fused_add_mutant(n))
            for n in (
                *_WRONG_NORMS,
                "residual dropped",
                "residual not written",
                "sum not normalised",
            )
        ),
        note="The residual is compared too: it is half of the work.",
    ),
)
