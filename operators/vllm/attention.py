"""Attention over paged caches, one query token a sequence, whole or by partitions.

Oracle: float64, a few sequences at a time. Second statement: NumPy, head by head.

Condition scale of an output: sum p |v| (1 + r (s + g)), where r is the eps of float32 over that of
the dtype, s = sum |q k| scale turns the rounding of a score into a relative error of its weight,
and g = sqrt(n) / 2 is what two float32 sums over n positions, one after another, may lose: that of
p v and that of p, by which it is divided (`operators.building.growth`, once for each).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from kernelmark.operators.building import dtype_name, growth, spec
from kernelmark.operators.draws import Call
from kernelmark.operators.records import Case, Cost, Expected, Mutant, Operator, Tolerance
from kernelmark.operators.vllm.baselines import NAME, CustomOp
from kernelmark.operators.vllm.formats import FLOAT8, rounded, to_float8
from kernelmark.operators.vllm.parts import brain, byte, distinct, half, single, split_dim

_EPS32 = torch.finfo(torch.float32).eps
_PARTITION = 512
#: sequences that the oracle holds in float64 at once
_CHUNK = 8

_TOLERANCE = Tolerance(
    limit=1.5,
    accumulator=None,
    why="vLLM rounds probabilities and products with values to the dtype: 0.5 each of sum p|v|, and"
    " the result; a single token leaves one rounding. Float32 sums over n positions one after "
    "another: a deviation of 0.12 sqrt(n), of which S holds sqrt(n)/2, so the limit lies 6 out",
)
_STATISTICS = Tolerance(
    limit=4.0,
    why="float32 scores: each a sum over the head of products, relative to the sum of magnitudes; "
    "exponentials are summed in any order, for which S is the sum times 1 + sqrt(terms)/4",
)

_HEAD = (
    "query: Tensor, key_cache: Tensor, value_cache: Tensor, num_kv_heads: int, scale: float, "
    "block_tables: Tensor, seq_lens: Tensor, block_size: int, max_seq_len: int, "
    "alibi_slopes: Tensor?, kv_cache_dtype: str, k_scale: Tensor, v_scale: Tensor, "
    "tp_rank: int=0, blocksparse_local_blocks: int=0, blocksparse_vert_stride: int=0, "
    "blocksparse_block_size: int=64, blocksparse_head_sliding_step: int=0) -> ()"
)


def lengths(sequences: int, longest: int) -> list[int]:
    """Sequence lengths of a case, spread evenly from `longest` down; a draw permutes them."""
    return [max(1, longest - i * longest // sequences) for i in range(sequences)]


def _case(
    name: str, sequences: int, longest: int, heads: int, kv_heads: int, size: int, block_size: int,
    dtype: torch.dtype, kind: str = "auto", alibi: bool = False, split: bool = False,
    parts: bool = False, offset: int = 0, origin: str = "",
) -> Case:  # fmt: skip
    """`parts`: with the workspaces of v2. `split`: queries are slices of a fused projection."""
    cache = dtype if kind == "auto" else byte
    x = 16 // cache.itemsize
    width = -(-longest // block_size)
    needed = sum(-(-n // block_size) for n in lengths(sequences, longest))
    blocks = needed + 2
    row = (heads + 2 * kv_heads) * size
    strides = (row, size, 1) if split else None
    one = spec((1,), fill="uniform", low=0.3, high=1.5)
    count = -(-longest // _PARTITION)
    workspace = (
        spec((sequences, heads, count)),
        spec((sequences, heads, count)),
        spec((sequences, heads, count, size), dtype),
    )
    args = (
        spec((sequences, heads, size), dtype, fill="zeros"),
        *(workspace if parts else ()),
        spec((sequences, heads, size), dtype, strides=strides, offset=offset),
        spec((blocks, kv_heads, size // x, block_size, x), cache),
        spec((blocks, kv_heads, size, block_size), cache),
        kv_heads,
        size**-0.5,
        spec((sequences, width), torch.int32, fill="zeros"),
        spec((sequences,), torch.int32, fill="ones"),
        block_size,
        longest,
        spec((heads,), fill="uniform", low=0.005, high=0.5) if alibi else None,
        kind,
        one,
        one,
    )
    return Case(name, args, tier="full" if origin else "small", origin=origin)


def _cases(parts: bool) -> Sequence[Case]:
    case = functools.partial(_case, parts=parts)
    long = 1100 if parts else 70
    small = (
        *(case(f"{dtype_name(t)}", 3, 37, 4, 2, 32, 8, t) for t in (half, brain, single)),
        case("every-head-its-own", 2, 33, 3, 3, 64, 16, half),
        case("one-key-head", 2, 25, 4, 1, 32, 8, brain),
        case("head-size-80", 2, 21, 2, 1, 80, 16, half),
        case("alibi", 3, 37, 4, 2, 32, 8, half, alibi=True),
        case("float8", 3, 37, 4, 2, 32, 8, half, "fp8"),
        case("float8-bfloat16", 2, 33, 2, 1, 64, 16, brain, "fp8_e4m3"),
        case("one-token", 1, 1, 2, 1, 32, 8, half),
        case("split-from-qkv", 3, 20, 4, 2, 32, 8, half, split=True),
        case("long", 2, long, 2, 1, 32, 16, half),
        case("whole-partitions", 1, 1024 if parts else 64, 2, 2, 32, 16, brain),
        case("misaligned-query", 2, 19, 2, 1, 32, 8, half, offset=1),
    )
    return (
        *small,
        case("llama-3-8b", 64, 2048, 32, 8, 128, 16, brain,
             origin="Llama 3 8B: 32 query and 8 key heads of 128, 64 sequences to 2048"),
        case("llama-3-8b-long", 16, 8192, 32, 8, 128, 16, brain,
             origin="Llama 3 8B, 16 sequences to 8192"),
        case("llama-3-8b-float8", 64, 2048, 32, 8, 128, 16, half, "fp8",
             origin="Llama 3 8B with an 8-bit cache"),
        case("llama-2-7b", 32, 2048, 32, 32, 128, 16, half,
             origin="Llama 2 7B: 32 heads of 128, 32 sequences to 2048"),
        case("phi-2", 64, 1024, 32, 32, 80, 16, half,
             origin="Phi-2: 32 heads of 80, 64 sequences to 1024"),
        case("mpt-7b-alibi", 32, 2048, 32, 32, 128, 32, brain, alibi=True,
             origin="MPT 7B: 32 heads of 128 with ALiBi, blocks of 32"),
        case("gemma-2-9b", 32, 4096, 16, 8, 256, 16, brain,
             origin="Gemma 2 9B: 16 query and 8 key heads of 256"),
        case("qwen-2.5-7b-float32", 16, 4096, 28, 4, 128, 16, single,
             origin="Qwen 2.5 7B: 28 query and 4 key heads of 128, float32"),
    )  # fmt: skip


@functools.cache
def _cases_v1() -> Sequence[Case]:
    return _cases(parts=False)


@functools.cache
def _cases_v2() -> Sequence[Case]:
    return _cases(parts=True)


def _prepare(call: Call, case: Case, generator: torch.Generator) -> None:
    """Lengths, block tables without repeats, and codes of ordinary values in 8-bit caches."""
    first = 4 if len(call.args) > 14 else 1
    query, keys, values, _, _, tables, seq_lens, block_size, longest = call.args[first : first + 9]
    device = query.device
    count = len(seq_lens)
    order = distinct(count, (count,), generator, device)
    seq_lens.copy_(torch.tensor(lengths(count, longest), device=device)[order])
    ids = distinct(len(keys), (len(keys),), generator, device)
    used = (seq_lens.long() + block_size - 1) // block_size
    column = torch.arange(tables.shape[1], device=device)
    at = (used.cumsum(0) - used).unsqueeze(1) + column
    real = column < used.unsqueeze(1)
    # Entries past a sequence's end are valid block numbers of no meaning.
    tables.copy_(torch.where(real, ids[at.clamp_max(len(ids) - 1)], ids[-1]))
    for cache, scale in ((keys, call.args[-2]), (values, call.args[-1])):
        if cache.dtype == byte:
            drawn = torch.randn(cache.shape, generator=generator, device=device)
            cache.copy_(to_float8(drawn / scale, FLOAT8["fp8"]).view(byte))


def _paged(
    cache: torch.Tensor, tables: torch.Tensor, kind: str, scale: torch.Tensor, dtype: torch.dtype
) -> torch.Tensor:
    """[sequences, kv_heads, positions, head_size] of a key or value cache, in `dtype`."""
    if cache.dim() == 5:  # [blocks, heads, size / x, block_size, x]
        pages = cache[tables.long()].permute(0, 2, 1, 4, 3, 5)
        pages = pages.reshape(*pages.shape[:4], -1)
    else:  # [blocks, heads, size, block_size]
        pages = cache[tables.long()].permute(0, 2, 1, 4, 3)
    pages = pages.flatten(2, 3)
    if kind != "auto":
        exact = pages.contiguous().view(FLOAT8[kind]).to(torch.float32)
        return rounded(exact * scale.float(), dtype).to(dtype)
    return pages


def _attend(
    work: torch.dtype,
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    num_kv_heads: int,
    scale: float,
    block_tables: torch.Tensor,
    seq_lens: torch.Tensor,
    alibi_slopes: torch.Tensor | None,
    kv_cache_dtype: str,
    k_scale: torch.Tensor,
    v_scale: torch.Tensor,
) -> dict[str, torch.Tensor]:
    """Scores [s, kv, group, positions] (-inf past the end), values, and magnitudes of scores."""
    groups = query.shape[1] // num_kv_heads
    keys = _paged(key_cache, block_tables, kv_cache_dtype, k_scale, query.dtype).to(work)
    values = _paged(value_cache, block_tables, kv_cache_dtype, v_scale, query.dtype).to(work)
    q = split_dim(query.to(work), 1, (num_kv_heads, groups))
    scores = torch.einsum("skgd,sktd->skgt", q, keys) * scale
    position = torch.arange(keys.shape[2], device=query.device)
    if alibi_slopes is not None:
        slope = alibi_slopes.to(work).view(1, num_kv_heads, groups, 1)
        scores = scores + slope * (position - seq_lens.view(-1, 1, 1, 1) + 1)
    outside = position >= seq_lens.view(-1, 1, 1, 1)
    scores = scores.masked_fill(outside, -torch.inf)
    return {"scores": scores, "values": values, "keys": keys, "query": q}


def _weighted(p: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    return torch.einsum("skgt,sktd->skgd", p, values).flatten(1, 2)


def _sequential(lengths: torch.Tensor, terms: int) -> torch.Tensor:
    """sqrt(n) / 2, [sequences, 1, 1, 1]: in eps, what two float32 sums of n positive terms may lose
    one after another; n is a sequence's length, at most `terms`."""
    return lengths.double().clamp_max(terms).sqrt().div(2).view(-1, 1, 1, 1)


