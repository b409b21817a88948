"""Quantisation of activations to 8 bits, scales given or found.

Oracle: float64. Second statement: float32 formulas of the quantisers, NumPy. Codes may differ by
one step where a quotient lies at a tie (`formats.CODES`).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from kernelmark.operators.building import FLOATS, dtype_name, spec
from kernelmark.operators.records import Alias, Case, Cost, Expected, Mutant, Operator, Result
from kernelmark.operators.vllm.baselines import NAME, CustomOp
from kernelmark.operators.vllm.formats import (
    CODES,
    SCALES,
    expect_codes,
    look_up_float8,
    to_float8,
    to_int8,
)

E4M3 = torch.float8_e4m3fn
FLOAT8_MAX = 448.0
#: smallest scale that the dynamic float8 quantisers give a token
FLOAT8_MIN_SCALE = 1.0 / (448.0 * 512.0)

_FULL = (
    ("llama-3-8b", (8192, 4096), torch.bfloat16, "Llama 3 8B hidden size, 8192 tokens"),
    ("llama-3-8b-mlp", (4096, 14336), torch.bfloat16, "Llama 3 8B MLP width, 4096 tokens"),
    ("llama-3-70b", (8192, 8192), torch.float16, "Llama 3 70B hidden size, 8192 tokens"),
    ("deepseek-v3", (8192, 7168), torch.bfloat16, "DeepSeek V3 hidden size, 8192 tokens"),
)


def _expect_scale(scale: torch.Tensor, mask: torch.Tensor | None = None) -> Expected:
    return Expected(scale, torch.float32, scale.abs(), mask, tolerance=SCALES)


def _returned(argument: int, tensor: torch.Tensor) -> Alias:
    """A result that is the argument itself."""
    return Alias(argument, tuple(tensor.shape), tensor.stride(), int(tensor.storage_offset()))


# scaled_fp8_quant

_FP8_TAIL = (
    "scale: Tensor?=None, num_token_padding: int?=None, scale_ub: Tensor?=None, "
    "use_per_token_if_dynamic: bool=False"
)
_FP8_SIGNATURES = (
    f"scaled_fp8_quant(input: Tensor, {_FP8_TAIL}, output: Tensor?=None) -> (Tensor, Tensor)",
    f"scaled_fp8_quant(input: Tensor, {_FP8_TAIL}, *, output: Tensor!) -> (Tensor!, Tensor)",
)


@functools.cache
def _fp8_cases() -> Sequence[Case]:
    def case(name: str, shape: tuple[int, int], dtype: torch.dtype, **more: Any) -> Case:
        layout = {k: more.pop(k) for k in ("strides", "offset", "fill") if k in more}
        tier, origin = more.pop("tier", "small"), more.pop("origin", "")
        given = spec((1,), fill="uniform", low=0.01, high=0.5)
        bound = spec((1,), fill="uniform", low=0.5, high=2.0) if more.pop("bound", False) else None
        overload = int(more.pop("into", False))
        kwargs = {"output": spec(shape, E4M3, fill="zeros")} if overload else {}
        args = (
            spec(shape, dtype, **layout),
            given if more.pop("static", False) else None,
            more.pop("padding", None),
            bound,
            more.pop("per_token", False),
        )
        return Case(name, args, kwargs, tier=tier, overload=overload, origin=origin)

    half, brain, single = torch.float16, torch.bfloat16, torch.float32
    small = [case(f"static-{dtype_name(t)}", (7, 64), t, static=True) for t in FLOATS]
    small += [case(f"per-tensor-{dtype_name(t)}", (7, 64), t) for t in FLOATS]
    small += [case(f"per-token-{dtype_name(t)}", (7, 64), t, per_token=True) for t in FLOATS]
    small += [
        case("per-token-bounded", (6, 96), half, per_token=True, bound=True),
        case("per-token-padded", (5, 48), brain, per_token=True, padding=8),
        case("static-padded", (5, 48), half, static=True, padding=8),
        case("padding-too-small", (5, 48), half, static=True, padding=3),
        case("static-into", (5, 64), half, static=True, into=True),
        case("per-token-into", (5, 64), brain, per_token=True, into=True),
        case("odd-width", (3, 497), half, per_token=True),
        case("misaligned", (4, 65), half, static=True, offset=1),
        case("row-stride", (5, 64), brain, per_token=True, strides=(96, 1)),
        case("wide-range", (4, 200), single, per_token=True, fill="wide"),
        case("one-element", (1, 1), half, per_token=True),
        case("no-tokens", (0, 64), half, static=True),
    ]
    kinds: tuple[dict[str, bool], ...] = ({"static": True}, {"per_token": True}, {})
    full = [
        case(
            f"{name}-{'-'.join(kind) or 'per_tensor'}".replace("_", "-"),
            shape,
            dtype,
            tier="full",
            origin=origin,
            **kind,
        )
        for name, shape, dtype, origin in _FULL
        for kind in kinds
    ]
    return (*small, *full)


def _fp8_scale(
    x: torch.Tensor,
    scale: torch.Tensor | None,
    scale_ub: torch.Tensor | None,
    per_token: bool,
) -> torch.Tensor:
    """The scale in the dtype of `x`: as given, [tokens, 1], or [1]."""
    if scale is not None:
        return scale.to(x.dtype)
    if not per_token:
        return (x.abs().amax() / FLOAT8_MAX).view(1)
    top = x.abs().amax(-1, keepdim=True)
    if scale_ub is not None:
        top = top.minimum(scale_ub.to(x.dtype))
    return (top / FLOAT8_MAX).clamp_min(FLOAT8_MIN_SCALE)


def _padded(x: torch.Tensor, rows: int) -> torch.Tensor:
    """`x` with zero rows added up to `rows`."""
    extra = rows - x.shape[0]
    return torch.cat([x, x.new_zeros(extra, *x.shape[1:])]) if extra > 0 else x


def _fp8_oracle(
    input: torch.Tensor,
    scale: torch.Tensor | None = None,
    num_token_padding: int | None = None,
    scale_ub: torch.Tensor | None = None,
    use_per_token_if_dynamic: bool = False,
    output: torch.Tensor | None = None,
) -> list[Result]:
    x = input.double()
    found = _fp8_scale(x, scale, scale_ub, use_per_token_if_dynamic)
    rows = max(num_token_padding or 0, len(x))
    codes = to_float8(_padded(x / found.float().double(), rows), E4M3)
    defined = (torch.arange(rows, device=x.device) < len(x)).unsqueeze(1)
    quantised = Expected(codes.double(), E4M3, mask=defined, tolerance=CODES)
    scaled: Result
    if scale is not None:
        scaled = _returned(1, scale)
    elif use_per_token_if_dynamic:
        scaled = _expect_scale(_padded(found, rows), defined)
    else:
        scaled = _expect_scale(found)
    return [scaled, quantised] if output is not None else [quantised, scaled]


def _fp8_formula(
    input: torch.Tensor,
    scale: torch.Tensor | None = None,
    num_token_padding: int | None = None,
    scale_ub: torch.Tensor | None = None,
    use_per_token_if_dynamic: bool = False,
    output: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The quantiser in float32, as a user would write it."""
    x = input.float()
    found = _fp8_scale(x, scale, scale_ub, use_per_token_if_dynamic)
    rows = max(num_token_padding or 0, len(x))
    codes = (x / found).clamp(-FLOAT8_MAX, FLOAT8_MAX).to(E4M3)
    if output is None:
        output = _padded(codes.view(torch.uint8), rows).view(E4M3)
    else:
        output[: len(x)] = codes
    if scale is None and use_per_token_if_dynamic:
        found = _padded(found, rows)
    return output, found


