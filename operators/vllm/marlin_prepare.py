"""4-bit codes made ready for Marlin products with float8 activations."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np
import torch

from kernelmark.operators.building import full, small
from kernelmark.operators.records import EXACT, Case, Cost, Expected, Mutant, Operator, TensorSpec
from kernelmark.operators.vllm.baselines import NAME, CustomOp
from kernelmark.operators.vllm.packing import pack_words, unpack_words
from kernelmark.operators.vllm.parts import nbytes

_WORD = torch.int32


@functools.cache
def _cases() -> Sequence[Case]:
    def case(
        name: str, rows: int, words: int, group: int = 0, inplace: bool = False, origin: str = ""
    ) -> Case:
        zeros = TensorSpec((rows // group, words), _WORD, "bits") if group else None
        args = (TensorSpec((rows, words), _WORD, "bits"), zeros, inplace)
        make = full if origin else small
        more = (origin,) if origin else ()
        return make(name, *more, *args, overload=int(inplace), draws=("base", "base"))

    return (
        case("symmetric", 32, 32),
        case("symmetric-wide", 16, 96),
        case("symmetric-inplace", 64, 16, inplace=True),
        case("symmetric-one-block", 1, 32),
        case("zero-points", 64, 24, 32),
        case("zero-points-inplace", 64, 32, 16, True),
        case("zero-points-groups-of-8", 32, 9, 8),
        case("zero-points-one-group", 96, 5, 96),
        case("zero-points-one-word", 32, 1, 32, True),
        case("llama-3-8b-up", 4096, 3584, origin="Llama 3 8B gate and up, GPTQ"),
        case("llama-3-70b-up", 8192, 7168, 0, True, "Llama 3 70B gate and up, GPTQ"),
        case("llama-3-70b-down-awq", 28672, 1024, 128, False, "Llama 3 70B down, AWQ"),
        case("qwen2.5-72b-up-awq", 8192, 7392, 128, True, "Qwen2.5 72B gate and up, AWQ"),
        case("qwen2.5-32b-down-awq", 27648, 640, 64, False, "Qwen2.5 32B down, AWQ"),
        case("mixtral-down", 14336, 4096, origin="Mixtral 8x7B down of 8 experts, GPTQ"),
    )


def _transformed(codes: torch.Tensor, zeros: torch.Tensor | None) -> torch.Tensor:
    """Codes [rows, columns] less their zero point where that is not negative, else 15 - code."""
    if zeros is None:
        return torch.where(codes >= 8, codes - 8, 15 - codes)
    point = zeros.repeat_interleave(codes.shape[0] // zeros.shape[0], 0)
    return torch.where(codes >= point, codes - point, 15 - codes)


def _words(qweight: torch.Tensor, qzeros: torch.Tensor | None) -> torch.Tensor:
    zeros = None if qzeros is None else unpack_words(qzeros, 4, 1)
    return pack_words(_transformed(unpack_words(qweight, 4, 1), zeros), 4, 1)


def _oracle(
    qweight: torch.Tensor, qzeros_or_none: torch.Tensor | None = None, inplace: bool = False
) -> list[Expected]:
    return [Expected(_words(qweight, qzeros_or_none), _WORD)]


def _second(
    qweight: torch.Tensor, qzeros_or_none: torch.Tensor | None = None, inplace: bool = False
) -> list[np.ndarray]:
    """By hexadecimal digits."""
    words = qweight.numpy().view(np.uint32)
    out = np.zeros_like(words)
    for (row, column), word in np.ndenumerate(words):
        zeros = "88888888"
        if qzeros_or_none is not None:
            group = row * qzeros_or_none.shape[0] // words.shape[0]
            zeros = f"{int(qzeros_or_none[group, column]) & 0xFFFFFFFF:08x}"
        digits = ""
        for digit, zero in zip(f"{int(word):08x}", zeros, strict=True):
            above = int(digit, 16) - int(zero, 16)
            digits += f"{above if above >= 0 else 15 - int(digit, 16):x}"
        out[row, column] = int(digits, 16)
    return [out.view(np.int32)]


def _preprocess(
    qweight: torch.Tensor, qzeros_or_none: torch.Tensor | None = None, inplace: bool = False
) -> torch.Tensor:
    """Word by word in 32-bit integers, without widening codes to 64 bits."""
    out = torch.zeros_like(qweight)
    zeros = None
    if qzeros_or_none is not None:
        times = qweight.shape[0] // qzeros_or_none.shape[0]
        zeros = qzeros_or_none.repeat_interleave(times, 0)
    for shift in range(0, 32, 4):
        code = qweight >> shift & 15
        point = 8 if zeros is None else zeros >> shift & 15
        out = out | torch.where(code >= point, code - point, 15 - code) << shift
    return qweight.copy_(out) if inplace else out


def _mutant(variant: str) -> Callable[..., torch.Tensor]:
    def mutant(
        qweight: torch.Tensor, qzeros_or_none: torch.Tensor | None = None, inplace: bool = False
    ) -> torch.Tensor:
        codes = unpack_words(qweight, 4, 1)
        zeros = None if qzeros_or_none is None else unpack_words(qzeros_or_none, 4, 1)
        if variant == "zero points ignored":
            zeros = None
        if variant == "zero points of the first group" and zeros is not None:
            zeros = zeros[:1]
        done = _transformed(codes, zeros)
        if variant == "two's complement":
            point = 8 if zeros is None else zeros.repeat_interleave(len(codes) // len(zeros), 0)
            done = codes - point & 15
        if variant == "low half only":
            keep = torch.arange(codes.shape[1], device=codes.device) % 8 < 4
            done = torch.where(keep, done, codes)
        if variant == "equal taken as below" and zeros is not None:
            point = zeros.repeat_interleave(len(codes) // len(zeros), 0)
            done = torch.where(codes == point, 15 - codes, done)
        out = pack_words(done, 4, 1)
        return qweight.copy_(out) if inplace else out

    return mutant


def _cost(case: Case) -> Cost:
    words, zeros, _ = case.args
    return Cost(flops=0, nbytes=2 * nbytes(words) + (0 if zeros is None else nbytes(zeros)))


OPERATORS = (
    Operator(
        id="vllm::marlin_int4_fp8_preprocess",
        family="quant-weight-layout",
        signatures=(
            "marlin_int4_fp8_preprocess(qweight: Tensor, qzeros_or_none: Tensor?=None, "
            "inplace: bool=False) -> Tensor",
            "marlin_int4_fp8_preprocess(qweight: Tensor!, qzeros_or_none: Tensor?, inplace: bool) "
            "-> Tensor!",
        ),
        description=(
            "Turns each of the eight 4-bit codes of every int32 word of `qweight` into sign and "
            "size as float8 products want them. With zero point z the code q becomes q - z where "
            "q >= z, and 15 - q where q < z. Without `qzeros_or_none` z is 8 (any shape whose "
            "number of words is a multiple of 32); with it, `qweight` is AWQ's [K, N / 8] and "
            "nibble i of word (k, j) has as z nibble i of `qzeros_or_none` (int32 [groups, N / 8]) "
            "at (k // (K / groups), j); K is a multiple of 32, K / groups of 8. With `inplace` "
            "`qweight` is overwritten and returned, else the result is new."
        ),
        sources=(
            "vLLM 0.13, vllm._custom_ops.marlin_int4_fp8_preprocess",
            "csrc/quantization/gptq_marlin/marlin_int4_fp8_preprocess.cu",
        ),
        cases=_cases,
        oracle=_oracle,
        second=_second,
        baseline=CustomOp("marlin_int4_fp8_preprocess", _preprocess),
        baseline_name=NAME,
        cost=_cost,
        tolerance=EXACT,
        mutants=tuple(
            Mutant(name, _mutant(name))
            for name in (
                "zero points ignored",
                "zero points of the first group",
                "two's complement",
                "low half only",
                "equal taken as below",
            )
        ),
    ),
)