def _oracle_chunk(
    ratio: float, parts: int, rest: tuple[Any, ...], rows: slice
) -> list[torch.Tensor]:
    """For some sequences: out, its scale; per partition: max, exp sum, output, magnitudes."""
    query, keys, values, kv_heads, scale, tables, seq_lens, _, _, slopes, kind, ks, vs = rest[:13]
    made = _attend(
        torch.float64, query[rows], keys, values, kv_heads, scale, tables[rows], seq_lens[rows],
        slopes, kind, ks, vs,
    )  # fmt: skip
    scores, v = made["scores"], made["values"]
    size = torch.einsum("skgd,sktd->skgt", made["query"].abs(), made["keys"].abs()) * scale
    if slopes is not None:
        size = size + scores.nan_to_num(neginf=0.0).abs()
    lost = _sequential(seq_lens[rows], _PARTITION if parts else scores.shape[-1])
    p = torch.softmax(scores, -1)
    found = [_weighted(p, v), _weighted(p * (1 + ratio * (size + lost)), v.abs())]
    if not parts:
        return found
    pad = parts * _PARTITION - scores.shape[-1]
    split = torch.nn.functional.pad(scores, (0, pad), value=-torch.inf)
    split = split_dim(split, -1, (parts, _PARTITION))
    size = split_dim(torch.nn.functional.pad(size, (0, pad)), -1, (parts, _PARTITION))
    v = split_dim(torch.nn.functional.pad(v, (0, 0, 0, pad)), 2, (parts, _PARTITION))
    top = split.amax(-1, keepdim=True)
    e = torch.exp(split - top).nan_to_num(0.0)
    total = e.sum(-1, keepdim=True)
    p = (e / total).nan_to_num(0.0)
    out = torch.einsum("skgjt,skjtd->skgjd", p, v)
    weight = p * (1 + ratio * (size + lost.unsqueeze(-1)))
    spread = torch.einsum("skgjt,skjtd->skgjd", weight, v.abs())
    at_most = size.amax(-1, keepdim=True)
    found += [top.squeeze(-1), total.squeeze(-1), at_most.squeeze(-1), out, spread]
    return [found[0], found[1], *(t.flatten(1, 2) for t in found[2:])]