def _fp8_second(
    input: torch.Tensor,
    scale: torch.Tensor | None = None,
    num_token_padding: int | None = None,
    scale_ub: torch.Tensor | None = None,
    use_per_token_if_dynamic: bool = False,
    output: torch.Tensor | None = None,
) -> list[torch.Tensor]:
    """Codes looked up among all finite values of the format, in order."""
    x = input.double()
    found = _fp8_formula(input, scale, num_token_padding, scale_ub, use_per_token_if_dynamic)[1]
    quotient = x / (found if found.numel() == 1 else found[: len(x)]).double()
    codes = look_up_float8(quotient).view(E4M3).double()
    codes = _padded(codes, max(num_token_padding or 0, len(x)))
    return [found, codes] if output is not None else [codes, found]


def _fp8_cost(case: Case) -> Cost:
    x = case.args[0]
    return Cost(flops=2 * x.numel, nbytes=x.nbytes + x.numel)


def _fp8_mutant(variant: str) -> Any:
    def mutant(
        input: torch.Tensor,
        scale: torch.Tensor | None = None,
        num_token_padding: int | None = None,
        scale_ub: torch.Tensor | None = None,
        use_per_token_if_dynamic: bool = False,
        output: torch.Tensor | None = None,
    ) -> Any:
        used, per_token = scale, use_per_token_if_dynamic
        if variant == "scale ignored" and scale is not None:
            used = torch.ones_like(scale)
        if variant == "multiplied by the scale" and scale is not None:
            used = 1 / scale
        if variant == "upper bound ignored":
            scale_ub = None
        codes, found = _fp8_formula(input, used, num_token_padding, scale_ub, per_token, output)
        if variant == "one scale for all tokens" and scale is None and per_token:
            top = found.max()
            codes.copy_(_padded((input.float() / top).clamp(-448, 448), len(codes)))
            found = torch.full_like(found, float(top))
        if variant == "scale to the largest of e5m2" and scale is None:
            found = found * 448 / 57344
        return codes, scale if scale is not None else found

    return mutant


