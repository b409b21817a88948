"""Operators over rows: permuted columns and rows, repetition penalties."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from kernelmark.operators.building import FLOATS, dtype_name, spec
from kernelmark.operators.records import EXACT, Case, Cost, Expected, Mutant, Operator, Tolerance
from kernelmark.operators.vllm.baselines import NAME, CustomOp
from kernelmark.operators.vllm.parts import brain, half, moved, single

# permute_cols


@functools.cache
def _permute_cases() -> Sequence[Case]:
    def case(
        name: str, rows: int, columns: int, dtype: torch.dtype, origin: str = "", **layout: Any
    ) -> Case:
        permutation = spec((columns,), torch.int32, fill="permutation")
        tier: Any = "full" if origin else "small"
        args = (spec((rows, columns), dtype, **layout), permutation)
        return Case(name, args, tier=tier, origin=origin)

    act = "activations reordered for GPTQ with act order"
    return (
        case("float16", 5, 64, half),
        case("bfloat16", 7, 96, brain),
        case("one-row", 1, 256, half),
        case("eight-columns", 9, 8, brain),
        case("wide", 3, 1000, half),
        case("many-rows", 33, 24, half),
        case("no-rows", 0, 64, half),
        case("large-values", 4, 80, brain, fill="wide"),
        case("llama-3-8b", 8192, 4096, half, f"Llama 3 8B, {act}"),
        case("llama-3-8b-mlp", 4096, 14336, brain, f"Llama 3 8B MLP, {act}"),
        case("llama-3-70b", 4096, 8192, half, f"Llama 3 70B, {act}"),
        case("llama-3-70b-mlp", 2048, 28672, brain, f"Llama 3 70B MLP, {act}"),
        case("qwen-2.5-7b", 8192, 3584, half, f"Qwen 2.5 7B, {act}"),
        case("mixtral-8x7b", 8192, 4096, brain, f"Mixtral 8x7B, {act}"),
    )


def _permute_cols(a: torch.Tensor, perm: torch.Tensor) -> torch.Tensor:
    return a[:, perm]


def _permute_oracle(a: torch.Tensor, perm: torch.Tensor) -> list[Expected]:
    return [Expected(a.index_select(1, perm), a.dtype)]


def _permute_second(a: torch.Tensor, perm: torch.Tensor) -> list[torch.Tensor]:
    out = torch.empty(a.shape, dtype=a.dtype)
    for column, source in enumerate(perm.tolist()):
        out[:, column] = a[:, source]
    return [out]


def _permute_cost(case: Case) -> Cost:
    a, perm = case.args
    return moved(0, a, a, perm)


def _permute_mutant(variant: str) -> Any:
    def mutant(a: torch.Tensor, perm: torch.Tensor) -> torch.Tensor:
        if variant == "inverse permutation":
            return a[:, perm.long().argsort()]
        if variant == "not permuted":
            return a.clone()
        if variant == "first row's values":
            return a[:1, perm].expand(a.shape[0], -1).clone()
        return a[:, perm.flip(0)]

    return mutant


# shuffle_rows


@functools.cache
def _shuffle_cases() -> Sequence[Case]:
    def case(
        name: str, rows: int, columns: int, out_rows: int, dtype: torch.dtype, origin: str = "",
        offset: int = 0,
    ) -> Case:  # fmt: skip
        index = spec((out_rows,), torch.int32, fill="integers", low=0, high=rows)
        fill = "normal" if dtype.itemsize > 1 else "bits"
        args = (spec((rows, columns), dtype, fill=fill, offset=offset), index)
        return Case(name, args, tier="full" if origin else "small", origin=origin)

    return (
        case("float16", 6, 64, 12, half),
        case("bfloat16", 9, 80, 5, brain),
        case("float32", 4, 33, 8, single),
        case("float8", 5, 128, 10, torch.float8_e4m3fn),
        case("one-source", 1, 64, 7, half),
        case("one-row", 8, 96, 1, brain),
        case("odd-width", 5, 497, 6, half),
        case("misaligned", 5, 65, 6, half, offset=1),
        case("mixtral-8x7b", 8192, 4096, 16384, brain, "Mixtral 8x7B: two copies of each token"),
        case("qwen-3-30b", 4096, 2048, 32768, brain, "Qwen 3 30B-A3B: eight copies"),
        case("deepseek-v3", 2048, 7168, 16384, torch.float8_e4m3fn, "DeepSeek V3, float8"),
        case("deepseek-v3-bfloat16", 2048, 7168, 16384, brain, "DeepSeek V3: eight copies"),
        case("gpt-oss-120b", 8192, 2880, 32768, half, "gpt-oss 120B: four copies"),
        case("llama-4-scout", 16384, 5120, 16384, brain, "Llama 4 Scout: one expert a token"),
        case("mixtral-8x7b-float32", 4096, 4096, 8192, single, "Mixtral 8x7B, float32"),
    )


def _shuffle_rows(input_tensor: torch.Tensor, dst2src_map: torch.Tensor) -> torch.Tensor:
    return input_tensor[dst2src_map]


def _shuffle_oracle(input_tensor: torch.Tensor, dst2src_map: torch.Tensor) -> list[Expected]:
    if input_tensor.dtype.itemsize == 1:  # float8 has no index_select; its values are exact
        wide = input_tensor.float()
        return [Expected(wide[dst2src_map.long()], input_tensor.dtype)]
    return [Expected(input_tensor[dst2src_map.long()], input_tensor.dtype)]


def _shuffle_second(input_tensor: torch.Tensor, dst2src_map: torch.Tensor) -> list[torch.Tensor]:
    return [torch.stack([input_tensor[i].clone() for i in dst2src_map.tolist()])]


def _shuffle_formula(input_tensor: torch.Tensor, dst2src_map: torch.Tensor) -> torch.Tensor:
    if input_tensor.dtype.itemsize == 1:
        return input_tensor.view(torch.uint8)[dst2src_map].view(input_tensor.dtype)
    return _shuffle_rows(input_tensor, dst2src_map)


def _shuffle_cost(case: Case) -> Cost:
    x, index = case.args
    row = x.shape[1] * x.dtype.itemsize
    read = min(x.shape[0], index.numel) * row
    return Cost(0, read + index.numel * row + index.nbytes)


def _shuffle_mutant(variant: str) -> Any:
    def mutant(input_tensor: torch.Tensor, dst2src_map: torch.Tensor) -> torch.Tensor:
        index = dst2src_map
        if variant == "map ignored":
            index = torch.arange(len(index), device=index.device) % len(input_tensor)
        if variant == "map read backwards":
            index = index.flip(0)
        if variant == "next row":
            index = (index + 1) % len(input_tensor)
        if variant == "first row only":
            index = index[:1].expand_as(index)
        return _shuffle_formula(input_tensor, index)

    return mutant


# apply_repetition_penalties_cuda


@functools.cache
def _penalty_cases() -> Sequence[Case]:
    def case(
        name: str, sequences: int, vocabulary: int, dtype: torch.dtype = single,
        origin: str = "", offset: int = 0,
    ) -> Case:  # fmt: skip
        mask = spec((sequences, vocabulary), torch.bool, fill="bool")
        args = (
            spec((sequences, vocabulary), dtype, offset=offset), mask, mask,
            spec((sequences,), dtype, fill="uniform", low=0.7, high=1.8),
        )  # fmt: skip
        return Case(name, args, tier="full" if origin else "small", origin=origin)

    return (
        *(case(dtype_name(t), 5, 200, t) for t in FLOATS),
        case("one-sequence", 1, 497),
        case("one-token", 4, 1),
        case("misaligned", 3, 65, half, offset=1),
        case("many-sequences", 40, 33),
        case("no-sequences", 0, 64),
        case("llama-3", 128, 128256, single, "Llama 3 vocabulary, 128 sequences"),
        case("qwen-2.5", 128, 152064, single, "Qwen 2.5 vocabulary, 128 sequences"),
        case("gemma-3", 64, 262208, single, "Gemma 3 vocabulary, 64 sequences"),
        case("llama-2", 512, 32000, single, "Llama 2 vocabulary, 512 sequences"),
        case("deepseek-v3", 256, 129280, single, "DeepSeek V3 vocabulary, 256 sequences"),
        case("llama-3-float16", 256, 128256, half, "Llama 3 vocabulary, float16"),
    )


def _penalised(
    logits: torch.Tensor, prompt: torch.Tensor, output: torch.Tensor, penalties: torch.Tensor
) -> torch.Tensor:
    p = torch.where(prompt | output, penalties.unsqueeze(1), 1.0)
    return torch.where(logits > 0, logits / p, logits * p)


def _penalty_oracle(
    logits: torch.Tensor,
    prompt_mask: torch.Tensor,
    output_mask: torch.Tensor,
    repetition_penalties: torch.Tensor,
) -> list[Expected]:
    value = _penalised(logits.double(), prompt_mask, output_mask, repetition_penalties.double())
    return [Expected(value, logits.dtype, torch.zeros((), device=logits.device).double())]


def _penalty_second(
    logits: torch.Tensor,
    prompt_mask: torch.Tensor,
    output_mask: torch.Tensor,
    repetition_penalties: torch.Tensor,
) -> list[np.ndarray]:
    x = logits.double().numpy().copy()
    p = np.broadcast_to(repetition_penalties.double().numpy()[:, None], x.shape)
    seen = prompt_mask.numpy() | output_mask.numpy()
    up, down = seen & (x > 0), seen & (x <= 0)
    x[up] = x[up] / p[up]
    x[down] = x[down] * p[down]
    return [x]


def _apply_penalties(
    logits: torch.Tensor,
    prompt_mask: torch.Tensor,
    output_mask: torch.Tensor,
    repetition_penalties: torch.Tensor,
) -> None:
    value = _penalised(logits.float(), prompt_mask, output_mask, repetition_penalties.float())
    logits.copy_(value)


def _penalty_cost(case: Case) -> Cost:
    logits, prompt, output, penalties = case.args
    return moved(logits.numel, logits, logits, prompt, output, penalties)


def _penalty_mutant(variant: str) -> Any:
    def mutant(
        logits: torch.Tensor,
        prompt_mask: torch.Tensor,
        output_mask: torch.Tensor,
        repetition_penalties: torch.Tensor,
    ) -> None:
        prompt, output, penalties = prompt_mask, output_mask, repetition_penalties
        if variant == "output tokens ignored":
            output = torch.zeros_like(output)
        if variant == "prompt tokens ignored":
            prompt = torch.zeros_like(prompt)
        if variant == "both needed":
            prompt = output = prompt & output
        if variant == "every token penalised":
            prompt = torch.ones_like(prompt)
        if variant == "first sequence's penalty":
            penalties = penalties[:1].expand_as(penalties)
        if variant == "always divided":
            p = torch.where(prompt | output, penalties.unsqueeze(1).float(), 1.0)
            logits.copy_(logits.float() / p)
            return
        _apply_penalties(logits, prompt, output, penalties)

    return mutant


OPERATORS = (
    Operator(
        id="vllm::permute_cols",
        family="indexing",
        signatures=("permute_cols(a: Tensor, perm: Tensor) -> Tensor",),
        description=(
            "Permutes columns: out[:, j] = a[:, perm[j]]. `a` is [rows, columns], float16 or "
            "bfloat16, contiguous, columns a multiple of 8; `perm` is int32 [columns], a "
            "permutation. Returns a new contiguous tensor."
        ),
        sources=("vLLM 0.13, vllm._custom_ops.permute_cols", "csrc/permute_cols.cu"),
        cases=_permute_cases,
        oracle=_permute_oracle,
        second=_permute_second,
        baseline=CustomOp("permute_cols", _permute_cols),
        baseline_name=NAME,
        cost=_permute_cost,
        tolerance=EXACT,
        mutants=tuple(
            Mutant(name, _permute_mutant(name))
            for name in (
                "inverse permutation",
                "not permuted",
                "first row's values",
                "permutation read backwards",
            )
        ),
    ),
    Operator(
        id="vllm::shuffle_rows",
        family="indexing",
        signatures=("shuffle_rows(input_tensor: Tensor, dst2src_map: Tensor) -> Tensor",),
        description=(
            "Gathers rows: out[i] = input_tensor[dst2src_map[i]]. `input_tensor` is [rows, "
            "columns] of any dtype of 8, 16 or 32 bits, contiguous; `dst2src_map` is int32 [out "
            "rows], values repeat and need not cover all rows. Returns a new [out rows, columns]."
        ),
        sources=(
            "vLLM 0.13, vllm._custom_ops.shuffle_rows",
            "csrc/moe/moe_permute_unpermute_op.cu",
        ),
        cases=_shuffle_cases,
        oracle=_shuffle_oracle,
        second=_shuffle_second,
        baseline=CustomOp("shuffle_rows", _shuffle_formula),
        baseline_name=NAME,
        cost=_shuffle_cost,
        tolerance=EXACT,
        mutants=tuple(
            Mutant(name, _shuffle_mutant(name))
            for name in ("map ignored", "map read backwards", "next row", "first row only")
        ),
    ),
    Operator(
        id="vllm::apply_repetition_penalties_cuda",
        family="sampling",
        signatures=(
            "apply_repetition_penalties_cuda(logits: Tensor!, prompt_mask: Tensor, "
            "output_mask: Tensor, repetition_penalties: Tensor) -> ()",
        ),
        description=(
            "Penalises logits of tokens that occurred, in place. `logits` is [sequences, "
            "vocabulary] (float32, float16 or bfloat16, contiguous), the masks bool of the same "
            "shape, `repetition_penalties` [sequences] in the dtype of the logits. Where "
            "prompt_mask or output_mask holds, a positive logit is divided by its sequence's "
            "penalty, any other multiplied by it; elsewhere logits stay. Computed in float32 and "
            "rounded once, or in the dtype itself."
        ),
        sources=("vLLM 0.13, vllm._custom_ops.apply_repetition_penalties_cuda", "csrc/sampler.cu"),
        cases=_penalty_cases,
        oracle=_penalty_oracle,
        second=_penalty_second,
        baseline=CustomOp("apply_repetition_penalties_cuda", _apply_penalties),
        baseline_name=NAME,
        cost=_penalty_cost,
        tolerance=Tolerance(
            limit=1.5,
            why="one division or product: 0.5; a product with the rounded reciprocal 1.0 to 1.5",
        ),
        mutants=tuple(
            Mutant(name, _penalty_mutant(name))
            for name in (
                "output tokens ignored",
                "prompt tokens ignored",
                "both needed",
                "every token penalised",
                "first sequence's penalty",
                "always divided",
            )
        ),
    ),
)