def _oracle(parts: int, out: torch.Tensor, rest: tuple[Any, ...]) -> list[torch.Tensor]:
    ratio = _EPS32 / torch.finfo(out.dtype).eps
    chunks = [
        _oracle_chunk(ratio, parts, rest, slice(i, i + _CHUNK)) for i in range(0, len(out), _CHUNK)
    ]
    return [torch.cat(column) for column in zip(*chunks, strict=True)]


def _oracle_v1(out: torch.Tensor, *rest: Any) -> list[Expected]:
    value, scale = _oracle(0, out, rest)
    return [Expected(value, out.dtype, scale)]


def _oracle_v2(
    out: torch.Tensor,
    exp_sum: torch.Tensor,
    max_logits: torch.Tensor,
    tmp_out: torch.Tensor,
    *rest: Any,
) -> list[Expected]:
    parts, seq_lens = exp_sum.shape[2], rest[6]
    value, scale, top, total, size, partial, spread = _oracle(parts, out, rest)
    first = torch.arange(parts, device=out.device) * _PARTITION
    used = (first < seq_lens.view(-1, 1, 1)).expand_as(top)
    top = torch.where(used, top, 0.0)
    return [
        Expected(value, out.dtype, scale),
        Expected(
            total, torch.float32, total * (growth(_PARTITION) + size), used, tolerance=_STATISTICS
        ),
        Expected(top, torch.float32, size, used, tolerance=_STATISTICS),
        Expected(partial, tmp_out.dtype, spread, used.unsqueeze(-1)),
    ]


