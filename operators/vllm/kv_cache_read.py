"""Gathering sequences out of paged caches, and the tables that all gathers share.

Token t of the packed result belongs to the sequence b with cu_seq_lens[b] <= t < cu_seq_lens[b+1];
its place in the cache is found through row b of the block table. Rows past the last sequence stay.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch

from kernelmark.operators.building import spec
from kernelmark.operators.draws import Call
from kernelmark.operators.records import EXACT, Case, Cost, Expected, Mutant, Operator
from kernelmark.operators.vllm.baselines import NAME, CustomOp
from kernelmark.operators.vllm.parts import brain, byte, half, random_integers, single


def draw_lengths(cu_seq_lens: torch.Tensor, total: int, generator: torch.Generator) -> None:
    """Cumulative lengths that end at `total`: none above twice the mean (rounded up), some 0."""
    batch = cu_seq_lens.numel() - 1
    lengths = torch.full((batch,), total // batch, device=cu_seq_lens.device)
    lengths[: total % batch] += 1
    for_pairs = batch // 2 * 2
    even, odd = lengths[0:for_pairs:2], lengths[1:for_pairs:2]
    given = torch.rand(even.shape, generator=generator, device=even.device)
    shift = (given * (odd + 1)).long().minimum(odd)
    even += shift
    odd -= shift
    cu_seq_lens[0] = 0
    cu_seq_lens[1:] = lengths.cumsum(0)


def table_width(total: int, batch: int, block_size: int, start: int = 0) -> int:
    """Blocks that a row of the block table needs for lengths of `draw_lengths`."""
    return -(-(2 * -(-total // batch) + start) // block_size)


def locate(
    rows: int, cu_seq_lens: torch.Tensor, seq_starts: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """For each row of the result: its sequence, its position there, and whether it has one."""
    token = torch.arange(rows, device=cu_seq_lens.device)
    sequence = torch.searchsorted(cu_seq_lens[1:].long(), token, right=True)
    real = sequence < cu_seq_lens.numel() - 1
    sequence = sequence.clamp_max(cu_seq_lens.numel() - 2)
    position = token - cu_seq_lens[sequence]
    if seq_starts is not None:
        position = position + seq_starts[sequence]
    return sequence, torch.where(real, position, 0), real


def slots(
    rows: int,
    block_table: torch.Tensor,
    cu_seq_lens: torch.Tensor,
    seq_starts: torch.Tensor | None,
    block_size: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(block, place, whether the row is written) of every row of the result."""
    sequence, position, real = locate(rows, cu_seq_lens, seq_starts)
    return block_table[sequence, position // block_size].long(), position % block_size, real


def draw_tables(
    cache: torch.Tensor,
    block_table: torch.Tensor,
    cu_seq_lens: torch.Tensor,
    seq_starts: torch.Tensor | None,
    total: int,
    generator: torch.Generator,
    unit: int = 1,
) -> None:
    """Consistent lengths, block ids and starts; starts are multiples of `unit`."""
    draw_lengths(cu_seq_lens, total, generator)
    shape = tuple(block_table.shape)
    block_table.copy_(random_integers(0, cache.shape[0], shape, generator, cache.device))
    if seq_starts is not None:
        room = shape[1] * cache.shape[1] - cu_seq_lens.diff()
        pick = torch.rand(room.shape, generator=generator, device=cache.device)
        seq_starts.copy_((pick * (room // unit + 1)).long().minimum(room // unit) * unit)


def wrong_tables(variant: str, bound: dict[str, Any]) -> dict[str, Any]:
    """Arguments that make a gather wrong in one respect."""
    wrong = dict(bound)
    if variant == "starts ignored":
        wrong["seq_starts"] = None
    if variant == "table of the first sequence" and len(bound["block_table"]) > 1:
        wrong["block_table"] = bound["block_table"][:1].expand_as(bound["block_table"])
    if variant == "table ignored":
        counted = torch.arange(bound["block_table"].numel(), device=bound["block_table"].device)
        cache = bound["src_cache" if "src_cache" in bound else "kv_cache"]
        wrong["block_table"] = (counted % len(cache)).view_as(bound["block_table"])
    if variant == "lengths shifted":
        lengths = bound["cu_seq_lens"].clone()
        lengths[1:-1] = (lengths[1:-1] + 1).clamp_max(int(lengths[-1]))
        wrong["cu_seq_lens"] = lengths
    return wrong


# cp_gather_cache

_CP_GATHER = (
    "cp_gather_cache(src_cache: Tensor, dst: Tensor!, block_table: Tensor, cu_seq_lens: Tensor, "
    "batch_size: int, seq_starts: Tensor?=None) -> ()"
)


@functools.cache
def _cp_cases() -> Sequence[Case]:
    def case(
        name: str, blocks: int, block_size: int, entry: tuple[int, ...], batch: int, total: int,
        dtype: torch.dtype, starts: bool = False, extra: int = 0, origin: str = "",
    ) -> Case:  # fmt: skip
        fill = "bits" if dtype == byte else "normal"
        start = block_size + 3 if starts else 0
        args = (
            spec((blocks, block_size, *entry), dtype, fill=fill),
            spec((total + extra, *entry), dtype, fill=fill),
            spec((batch, table_width(total, batch, block_size, start)), torch.int32, fill="zeros"),
            spec((batch + 1,), torch.int32, fill="zeros"),
            batch,
            spec((batch,), torch.int32, fill="zeros") if starts else None,
        )
        tier: Any = "full" if origin else "small"
        return Case(name, args, tier=tier, origin=origin)

    deepseek = "DeepSeek V3 context gather: latent entries of 576"
    return (
        case("float16", 6, 4, (48,), 3, 20, half),
        case("bfloat16", 6, 8, (2, 16), 2, 21, brain),
        case("float32", 5, 4, (33,), 4, 17, single),
        case("float8", 6, 4, (80,), 3, 20, byte),
        case("starts", 7, 4, (48,), 3, 20, half, starts=True),
        case("starts-float8", 7, 4, (2, 24), 4, 22, byte, starts=True),
        case("one-sequence", 5, 4, (48,), 1, 13, half),
        case("rows-to-spare", 6, 4, (48,), 3, 20, brain, extra=5),
        case("one-token-each", 6, 4, (48,), 5, 5, half),
        case("deepseek-entry", 4, 16, (576,), 2, 20, brain),
        case("deepseek-v3", 2048, 64, (576,), 8, 65536, brain, origin=f"{deepseek}, 8 requests"),
        case("deepseek-v3-starts", 2048, 64, (576,), 16, 65536, brain, starts=True,
             origin=f"{deepseek}, chunked context of 16 requests"),
        case("deepseek-v3-float8", 4096, 64, (576,), 32, 131072, byte,
             origin=f"{deepseek}, 8-bit cache"),
        case("deepseek-v2-lite", 4096, 16, (576,), 64, 49152, half,
             origin="DeepSeek V2 Lite: latent entries of 576, blocks of 16"),
        case("llama-3-8b", 4096, 16, (8, 128), 16, 32768, brain,
             origin="Llama 3 8B keys: 8 heads of 128"),
        case("deepseek-v3-float32", 1024, 64, (576,), 8, 32768, single,
             origin=f"{deepseek}, float32"),
    )  # fmt: skip


def _cp_prepare(call: Call, case: Case, generator: torch.Generator) -> None:
    cache, dst, table, lengths, _, starts = call.args
    extra = 5 if case.name == "rows-to-spare" else 0
    draw_tables(cache, table, lengths, starts, len(dst) - extra, generator)


def _cp_gather_cache(
    src_cache: torch.Tensor,
    dst: torch.Tensor,
    block_table: torch.Tensor,
    cu_seq_lens: torch.Tensor,
    batch_size: int,
    seq_starts: torch.Tensor | None = None,
) -> None:
    block, place, real = slots(len(dst), block_table, cu_seq_lens, seq_starts, src_cache.shape[1])
    real = real.view(-1, *[1] * (dst.dim() - 1))
    dst.copy_(torch.where(real, src_cache[block, place], dst))


def _cp_oracle(src_cache: torch.Tensor, dst: torch.Tensor, *rest: Any) -> list[Expected]:
    _cp_gather_cache(src_cache, dst, *rest)
    return [Expected(dst, dst.dtype)]


def cp_second(
    src_cache: torch.Tensor,
    dst: torch.Tensor,
    block_table: torch.Tensor,
    cu_seq_lens: torch.Tensor,
    batch_size: int,
    seq_starts: torch.Tensor | None = None,
) -> list[torch.Tensor]:
    """Sequence by sequence: the blocks of a row laid end to end, then cut."""
    ends = cu_seq_lens.tolist()
    starts = [0] * batch_size if seq_starts is None else seq_starts.tolist()
    for b in range(batch_size):
        whole = src_cache[block_table[b].long()].flatten(0, 1)
        dst[ends[b] : ends[b + 1]] = whole[starts[b] : starts[b] + ends[b + 1] - ends[b]]
    return [dst]


def _cp_cost(case: Case) -> Cost:
    _, dst, table, lengths, _, _ = case.args
    return Cost(flops=0, nbytes=2 * dst.nbytes + table.nbytes + lengths.nbytes)


def _cp_mutant(variant: str) -> Any:
    def mutant(
        src_cache: torch.Tensor,
        dst: torch.Tensor,
        block_table: torch.Tensor,
        cu_seq_lens: torch.Tensor,
        batch_size: int,
        seq_starts: torch.Tensor | None = None,
    ) -> None:
        bound = {"src_cache": src_cache, "dst": dst, "block_table": block_table,
                 "cu_seq_lens": cu_seq_lens, "batch_size": batch_size,
                 "seq_starts": seq_starts}  # fmt: skip
        _cp_gather_cache(**wrong_tables(variant, bound))

    return mutant


TABLES = (
    "`block_table` is int32 [batch, blocks of a sequence], `cu_seq_lens` int32 [batch + 1], "
    "increasing from 0 (sequences may be empty). Row t of the result with cu_seq_lens[b] <= t < "
    "cu_seq_lens[b + 1] is position p = t - cu_seq_lens[b]{start} of sequence b, which lies at "
    "place p % block_size of block block_table[b, p // block_size]. "
)
START = " + seq_starts[b] (int32 [batch], or None for 0)"


OPERATORS = (
    Operator(
        id="vllm::cp_gather_cache",
        family="kv-cache",
        signatures=(_CP_GATHER,),
        description=(
            "Gathers the entries of a batch of sequences from a paged cache into one packed "
            "tensor. `src_cache` is [blocks, block_size, ...entry], `dst` [rows, ...entry], both "
            "contiguous, of one dtype of 8, 16 or 32 bits. "
            + TABLES.format(start=START)
            + "Rows of `dst` from cu_seq_lens[batch] on stay as they are. `batch_size` is batch."
        ),
        sources=("vLLM 0.13, vllm._custom_ops.cp_gather_cache", "csrc/cache_kernels.cu"),
        cases=_cp_cases,
        oracle=_cp_oracle,
        second=cp_second,
        baseline=CustomOp("cp_gather_cache", _cp_gather_cache),
        baseline_name=NAME,
        cost=_cp_cost,
        tolerance=EXACT,
        mutants=tuple(
            Mutant(name, _cp_mutant(name))
            for name in (
                "starts ignored",
                "table of the first sequence",
                "table ignored",
                "lengths shifted",
            )
        ),
        prepare=_cp_prepare,
    ),
)
