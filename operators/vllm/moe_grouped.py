"""Choosing experts from the best groups of experts, as DeepSeek V3 routes.

Oracle: float64 selections; second statement: sorted lists, token by token.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from kernelmark.operators.building import FLOATS, dtype_name, spec
from kernelmark.operators.records import Case, Cost, Expected, Mutant, Operator, Tolerance
from kernelmark.operators.vllm.baselines import NAME, CustomOp
from kernelmark.operators.vllm.moe_route import DRAWS, TIE, expect_ids
from kernelmark.operators.vllm.parts import brain, half, single, split_dim

# grouped_topk


@functools.cache
def _grouped_cases() -> Sequence[Case]:
    def case(
        name: str, tokens: int, experts: int, groups: int, chosen: int, topk: int,
        dtype: torch.dtype = single, renormalize: bool = True, factor: float = 2.5,
        scoring: int = 1, origin: str = "",
    ) -> Case:  # fmt: skip
        scores = spec((tokens, experts), dtype)
        if scoring == 0:  # scores have been through a softmax or sigmoid: positive
            scores = spec((tokens, experts), dtype, fill="uniform", low=0.01, high=1.0)
        bias = spec((experts,), fill="uniform", low=0.0, high=0.2)
        args = (scores, groups, chosen, topk, renormalize, factor, bias, scoring)
        tier: Any = "full" if origin else "small"
        return Case(name, args, tier=tier, origin=origin, draws=DRAWS)

    deepseek = "DeepSeek V3: 256 experts in 8 groups, 4 groups, 8 experts"
    return (
        *(case(f"sigmoid-{dtype_name(t)}", 9, 32, 4, 2, 4, t) for t in FLOATS),
        *(case(f"given-{dtype_name(t)}", 9, 32, 4, 2, 4, t, scoring=0) for t in FLOATS),
        case("not-renormalized", 7, 64, 8, 4, 6, renormalize=False),
        case("one-group", 5, 32, 1, 1, 4, factor=1.0),
        case("every-group", 6, 64, 4, 4, 8),
        case("top-1", 8, 32, 4, 1, 1, renormalize=False),
        case("one-token", 1, 64, 8, 4, 8),
        case("deepseek-experts", 3, 256, 8, 4, 8),
        case("no-tokens", 0, 32, 4, 2, 4),
        case("deepseek-v3", 65536, 256, 8, 4, 8, single, origin=deepseek),
        case("deepseek-v3-bfloat16", 131072, 256, 8, 4, 8, brain, origin=deepseek),
        case("deepseek-v3-given", 65536, 256, 8, 4, 8, single, scoring=0, origin=deepseek),
        case("kimi-k2", 65536, 384, 1, 1, 8, single, factor=2.827, origin="Kimi K2: one group"),
        case("glm-4.5", 131072, 160, 1, 1, 8, brain, origin="GLM 4.5: 160 experts, one group"),
        case("dots-1", 131072, 128, 1, 1, 6, half, origin="dots.llm1: 128 experts, one group"),
        case("ling-1t", 65536, 256, 8, 4, 8, half, origin="Ling 1T: 256 experts in 8 groups"),
    )


def _choose(
    s: torch.Tensor, biased: torch.Tensor, groups: int, chosen: int, topk: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(weights, ids, biased scores with the groups left out at -inf)."""
    grouped = split_dim(biased, 1, (groups, -1))
    best = grouped.topk(min(2, grouped.shape[2]), dim=-1).values.sum(-1)
    kept = torch.zeros_like(best).scatter_(1, best.topk(chosen, dim=-1).indices, 1.0)
    allowed = grouped.masked_fill(kept.unsqueeze(-1) == 0, -torch.inf).flatten(1)
    ids = allowed.topk(topk, dim=-1).indices
    return s.gather(1, ids), ids, allowed


