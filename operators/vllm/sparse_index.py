"""Index sets of vertical-slash sparse attention (MInference).

Oracle and formulation work slash by slash over all rows; the second statement row by row.
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

# convert_vertical_slash_indexes


@functools.cache
def _sparse_cases() -> Sequence[Case]:
    def case(
        name: str, batch: int, heads: int, queries: int, keys: int, vertical: int, slash: int,
        block: int, causal: bool = True, wide: int = 1, origin: str = "",
    ) -> Case:  # fmt: skip
        def index(*shape: int) -> Any:
            return spec(shape, torch.int32, fill="zeros")

        args = (
            index(batch), index(batch), index(batch, heads, vertical), index(batch, heads, slash),
            queries, block, block * wide, causal,
        )  # fmt: skip
        tier: Any = "full" if origin else "small"
        origin = f"{origin}; {keys} keys" if origin else ""
        return Case(name, args, tier=tier, origin=origin, draws=("base",) * 3)

    qwen = "Qwen 2.5 1M (MInference), blocks of 64"
    return (
        case("causal", 2, 3, 40, 40, 8, 6, 4),
        case("causal-longer-keys", 2, 2, 24, 64, 10, 6, 4),
        case("one-row", 1, 2, 4, 32, 5, 3, 4),
        case("one-slash", 2, 2, 32, 32, 6, 1, 4),
        case("one-vertical", 2, 2, 32, 32, 1, 5, 4),
        case("many-slashes", 1, 2, 48, 48, 4, 24, 8),
        case("blocks-of-16", 2, 2, 70, 90, 12, 8, 16),
        case("wider-blocks", 2, 2, 48, 64, 8, 6, 4, wide=2),
        case("not-causal", 2, 2, 32, 40, 8, 6, 4, causal=False),
        case("not-causal-longer-keys", 2, 2, 24, 64, 10, 8, 8, causal=False),
        case("qwen-2.5-7b-1m-32k", 1, 28, 32768, 32768, 1000, 200, 64, origin=f"{qwen}, 32k"),
        case("qwen-2.5-7b-1m-64k", 1, 28, 65536, 65536, 1000, 400, 64, origin=f"{qwen}, 64k"),
        case("qwen-2.5-14b-1m-32k", 1, 40, 32768, 65536, 1000, 256, 64, origin=f"{qwen}, chunk"),
        case("qwen-2.5-7b-1m-batch", 4, 28, 16384, 16384, 512, 128, 64, origin=f"{qwen}, batch 4"),
        case("qwen-2.5-7b-1m-successive", 1, 28, 32768, 32768, 1000, 200, 64, causal=False,
             origin=f"{qwen}, successive chunk"),
        case("qwen-2.5-7b-1m-dense", 1, 28, 32768, 32768, 256, 512, 64, origin=f"{qwen}, 512 "
             "slashes"),
    )  # fmt: skip


def _key_count(case: Case) -> int:
    """Keys of a case: named in the origin for full ones, by a rule for small ones."""
    if case.tier == "full":
        return int(case.origin.rsplit("; ", 1)[1].split()[0])
    queries, block = int(case.args[4]), int(case.args[5])
    return queries + 3 * block


def _distinct_sorted(
    shape: torch.Size, high: torch.Tensor, generator: torch.Generator, device: torch.device
) -> torch.Tensor:
    """Ascending distinct integers in [0, high) along the last dimension; high is [batch]."""
    count = shape[-1]
    room = (high - count + 1).view(-1, 1, 1).clamp_min(1)
    drawn = torch.rand(shape, generator=generator, device=device)
    base = (drawn * room).long().sort(dim=-1).values
    return base + torch.arange(count, device=device)


def _sparse_prepare(call: Call, case: Case, generator: torch.Generator) -> None:
    """Lengths up to the context; verticals ascending; slashes descending, the diagonal last."""
    q_len, kv_len, vertical, slash, context = call.args[:5]
    device, batch = q_len.device, len(q_len)
    longest = _key_count(case)
    cut = torch.randint(0, max(context // 4, 1), (batch,), generator=generator, device=device)
    cut[0] = 0
    q_len.copy_(context - cut)
    kv_len.copy_(longest - cut)
    keys = kv_len.long()
    vertical.copy_(_distinct_sorted(vertical.shape, keys, generator, device))
    causal = call.args[7]
    high = keys if causal else keys + q_len.long() // 2
    lines = _distinct_sorted(slash.shape, high, generator, device)
    if causal:
        lines[..., 0] = 0
    slash.copy_(lines.flip(-1))


def _ranges(
    q_len: torch.Tensor,
    kv_len: torch.Tensor,
    slash: torch.Tensor,
    rows: int,
    block: int,
    causal: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Key ranges [start, end) of every row, [batch, heads, rows, slashes], -1 where there is none.

    A slash (they descend) reaches up to `edge` - slash. The first one below the edge opens a range
    of one block; a later one that reaches beyond the range lets it grow by a block if that is
    enough, and opens the next range otherwise. Which slash opens the next range depends, but for a
    row's first range, on the slash that opened this one alone, so the chains of openings are found
    once for all rows.
    """
    lines = slash.long()
    count = lines.shape[-1]
    order = torch.arange(count, device=slash.device)
    shape = (*slash.shape[:2], rows)
    begin = torch.arange(rows, device=slash.device) * block
    q, kv = (t.long().view(-1, 1, 1) for t in (q_len, kv_len))
    edge = begin + block + (kv - q if causal else kv)  # diagonal end of the row's last query
    reach = (edge.unsqueeze(-1) - lines.unsqueeze(2)).clamp_min(block)
    first = _number_from(lines, edge.expand(shape))
    cut = torch.full_like(first, count)  # slashes that a row looks at
    if not causal:
        cut = torch.maximum(_number_from(lines, begin.expand(shape)), first + 1)
    opened = order == first.unsqueeze(-1)
    base = torch.where(opened, reach, 0).sum(-1, keepdim=True)
    after_first = _next_opening(reach - base, first, block)
    after = _next_opening(lines.unsqueeze(-1) - lines.unsqueeze(-2), order, block)
    chain = _chains(after).gather(2, after_first.unsqueeze(-1).expand(*shape, count))
    live = ((begin < q) & (first < count)).unsqueeze(-1)
    opens = live & (opened | chain) & (order < cut.unsqueeze(-1))
    until = torch.where(opened, after_first.unsqueeze(-1), after.unsqueeze(2))
    last = until.minimum(cut.unsqueeze(-1)).sub(1).clamp_min(0)  # the last slash of each range
    growth = _ceil_div(reach.gather(-1, last) - reach, block) * block
    place = torch.where(opens, opens.long().cumsum(-1) - 1, count)
    none = reach.new_full((*shape, count + 1), -1)
    start = none.scatter(-1, place, reach - block)[..., :count]
    return start, none.scatter(-1, place, reach + growth)[..., :count]


