"""Listing the rows of a batched expert buffer in blocks.

Oracle: searches in prefix sums; second statement: appending to Python lists.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from kernelmark.operators.building import spec
from kernelmark.operators.draws import Call
from kernelmark.operators.records import EXACT, Case, Cost, Expected, Mutant, Operator
from kernelmark.operators.vllm.baselines import NAME, CustomOp

# batched_moe_align_block_size


@functools.cache
def _batched_cases() -> Sequence[Case]:
    def case(name: str, experts: int, block: int, most: int, origin: str = "") -> Case:
        blocks = experts * -(-most // block)

        def integers(size: int) -> Any:
            return spec((size,), torch.int32, fill="integers", low=-9, high=0)

        counts = spec((experts,), torch.int32, fill="integers", low=0, high=most + 1)
        args = (most, block, counts, integers(blocks * block), integers(blocks), integers(1))
        tier: Any = "full" if origin else "small"
        return Case(name, args, tier=tier, origin=origin, draws=("base",) * 3)

    return (
        case("four-experts", 4, 4, 20),
        case("blocks-of-16", 8, 16, 40),
        case("one-expert", 1, 4, 9),
        case("blocks-of-1", 5, 1, 7),
        case("odd", 7, 6, 25),
        case("many-experts", 64, 4, 5),
        case("block-larger-than-most", 6, 32, 10),
        case("whole-blocks", 4, 8, 8),
        case("deepseek-v3-ep8", 32, 64, 8192, "DeepSeek V3, 32 local experts, DeepEP batches"),
        case("deepseek-v3-ep4", 64, 64, 4096, "DeepSeek V3, 64 local experts"),
        case("deepseek-v3", 256, 64, 1024, "DeepSeek V3, all 256 experts"),
        case("qwen-3-235b", 128, 64, 4096, "Qwen 3 235B: 128 experts"),
        case("mixtral-8x7b", 8, 128, 32768, "Mixtral 8x7B: 8 experts"),
        case("kimi-k2", 384, 64, 1024, "Kimi K2: 384 experts"),
    )


def _batched_prepare(call: Call, case: Case, generator: torch.Generator) -> None:
    call.args[2][0] = call.args[0]  # one full expert
    if len(call.args[2]) > 2:
        call.args[2][1] = 0  # and one without tokens


def _batched_align(
    most: int, block: int, counts: torch.Tensor, ids: int, blocks: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    tokens = counts.long()
    padded = (tokens + block - 1) // block * block
    ends = padded.cumsum(0)
    spot = torch.arange(ids, device=counts.device)
    owner = torch.searchsorted(ends, spot, right=True)
    safe = owner.clamp_max(len(counts) - 1)
    rank = spot - (ends - padded)[safe]
    real = (owner < len(counts)) & (rank < tokens[safe])
    listed = torch.where(real, safe * most + rank, len(counts) * most)
    first = torch.arange(blocks, device=counts.device) * block
    expert = torch.searchsorted(ends, first, right=True)
    return listed, torch.where(first < ends[-1], expert, -1), ends[-1:]


def _batched_oracle(
    max_tokens_per_batch: int,
    block_size: int,
    expert_num_tokens: torch.Tensor,
    sorted_ids: torch.Tensor,
    expert_ids: torch.Tensor,
    num_tokens_post_pad: torch.Tensor,
) -> list[Expected]:
    made = _batched_align(
        max_tokens_per_batch, block_size, expert_num_tokens, len(sorted_ids), len(expert_ids)
    )
    return [Expected(t, torch.int32) for t in made]


def _batched_moe_align_block_size(
    max_tokens_per_batch: int,
    block_size: int,
    expert_num_tokens: torch.Tensor,
    sorted_ids: torch.Tensor,
    expert_ids: torch.Tensor,
    num_tokens_post_pad: torch.Tensor,
) -> None:
    made = _batched_align(
        max_tokens_per_batch, block_size, expert_num_tokens, len(sorted_ids), len(expert_ids)
    )
    for target, value in zip((sorted_ids, expert_ids, num_tokens_post_pad), made, strict=True):
        target.copy_(value)


def _batched_second(
    max_tokens_per_batch: int,
    block_size: int,
    expert_num_tokens: torch.Tensor,
    sorted_ids: torch.Tensor,
    expert_ids: torch.Tensor,
    num_tokens_post_pad: torch.Tensor,
) -> list[Any]:
    listed: list[int] = []
    owners: list[int] = []
    none = len(expert_num_tokens) * max_tokens_per_batch
    for expert, count in enumerate(expert_num_tokens.tolist()):
        blocks = -(-count // block_size)
        listed += [expert * max_tokens_per_batch + i for i in range(count)]
        listed += [none] * (blocks * block_size - count)
        owners += [expert] * blocks
    total = len(listed)
    listed += [none] * (len(sorted_ids) - total)
    return [np.array(listed), np.array(owners + [-1] * (len(expert_ids) - len(owners))), [total]]


def _batched_cost(case: Case) -> Cost:
    counts, ids, owners = case.args[2:5]
    return Cost(0, counts.nbytes + ids.nbytes + owners.nbytes + 4)


def _batched_mutant(variant: str) -> Any:
    def mutant(
        max_tokens_per_batch: int,
        block_size: int,
        expert_num_tokens: torch.Tensor,
        sorted_ids: torch.Tensor,
        expert_ids: torch.Tensor,
        num_tokens_post_pad: torch.Tensor,
    ) -> None:
        counts = expert_num_tokens
        if variant == "every expert full":
            counts = torch.full_like(counts, max_tokens_per_batch)
        most = max_tokens_per_batch + (variant == "offsets of whole blocks")
        made = _batched_align(most, block_size, counts, len(sorted_ids), len(expert_ids))
        results = (sorted_ids, expert_ids, num_tokens_post_pad)
        for target, value in zip(results, made, strict=True):
            target.copy_(value)
        if variant == "unused blocks are 0":
            expert_ids.clamp_min_(0)
        if variant == "padding is -1":
            sorted_ids.masked_fill_(sorted_ids == sorted_ids.max(), -1)
        if variant == "count before padding":
            num_tokens_post_pad.copy_(counts.sum())

    return mutant


OPERATORS = (
    Operator(
        id="vllm::batched_moe_align_block_size",
        family="moe-routing",
        signatures=(
            "batched_moe_align_block_size(max_tokens_per_batch: int, block_size: int, "
            "expert_num_tokens: Tensor, sorted_ids: Tensor!, expert_ids: Tensor!, "
            "num_tokens_post_pad: Tensor!) -> ()",
        ),
        description=(
            "Lists the rows of a batched expert buffer [experts, max_tokens_per_batch, ...] in "
            "blocks. `expert_num_tokens` (int32 [experts]) is how many rows of each expert are in "
            "use. The list of expert e is e * max_tokens_per_batch + i for i below its count, in "
            "order, padded with experts * max_tokens_per_batch to a multiple of block_size; the "
            "lists follow one another. Written, all int32: `sorted_ids` [experts * ceil(max / "
            "block) * block], the lists, then the padding value; `expert_ids`, the expert of each "
            "block of it, then -1; `num_tokens_post_pad` [1], the length of all lists."
        ),
        sources=(
            "vLLM 0.13, vllm._custom_ops.batched_moe_align_block_size",
            "csrc/moe/moe_align_sum_kernels.cu",
        ),
        cases=_batched_cases,
        oracle=_batched_oracle,
        second=_batched_second,
        baseline=CustomOp("batched_moe_align_block_size", _batched_moe_align_block_size),
        baseline_name=NAME,
        cost=_batched_cost,
        tolerance=EXACT,
        mutants=tuple(
            Mutant(name, _batched_mutant(name))
            for name in (
                "every expert full",
                "offsets of whole blocks",
                "unused blocks are 0",
                "padding is -1",
                "count before padding",
            )
        ),
        prepare=_batched_prepare,
    ),
)
