"""Choosing experts for tokens by softmax, and summing what the experts return.

Selections are compared by rank classes: experts whose scores differ by no more than float32
arithmetic can tell apart may be taken for one another, all others may not.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from kernelmark.operators.building import FLOATS, dtype_name, spec
from kernelmark.operators.records import EXACT, Case, Cost, Expected, Mutant, Operator, Tolerance
from kernelmark.operators.vllm.baselines import NAME, CustomOp
from kernelmark.operators.vllm.parts import brain, half, moved, single

_EPS32 = torch.finfo(torch.float32).eps
#: scores this close (relative to 1 or to themselves) are a tie to a float32 kernel
TIE = 8 * _EPS32
#: scaling all logits up makes most probabilities exactly 0, and their order arbitrary
DRAWS = ("base", "base", "structured")


def _classes(scores: torch.Tensor) -> torch.Tensor:
    """Rank class of every expert of a row: neighbours in order that tie share one."""
    ordered, order = scores.sort(dim=-1, descending=True)
    gap = ordered[:, :-1] - ordered[:, 1:]
    new = gap > TIE * ordered[:, :-1].abs()
    rank = torch.nn.functional.pad(new.long().cumsum(-1), (1, 0))
    return torch.zeros_like(rank).scatter_(1, order, rank)


def _as_classes(classes: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
    """Maps expert numbers to their rank classes, numbers out of range to -1."""

    def canonical(got: torch.Tensor) -> torch.Tensor:
        ids = got.long()
        inside = (ids >= 0) & (ids < classes.shape[1])
        return torch.where(inside, classes.gather(1, ids.clamp(0, classes.shape[1] - 1)), -1)

    return canonical


def expect_ids(
    scores: torch.Tensor, ids: torch.Tensor, mask: torch.Tensor | None = None
) -> Expected:
    classes = _classes(scores)
    return Expected(
        classes.gather(1, ids), torch.int32, mask=mask, tolerance=EXACT,
        canonical=_as_classes(classes),
    )  # fmt: skip


# topk_softmax


@functools.cache
def _softmax_cases() -> Sequence[Case]:
    def case(
        name: str, tokens: int, experts: int, topk: int, dtype: torch.dtype = single,
        renormalize: bool = False, offset: int = 0, origin: str = "",
    ) -> Case:  # fmt: skip
        args = (
            spec((tokens, topk)), spec((tokens, topk), torch.int32, fill="zeros"),
            spec((tokens, topk), torch.int32, fill="zeros"),
            spec((tokens, experts), dtype, offset=offset), renormalize,
        )  # fmt: skip
        tier: Any = "full" if origin else "small"
        return Case(name, args, tier=tier, origin=origin, draws=DRAWS)

    return (
        *(case(f"experts-8-{dtype_name(t)}", 9, 8, 2, t) for t in FLOATS),
        *(case(f"renormalized-{dtype_name(t)}", 9, 64, 4, t, True) for t in FLOATS),
        case("one-of-many", 7, 128, 1),
        case("all-of-few", 5, 4, 4, renormalize=True),
        case("odd-experts", 6, 60, 4),
        case("one-token", 1, 16, 2),
        case("misaligned", 5, 33, 3, offset=1),
        case("no-tokens", 0, 8, 2),
        case("mixtral-8x7b", 1048576, 8, 2, single, True, origin="Mixtral 8x7B, 1M tokens"),
        case("qwen-3-30b", 131072, 128, 8, single, True, origin="Qwen 3 30B-A3B, 128k tokens"),
        case("qwen-3-30b-bfloat16", 262144, 128, 8, brain, True, origin="Qwen 3 30B-A3B"),
        case("qwen-1.5-moe", 262144, 60, 4, single, origin="Qwen 1.5 MoE A2.7B: 60 experts"),
        case("olmoe", 262144, 64, 8, half, origin="OLMoE 1B-7B: 64 experts"),
        case("qwen-3-next", 65536, 512, 10, brain, True, origin="Qwen 3 Next: 512 experts"),
    )


def _softmax_oracle(
    topk_weights: torch.Tensor,
    topk_ids: torch.Tensor,
    token_expert_indices: torch.Tensor,
    gating_output: torch.Tensor,
    renormalize: bool = False,
) -> list[Expected]:
    x = gating_output.double()
    p = torch.softmax(x, -1)
    topk = topk_weights.shape[1]
    weights, ids = p.topk(topk, dim=-1)
    spread = 1 + (x.amax(-1, keepdim=True) - x).gather(1, ids)
    if renormalize:
        weights = weights / weights.sum(-1, keepdim=True)
    return [
        Expected(weights, single, weights * spread),
        expect_ids(p, ids),
        Expected(_source_rows(len(x), topk, x.device), torch.int32, tolerance=EXACT),
    ]


def _source_rows(tokens: int, topk: int, device: torch.device) -> torch.Tensor:
    """k * tokens + token."""
    k = torch.arange(topk, device=device)
    return k * tokens + torch.arange(tokens, device=device).unsqueeze(1)


def _topk_softmax(
    topk_weights: torch.Tensor,
    topk_ids: torch.Tensor,
    token_expert_indices: torch.Tensor,
    gating_output: torch.Tensor,
    renormalize: bool = False,
) -> None:
    weights, ids = torch.softmax(gating_output.float(), -1).topk(topk_weights.shape[1], dim=-1)
    if renormalize:
        weights = weights / weights.sum(-1, keepdim=True)
    topk_weights.copy_(weights)
    topk_ids.copy_(ids)
    tokens, topk = topk_ids.shape
    token_expert_indices.copy_(_source_rows(tokens, topk, topk_ids.device))


def _softmax_second(
    topk_weights: torch.Tensor,
    topk_ids: torch.Tensor,
    token_expert_indices: torch.Tensor,
    gating_output: torch.Tensor,
    renormalize: bool = False,
) -> list[np.ndarray]:
    x = gating_output.double().numpy()
    tokens, topk = topk_ids.shape
    e = np.exp(x - x.max(1, keepdims=True, initial=-np.inf))
    p = e / e.sum(1, keepdims=True)
    ids = np.argsort(-p, axis=1, kind="stable")[:, :topk]
    weights = np.take_along_axis(p, ids, 1)
    if renormalize:
        weights = weights / weights.sum(1, keepdims=True)
    return [weights, ids, np.arange(tokens)[:, None] + tokens * np.arange(topk)]


def _softmax_cost(case: Case) -> Cost:
    weights, ids, rows, gating, _ = case.args
    return moved(5 * gating.numel, weights, ids, rows, gating)


def _softmax_mutant(variant: str) -> Any:
    def mutant(
        topk_weights: torch.Tensor,
        topk_ids: torch.Tensor,
        token_expert_indices: torch.Tensor,
        gating_output: torch.Tensor,
        renormalize: bool = False,
    ) -> None:
        gating, rows = gating_output, token_expert_indices
        if variant == "renormalisation dropped":
            renormalize = False
        if variant == "smallest chosen":
            gating = -gating
        if variant == "source rows left":
            rows = rows.clone()
        _topk_softmax(topk_weights, topk_ids, rows, gating, renormalize)
        if variant == "weights are logits":
            topk_weights.copy_(gating.float().gather(1, topk_ids.long()))
        if variant == "order turned round":
            topk_ids.copy_(topk_ids.flip(1))
            topk_weights.copy_(topk_weights.flip(1))
        if variant == "source rows transposed":
            counted = torch.arange(topk_ids.numel(), device=topk_ids.device)
            token_expert_indices.copy_(counted.view_as(topk_ids))

    return mutant


# moe_sum


@functools.cache
def _sum_cases() -> Sequence[Case]:
    def case(
        name: str, tokens: int, topk: int, hidden: int, dtype: torch.dtype, offset: int = 0,
        fill: str = "normal", origin: str = "",
    ) -> Case:  # fmt: skip
        x = spec((tokens, topk, hidden), dtype, offset=offset, fill=fill)
        out = spec((tokens, hidden), dtype, offset=offset)
        tier: Any = "full" if origin else "small"
        return Case(name, (x, out), tier=tier, origin=origin)

    return (
        *(case(f"top-2-{dtype_name(t)}", 5, 2, 64, t) for t in FLOATS),
        *(case(f"top-8-{dtype_name(t)}", 4, 8, 48, t) for t in FLOATS),
        case("top-1", 6, 1, 80, half),
        case("top-3", 5, 3, 33, brain),
        case("top-4", 5, 4, 64, half),
        case("one-token", 1, 6, 128, brain),
        case("misaligned", 4, 2, 65, half, offset=1),
        case("wide-range", 5, 4, 96, single, fill="wide"),
        case("no-tokens", 0, 2, 64, half),
        case("mixtral-8x7b", 8192, 2, 4096, brain, origin="Mixtral 8x7B, 8192 tokens"),
        case("qwen-3-30b", 8192, 8, 2048, brain, origin="Qwen 3 30B-A3B, 8192 tokens"),
        case("deepseek-v3", 4096, 8, 7168, brain, origin="DeepSeek V3, 4096 tokens"),
        case("gpt-oss-120b", 8192, 4, 2880, half, origin="gpt-oss 120B, 8192 tokens"),
        case("deepseek-v2", 4096, 6, 5120, half, origin="DeepSeek V2, 4096 tokens"),
        case("mixtral-8x7b-float32", 4096, 2, 4096, single, origin="Mixtral 8x7B, float32"),
    )


def _sum_oracle(input: torch.Tensor, output: torch.Tensor) -> list[Expected]:
    x = input.double()
    return [Expected(x.sum(1), output.dtype, x.abs().sum(1))]


def _sum_second(input: torch.Tensor, output: torch.Tensor) -> list[np.ndarray]:
    x = input.double().numpy()
    return [np.einsum("tkh->th", x)]


def _moe_sum(input: torch.Tensor, output: torch.Tensor) -> None:
    output.copy_(input.float().sum(1))


def _sum_cost(case: Case) -> Cost:
    x, out = case.args
    return moved(x.numel, x, out)


def _sum_mutant(variant: str) -> Any:
    def mutant(input: torch.Tensor, output: torch.Tensor) -> None:
        x = input.float()
        if variant == "last expert left out":
            x = x[:, : max(x.shape[1] - 1, 1)]
        if variant == "mean":
            output.copy_(x.mean(1))
            return
        if variant == "maximum":
            output.copy_(x.amax(1))
            return
        if variant == "experts and tokens exchanged":
            tokens, topk, hidden = x.shape
            x = x.reshape(topk, tokens, hidden).transpose(0, 1)
        if variant == "added to what was there":
            x = torch.cat([x, output.float().unsqueeze(1)], 1)
        output.copy_(x.sum(1))

    return mutant


OPERATORS = (
    Operator(
        id="vllm::topk_softmax",
        family="moe-routing",
        signatures=(
            "topk_softmax(topk_weights: Tensor!, topk_ids: Tensor!, token_expert_indices: Tensor!, "
            "gating_output: Tensor, renormalize: bool=False) -> ()",
        ),
        description=(
            "Softmax of `gating_output` ([tokens, experts], float32, float16 or bfloat16, "
            "contiguous) over experts in float32, and the topk largest of each token, largest "
            "first. Written, all [tokens, topk]: `topk_weights` (float32), their probabilities, "
            "divided by their sum if `renormalize`; `topk_ids` (int32), their numbers; "
            "`token_expert_indices` (int32), k * tokens + token. Equal probabilities may come in "
            "either order."
        ),
        sources=(
            "vLLM 0.13, vllm._custom_ops.topk_softmax",
            "csrc/moe/topk_softmax_kernels.cu",
        ),
        cases=_softmax_cases,
        oracle=_softmax_oracle,
        second=_softmax_second,
        baseline=CustomOp("topk_softmax", _topk_softmax),
        baseline_name=NAME,
        cost=_softmax_cost,
        tolerance=Tolerance(
            limit=4.0,
            why="expf 2 ulp, a sum over experts, two divisions; the exponent's rounding is in the "
            "scale",
        ),
        mutants=tuple(
            Mutant(name, _softmax_mutant(name))
            for name in (
                "renormalisation dropped",
                "smallest chosen",
                "source rows left",
                "weights are logits",
                "order turned round",
                "source rows transposed",
            )
        ),
    ),
    Operator(
        id="vllm::moe_sum",
        family="moe-reduction",
        signatures=("moe_sum(input: Tensor, output: Tensor!) -> ()",),
        description=(
            "Sums what the topk experts returned for each token: output[t] = sum over k of "
            "input[t, k]. `input` is [tokens, topk, hidden], `output` [tokens, hidden], one dtype "
            "(float16, bfloat16 or float32), contiguous. Sums may be kept in float32 or rounded to "
            "the dtype after each addition."
        ),
        sources=("vLLM 0.13, vllm._custom_ops.moe_sum", "csrc/moe/moe_align_sum_kernels.cu"),
        cases=_sum_cases,
        oracle=_sum_oracle,
        second=_sum_second,
        baseline=CustomOp("moe_sum", _moe_sum),
        baseline_name=NAME,
        cost=_sum_cost,
        tolerance=Tolerance(
            limit=1.5,
            accumulator=None,
            why="vLLM rounds to the dtype after each of up to three additions: 0.5 each of sum|x|",
        ),
        mutants=tuple(
            Mutant(name, _sum_mutant(name))
            for name in (
                "last expert left out",
                "mean",
                "maximum",
                "experts and tokens exchanged",
                "added to what was there",
            )
        ),
    ),
)