def _ceil_div(a: torch.Tensor, b: int) -> torch.Tensor:
    return (a + b - 1).div(b, rounding_mode="floor")


def _number_from(lines: torch.Tensor, bound: torch.Tensor) -> torch.Tensor:
    """How many of the descending `lines` [..., count] are at least `bound` [..., rows]."""
    return torch.searchsorted(-lines, -bound.contiguous(), right=True)


def _next_opening(reach: torch.Tensor, first: torch.Tensor, block: int) -> torch.Tensor:
    """The first slash after number `first` that a growing range, which `first` opened, misses.

    `reach` [..., slashes] is how far slashes reach beyond `first`; their number if none is missed.
    """
    count = reach.shape[-1]
    order = torch.arange(1, count, device=reach.device)
    missed = _ceil_div(reach, block).diff(dim=-1) > 1
    missed = missed & (order > first.unsqueeze(-1))
    ends = torch.full_like(reach[..., :1], count)
    return torch.cat([torch.where(missed, order, count), ends], -1).amin(-1)


def _chains(after: torch.Tensor) -> torch.Tensor:
    """[batch, heads, slashes + 1, slashes]: the openings that follow from each, itself included.

    `after` [batch, heads, slashes] is the opening after each; as many steps as its number has bits.
    """
    count = after.shape[-1]
    found = torch.eye(count + 1, count, dtype=torch.bool, device=after.device)
    found = found.expand(*after.shape[:2], count + 1, count)
    jump = torch.nn.functional.pad(after, (0, 1), value=count)
    for _ in range(count.bit_length()):
        found = found | found.gather(2, jump.unsqueeze(-1).expand(found.shape))
        jump = jump.gather(2, jump)
    return found