# scaled_int8_quant


@functools.cache
def _int8_cases() -> Sequence[Case]:
    def case(name: str, shape: tuple[int, ...], dtype: torch.dtype, **more: Any) -> Case:
        layout = {k: more.pop(k) for k in ("strides", "offset", "fill") if k in more}
        tier, origin = more.pop("tier", "small"), more.pop("origin", "")
        static, symmetric = more.pop("static", False), more.pop("symmetric", True)
        scale = spec((1,), fill="uniform", low=0.01, high=0.1) if static else None
        point = spec((1,), torch.int32, fill="integers", low=-40, high=40)
        azp = None if symmetric or not static else point
        args = (spec(shape, dtype, **layout), scale, azp, symmetric)
        return Case(name, args, tier=tier, origin=origin)

    half, brain, single = torch.float16, torch.bfloat16, torch.float32
    small = [
        case(f"{kind}-{dtype_name(t)}", (7, 64), t, **more)
        for t in FLOATS
        for kind, more in (
            ("dynamic", {}),
            ("dynamic-asymmetric", {"symmetric": False}),
            ("static", {"static": True}),
            ("static-asymmetric", {"static": True, "symmetric": False}),
        )
    ]
    small += [
        case("odd-width", (3, 497), half),
        case("three-dimensions", (2, 3, 80), brain),
        case("misaligned", (4, 65), half, offset=1),
        case("wide-range", (4, 200), single, fill="wide"),
        case("one-token", (1, 128), half, symmetric=False),
        case("no-tokens", (0, 64), half, static=True),
    ]
    kinds: tuple[dict[str, bool], ...] = ({"static": True}, {}, {"symmetric": False})
    full = [
        case(f"{name}-{kind}", shape, dtype, tier="full", origin=origin, **more)
        for name, shape, dtype, origin in _FULL
        for kind, more in zip(("static", "dynamic", "asymmetric"), kinds, strict=True)
    ]
    return (*small, *full)


