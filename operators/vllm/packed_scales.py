"""Packed float8 scales of CUTLASS products with 4-bit weights."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import torch

from kernelmark.operators.building import full, small, spec
from kernelmark.operators.records import EXACT, Case, Cost, Expected, Mutant, Operator, TensorSpec
from kernelmark.operators.vllm.baselines import NAME, CustomOp
from kernelmark.operators.vllm.formats import look_up_float8, to_float8

_E4M3 = torch.float8_e4m3fn


@functools.cache
def _pack_cases() -> Sequence[Case]:
    def scales(*shape: int, fill: str = "uniform") -> TensorSpec:
        return spec(shape, _E4M3, fill=fill, low=0.01, high=100.0)

    draws = ("base", "base")
    models = (
        ("deepseek-v3-up", "DeepSeek V3, 256 experts, gate and up, groups of 128", 256, 56, 4096),
        ("deepseek-v3-down", "DeepSeek V3, 256 experts, down, groups of 128", 256, 16, 7168),
        ("mixtral-up", "Mixtral 8x22B, 8 experts, gate and up, groups of 128", 8, 48, 32768),
        ("qwen3-235b-up", "Qwen3 235B-A22B, 128 experts, gate and up", 128, 32, 3072),
        ("qwen3-235b-down", "Qwen3 235B-A22B, 128 experts, down", 128, 12, 4096),
        ("llama-4-maverick-up", "Llama 4 Maverick, 128 experts, gate and up", 128, 40, 16384),
    )
    return (
        small("one", scales(1, 1), draws=draws),
        small("row", scales(1, 4), draws=draws),
        small("odd", scales(7, 13), draws=draws),
        small("square", scales(16, 16), draws=draws),
        small("tall", scales(129, 3), draws=draws),
        small("three-dimensions", scales(2, 4, 24), draws=draws),
        small("all-codes", scales(24, 50, fill="bits"), draws=draws),
        small(
            "small-scales", spec((8, 40), _E4M3, fill="uniform", low=0.0, high=0.02), draws=draws
        ),
        small("misaligned", spec((5, 9), _E4M3, fill="uniform", offset=3), draws=draws),
        small("none", scales(0, 8), draws=draws),
        *(full(name, origin, scales(*shape), draws=draws) for name, origin, *shape in models),
    )


def _multiples(scales: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    factor = torch.arange(-8, 0, device=scales.device, dtype=dtype)
    return (scales.to(dtype).reshape(-1, 1) * factor).reshape(-1)


def _pack_oracle(scales: torch.Tensor) -> list[Expected]:
    return [Expected(to_float8(_multiples(scales, torch.float64), _E4M3).double(), _E4M3)]


def _pack_second(scales: torch.Tensor) -> list[torch.Tensor]:
    """By search among the format's values; NaN stays."""
    value = _multiples(scales, torch.float64)
    found = look_up_float8(value.nan_to_num(0.0)).view(_E4M3).double()
    return [torch.where(value.isnan(), value, found)]


def _pack_scale(scales: torch.Tensor) -> torch.Tensor:
    return _multiples(scales, torch.float32).clamp(-448.0, 448.0).to(_E4M3)


def _pack_mutant(variant: str) -> Callable[..., torch.Tensor]:
    def mutant(scales: torch.Tensor) -> torch.Tensor:
        packed = _multiples(scales, torch.float32)
        if variant == "positive multiples":
            packed = -packed
        if variant == "order reversed":
            packed = packed.view(-1, 8).flip(1).reshape(-1)
        if variant == "multiples first":
            packed = packed.view(-1, 8).t().reshape(-1)
        if variant == "not saturated":
            packed = torch.where(packed.abs() > 464, float("nan"), packed)
        if variant == "truncated":
            nearest = packed.clamp(-448, 448).to(_E4M3).float()
            step = torch.where(nearest.abs() > packed.abs(), 0.94, 1.0)
            packed = packed * step
        return packed.clamp(-448.0, 448.0).to(_E4M3)

    return mutant


def _pack_cost(case: Case) -> Cost:
    return Cost(flops=8 * case.args[0].numel, nbytes=9 * case.args[0].nbytes)


OPERATORS = (
    Operator(
        id="vllm::cutlass_pack_scale_fp8",
        family="quant-weight-layout",
        signatures=("cutlass_pack_scale_fp8(scales: Tensor) -> Tensor",),
        description=(
            "Group scales of 4-bit weights expanded for a table look-up: for each element s of "
            "`scales` (float8_e4m3fn, any shape, contiguous, in row-major order) the eight values "
            "-8 s, -7 s, ..., -1 s, each rounded to float8_e4m3fn (nearest, ties to even, "
            "saturated to 448 in size; NaN stays NaN). The result is flat, 8 * numel elements."
        ),
        sources=(
            "vLLM 0.13, vllm._custom_ops.cutlass_pack_scale_fp8",
            "csrc/quantization/cutlass_w4a8/w4a8_mm_entry.cu; CUTLASS, packed_scale_t",
        ),
        cases=_pack_cases,
        oracle=_pack_oracle,
        second=_pack_second,
        baseline=CustomOp("cutlass_pack_scale_fp8", _pack_scale),
        baseline_name=NAME,
        cost=_pack_cost,
        tolerance=EXACT,
        mutants=tuple(
            Mutant(name, _pack_mutant(name))
            for name in (
                "positive multiples",
                "order reversed",
                "multiples first",
                "not saturated",
                "truncated",
            )
        ),
    ),
)
