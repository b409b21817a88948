"""Converting whole caches to float8 codes and back.

Oracle: float64; second statement: search in the table of the format's values.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch

from kernelmark.operators.building import FLOATS, dtype_name, spec
from kernelmark.operators.draws import Call
from kernelmark.operators.records import Case, Cost, Expected, Mutant, Operator, Tolerance
from kernelmark.operators.vllm.baselines import NAME, CustomOp
from kernelmark.operators.vllm.formats import (
    CODES,
    FLOAT8,
    expect_codes,
    float8_table,
    look_up_float8,
    to_float8,
)
from kernelmark.operators.vllm.parts import moved
from kernelmark.operators.vllm.quantization import FLOAT8_MAX

# convert_fp8


@functools.cache
def _convert_cases() -> Sequence[Case]:
    def case(
        name: str, shape: tuple[int, ...], source: torch.dtype, scale: float, back: bool = False,
        kind: str = "fp8", tier: Any = "small", origin: str = "", offset: int = 0,
    ) -> Case:  # fmt: skip
        byte = spec(shape, torch.uint8, fill="bits", offset=offset)
        real = spec(shape, source, offset=offset)
        args = (real, byte, scale, kind) if back else (byte, real, scale, kind)
        return Case(name, args, tier=tier, origin=origin)

    half, brain, single = torch.float16, torch.bfloat16, torch.float32
    small = [case(f"to-{dtype_name(t)}", (4, 64), t, 0.5) for t in FLOATS]
    small += [case(f"from-{dtype_name(t)}", (4, 64), t, 0.7, back=True) for t in FLOATS]
    small += [
        case("scale-one", (5, 48), half, 1.0, kind="fp8_e4m3"),
        case("cache-shaped", (3, 2, 4, 8, 8), brain, 0.3),
        case("back-cache-shaped", (3, 2, 4, 8, 8), half, 2.5, back=True),
        case("odd-width", (3, 497), half, 0.1),
        case("misaligned", (3, 65), half, 0.25, offset=1),
        case("one-element", (1, 1), single, 1.5),
    ]
    cache = "Llama 3 8B key cache: 8 heads of 128, blocks of 16"
    mla = "DeepSeek V3 latent cache: 576 a token, blocks of 64"
    full = [
        case("llama-3-8b", (4096, 8, 16, 16, 8), brain, 0.5, tier="full", origin=cache),
        case("llama-3-8b-back", (4096, 8, 16, 16, 8), brain, 0.5, True, tier="full", origin=cache),
        case("llama-3-8b-float32", (4096, 8, 16, 16, 8), single, 0.5, tier="full", origin=cache),
        case("deepseek-v3", (2048, 64, 576), brain, 0.2, tier="full", origin=mla),
        case("deepseek-v3-back", (2048, 64, 576), half, 0.2, True, tier="full", origin=mla),
        case(
            "opt-13b",
            (2048, 40, 128, 16),
            half,
            1.0,
            tier="full",
            origin="OPT 13B value cache: 40 heads of 128, blocks of 16",
        ),
    ]
    return (*small, *full)


def _convert_prepare(call: Call, case: Case, generator: torch.Generator) -> None:
    """Codes to convert back are finite: NaN codes become the largest finite ones."""
    source = call.args[1]
    if source.dtype == torch.uint8:
        source.copy_(torch.where((source & 0x7F) == 0x7F, source - 1, source))


def _convert_oracle(
    output: torch.Tensor, input: torch.Tensor, scale: float = 1.0, kv_dtype: str = "fp8"
) -> list[Expected]:
    if input.dtype != torch.uint8:
        codes = to_float8(input.double() / scale, FLOAT8[kv_dtype])
        return [expect_codes(codes.view(torch.uint8))]
    value = input.view(FLOAT8[kv_dtype]).double() * scale
    rounding = Tolerance(limit=1.0, accumulator=torch.float32, why="one product, rounded once")
    return [Expected(value, output.dtype, value.abs(), tolerance=rounding)]


def _convert_fp8(
    output: torch.Tensor, input: torch.Tensor, scale: float = 1.0, kv_dtype: str = "fp8"
) -> None:
    if input.dtype == torch.uint8:
        output.copy_(input.view(FLOAT8[kv_dtype]).float() * scale)
    else:
        wanted = (input.float() / scale).clamp(-FLOAT8_MAX, FLOAT8_MAX)
        output.copy_(wanted.to(FLOAT8[kv_dtype]).view(torch.uint8))


def _convert_second(
    output: torch.Tensor, input: torch.Tensor, scale: float = 1.0, kv_dtype: str = "fp8"
) -> list[torch.Tensor]:
    """By the table of all values of the format."""
    if input.dtype == torch.uint8:
        magnitude = float8_table()[(input & 0x7F).long()]
        return [magnitude * torch.where(input > 127, -scale, scale)]
    return [look_up_float8(input.double() / scale)]


def _convert_cost(case: Case) -> Cost:
    output, source = case.args[:2]
    return moved(source.numel, output, source)


def _convert_mutant(variant: str) -> Any:
    def mutant(
        output: torch.Tensor, input: torch.Tensor, scale: float = 1.0, kv_dtype: str = "fp8"
    ) -> None:
        if variant == "scale ignored":
            scale = 1.0
        if variant == "scale inverted":
            scale = 1 / scale
        if variant == "other format":
            kv_dtype = "fp8_e5m2"
        if variant == "integers instead of codes" and input.dtype == torch.uint8:
            output.copy_(input.float() * scale)
            return
        _convert_fp8(output, input, scale, kv_dtype)

    return mutant


OPERATORS = (
    Operator(
        id="vllm::convert_fp8",
        family="quantization",
        signatures=(
            "convert_fp8(output: Tensor!, input: Tensor, scale: float=1.0, kv_dtype: str='fp8') "
            "-> ()",
        ),
        description=(
            "Converts a whole cache to float8 codes or back; shapes are equal, both contiguous. "
            "`input` float16, bfloat16 or float32 and `output` uint8: output = code of input / "
            "scale in float8_e4m3fn, rounded to nearest even, saturated to +-448, the sign of zero "
            "kept. `input` uint8 and `output` a float dtype: output = value(input) * scale, "
            "rounded once. `kv_dtype` is 'fp8' or 'fp8_e4m3', which mean the same."
        ),
        sources=("vLLM 0.13, vllm._custom_ops.convert_fp8", "csrc/cache_kernels.cu"),
        cases=_convert_cases,
        oracle=_convert_oracle,
        second=_convert_second,
        baseline=CustomOp("convert_fp8", _convert_fp8),
        baseline_name=NAME,
        cost=_convert_cost,
        tolerance=CODES,
        mutants=tuple(
            Mutant(name, _convert_mutant(name))
            for name in (
                "scale ignored",
                "scale inverted",
                "other format",
                "integers instead of codes",
            )
        ),
        prepare=_convert_prepare,
    ),
)