def _int8_found(
    x: torch.Tensor, scale: torch.Tensor | None, azp: torch.Tensor | None, symmetric: bool
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """(scale, zero point) in the dtype of `x`, given or per token."""
    if scale is not None:
        return scale.to(x.dtype), None if azp is None else azp.to(x.dtype)
    rows = x.reshape(-1, x.shape[-1])
    if symmetric:
        return rows.abs().amax(-1, keepdim=True) / 127.0, None
    low, high = rows.amin(-1, keepdim=True), rows.amax(-1, keepdim=True)
    found = (high - low) / 255.0
    return found, (-128.0 - low / found).round()


def _int8_quantise(x: torch.Tensor, scale: torch.Tensor, azp: torch.Tensor | None) -> torch.Tensor:
    """Codes in the shape of `x`; a scale of zero gives zeros."""
    rows = x.reshape(-1, x.shape[-1])
    quotient = torch.where(scale == 0, 0.0, rows / scale).round()
    return to_int8(quotient if azp is None else quotient + azp).view(x.shape)


def _clear_zero_points(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Rows whose zero point is not at a tie, in the shape of `scale`.

    At a tie float32 may round it either way, and all codes of the row with it; one row of bfloat16
    in fifty is such a one.
    """
    raw = x.amin(-1, keepdim=True).view(scale.shape) / scale
    return (raw - raw.floor() - 0.5).abs() > 1e-3


def _int8_oracle(
    input: torch.Tensor,
    scale: torch.Tensor | None = None,
    azp: torch.Tensor | None = None,
    symmetric: bool = True,
) -> list[Result]:
    found, point = _int8_found(input.double(), scale, azp, symmetric)
    codes = expect_codes(_int8_quantise(input.double(), found, point))
    if scale is not None:
        given: list[Result] = [codes, _returned(1, scale)]
        return given if azp is None else [*given, _returned(2, azp)]
    if point is None:
        return [codes, _expect_scale(found)]
    clear = _clear_zero_points(input.double(), found)
    codes = replace(codes, mask=clear.view(*input.shape[:-1], 1).expand(input.shape))
    points = replace(expect_codes(point.to(torch.int32)), mask=clear)
    return [codes, _expect_scale(found), points]


def _int8_formula(
    input: torch.Tensor,
    scale: torch.Tensor | None = None,
    azp: torch.Tensor | None = None,
    symmetric: bool = True,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    x = input.float()
    found, point = _int8_found(x, scale, azp, symmetric)
    codes = _int8_quantise(x, found, point)
    if scale is not None:
        return codes, scale, azp
    return codes, found, None if point is None else point.to(torch.int32)


def _int8_second(
    input: torch.Tensor,
    scale: torch.Tensor | None = None,
    azp: torch.Tensor | None = None,
    symmetric: bool = True,
) -> list[Any]:
    """Token by token, with reciprocals, in NumPy."""
    import numpy as np

    x = input.double().numpy().reshape(-1, input.shape[-1])
    codes, scales, points = [], [], []
    for row in x:
        if scale is not None:
            s, point = float(scale), 0 if azp is None else int(azp)
        elif symmetric:
            s, point = np.abs(row).max() / 127, 0
        else:
            s = (row.max() - row.min()) / 255
            point = round(-128 - row.min() / s)
        codes.append(np.clip(np.rint(row * (1 / s)) + point, -128, 127))
        scales.append([s])
        points.append([point])
    shaped = np.array(codes).reshape(input.shape)
    if scale is not None:
        return [shaped, scale] if azp is None else [shaped, scale, azp]
    return [shaped, np.array(scales)] + ([] if symmetric else [np.array(points)])


def _int8_cost(case: Case) -> Cost:
    x = case.args[0]
    return Cost(flops=2 * x.numel, nbytes=x.nbytes + x.numel)


def _int8_mutant(variant: str) -> Any:
    def mutant(
        input: torch.Tensor,
        scale: torch.Tensor | None = None,
        azp: torch.Tensor | None = None,
        symmetric: bool = True,
    ) -> Any:
        codes, found, point = _int8_formula(input, scale, azp, symmetric)
        x = input.float().reshape(-1, input.shape[-1])
        wide = torch.where(found == 0, 0.0, x / found)
        if variant == "truncated" and point is None:
            codes = wide.trunc().clamp(-128, 127).to(torch.int8).view(input.shape)
        if variant == "wrapped" and point is None:
            codes = wide.round().to(torch.int32).to(torch.int8).view(input.shape)
        if variant == "zero point subtracted" and point is not None:
            codes = to_int8(wide.round() - point).view(input.shape)
        if variant == "zero point forgotten" and point is not None:
            codes = to_int8(wide).view(input.shape)
        if variant == "one scale for all tokens" and scale is None and symmetric:
            found = torch.full_like(found, float(found.max()) if found.numel() else 1.0)
            codes = to_int8(x / found).view(input.shape)
        return codes, found, point

    return mutant


OPERATORS = (
    Operator(
        id="vllm::scaled_fp8_quant",
        family="quantization",
        signatures=_FP8_SIGNATURES,
        description=(
            "Quantises `input` [tokens, width] (float16, bfloat16 or float32; width contiguous, "
            "rows may be strided) to float8_e4m3fn and returns (codes, scale). code = input / "
            "scale, rounded to nearest even, saturated to +-448. `scale` given (float32, [1]): "
            "used and returned as it is. Otherwise dynamic: with `use_per_token_if_dynamic` one "
            "scale a token, float32 [tokens, 1], max(min(max|row|, scale_ub) / 448, 1 / (448 * "
            "512)), where `scale_ub` is float32 [1] or None; without it one scale for all, float32 "
            "[1], max|input| / 448. `num_token_padding`: codes (and per-token scales) have "
            "max(num_token_padding, tokens) rows, of which those from `tokens` on are undefined. "
            "`output`: the codes are written into this tensor, which is returned."
        ),
        sources=(
            "vLLM 0.13, vllm._custom_ops.scaled_fp8_quant",
            "csrc/quantization/w8a8/fp8/common.cu",
        ),
        cases=_fp8_cases,
        oracle=_fp8_oracle,
        second=_fp8_second,
        baseline=CustomOp("scaled_fp8_quant", _fp8_formula),
        baseline_name=NAME,
        cost=_fp8_cost,
        tolerance=CODES,
        mutants=tuple(
            Mutant(name, _fp8_mutant(name))
            for name in (
                "scale ignored",
                "multiplied by the scale",
                "upper bound ignored",
                "one scale for all tokens",
                "scale to the largest of e5m2",
            )
        ),
        note="On chips whose float8 is e4m3fnuz vLLM uses that; here it is always e4m3fn.",
    ),
    Operator(
        id="vllm::scaled_int8_quant",
        family="quantization",
        signatures=(
            "scaled_int8_quant(input: Tensor, scale: Tensor?=None, azp: Tensor?=None, "
            "symmetric: bool=True) -> (Tensor, Tensor, Tensor?)",
        ),
        description=(
            "Quantises `input` [..., width] (float16, bfloat16 or float32, contiguous) to int8 "
            "over its last dimension and returns (codes, scale, azp). code = clamp(round(input / "
            "scale) + azp, -128, 127), rounding to nearest even, azp 0 if symmetric. `scale` given "
            "(float32 [1], with `azp` int32 [1] if not symmetric): used, and returned as given. "
            "Otherwise dynamic, one row of width a token: symmetric scale = max|row| / 127 "
            "(float32, [tokens, 1]; tokens is the product of the leading dimensions), azp None; "
            "not symmetric scale = (max - min) / 255, azp = round(-128 - min / scale), int32 "
            "[tokens, 1]. A row of zeros has scale 0 and codes 0."
        ),
        sources=(
            "vLLM 0.13, vllm._custom_ops.scaled_int8_quant",
            "csrc/quantization/w8a8/int8/scaled_quant.cu",
        ),
        cases=_int8_cases,
        oracle=_int8_oracle,
        second=_int8_second,
        baseline=CustomOp("scaled_int8_quant", _int8_formula),
        baseline_name=NAME,
        cost=_int8_cost,
        tolerance=CODES,
        mutants=tuple(
            Mutant(name, _int8_mutant(name))
            for name in (
                "truncated",
                "wrapped",
                "zero point subtracted",
                "zero point forgotten",
                "one scale for all tokens",
            )
        ),
    ),
)