def _compact(
    values: torch.Tensor, keep: torch.Tensor, width: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """(number kept, kept values in order, zeros after them) along the last dimension."""
    count = keep.sum(-1)
    place = torch.where(keep, keep.long().cumsum(-1) - 1, width)
    packed = values.new_zeros((*values.shape[:-1], width + 1))
    packed.scatter_(-1, place.clamp_max(width), torch.where(keep, values, 0))
    return count.to(torch.int32), packed[..., :width].to(torch.int32)


def _convert_vertical_slash_indexes(
    q_seqlens: torch.Tensor,
    kv_seqlens: torch.Tensor,
    vertical_indexes: torch.Tensor,
    slash_indexes: torch.Tensor,
    context_size: int,
    block_size_M: int,
    block_size_N: int,
    causal: bool = True,
) -> tuple[torch.Tensor, ...]:
    rows = -(-context_size // block_size_M)
    start, end = _ranges(q_seqlens, kv_seqlens, slash_indexes, rows, block_size_M, causal)
    kv = kv_seqlens.long().view(-1, 1, 1, 1)
    # Blocks of a range: start, start + N, ... below min(end, keys). A slash brings at most one.
    number = torch.where(start >= 0, end.minimum(kv) - start, 0)
    number = (number.clamp_min(0) + block_size_N - 1) // block_size_N
    upto = number.cumsum(-1)
    total = upto[..., -1]
    slot = torch.arange(slash_indexes.shape[2], device=start.device).expand(start.shape)
    owner = torch.searchsorted(upto, slot.contiguous(), right=True)
    owner = owner.clamp_max(start.shape[-1] - 1)
    nth = slot - (upto - number).gather(-1, owner)
    offsets = start.gather(-1, owner) + nth * block_size_N
    offsets = torch.where(slot < total.unsqueeze(-1), offsets, 0)
    # Verticals outside every range: before the last range's end, or (not causal) before the keys'.
    column = vertical_indexes.long().unsqueeze(2).expand(*start.shape[:3], -1).contiguous()
    far = torch.iinfo(torch.int64).max
    starts = torch.where(start >= 0, start, far)
    behind = torch.searchsorted(starts, column, right=True) - 1
    covered = (behind >= 0) & (column < end.gather(-1, behind.clamp_min(0)))
    limit = end.amax(-1, keepdim=True) if causal else kv.expand(*start.shape[:3], 1)
    live = (start[..., :1] >= 0) if causal else (
        torch.arange(rows, device=start.device) * block_size_M < q_seqlens.view(-1, 1, 1)
    ).expand(start.shape[:3]).unsqueeze(-1)  # fmt: skip
    keep = live & ~covered & (column < limit)
    column_count, column_index = _compact(column, keep, vertical_indexes.shape[2])
    return total.to(torch.int32), offsets.to(torch.int32), column_count, column_index


def _sparse_oracle(*args: Any, **kwargs: Any) -> list[Expected]:
    return [Expected(t, torch.int32) for t in _convert_vertical_slash_indexes(*args, **kwargs)]


def _sparse_second(
    q_seqlens: torch.Tensor,
    kv_seqlens: torch.Tensor,
    vertical_indexes: torch.Tensor,
    slash_indexes: torch.Tensor,
    context_size: int,
    block_size_M: int,
    block_size_N: int,
    causal: bool = True,
) -> list[np.ndarray]:
    """Row by row, as two sorted lists walked together: key sets, in plain Python."""
    batch, heads, slashes = slash_indexes.shape
    rows, verticals = -(-context_size // block_size_M), vertical_indexes.shape[2]
    counts = np.zeros((2, batch, heads, rows), np.int32)
    blocks = np.zeros((batch, heads, rows, slashes), np.int32)
    columns = np.zeros((batch, heads, rows, verticals), np.int32)
    for b, h, row in np.ndindex(batch, heads, rows):
        q, kv = int(q_seqlens[b]), int(kv_seqlens[b])
        if row * block_size_M >= q:
            continue
        edge = (row + 1) * block_size_M + (kv - q if causal else kv)
        lines = [s for s in slash_indexes[b, h].tolist() if s < edge]
        if not causal:
            lines = lines[:1] + [s for s in lines[1:] if s >= row * block_size_M]
        spans: list[list[int]] = []
        for line in lines:
            reach = max(edge - line, block_size_M)
            if not spans or reach > spans[-1][1] + block_size_M:
                spans.append([reach - block_size_M, reach])
            elif reach > spans[-1][1]:
                spans[-1][1] += block_size_M
        found = [n for a, z in spans for n in range(a, min(z, kv), block_size_N)]
        limit = spans[-1][1] if causal else kv
        lone = [
            v for v in vertical_indexes[b, h].tolist()
            if v < limit and not any(a <= v < z for a, z in spans)
        ]  # fmt: skip
        counts[:, b, h, row] = len(found), len(lone)
        blocks[b, h, row, : len(found)] = found
        columns[b, h, row, : len(lone)] = lone
    return [counts[0], blocks, counts[1], columns]


def _sparse_cost(case: Case) -> Cost:
    _, _, vertical, slash, context, block = case.args[:6]
    rows = -(-context // block)
    lines = slash.shape[0] * slash.shape[1] * rows
    written = 4 * lines * (vertical.shape[2] + slash.shape[2] + 2)
    return Cost(0, vertical.nbytes + slash.nbytes + written)


def _sparse_mutant(variant: str) -> Any:
    def mutant(
        q_seqlens: torch.Tensor,
        kv_seqlens: torch.Tensor,
        vertical_indexes: torch.Tensor,
        slash_indexes: torch.Tensor,
        context_size: int,
        block_size_M: int,
        block_size_N: int,
        causal: bool = True,
    ) -> Any:
        lines = slash_indexes
        if variant == "causality turned round":
            causal = not causal
        if variant == "diagonal only":
            lines = lines[..., -1:].expand(lines.shape)
        if variant == "lengths exchanged":
            q_seqlens, kv_seqlens = kv_seqlens.clamp_max(context_size), q_seqlens
        made = _convert_vertical_slash_indexes(
            q_seqlens, kv_seqlens, vertical_indexes, lines, context_size, block_size_M,
            block_size_N, causal,
        )  # fmt: skip
        if variant == "columns not removed":
            every = torch.full_like(made[2], vertical_indexes.shape[2])
            return made[0], made[1], every, vertical_indexes.unsqueeze(2).expand_as(made[3])
        if variant == "no columns":
            return made[0], made[1], torch.zeros_like(made[2]), torch.zeros_like(made[3])
        if variant == "block numbers instead of offsets":
            return made[0], made[1] // block_size_N, made[2], made[3]
        return made

    return mutant


OPERATORS = (
    Operator(
        id="vllm::convert_vertical_slash_indexes",
        family="attention-sparse-index",
        signatures=(
            "convert_vertical_slash_indexes(q_seqlens: Tensor, kv_seqlens: Tensor, "
            "vertical_indexes: Tensor, slash_indexes: Tensor, context_size: int, "
            "block_size_M: int, block_size_N: int, causal: bool=True) -> "
            "(Tensor, Tensor, Tensor, Tensor)",
        ),
        description=(
            "Turns the lines of a vertical-slash sparse attention pattern into key blocks and "
            "single key columns for every row of block_size_M queries. All tensors are int32, "
            "contiguous. `q_seqlens`, `kv_seqlens`: [batch]. `vertical_indexes` [batch, heads, V]: "
            "key columns, ascending, distinct, below kv_seqlens. `slash_indexes` [batch, heads, "
            "S]: distances of diagonals, descending, distinct; if causal the last is 0. Let rows = "
            "ceil(context_size / block_size_M). For row r of a head with r * block_size_M < q: "
            "edge = (r + 1) * block_size_M + (kv - q if causal else kv). Slashes s >= edge are "
            "skipped; if not causal, those after the first remaining one with s < r * block_size_M "
            "end the list. For each remaining slash, in order, reach = max(edge - s, block_size_M):"
            " the first opens a range [reach - block_size_M, reach); a later one opens a new range "
            "if reach > end + block_size_M of the current range, else moves end up by block_size_M "
            "if reach > end, else does nothing. Blocks are start, start + block_size_N, ... below "
            "min(end, kv) of each range in turn. Columns are the verticals in no range and below "
            "the last range's end (if not causal: below kv), in order. Returns block_count [batch, "
            "heads, rows], block_offset [batch, heads, rows, S], column_count [batch, heads, "
            "rows], column_index [batch, heads, rows, V]; unused entries and rows past q are 0."
        ),
        sources=(
            "vLLM 0.13, vllm._custom_ops.convert_vertical_slash_indexes",
            "csrc/attention/vertical_slash_index.cu",
            "Jiang et al., MInference 1.0 (2024), algorithm 4",
        ),
        cases=_sparse_cases,
        oracle=_sparse_oracle,
        second=_sparse_second,
        baseline=CustomOp("convert_vertical_slash_indexes", _convert_vertical_slash_indexes),
        baseline_name=NAME,
        cost=_sparse_cost,
        tolerance=EXACT,
        mutants=tuple(
            Mutant(name, _sparse_mutant(name))
            for name in (
                "causality turned round",
                "diagonal only",
                "lengths exchanged",
                "columns not removed",
                "no columns",
                "block numbers instead of offsets",
            )
        ),
        prepare=_sparse_prepare,
        note="A range that grows does so by whole blocks, not up to the slash: order matters.",
    ),
)