def _grouped(
    work: torch.dtype,
    scores: torch.Tensor,
    num_expert_group: int,
    topk_group: int,
    topk: int,
    renormalize: bool,
    routed_scaling_factor: float,
    bias: torch.Tensor,
    scoring_func: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    s = scores.to(work)
    s = torch.sigmoid(s) if scoring_func == 1 else s
    weights, ids, allowed = _choose(s, s + bias.to(work), num_expert_group, topk_group, topk)
    if renormalize:
        weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
    return weights * routed_scaling_factor, ids, allowed


def _grouped_oracle(
    scores: torch.Tensor,
    num_expert_group: int,
    topk_group: int,
    topk: int,
    renormalize: bool,
    routed_scaling_factor: float,
    bias: torch.Tensor,
    scoring_func: int = 0,
) -> list[Expected]:
    weights, ids, allowed = _grouped(
        torch.float64, scores, num_expert_group, topk_group, topk, renormalize,
        routed_scaling_factor, bias, scoring_func,
    )  # fmt: skip
    s = scores.double()
    biased = (torch.sigmoid(s) if scoring_func == 1 else s) + bias.double()
    grouped = split_dim(biased, 1, (num_expert_group, -1))
    best = grouped.topk(min(2, grouped.shape[2]), dim=-1).values.sum(-1)
    # Where the last group in and the first group out tie, either choice is right: not compared.
    clear = torch.ones((len(s), 1), dtype=torch.bool, device=s.device)
    if topk_group < num_expert_group:
        top = best.sort(dim=-1, descending=True).values
        edge = top[:, topk_group - 1] - top[:, topk_group]
        clear = (edge > TIE * top[:, topk_group - 1].abs()).unsqueeze(1)
    # Nor where experts tie whose weights, without the bias, differ.
    ordered = allowed.sort(dim=-1, descending=True).values[:, : topk + 1]
    gap = (ordered[:, :-1] - ordered[:, 1:]) > TIE * ordered[:, :-1].abs()
    clear = clear & gap.nan_to_num(1).bool().all(-1, keepdim=True)
    ids_class = allowed.nan_to_num(neginf=-1.0)
    return [
        Expected(weights, single, weights.abs(), clear),
        expect_ids(ids_class, ids, clear),
    ]


def _grouped_topk(
    scores: torch.Tensor,
    num_expert_group: int,
    topk_group: int,
    topk: int,
    renormalize: bool,
    routed_scaling_factor: float,
    bias: torch.Tensor,
    scoring_func: int = 0,
) -> tuple[torch.Tensor, torch.Tensor]:
    weights, ids, _ = _grouped(
        torch.float32, scores, num_expert_group, topk_group, topk, renormalize,
        routed_scaling_factor, bias, scoring_func,
    )  # fmt: skip
    return weights, ids.to(torch.int32)


def _grouped_second(
    scores: torch.Tensor,
    num_expert_group: int,
    topk_group: int,
    topk: int,
    renormalize: bool,
    routed_scaling_factor: float,
    bias: torch.Tensor,
    scoring_func: int = 0,
) -> list[np.ndarray]:
    """Token by token, with sorted lists."""
    values = scores.double().numpy()
    tokens, experts = values.shape
    size = experts // num_expert_group
    weights, ids = np.zeros((tokens, topk)), np.zeros((tokens, topk), np.int32)
    for token in range(tokens):
        s = 1 / (1 + np.exp(-values[token])) if scoring_func == 1 else values[token]
        biased = s + bias.double().numpy()
        per_group = [sorted(biased[g * size : (g + 1) * size])[-2:] for g in
                     range(num_expert_group)]  # fmt: skip
        groups = sorted(range(num_expert_group), key=lambda g: -sum(per_group[g]))[:topk_group]
        members = [e for g in groups for e in range(g * size, (g + 1) * size)]
        order = sorted(members, key=lambda e: -biased[e])[:topk]
        total = s[order].sum() + 1e-20 if renormalize else 1.0
        weights[token], ids[token] = s[order] / total * routed_scaling_factor, order
    return [weights, ids]


def _grouped_cost(case: Case) -> Cost:
    scores, _, _, topk = case.args[:4]
    bias = case.args[6]
    return Cost(4 * scores.numel, scores.nbytes + bias.nbytes + 8 * scores.shape[0] * topk)


def _grouped_mutant(variant: str) -> Any:
    def mutant(
        scores: torch.Tensor,
        num_expert_group: int,
        topk_group: int,
        topk: int,
        renormalize: bool,
        routed_scaling_factor: float,
        bias: torch.Tensor,
        scoring_func: int = 0,
    ) -> Any:
        if variant == "groups ignored":
            num_expert_group = topk_group = 1
        if variant == "bias ignored":
            bias = torch.zeros_like(bias)
        if variant == "scaling dropped":
            routed_scaling_factor = 1.0
        if variant == "renormalisation dropped":
            renormalize = False
        if variant == "scoring of the other kind":
            scoring_func = 1 - scoring_func
        weights, ids = _grouped_topk(
            scores, num_expert_group, topk_group, topk, renormalize, routed_scaling_factor, bias,
            scoring_func,
        )  # fmt: skip
        if variant == "bias left in the weights":
            weights = weights + bias[ids.long()]
        return weights, ids

    return mutant


OPERATORS = (
    Operator(
        id="vllm::grouped_topk",
        family="moe-routing",
        signatures=(
            "grouped_topk(scores: Tensor, num_expert_group: int, topk_group: int, topk: int, "
            "renormalize: bool, routed_scaling_factor: float, bias: Tensor, scoring_func: int=0) "
            "-> (Tensor, Tensor)",
        ),
        description=(
            "Chooses topk experts for each token from the best groups of experts. `scores` is "
            "[tokens, experts] (float32, float16 or bfloat16, contiguous), `bias` float32 "
            "[experts]; all arithmetic is float32. s = sigmoid(scores) if `scoring_func` is 1, "
            "scores if 0; b = s + bias. Experts form `num_expert_group` consecutive groups of "
            "equal size; a group's score is the sum of its two largest b; the `topk_group` best "
            "groups stay. Of their experts the `topk` with the largest b are chosen, largest "
            "first. A weight is s of the expert (without bias), divided by the sum of the chosen s "
            "plus 1e-20 if `renormalize`, times `routed_scaling_factor`. Returns (weights float32, "
            "ids int32), both [tokens, topk]. Scores that float32 cannot tell apart may come in "
            "either order."
        ),
        sources=("vLLM 0.13, vllm._custom_ops.grouped_topk", "csrc/moe/grouped_topk_kernels.cu"),
        cases=_grouped_cases,
        oracle=_grouped_oracle,
        second=_grouped_second,
        baseline=CustomOp("grouped_topk", _grouped_topk),
        baseline_name=NAME,
        cost=_grouped_cost,
        tolerance=Tolerance(
            limit=4.0, why="sigmoid 3 ulp, a sum of topk, a division and a product, in float32"
        ),
        mutants=tuple(
            Mutant(name, _grouped_mutant(name))
            for name in (
                "groups ignored",
                "bias ignored",
                "scaling dropped",
                "renormalisation dropped",
                "scoring of the other kind",
                "bias left in the weights",
            )
        ),
    ),
)
