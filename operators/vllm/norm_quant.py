"""RMS norm with quantisation of its result: one scale a token, or one a group of elements.

The intermediate formats are part of the operators: the normalised value is rounded to the dtype,
multiplied by the weight and rounded again, and only then quantised. An honest kernel computes its
statistics in float32, so that a value at a rounding boundary may fall to the other side; the
limits leave room for that and no more.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from kernelmark.operators.building import dtype_name, spec
from kernelmark.operators.records import Case, Cost, Expected, Mutant, Operator, Tolerance
from kernelmark.operators.vllm.baselines import NAME, CustomOp
from kernelmark.operators.vllm.formats import look_up_float8, rounded, to_float8, to_int8

E4M3 = torch.float8_e4m3fn
_TOP = {torch.int8: 127.0, E4M3: 448.0}
#: smallest scale a token or group is given
_FLOOR = {torch.int8: float(np.finfo(np.float32).eps), E4M3: 1.0 / (448.0 * 512.0)}

#: int8 codes of bfloat16 values, the coarsest that are quantised (`_code_tolerance`)
_CODES = Tolerance(
    kind="codes",
    limit=2.0,
    max_mismatch=0.03,
    why="a normalised value that falls to the other side of a rounding boundary of the dtype moves "
    "its code with small probability, and all codes of its row if it is the largest; one ulp of "
    "it becomes up to two after the weight, in bfloat16 1.4 percent: up to two codes of int8 near "
    "127, one code elsewhere (all pairs of normalised value and weight were tried)",
)
#: scales follow the largest element, which carries two roundings to the dtype
_SCALES = Tolerance(
    limit=2.0,
    accumulator=None,
    why="the normalised value may fall to the other side of a rounding boundary of the dtype, and "
    "one ulp of it becomes up to two after the weight: at worst 1.92 eps in float16, 1.78 in "
    "bfloat16 (all pairs of normalised value and weight were tried)",
)
_RESIDUAL = Tolerance(limit=1.0, why="one addition, rounded once")

_DTYPES = (torch.float16, torch.bfloat16, torch.float32)
_FULL = (
    ("llama-3-8b", (8192, 4096), torch.bfloat16, "Llama 3 8B hidden size, 8192 tokens"),
    ("llama-3-70b", (4096, 8192), torch.float16, "Llama 3 70B hidden size, 4096 tokens"),
    ("deepseek-v3", (8192, 7168), torch.bfloat16, "DeepSeek V3 hidden size, 8192 tokens"),
)


def _normalised(
    x: torch.Tensor, weight: torch.Tensor, epsilon: float, dtype: torch.dtype
) -> torch.Tensor:
    """The value that is quantised: rounded to `dtype` before and after the weight."""
    factor = torch.rsqrt(x.square().mean(-1, keepdim=True) + epsilon)
    return rounded(rounded(x * factor, dtype) * weight.to(x.dtype), dtype)


def _scale_of(top: torch.Tensor, quant_dtype: torch.dtype, bound: Any) -> torch.Tensor:
    """Scales of maxima `top`."""
    if bound is not None:
        top = top.minimum(bound.to(top.dtype))
    return (top / _TOP[quant_dtype]).clamp_min(_FLOOR[quant_dtype])


def _code_tolerance(dtype: torch.dtype, quant_dtype: torch.dtype) -> Tolerance:
    """How far codes may be off where `dtype` is rounded to on the way."""
    coarse = dtype == torch.bfloat16 and quant_dtype == torch.int8
    return _CODES if coarse else replace(_CODES, limit=1.0)


def _codes(quotient: torch.Tensor, quant_dtype: torch.dtype) -> torch.Tensor:
    return to_int8(quotient) if quant_dtype == torch.int8 else to_float8(quotient, quant_dtype)


def _compute(
    work: torch.dtype,
    input: torch.Tensor,
    weight: torch.Tensor,
    epsilon: float,
    quant_dtype: torch.dtype,
    group: int,
    bound: torch.Tensor | None,
    residual: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(codes, scales [tokens, groups], summed residual) with arithmetic in `work`."""
    x = input.to(work)
    if residual is not None:
        x = x + residual.to(work)
    value = _normalised(x, weight, epsilon, input.dtype)
    grouped = value.reshape(-1, value.shape[-1] // group, group)
    scales = _scale_of(grouped.abs().amax(-1), quant_dtype, bound)
    # The codes belong to the scale that is returned, a float32.
    quotient = grouped / scales.float().to(work).unsqueeze(-1)
    return _codes(quotient, quant_dtype).view(input.shape), scales, x


def _expected(
    codes: torch.Tensor,
    scales: torch.Tensor,
    summed: torch.Tensor,
    input: torch.Tensor,
    residual: torch.Tensor | None,
    transposed: bool = False,
) -> list[Expected]:
    """Codes, scales, and the residual where there is one."""
    # Scales are float32, and as exact as the dtype of the input.
    unit = torch.finfo(input.dtype).eps / torch.finfo(torch.float32).eps
    value = codes.double() if codes.dtype.is_floating_point else codes
    strides = (1, scales.shape[0]) if transposed else None
    results = [
        Expected(value, codes.dtype, tolerance=_code_tolerance(input.dtype, codes.dtype)),
        Expected(scales, torch.float32, scales * unit, strides=strides, tolerance=_SCALES),
    ]
    if residual is not None:
        exact = summed.new_zeros(()).expand(summed.shape)
        results.append(Expected(summed, residual.dtype, exact, tolerance=_RESIDUAL))
    return results


def _second(
    input: torch.Tensor,
    weight: torch.Tensor,
    epsilon: float,
    quant_dtype: torch.dtype,
    group: int,
    bound: torch.Tensor | None,
    residual: torch.Tensor | None,
) -> list[Any]:
    """Token by token and group by group, NumPy between roundings by torch."""
    dtype = input.dtype
    rows = input.double().reshape(-1, input.shape[-1])
    if residual is not None:
        rows = rows + residual.double().reshape(rows.shape)
    codes, scales = [], []
    for row in rows:
        norm = row.numpy() / np.sqrt(np.dot(row.numpy(), row.numpy()) / len(row) + epsilon)
        value = (torch.from_numpy(norm).to(dtype).double() * weight.double()).to(dtype).double()
        for start in range(0, len(row), group):
            part = value[start : start + group]
            top = float(part.abs().max())
            top = top if bound is None else min(top, float(bound))
            scale = max(top / _TOP[quant_dtype], _FLOOR[quant_dtype])
            scales.append(scale)
            quotient = part / scale
            if quant_dtype == torch.int8:
                codes.append(torch.from_numpy(np.rint(quotient.numpy()).clip(-128, 127)))
            else:
                codes.append(look_up_float8(quotient).view(E4M3).double())
    groups = input.shape[-1] // group
    joined = torch.cat(codes).view(input.shape) if codes else torch.zeros(input.shape)
    results: list[Any] = [joined, torch.tensor(scales).double().view(len(rows), groups)]
    return results if residual is None else [*results, rows.view(input.shape)]


def _wrong(
    variant: str,
    input: torch.Tensor,
    weight: torch.Tensor,
    epsilon: float,
    quant_dtype: torch.dtype,
    group: int,
    bound: torch.Tensor | None,
    residual: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """`_compute` with one step wrong."""
    hidden = input.shape[-1]
    if variant == "weight dropped":
        weight = torch.ones_like(weight)
    if variant == "epsilon dropped":
        epsilon = 0.0
    if variant == "upper bound ignored":
        bound = None
    if variant == "residual not added" and residual is not None:
        residual = torch.zeros_like(residual)
    codes, scales, summed = _compute(
        torch.float32, input, weight, epsilon, quant_dtype, group, bound, residual
    )
    if variant == "one scale for all tokens" and scales.numel():
        scales = scales.max().expand(scales.shape)
        value = _normalised(summed, weight, epsilon, input.dtype).view(*scales.shape, -1)
        codes = _codes(value / scales.unsqueeze(-1), quant_dtype).view(input.shape)
    if variant == "groups exchanged" and hidden > group:
        scales = scales.flip(-1)
    if variant == "scale of half the elements" and scales.numel():
        value = _normalised(summed, weight, epsilon, input.dtype)
        value = value.reshape(-1, hidden // group, group)
        half = value[..., : (group + 1) // 2].abs().amax(-1)
        scales = _scale_of(half, quant_dtype, bound)
        codes = _codes(value / scales.unsqueeze(-1), quant_dtype).view(input.shape)
    return codes, scales, summed


_WRONG = (
    "weight dropped",
    "epsilon dropped",
    "upper bound ignored",
    "residual not added",
    "residual not written",
    "one scale for all tokens",
    "scale of half the elements",
)


# rms_norm_dynamic_per_token_quant


@functools.cache
def _token_cases() -> Sequence[Case]:
    def case(
        name: str, shape: tuple[int, int], dtype: torch.dtype, quant: torch.dtype,
        residual: bool = False, bound: bool = False, tier: Any = "small", origin: str = "",
        offset: int = 0, fill: str = "normal",
    ) -> Case:  # fmt: skip
        x = spec(shape, dtype, offset=offset, fill=fill)
        ceiling = spec((1,), fill="uniform", low=0.5, high=2.0) if bound else None
        weight = spec((shape[1],), dtype, offset=offset)
        added = spec(shape, dtype, offset=offset) if residual else None
        args = (x, weight, 1e-6, quant, ceiling, added)
        return Case(name, args, tier=tier, origin=origin, overload=int(residual))

    small = [
        case(f"{q}-{dtype_name(t)}", (6, 64), t, quant)
        for t in _DTYPES
        for q, quant in (("int8", torch.int8), ("float8", E4M3))
    ]
    small += [
        case(f"{q}-residual-{dtype_name(t)}", (5, 96), t, quant, residual=True)
        for t in _DTYPES
        for q, quant in (("int8", torch.int8), ("float8", E4M3))
    ]
    small += [
        case("bounded", (6, 96), torch.float16, E4M3, bound=True),
        case("odd-width", (3, 497), torch.bfloat16, torch.int8),
        case("misaligned", (4, 65), torch.float16, E4M3, offset=1),
        case("one-token", (1, 128), torch.float16, torch.int8, residual=True),
        case("wide-range", (4, 200), torch.float32, E4M3, fill="wide"),
        case("no-tokens", (0, 64), torch.float16, E4M3),
    ]
    full = [
        case(
            f"{name}-{q}{'-residual' if r else ''}", shape, t, quant, r, tier="full", origin=origin
        )
        for name, shape, t, origin in _FULL
        for q, quant, r in (("int8", torch.int8, False), ("float8", E4M3, True))
    ]
    return (*small, *full)


def _token_oracle(
    input: torch.Tensor,
    weight: torch.Tensor,
    epsilon: float,
    quant_dtype: torch.dtype,
    scale_ub: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
) -> list[Expected]:
    codes, scales, summed = _compute(
        torch.float64, input, weight, epsilon, quant_dtype, input.shape[-1], scale_ub, residual
    )
    return _expected(codes, scales, summed, input, residual)


def _token_second(
    input: torch.Tensor,
    weight: torch.Tensor,
    epsilon: float,
    quant_dtype: torch.dtype,
    scale_ub: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
) -> list[Any]:
    return _second(input, weight, epsilon, quant_dtype, input.shape[-1], scale_ub, residual)


def _token_quant(
    input: torch.Tensor,
    weight: torch.Tensor,
    epsilon: float,
    quant_dtype: torch.dtype,
    scale_ub: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    codes, scales, summed = _compute(
        torch.float32, input, weight, epsilon, quant_dtype, input.shape[-1], scale_ub, residual
    )
    if residual is not None:
        residual.copy_(summed)
    return codes, scales


def _token_mutant(variant: str) -> Any:
    def mutant(
        input: torch.Tensor,
        weight: torch.Tensor,
        epsilon: float,
        quant_dtype: torch.dtype,
        scale_ub: torch.Tensor | None = None,
        residual: torch.Tensor | None = None,
    ) -> Any:
        codes, scales, summed = _wrong(
            variant, input, weight, epsilon, quant_dtype, input.shape[-1], scale_ub, residual
        )
        if residual is not None and variant != "residual not written":
            residual.copy_(summed)
        return codes, scales

    return mutant


def _cost(case: Case) -> Cost:
    """Reads input and weight (and residual), writes codes, scales (and residual)."""
    tensors = case.tensors
    x = tensors[0]
    added = case.args[5] if case.args[3] is not None and len(case.args) == 6 else case.args[6]
    nbytes = x.nbytes + tensors[1].nbytes + x.numel + (2 * x.nbytes if added else 0)
    return Cost(flops=6 * x.numel, nbytes=nbytes)


# rms_norm_per_block_quant


@functools.cache
def _block_cases() -> Sequence[Case]:
    def case(
        name: str, shape: tuple[int, int], group: int, dtype: torch.dtype, quant: torch.dtype,
        residual: bool = False, bound: bool = False, transposed: bool = False,
        tier: Any = "small", origin: str = "", offset: int = 0,
    ) -> Case:  # fmt: skip
        x = spec(shape, dtype, offset=offset)
        ceiling = spec((1,), fill="uniform", low=0.5, high=2.0) if bound else None
        added = spec(shape, dtype, offset=offset) if residual else None
        weight = spec((shape[1],), dtype, offset=offset)
        args = (x, weight, 1e-6, quant, (1, group), ceiling, added, transposed)
        return Case(name, args, tier=tier, origin=origin, overload=int(residual))

    half, brain = torch.float16, torch.bfloat16
    small = [
        case(f"{q}-{dtype_name(t)}", (5, 256), 128, t, quant)
        for t in _DTYPES
        for q, quant in (("int8", torch.int8), ("float8", E4M3))
    ]
    small += [
        case("groups-of-64", (6, 192), 64, half, E4M3),
        case("transposed", (6, 256), 128, half, E4M3, transposed=True),
        case("transposed-groups-of-64", (3, 256), 64, brain, torch.int8, transposed=True),
        case("residual", (4, 256), 128, brain, E4M3, residual=True),
        case("residual-transposed", (4, 256), 128, half, torch.int8, True, transposed=True),
        case("bounded", (4, 256), 64, half, E4M3, bound=True),
        case("misaligned", (3, 256), 128, half, E4M3, offset=1),
        case("one-token", (1, 128), 128, brain, E4M3),
        case("no-tokens", (0, 256), 128, half, E4M3),
    ]
    full = [
        case(
            f"{name}-{'transposed-' if tr else ''}{q}",
            shape,
            128,
            t,
            quant,
            r,
            transposed=tr,
            tier="full",
            origin=origin,
        )
        for name, shape, t, origin in _FULL
        for q, quant, r, tr in (
            ("float8", E4M3, False, False),
            ("float8", E4M3, True, True),
            ("int8", torch.int8, False, False),
        )
    ]
    return (*small, *full)


def _block_oracle(
    input: torch.Tensor,
    weight: torch.Tensor,
    epsilon: float,
    quant_dtype: torch.dtype,
    group_size: list[int],
    scale_ub: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
    is_scale_transposed: bool = False,
) -> list[Expected]:
    codes, scales, summed = _compute(
        torch.float64, input, weight, epsilon, quant_dtype, group_size[1], scale_ub, residual
    )
    return _expected(codes, scales, summed, input, residual, is_scale_transposed)


def _block_second(
    input: torch.Tensor,
    weight: torch.Tensor,
    epsilon: float,
    quant_dtype: torch.dtype,
    group_size: list[int],
    scale_ub: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
    is_scale_transposed: bool = False,
) -> list[Any]:
    return _second(input, weight, epsilon, quant_dtype, group_size[1], scale_ub, residual)


def _placed(scales: torch.Tensor, transposed: bool) -> torch.Tensor:
    """The scales with tokens contiguous, where asked for."""
    return scales.t().contiguous().t() if transposed else scales


def _block_quant(
    input: torch.Tensor,
    weight: torch.Tensor,
    epsilon: float,
    quant_dtype: torch.dtype,
    group_size: list[int],
    scale_ub: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
    is_scale_transposed: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    codes, scales, summed = _compute(
        torch.float32, input, weight, epsilon, quant_dtype, group_size[1], scale_ub, residual
    )
    if residual is not None:
        residual.copy_(summed)
    return codes, _placed(scales, is_scale_transposed)


def _block_mutant(variant: str) -> Any:
    def mutant(
        input: torch.Tensor,
        weight: torch.Tensor,
        epsilon: float,
        quant_dtype: torch.dtype,
        group_size: list[int],
        scale_ub: torch.Tensor | None = None,
        residual: torch.Tensor | None = None,
        is_scale_transposed: bool = False,
    ) -> Any:
        codes, scales, summed = _wrong(
            variant, input, weight, epsilon, quant_dtype, group_size[1], scale_ub, residual
        )
        if residual is not None and variant != "residual not written":
            residual.copy_(summed)
        return codes, _placed(scales, is_scale_transposed)

    return mutant


def _signatures(name: str, middle: str, tail: str) -> tuple[str, str]:
    """Without and with a residual that is written."""
    head = f"{name}(input: Tensor, weight: Tensor, epsilon: float, quant_dtype: ScalarType, "
    return (
        f"{head}{middle}scale_ub: Tensor?=None, residual: Tensor?=None{tail}) -> (Tensor, Tensor)",
        f"{head}{middle}scale_ub: Tensor?, residual: Tensor!{tail}) -> (Tensor, Tensor)",
    )


_COMMON = (
    "`input` is [tokens, hidden] (float16, bfloat16 or float32, contiguous), `weight` [hidden] of "
    "the same dtype. With a `residual` (shape and dtype of `input`) x = input + residual in "
    "float32, and x rounded to the dtype is written to `residual`; else x = input. Then, d being "
    "rounding to the dtype: y = d(d(x / sqrt(mean(x^2) + epsilon)) * weight), with float32 "
    "statistics over the unrounded x. "
)
_QUANT = (
    "is max(min(max|y|, scale_ub) / top, floor), with top 127 and floor 2^-23 for `quant_dtype` "
    "int8, 448 and 1 / (448 * 512) for float8_e4m3fn; `scale_ub` is float32 [1] or None. Codes are "
    "y / scale rounded to nearest even and saturated, in the shape of `input`. "
)

OPERATORS = (
    Operator(
        id="vllm::rms_norm_dynamic_per_token_quant",
        family="norm+quantization",
        signatures=_signatures("rms_norm_dynamic_per_token_quant", "", ""),
        description=(
            "RMS norm, then quantisation with one scale a token. " + _COMMON + "The scale of a "
            "token " + _QUANT + "Returns (codes, scales), the scales float32 [tokens, 1]."
        ),
        sources=(
            "vLLM 0.13, vllm._custom_ops.rms_norm_dynamic_per_token_quant",
            "csrc/quantization/fused_kernels/fused_layernorm_dynamic_per_token_quant.cu",
        ),
        cases=_token_cases,
        oracle=_token_oracle,
        second=_token_second,
        baseline=CustomOp("rms_norm_dynamic_per_token_quant", _token_quant),
        baseline_name=NAME,
        cost=_cost,
        tolerance=_CODES,
        mutants=tuple(Mutant(name, _token_mutant(name)) for name in _WRONG),
    ),
    Operator(
        id="vllm::rms_norm_per_block_quant",
        family="norm+quantization",
        signatures=_signatures(
            "rms_norm_per_block_quant", "group_size: int[], ", ", is_scale_transposed: bool=False"
        ),
        description=(
            "RMS norm, then quantisation with one scale for each group of `group_size[1]` "
            "neighbouring elements of a token (hidden is a multiple of it; `group_size[0]` is 1). "
            + _COMMON
            + "The scale of a group "
            + _QUANT
            + "Returns (codes, scales), the scales float32 [tokens, hidden / group]; with "
            "`is_scale_transposed` the same shape with strides (1, tokens)."
        ),
        sources=(
            "vLLM 0.13, vllm._custom_ops.rms_norm_per_block_quant",
            "csrc/quantization/fused_kernels/fused_layernorm_dynamic_per_token_quant.cu",
        ),
        cases=_block_cases,
        oracle=_block_oracle,
        second=_block_second,
        baseline=CustomOp("rms_norm_per_block_quant", _block_quant),
        baseline_name=NAME,
        cost=_cost,
        tolerance=_CODES,
        mutants=tuple(Mutant(name, _block_mutant(name)) for name in (*_WRONG, "groups exchanged")),
    ),
)
