"""Hadamard transform of rows.

Oracle: butterflies in float64; second statement: the matrix itself.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from kernelmark.operators.building import spec
from kernelmark.operators.draws import Call
from kernelmark.operators.records import Case, Cost, Expected, Mutant, Operator, Tolerance
from kernelmark.operators.vllm.baselines import NAME, CustomOp
from kernelmark.operators.vllm.parts import brain, half, moved, split_dim

# hadacore_transform


@functools.cache
def _hadamard_cases() -> Sequence[Case]:
    def case(
        name: str, shape: tuple[int, ...], dtype: torch.dtype, inplace: bool = True,
        origin: str = "", fill: str = "normal",
    ) -> Case:  # fmt: skip
        args = (spec(shape, dtype, fill=fill), inplace)
        tier: Any = "full" if origin else "small"
        return Case(name, args, tier=tier, origin=origin, overload=int(not inplace))

    quip = "rotation of activations (QuaRot, SpinQuant)"
    return (
        case("float16", (5, 64), half),
        case("bfloat16", (5, 128), brain),
        case("new-tensor", (4, 64), half, inplace=False),
        case("new-tensor-bfloat16", (3, 256), brain, inplace=False),
        case("two", (7, 2), half),
        case("sixteen", (9, 16), brain),
        case("thirty-two", (6, 32), half),
        case("three-dimensions", (2, 3, 64), half),
        case("one-row", (1, 1024), brain),
        case("one-hot", (8, 8), half, fill="zeros"),
        case("llama-3-8b", (16384, 4096), brain, origin=f"Llama 3 8B, {quip}"),
        case("llama-3-70b", (8192, 8192), brain, origin=f"Llama 3 70B, {quip}"),
        case("head-dimension", (524288, 128), half, origin=f"Llama 3 8B queries and keys, {quip}"),
        case("new-tensor-4096", (8192, 4096), half, False, origin=f"Llama 3 8B, {quip}"),
        case("llama-3-405b", (4096, 16384), half, origin=f"Llama 3 405B, {quip}"),
        case("mixtral-2048", (32768, 2048), brain, origin=f"Qwen 3 30B-A3B hidden size, {quip}"),
    )


def _hadamard_prepare(call: Call, case: Case, generator: torch.Generator) -> None:
    if case.name == "one-hot":
        call.args[0].copy_(torch.eye(call.args[0].shape[0], device=call.args[0].device))


def _hadamard(x: torch.Tensor) -> torch.Tensor:
    """Butterflies of strides 1, 2, 4, ...; natural (Sylvester) order, orthonormal."""
    n, shape = x.shape[-1], x.shape
    step = 1
    while step < n:
        x = x.reshape(*shape[:-1], n // (2 * step), 2, step)
        a, b = x[..., 0, :], x[..., 1, :]
        x = torch.stack([a + b, a - b], dim=-2)
        step *= 2
    return x.reshape(shape) * n**-0.5


def _hadamard_oracle(x: torch.Tensor, inplace: bool = True) -> list[Expected]:
    wide = x.double()
    norm = wide.square().mean(-1, keepdim=True).sqrt()
    return [Expected(_hadamard(wide), x.dtype, norm.expand(x.shape))]


def _hadamard_second(x: torch.Tensor, inplace: bool = True) -> list[np.ndarray]:
    """As a matrix: entry (i, j) is (-1)^(number of common bits)."""
    n = x.shape[-1]
    common = np.arange(n)[:, None] & np.arange(n)
    bits = np.array([[bin(v).count("1") for v in row] for row in common])
    return [x.double().numpy() @ ((-1.0) ** bits) / np.sqrt(n)]


def _hadacore_transform(x: torch.Tensor, inplace: bool = True) -> torch.Tensor:
    value = _hadamard(x.float()).to(x.dtype)
    return x.copy_(value) if inplace else value


def _hadamard_cost(case: Case) -> Cost:
    x = case.args[0]
    return moved(x.numel * max(x.shape[-1].bit_length() - 1, 1), x, x)


def _hadamard_mutant(variant: str) -> Any:
    def mutant(x: torch.Tensor, inplace: bool = True) -> torch.Tensor:
        n, wide = x.shape[-1], x.float()
        if variant == "not normalised":
            value = _hadamard(wide) * n**0.5
        elif variant == "divided by n":
            value = _hadamard(wide) * n**-0.5
        elif variant == "last butterfly left out":
            value = _hadamard(split_dim(wide, -1, (2, n // 2))).flatten(-2)
        elif variant == "bits reversed":
            width = n.bit_length() - 1
            order = [int(f"{i:0{width}b}"[::-1] or "0", 2) for i in range(n)]
            value = _hadamard(wide)[..., order]
        else:  # signs of the second half turned
            value = _hadamard(wide)
            value = torch.cat([value[..., : n // 2], -value[..., n // 2 :]], -1)
        value = value.to(x.dtype)
        return x.copy_(value) if inplace else value

    return mutant


OPERATORS = (
    Operator(
        id="vllm::hadacore_transform",
        family="transform (Hadamard)",
        signatures=(
            "hadacore_transform(x: Tensor!, inplace: bool=True) -> Tensor!",
            "hadacore_transform(x: Tensor, inplace: bool) -> Tensor",
        ),
        description=(
            "Orthonormal Walsh-Hadamard transform of the last dimension: y = x H / sqrt(n) with "
            "H[i, j] = (-1)^(number of bits that i and j have in common), the natural (Sylvester) "
            "order. `x` is [..., n], n a power of two up to 32768, float16 or bfloat16, "
            "contiguous. With `inplace` x is overwritten and returned, else a new tensor is "
            "returned and x stays. Partial results may be rounded to the dtype every four "
            "butterflies."
        ),
        sources=(
            "vLLM 0.13, vllm._custom_ops.hadacore_transform",
            "csrc/quantization/hadamard/hadacore/hadamard_transform_cuda.cu",
            "Agarwal et al., HadaCore (2024)",
        ),
        cases=_hadamard_cases,
        oracle=_hadamard_oracle,
        second=_hadamard_second,
        baseline=CustomOp("hadacore_transform", _hadacore_transform),
        baseline_name=NAME,
        cost=_hadamard_cost,
        tolerance=Tolerance(
            limit=2.0,
            accumulator=None,
            why="up to four passes rounded to the dtype, each 0.5 of elements as large as the "
            "row's rms; float32 inside stays at 0.5",
        ),
        mutants=tuple(
            Mutant(name, _hadamard_mutant(name))
            for name in (
                "not normalised",
                "divided by n",
                "last butterfly left out",
                "bits reversed",
                "signs of the second half turned",
            )
        ),
        prepare=_hadamard_prepare,
    ),
)
