"""Sorting tokens by expert into blocks, for grouped matrix products of mixtures of experts.

Within an expert the order of tokens is free (vLLM's kernels count with atomics), so results are
compared after sorting each expert's part. Oracle and formulation sort; second statements append to
Python lists.
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
from kernelmark.operators.vllm.parts import random_integers


def _padded_size(assignments: int, experts: int, block: int) -> int:
    """Longest list that padding every expert to whole blocks can need, in whole blocks."""
    return -(-(assignments + experts * (block - 1)) // block) * block


def _draw_topk(
    topk_ids: torch.Tensor, experts: int, generator: torch.Generator, skewed: bool = True
) -> None:
    """Distinct experts for each token; early ones are more popular."""
    device = topk_ids.device
    noise = torch.rand((len(topk_ids), experts), generator=generator, device=device)
    popular = torch.linspace(0.3, 0.0, experts, device=device) if skewed else 0.0
    topk_ids.copy_((noise + popular).topk(topk_ids.shape[1], dim=1).indices)


def _draw_map(expert_map: torch.Tensor, generator: torch.Generator) -> None:
    """Every second expert is local, numbered in order; the others are -1."""
    local = torch.arange(len(expert_map), device=expert_map.device)
    expert_map.copy_(torch.where(local % 2 == 0, local // 2, -1))


def _within(owner: torch.Tensor) -> Any:
    """Sorts a list's values within runs of equal `owner` (which ascends)."""

    def canonical(got: torch.Tensor) -> torch.Tensor:
        order = torch.argsort(got.to(torch.int64), stable=True)
        by_owner = torch.argsort(owner[order], stable=True)
        return got[order[by_owner]]

    return canonical