def _second(parts: int, out: torch.Tensor, rest: tuple[Any, ...]) -> list[np.ndarray]:
    """Sequence by sequence and head by head, by the layouts' index formulas."""
    query, keys, values, kv_heads, scale, tables, seq_lens, block_size = rest[:8]
    slopes, kind, k_scale, v_scale = rest[9:13]
    if kind != "auto":
        keys = (keys.view(FLOAT8[kind]).float() * k_scale).to(query.dtype)
        values = (values.view(FLOAT8[kind]).float() * v_scale).to(query.dtype)
    q, k, v = (t.double().numpy() for t in (query, keys, values))
    heads, size, x = q.shape[1], q.shape[2], rest[1].shape[4]
    result = np.zeros(q.shape)
    stats = [np.zeros((*q.shape[:2], max(parts, 1), *tail)) for tail in ((), (), (size,))]
    d = np.arange(size)
    for s, h in np.ndindex(q.shape[:2]):
        length, kv = int(seq_lens[s]), h // (heads // kv_heads)
        t = np.arange(length)
        block, place = tables[s].numpy()[t // block_size], t % block_size
        key = k[block[:, None], kv, d // x, place[:, None], d % x]
        value = v[block[:, None], kv, d, place[:, None]]
        score = key @ q[s, h] * scale
        if slopes is not None:
            score = score + float(slopes[h]) * (t - length + 1)
        p = np.exp(score - score.max())
        result[s, h] = p @ value / p.sum()
        for j in range(-(-length // _PARTITION) if parts else 0):
            inside = slice(j * _PARTITION, (j + 1) * _PARTITION)
            p = np.exp(score[inside] - score[inside].max())
            stats[0][s, h, j], stats[1][s, h, j] = p.sum(), score[inside].max()
            stats[2][s, h, j] = p @ value[inside] / p.sum()
    return [result, *stats] if parts else [result]


def _second_v1(out: torch.Tensor, *rest: Any) -> list[np.ndarray]:
    return _second(0, out, rest)


def _second_v2(out: torch.Tensor, exp_sum: torch.Tensor, *rest: Any) -> list[np.ndarray]:
    return _second(exp_sum.shape[2], out, rest[2:])


def _formula(rest: tuple[Any, ...]) -> dict[str, torch.Tensor]:
    """`_attend` in float32 from the operator's own arguments."""
    query, keys, values, kv_heads, scale, tables, seq_lens, _, _, slopes, kind, ks, vs = rest[:13]
    return _attend(
        torch.float32, query, keys, values, kv_heads, scale, tables, seq_lens, slopes, kind, ks, vs
    )


def _paged_attention_v1(out: torch.Tensor, *rest: Any) -> None:
    made = _formula(rest)
    out.copy_(_weighted(torch.softmax(made["scores"], -1), made["values"]))


def _paged_attention_v2(
    out: torch.Tensor,
    exp_sum: torch.Tensor,
    max_logits: torch.Tensor,
    tmp_out: torch.Tensor,
    *rest: Any,
) -> None:
    made = _formula(rest)
    parts = exp_sum.shape[2]
    scores, values = made["scores"], made["values"]
    pad = parts * _PARTITION - scores.shape[-1]
    scores = torch.nn.functional.pad(scores, (0, pad), value=-torch.inf)
    scores = split_dim(scores, -1, (parts, _PARTITION))
    values = split_dim(torch.nn.functional.pad(values, (0, 0, 0, pad)), 2, (parts, _PARTITION))
    top = scores.amax(-1, keepdim=True)
    e = torch.exp(scores - top.clamp_min(torch.finfo(torch.float32).min))
    total = e.sum(-1, keepdim=True)
    partial = torch.einsum("skgjt,skjtd->skgjd", e, values) / total.clamp_min(1e-30)
    weight = total.squeeze(-1) * torch.exp(top - top.amax(3, keepdim=True)).squeeze(-1)
    joined = (partial * weight.unsqueeze(-1)).sum(3) / weight.sum(3, keepdim=True)
    out.copy_(joined.flatten(1, 2))
    exp_sum.copy_(total.squeeze(-1).flatten(1, 2))
    max_logits.copy_(top.squeeze(-1).flatten(1, 2))
    tmp_out.copy_(partial.flatten(1, 2))


def _cost(case: Case) -> Cost:
    """Every key and value once, queries in, results out."""
    first = 4 if len(case.args) > 14 else 1
    query, keys, _, kv_heads = case.args[first : first + 4]
    longest = case.args[first + 8]
    tokens = sum(lengths(query.shape[0], longest))
    size, heads = query.shape[2], query.shape[1]
    cached = 2 * tokens * kv_heads * size * keys.dtype.itemsize
    small = 2 * query.numel * query.dtype.itemsize + 4 * tokens // case.args[first + 7]
    return Cost(flops=4 * tokens * heads * size, nbytes=cached + small)


def _mutant(variant: str, parts: bool) -> Any:
    function = _paged_attention_v2 if parts else _paged_attention_v1

    def mutant(*args: Any) -> None:
        written, rest = args[: 4 if parts else 1], list(args[4 if parts else 1 :])
        if variant == "not scaled":
            rest[4] = 1.0
        if variant == "past the end":
            rest[6] = torch.full_like(rest[6], rest[8])
        if variant == "last token left out":
            rest[6] = (rest[6] - 1).clamp_min(1)
        if variant == "first block only":
            rest[6] = rest[6].clamp_max(rest[7])
        if variant == "heads grouped the other way":
            heads, groups = rest[0].shape[1], rest[0].shape[1] // rest[3]
            order = torch.arange(heads, device=rest[0].device).view(groups, -1).t().flatten()
            rest[0] = rest[0][:, order]
        if variant == "key layout of values":
            rest[1] = rest[1].transpose(2, 3).reshape(rest[1].shape)
        if variant == "alibi dropped":
            rest[9] = None
        if variant == "scales of keys and values dropped":
            rest[11] = rest[12] = torch.ones_like(rest[11])
        if variant == "workspace left" and parts:
            written = (written[0], *(t.clone() for t in written[1:]))
        function(*written, *rest)

    return mutant


_WRONG = (
    "not scaled",
    "past the end",
    "last token left out",
    "first block only",
    "heads grouped the other way",
    "key layout of values",
    "alibi dropped",
    "scales of keys and values dropped",
)

_COMMON = (
    "Attention of one query token a sequence over a paged cache. `query` is [sequences, heads, "
    "head_size] (float16, bfloat16 or float32; sequences may be strided), `out` alike and "
    "contiguous. `key_cache` is [blocks, num_kv_heads, head_size / x, block_size, x], x = 16 / "
    "itemsize of the cache: element d of a key is at [block, head, d // x, place, d % x]. "
    "`value_cache` is [blocks, num_kv_heads, head_size, block_size]. Position t of sequence s lies "
    "in block block_tables[s, t // block_size] (int32) at place t % block_size, for t < "
    "seq_lens[s] (int32, from 1 to max_seq_len); table entries past the end are valid and "
    "meaningless. Query head h reads key/value head h // (heads / num_kv_heads). score[t] = scale "
    "* (q . k[t]) + alibi_slopes[h] * (t - seq_lens[s] + 1), the second term only where "
    "`alibi_slopes` (float32 [heads]) is given; out = sum over t of softmax(score)[t] * v[t], "
    "scores and softmax in float32. `kv_cache_dtype` 'auto': caches have the dtype of `query`; "
    "'fp8' or 'fp8_e4m3': uint8 caches of float8_e4m3fn codes, and a key is value(code) * k_scale "
    "rounded to the dtype of `query`, a value alike with v_scale (float32 [1]). `tp_rank` and the "
    "blocksparse arguments are at their defaults, which mean dense attention. "
)
_V1 = "paged_attention_v1(out: Tensor!, " + _HEAD
_V2 = (
    "paged_attention_v2(out: Tensor!, exp_sum: Tensor!, max_logits: Tensor!, tmp_out: Tensor!, "
    + _HEAD
)

OPERATORS = (
    Operator(
        id="vllm::paged_attention_v1",
        family="attention",
        signatures=(_V1,),
        description=_COMMON,
        sources=(
            "vLLM 0.13, vllm._custom_ops.paged_attention_v1",
            "csrc/attention/attention_kernels.cuh",
            "Kwon et al., PagedAttention (2023)",
        ),
        cases=_cases_v1,
        oracle=_oracle_v1,
        second=_second_v1,
        baseline=CustomOp("paged_attention_v1", _paged_attention_v1),
        baseline_name=NAME,
        cost=_cost,
        tolerance=_TOLERANCE,
        mutants=tuple(Mutant(name, _mutant(name, False)) for name in _WRONG),
        prepare=_prepare,
    ),
    Operator(
        id="vllm::paged_attention_v2",
        family="attention",
        signatures=(_V2,),
        description=(
            _COMMON
            + "The positions are cut into partitions of 512, which are attended to independently "
            "and then joined; what is found for partition j of a sequence that has one is a result "
            "too: max_logits[s, h, j] (float32) the largest score, exp_sum[s, h, j] (float32) the "
            "sum of exp(score - max_logits[s, h, j]), tmp_out[s, h, j] (dtype of `out`) the "
            "attention over the partition alone. They are [sequences, heads, ceil(max_seq_len / "
            "512)] and [..., head_size], contiguous; entries of partitions that start at or past "
            "seq_lens[s] are undefined."
        ),
        sources=(
            "vLLM 0.13, vllm._custom_ops.paged_attention_v2",
            "csrc/attention/attention_kernels.cuh",
        ),
        cases=_cases_v2,
        oracle=_oracle_v2,
        second=_second_v2,
        baseline=CustomOp("paged_attention_v2", _paged_attention_v2),
        baseline_name=NAME,
        cost=_cost,
        tolerance=_TOLERANCE,
        mutants=tuple(Mutant(name, _mutant(name, True)) for name in (*_WRONG, "workspace left")),
        prepare=_prepare,
    ),
)