def _align(
    flat: torch.Tensor, counted: torch.Tensor, experts: int, block: int, capacity: int
) -> dict[str, torch.Tensor]:
    """Places of assignments in the padded list.

    `flat` gives each assignment's expert, `counted` whether it takes part. No host wait: those
    that do not are sorted to the end and dropped at place `capacity`.
    """
    key = torch.where(counted, flat, experts)
    order = torch.argsort(key, stable=True)
    counts = torch.zeros(experts + 1, dtype=torch.int64, device=flat.device)
    counts.scatter_add_(0, key, torch.ones_like(key))
    counts = counts[:experts]
    padded = (counts + block - 1) // block * block
    ends, begins = padded.cumsum(0), padded.cumsum(0) - padded
    sorted_key = key[order]
    rank = (
        torch.arange(len(flat), device=flat.device)
        - (counts.cumsum(0) - counts)[sorted_key.clamp_max(experts - 1)]
    )
    place = begins[sorted_key.clamp_max(experts - 1)] + rank
    place = torch.where(sorted_key < experts, place, capacity).clamp_max(capacity)
    ids = torch.full((capacity + 1,), len(flat), dtype=torch.int64, device=flat.device)
    ids.scatter_(0, place, order)
    blocks = torch.arange(-(-capacity // block), device=flat.device) * block
    owner = torch.searchsorted(ends, blocks, right=True)
    spot = torch.arange(capacity, device=flat.device)
    return {
        "ids": ids[:capacity],
        "experts": owner,
        "used": blocks < ends[-1],
        "total": ends[-1:],
        "owner": torch.searchsorted(ends, spot, right=True),
    }


def _mapped(
    topk_ids: torch.Tensor, expert_map: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """(expert of each assignment, whether it counts)."""
    flat = topk_ids.reshape(-1).long()
    if expert_map is not None:
        flat = expert_map[flat].long()
    return flat.clamp_min(0), flat >= 0


# moe_align_block_size


@functools.cache
def _align_cases() -> Sequence[Case]:
    def case(
        name: str, tokens: int, topk: int, experts: int, block: int, mapped: bool = False,
        origin: str = "",
    ) -> Case:  # fmt: skip
        size = _padded_size(tokens * topk, experts, block)

        def integers(*shape: int) -> Any:
            return spec(shape, torch.int32, fill="integers", low=-9, high=0)

        args = (
            spec((tokens, topk), torch.int32, fill="zeros"), experts, block, integers(size),
            integers(size // block), integers(1), integers(experts) if mapped else None,
        )  # fmt: skip
        tier: Any = "full" if origin else "small"
        return Case(name, args, tier=tier, origin=origin, draws=("base",) * 3)

    return (
        case("eight-experts", 20, 2, 8, 4),
        case("top-1", 17, 1, 4, 8),
        case("blocks-of-16", 30, 4, 16, 16),
        case("few-tokens-many-experts", 3, 2, 64, 4),
        case("one-token", 1, 2, 8, 16),
        case("blocks-of-1", 9, 2, 4, 1),
        case("all-experts", 6, 4, 4, 4),
        case("mapped", 20, 2, 8, 4, mapped=True),
        case("mapped-blocks-of-16", 30, 4, 16, 16, mapped=True),
        case("odd-experts", 25, 3, 7, 8),
        case("mixtral-8x7b", 32768, 2, 8, 128, origin="Mixtral 8x7B: 8 experts, 2 a token"),
        case("qwen-3-30b", 16384, 8, 128, 64, origin="Qwen 3 30B-A3B: 128 experts, 8 a token"),
        case("deepseek-v3", 16384, 8, 256, 64, origin="DeepSeek V3: 256 experts, 8 a token"),
        case("deepseek-v3-ep", 32768, 8, 256, 64, mapped=True,
             origin="DeepSeek V3 expert parallel, every second expert local"),
        case("deepseek-v3-decode", 512, 8, 256, 16, origin="DeepSeek V3 decode, 512 tokens"),
        case("gpt-oss-120b", 32768, 4, 128, 128, origin="gpt-oss 120B: 128 experts, 4 a token"),
        case("kimi-k2", 16384, 8, 384, 64, origin="Kimi K2: 384 experts, 8 a token"),
    )  # fmt: skip


def _align_prepare(call: Call, case: Case, generator: torch.Generator) -> None:
    _draw_topk(call.args[0], call.args[1], generator)
    if call.args[6] is not None:
        _draw_map(call.args[6], generator)


def _aligned(
    topk_ids: torch.Tensor, experts: int, block: int, capacity: int, expert_map: Any
) -> dict[str, torch.Tensor]:
    flat, counted = _mapped(topk_ids, expert_map)
    return _align(flat, counted, experts, block, capacity)


def _align_oracle(
    topk_ids: torch.Tensor,
    num_experts: int,
    block_size: int,
    sorted_token_ids: torch.Tensor,
    experts_ids: torch.Tensor,
    num_tokens_post_pad: torch.Tensor,
    expert_map: torch.Tensor | None = None,
) -> list[Expected]:
    made = _aligned(topk_ids, num_experts, block_size, len(sorted_token_ids), expert_map)
    return [
        Expected(made["ids"], torch.int32, canonical=_within(made["owner"])),
        Expected(made["experts"], torch.int32, mask=made["used"]),
        Expected(made["total"], torch.int32),
    ]


def _moe_align_block_size(
    topk_ids: torch.Tensor,
    num_experts: int,
    block_size: int,
    sorted_token_ids: torch.Tensor,
    experts_ids: torch.Tensor,
    num_tokens_post_pad: torch.Tensor,
    expert_map: torch.Tensor | None = None,
) -> None:
    made = _aligned(topk_ids, num_experts, block_size, len(sorted_token_ids), expert_map)
    sorted_token_ids.copy_(made["ids"])
    experts_ids.copy_(torch.where(made["used"], made["experts"], 0))
    num_tokens_post_pad.copy_(made["total"])


def _lists(
    topk_ids: torch.Tensor, experts: int, block: int, size: int, expert_map: Any, tokens: Any
) -> tuple[list[int], list[int], int]:
    """(padded list, expert of each block, length) for the rows `tokens`, by appending."""
    groups: list[list[int]] = [[] for _ in range(experts)]
    topk = topk_ids.shape[1]
    for token in tokens:
        for k, expert in enumerate(topk_ids[token].tolist()):
            local = expert if expert_map is None else int(expert_map[expert])
            if local >= 0:
                groups[local].append(token * topk + k)
    ids: list[int] = []
    owners: list[int] = []
    for expert, group in enumerate(groups):
        blocks = -(-len(group) // block)
        ids += group + [topk_ids.numel()] * (blocks * block - len(group))
        owners += [expert] * blocks
    return ids + [topk_ids.numel()] * (size - len(ids)), owners, len(owners) * block


def _align_second(
    topk_ids: torch.Tensor,
    num_experts: int,
    block_size: int,
    sorted_token_ids: torch.Tensor,
    experts_ids: torch.Tensor,
    num_tokens_post_pad: torch.Tensor,
    expert_map: torch.Tensor | None = None,
) -> list[Any]:
    ids, owners, total = _lists(
        topk_ids, num_experts, block_size, len(sorted_token_ids), expert_map, range(len(topk_ids))
    )
    return [np.array(ids), np.array(owners + [0] * (len(experts_ids) - len(owners))), [total]]


def _align_cost(case: Case) -> Cost:
    topk, _, _, ids, owners, _, expert_map = case.args
    extra = expert_map.nbytes if expert_map else 0
    return Cost(0, topk.nbytes + ids.nbytes + owners.nbytes + 4 + extra)


_ALIGN_WRONG = (
    "padding is zero",
    "not padded to blocks",
    "tokens instead of assignments",
    "map ignored",
    "tail of the list left",
    "neighbouring experts exchanged",
)


def _wrong_align(variant: str, ids: torch.Tensor, owners: torch.Tensor, topk: int) -> None:
    """Spoils a right answer in place."""
    if variant == "padding is zero":
        ids.masked_fill_(ids == ids.max(), 0)
    if variant == "tokens instead of assignments":
        ids.copy_(torch.where(ids < ids.max(), ids // topk, ids))
    if variant == "tail of the list left":
        ids[-1] = -7
    if variant == "neighbouring experts exchanged":
        owners.copy_(torch.where(owners >= 0, owners ^ 1, owners))


def _align_mutant(variant: str) -> Any:
    def mutant(
        topk_ids: torch.Tensor,
        num_experts: int,
        block_size: int,
        sorted_token_ids: torch.Tensor,
        experts_ids: torch.Tensor,
        num_tokens_post_pad: torch.Tensor,
        expert_map: torch.Tensor | None = None,
    ) -> None:
        if variant == "map ignored":
            expert_map = None
        block = 1 if variant == "not padded to blocks" else block_size
        made = _aligned(topk_ids, num_experts, block, len(sorted_token_ids), expert_map)
        sorted_token_ids.copy_(made["ids"])
        experts_ids.copy_(made["experts"][: len(experts_ids)])
        num_tokens_post_pad.copy_(made["total"])
        _wrong_align(variant, sorted_token_ids, experts_ids, topk_ids.shape[1])

    return mutant


# moe_lora_align_block_size


@functools.cache
def _lora_cases() -> Sequence[Case]:
    def case(
        name: str, tokens: int, topk: int, experts: int, block: int, loras: int,
        mapped: bool = False, origin: str = "",
    ) -> Case:  # fmt: skip
        size = _padded_size(tokens * topk, experts, block)

        def integers(*shape: int) -> Any:
            return spec(shape, torch.int32, fill="integers", low=-9, high=0)

        args = (
            spec((tokens, topk), torch.int32, fill="zeros"), integers(tokens), experts, block,
            loras, size, size // block, integers(loras * size), integers(loras * (size // block)),
            integers(loras), integers(loras + 1), integers(loras),
            integers(experts) if mapped else None,
        )  # fmt: skip
        tier: Any = "full" if origin else "small"
        return Case(name, args, tier=tier, origin=origin, draws=("base",) * 3)

    return (
        case("two-adapters", 20, 2, 8, 4, 2),
        case("four-adapters", 24, 2, 8, 8, 4),
        case("one-adapter", 17, 1, 4, 8, 1),
        case("three-adapters", 30, 4, 16, 16, 3),
        case("many-experts", 6, 2, 32, 4, 2),
        case("one-token", 1, 2, 8, 4, 2),
        case("mapped", 20, 2, 8, 4, 3, mapped=True),
        case("odd-experts", 25, 3, 7, 8, 3),
        case("qwen-3-30b", 4096, 8, 128, 64, 4, origin="Qwen 3 30B-A3B with 4 adapters"),
        case("qwen-3-30b-16", 4096, 8, 128, 64, 16, origin="Qwen 3 30B-A3B with 16 adapters"),
        case("mixtral-8x7b", 16384, 2, 8, 64, 8, origin="Mixtral 8x7B with 8 adapters"),
        case("gpt-oss-120b", 8192, 4, 128, 64, 8, origin="gpt-oss 120B with 8 adapters"),
        case("gpt-oss-20b", 16384, 4, 32, 64, 4, origin="gpt-oss 20B with 4 adapters"),
        case("deepseek-v3", 4096, 8, 256, 32, 4, origin="DeepSeek V3 with 4 adapters"),
    )


def _lora_prepare(call: Call, case: Case, generator: torch.Generator) -> None:
    """Tokens of no adapter (-1) too; the last slot of `lora_ids` is -1, one adapter disabled."""
    topk, mapping, experts, _, loras = call.args[:5]
    enabled, active, expert_map = call.args[10:13]
    _draw_topk(topk, experts, generator)
    mapping.copy_(random_integers(-1, loras, tuple(mapping.shape), generator, mapping.device))
    enabled.fill_(1)
    active.copy_(torch.arange(loras, device=active.device).flip(0))
    if loras > 1:
        active[-1] = -1  # adapter 0 is idle
        mapping.masked_fill_(mapping == 0, -1)
    if loras > 2:
        enabled[1] = 0
    if expert_map is not None:
        _draw_map(expert_map, generator)


def _lora_write(args: tuple[Any, ...], spoil: str = "") -> list[dict[str, torch.Tensor] | None]:
    """Writes the three results in place; what each adapter's part holds, None if left alone."""
    topk, mapping, experts, block, loras, size, blocks = args[:7]
    ids, owners, totals, enabled, active, expert_map = args[7:13]
    made: list[dict[str, torch.Tensor] | None] = []
    flat, counted = _mapped(topk, None if spoil == "map ignored" else expert_map)
    token = mapping.repeat_interleave(topk.shape[1])
    width = 1 if spoil == "not padded to blocks" else block
    for lora in range(loras):
        own = token == lora if spoil != "adapters mixed" else token >= -1
        part = _align(flat, counted & own, experts, width, size)
        on = ((active == lora).any() & (enabled[lora] != 0)) | (spoil == "disabled ones written")
        here = slice(lora * size, (lora + 1) * size)
        there = slice(lora * blocks, (lora + 1) * blocks)
        expert = torch.where(part["used"], part["experts"], -1)[:blocks]
        ids[here] = torch.where(on, part["ids"], ids[here].long()).to(torch.int32)
        owners[there] = torch.where(on, expert, owners[there].long()).to(torch.int32)
        totals[lora] = torch.where(on, part["total"][0], totals[lora].long())
        part["owner"] = torch.where(on, part["owner"], torch.arange(size, device=ids.device))
        made.append(part)
    return made


def _lora_oracle(*args: Any) -> list[Expected]:
    parts = [part for part in _lora_write(args) if part is not None]
    size, experts = args[5], args[2]
    owner = torch.cat(
        [part["owner"] + i * (size + experts + 1) for i, part in enumerate(parts)]
    )  # ascending over all adapters
    return [
        Expected(args[7], torch.int32, canonical=_within(owner)),
        Expected(args[8], torch.int32),
        Expected(args[9], torch.int32),
    ]


def _moe_lora_align_block_size(*args: Any) -> None:
    _lora_write(args)


def _lora_second(*args: Any) -> list[torch.Tensor]:
    topk, mapping, experts, block, _, size, blocks = args[:7]
    ids, owners, totals, enabled, active, expert_map = args[7:13]
    for lora in active.tolist():
        if lora < 0 or not enabled[lora]:
            continue
        tokens = [t for t, owner in enumerate(mapping.tolist()) if owner == lora]
        mine, experts_of, total = _lists(topk, experts, block, size, expert_map, tokens)
        ids[lora * size : (lora + 1) * size] = torch.tensor(mine)
        rest = [-1] * (blocks - len(experts_of))
        owners[lora * blocks : (lora + 1) * blocks] = torch.tensor(experts_of + rest)
        totals[lora] = total
    return [ids, owners, totals]


def _lora_cost(case: Case) -> Cost:
    topk, mapping = case.args[:2]
    ids, owners, totals = case.args[7:10]
    active = max(case.args[4] - 2, 1)
    written = (ids.nbytes + owners.nbytes) * active // case.args[4] + totals.nbytes
    return Cost(0, topk.nbytes + mapping.nbytes + written)


def _lora_mutant(variant: str) -> Any:
    def mutant(*args: Any) -> None:
        _lora_write(args, spoil=variant)
        if variant in _ALIGN_WRONG:
            _wrong_align(variant, args[7], args[8], args[0].shape[1])

    return mutant


_ALIGN_SIGNATURE = (
    "moe_align_block_size(topk_ids: Tensor, num_experts: int, block_size: int, "
    "sorted_token_ids: Tensor!, experts_ids: Tensor!, num_tokens_post_pad: Tensor!, "
    "expert_map: Tensor?=None) -> ()"
)
_ORDER = (
    "The list of an expert is the flat indices token * topk + k of its assignments, in any order, "
    "padded with tokens * topk to a multiple of block_size (an expert with none has no block); the "
    "lists follow one another in the order of experts. "
)
_MAP = (
    "`expert_map` (int32 [num_experts], or None) gives each expert's local number, which stands "
    "for it everywhere, or -1: such assignments are left out. "
)


OPERATORS = (
    Operator(
        id="vllm::moe_align_block_size",
        family="moe-routing",
        signatures=(_ALIGN_SIGNATURE,),
        description=(
            "Sorts the assignments of tokens to experts by expert, in blocks. `topk_ids` is int32 "
            "[tokens, topk], distinct experts in each row. " + _ORDER + _MAP + "Written: "
            "`sorted_token_ids` (int32), the lists, then tokens * topk to the end; `experts_ids` "
            "(int32), the expert of each block of it, undefined past the last block; "
            "`num_tokens_post_pad` (int32 [1]), the length of all lists."
        ),
        sources=(
            "vLLM 0.13, vllm._custom_ops.moe_align_block_size",
            "csrc/moe/moe_align_sum_kernels.cu",
        ),
        cases=_align_cases,
        oracle=_align_oracle,
        second=_align_second,
        baseline=CustomOp("moe_align_block_size", _moe_align_block_size),
        baseline_name=NAME,
        cost=_align_cost,
        tolerance=EXACT,
        mutants=tuple(Mutant(name, _align_mutant(name)) for name in _ALIGN_WRONG),
        prepare=_align_prepare,
    ),
    Operator(
        id="vllm::moe_lora_align_block_size",
        family="moe-routing",
        signatures=(
            "moe_lora_align_block_size(topk_ids: Tensor, token_lora_mapping: Tensor, "
            "num_experts: int, block_size: int, max_loras: int, max_num_tokens_padded: int, "
            "max_num_m_blocks: int, sorted_token_ids: Tensor!, experts_ids: Tensor!, "
            "num_tokens_post_pad: Tensor!, adapter_enabled: Tensor, lora_ids: Tensor, "
            "expert_map: Tensor?=None) -> ()",
        ),
        description=(
            "For each LoRA adapter, sorts its tokens' assignments to experts by expert, in blocks. "
            "`topk_ids` is int32 [tokens, topk]; `token_lora_mapping` int32 [tokens], each token's "
            "adapter or -1. `lora_ids` (int32 [max_loras]) lists the active adapters (-1: none); "
            "`adapter_enabled` (int32 [max_loras + 1]) is 0 for disabled ones. For each active, "
            "enabled adapter a, over the tokens with token_lora_mapping == a: "
            + _ORDER
            + _MAP
            + "Written: sorted_token_ids[a * max_num_tokens_padded:][:max_num_tokens_padded], the "
            "lists, then tokens * topk; experts_ids[a * max_num_m_blocks:][:max_num_m_blocks], the "
            "expert of each block, then -1; num_tokens_post_pad[a], the length of all lists. The "
            "parts of other adapters stay as they were."
        ),
        sources=(
            "vLLM 0.13, vllm._custom_ops.moe_lora_align_block_size",
            "csrc/moe/moe_align_sum_kernels.cu",
        ),
        cases=_lora_cases,
        oracle=_lora_oracle,
        second=_lora_second,
        baseline=CustomOp("moe_lora_align_block_size", _moe_lora_align_block_size),
        baseline_name=NAME,
        cost=_lora_cost,
        tolerance=EXACT,
        mutants=tuple(
            Mutant(name, _lora_mutant(name))
            for name in (*_ALIGN_WRONG, "adapters mixed", "disabled ones written")
        ),
        prepare=_lora_prepare,
    ),
)
