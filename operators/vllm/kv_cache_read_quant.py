"""Gathering 8-bit entries out of paged caches: indexer keys as bytes, latent entries as values.

Oracle: indexing; second statements: token by token, by the layouts' offsets.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch

from kernelmark.operators.building import spec
from kernelmark.operators.draws import Call
from kernelmark.operators.records import EXACT, Case, Cost, Expected, Mutant, Operator, Tolerance
from kernelmark.operators.vllm.baselines import NAME, CustomOp
from kernelmark.operators.vllm.formats import FLOAT8, float8_table
from kernelmark.operators.vllm.kv_cache_read import (
    START,
    TABLES,
    cp_second,
    draw_tables,
    locate,
    slots,
    table_width,
    wrong_tables,
)
from kernelmark.operators.vllm.parts import brain, byte, half, single

_ROUNDED = Tolerance(limit=1.0, why="one product of a code and the scale, rounded once")


# cp_gather_indexer_k_quant_cache

_QUANT_BLOCK = 128


@functools.cache
def _indexer_cases() -> Sequence[Case]:
    def case(
        name: str, blocks: int, block_size: int, head_dim: int, batch: int, total: int,
        origin: str = "",
    ) -> Case:  # fmt: skip
        scales = head_dim // _QUANT_BLOCK * 4
        args = (
            spec((blocks, block_size, head_dim + scales), byte, fill="bits"),
            spec((total, head_dim), byte, fill="bits"),
            spec((total, scales), byte, fill="bits"),
            spec((batch, table_width(total, batch, block_size)), torch.int32, fill="zeros"),
            spec((batch + 1,), torch.int32, fill="zeros"),
        )
        tier: Any = "full" if origin else "small"
        return Case(name, args, tier=tier, origin=origin)

    indexer = "DeepSeek V3.2 indexer: one key of 128 a token"
    return (
        case("blocks-of-4", 6, 4, 128, 3, 20),
        case("blocks-of-64", 3, 64, 128, 2, 70),
        case("one-sequence", 4, 8, 128, 1, 13),
        case("one-token-each", 6, 4, 128, 5, 5),
        case("two-scales", 5, 8, 256, 3, 19),
        case("three-scales", 5, 4, 384, 2, 11),
        case("many-sequences", 9, 4, 128, 12, 40),
        case("one-token", 2, 16, 128, 1, 1),
        case("deepseek-v3.2", 8192, 64, 128, 8, 262144, f"{indexer}, 8 requests, 256k tokens"),
        case("deepseek-v3.2-one", 4096, 64, 128, 1, 131072, f"{indexer}, one request of 128k"),
        case("deepseek-v3.2-many", 8192, 64, 128, 128, 262144, f"{indexer}, 128 requests"),
        case("deepseek-v3.2-512k", 16384, 64, 128, 16, 524288, f"{indexer}, 512k tokens"),
        case("deepseek-v3.2-blocks-of-16", 16384, 16, 128, 32, 196608, f"{indexer}, blocks of 16"),
        case("glm-5-two-heads", 4096, 64, 256, 8, 131072, "an indexer key of 256, 128k tokens"),
    )


def _indexer_prepare(call: Call, case: Case, generator: torch.Generator) -> None:
    cache, dst, _, table, lengths = call.args
    draw_tables(cache, table, lengths, None, len(dst), generator)


def _indexer_parts(kv_cache: torch.Tensor, head_dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(codes, scale bytes) of every slot: a block holds all its keys, then all its scales."""
    blocks, block_size, width = kv_cache.shape
    flat = kv_cache.view(blocks, block_size * width)
    keys = flat[:, : block_size * head_dim].view(blocks, block_size, head_dim)
    scales = flat[:, block_size * head_dim :].view(blocks, block_size, width - head_dim)
    return keys, scales


def _indexer_gather(
    kv_cache: torch.Tensor,
    dst_k: torch.Tensor,
    dst_scale: torch.Tensor,
    block_table: torch.Tensor,
    cu_seq_lens: torch.Tensor,
) -> None:
    block, place, real = slots(len(dst_k), block_table, cu_seq_lens, None, kv_cache.shape[1])
    keys, scales = _indexer_parts(kv_cache, dst_k.shape[1])
    dst_k.copy_(torch.where(real[:, None], keys[block, place], dst_k))
    dst_scale.copy_(torch.where(real[:, None], scales[block, place], dst_scale))


def _indexer_oracle(
    kv_cache: torch.Tensor, dst_k: torch.Tensor, dst_scale: torch.Tensor, *rest: Any
) -> list[Expected]:
    _indexer_gather(kv_cache, dst_k, dst_scale, *rest)
    return [Expected(dst_k, byte), Expected(dst_scale, byte)]


def _indexer_second(
    kv_cache: torch.Tensor,
    dst_k: torch.Tensor,
    dst_scale: torch.Tensor,
    block_table: torch.Tensor,
    cu_seq_lens: torch.Tensor,
) -> list[torch.Tensor]:
    """Token by token, by byte offsets."""
    block_size, head_dim, scales = kv_cache.shape[1], dst_k.shape[1], dst_scale.shape[1]
    ends, flat = cu_seq_lens.tolist(), kv_cache.flatten(1)
    for b in range(len(ends) - 1):
        for token in range(ends[b], ends[b + 1]):
            at, place = divmod(token - ends[b], block_size)
            data = flat[int(block_table[b, at])]
            dst_k[token] = data[place * head_dim :][:head_dim]
            dst_scale[token] = data[block_size * head_dim + place * scales :][:scales]
    return [dst_k, dst_scale]


def _indexer_cost(case: Case) -> Cost:
    _, keys, scales, table, lengths = case.args
    return Cost(0, 2 * (keys.nbytes + scales.nbytes) + table.nbytes + lengths.nbytes)


def _indexer_mutant(variant: str) -> Any:
    def mutant(
        kv_cache: torch.Tensor,
        dst_k: torch.Tensor,
        dst_scale: torch.Tensor,
        block_table: torch.Tensor,
        cu_seq_lens: torch.Tensor,
    ) -> None:
        if variant == "scale after each key":
            block, place, _ = slots(len(dst_k), block_table, cu_seq_lens, None, kv_cache.shape[1])
            entry = kv_cache[block, place]
            dst_k.copy_(entry[:, : dst_k.shape[1]])
            dst_scale.copy_(entry[:, dst_k.shape[1] :])
            return
        if variant == "scales left":
            dst_scale = dst_scale.clone()
        bound = {"kv_cache": kv_cache, "dst_k": dst_k, "dst_scale": dst_scale,
                 "block_table": block_table, "cu_seq_lens": cu_seq_lens}  # fmt: skip
        _indexer_gather(**wrong_tables(variant, bound))

    return mutant


# gather_and_maybe_dequant_cache


@functools.cache
def _dequant_cases() -> Sequence[Case]:
    def case(
        name: str, blocks: int, block_size: int, batch: int, total: int, dtype: torch.dtype,
        kind: str = "auto", starts: bool = False, origin: str = "",
    ) -> Case:  # fmt: skip
        cache, fill = (dtype, "normal") if kind == "auto" else (byte, "bits")
        start = 2 * block_size if starts else 0
        args = (
            spec((blocks, block_size, 576), cache, fill=fill),
            spec((total, 576), dtype),
            spec((batch, table_width(total, batch, block_size, start)), torch.int32, fill="zeros"),
            spec((batch + 1,), torch.int32, fill="zeros"),
            spec((total,), torch.int32, fill="zeros"),
            total,
            kind,
            spec((1,), fill="uniform", low=0.3, high=1.5),
            spec((batch,), torch.int32, fill="zeros") if starts else None,
        )
        tier: Any = "full" if origin else "small"
        return Case(name, args, tier=tier, origin=origin)

    deepseek = "DeepSeek V3 context gather: latent entries of 576"
    return (
        case("float16", 4, 4, 3, 10, half),
        case("bfloat16", 4, 8, 2, 11, brain),
        case("float32", 4, 4, 2, 7, single),
        case("float8-to-float16", 4, 4, 3, 10, half, "fp8"),
        case("float8-to-bfloat16", 4, 8, 2, 11, brain, "fp8_e4m3"),
        case("float8-to-float32", 4, 4, 2, 7, single, "fp8"),
        case("starts", 6, 4, 3, 10, half, starts=True),
        case("starts-float8", 6, 4, 3, 10, brain, "fp8", starts=True),
        case("one-sequence", 3, 4, 1, 9, half, "fp8"),
        case("deepseek-v3", 2048, 64, 8, 65536, brain, origin=f"{deepseek}, 8 requests"),
        case("deepseek-v3-float8", 2048, 64, 8, 65536, brain, "fp8",
             origin=f"{deepseek}, 8-bit cache"),
        case("deepseek-v3-float8-starts", 2048, 64, 16, 65536, brain, "fp8", starts=True,
             origin=f"{deepseek}, 8-bit cache, chunked context"),
        case("deepseek-v2-lite", 4096, 16, 64, 49152, half, "fp8",
             origin="DeepSeek V2 Lite: latent entries of 576, blocks of 16, 8-bit cache"),
        case("kimi-k2", 2048, 64, 32, 98304, brain, origin="Kimi K2: latent entries of 576"),
        case("deepseek-v3-float32", 1024, 64, 8, 32768, single, "fp8",
             origin=f"{deepseek}, float32 result"),
    )  # fmt: skip


def _dequant_prepare(call: Call, case: Case, generator: torch.Generator) -> None:
    cache, _, table, lengths, owner, total, _, _, starts = call.args
    draw_tables(cache, table, lengths, starts, total, generator, unit=cache.shape[1])
    owner.copy_(locate(total, lengths, None)[0])
    if cache.dtype == byte:  # NaN codes become the largest finite ones
        cache.copy_(torch.where((cache & 0x7F) == 0x7F, cache - 1, cache))


def _dequant(
    work: torch.dtype,
    src_cache: torch.Tensor,
    dst: torch.Tensor,
    block_table: torch.Tensor,
    cu_seq_lens: torch.Tensor,
    token_to_seq: torch.Tensor,
    kv_cache_dtype: str,
    scale: torch.Tensor,
    seq_starts: torch.Tensor | None,
) -> torch.Tensor:
    """The gathered entries, in `dst`'s dtype if nothing is converted, else in `work`."""
    owner = token_to_seq.long()
    position = torch.arange(len(owner), device=owner.device) - cu_seq_lens[owner]
    if seq_starts is not None:
        position = position + seq_starts[owner]
    block_size = src_cache.shape[1]
    block = block_table[owner, position // block_size].long()
    entries = src_cache[block, position % block_size]
    if kv_cache_dtype == "auto":
        return entries
    return entries.view(FLOAT8[kv_cache_dtype]).to(work) * scale.to(work)


def _gather_and_maybe_dequant_cache(
    src_cache: torch.Tensor,
    dst: torch.Tensor,
    block_table: torch.Tensor,
    cu_seq_lens: torch.Tensor,
    token_to_seq: torch.Tensor,
    num_tokens: int,
    kv_cache_dtype: str,
    scale: torch.Tensor,
    seq_starts: torch.Tensor | None = None,
) -> None:
    dst[:num_tokens] = _dequant(
        torch.float32, src_cache, dst, block_table, cu_seq_lens, token_to_seq[:num_tokens],
        kv_cache_dtype, scale, seq_starts,
    ).to(dst.dtype)  # fmt: skip


def _dequant_oracle(
    src_cache: torch.Tensor,
    dst: torch.Tensor,
    block_table: torch.Tensor,
    cu_seq_lens: torch.Tensor,
    token_to_seq: torch.Tensor,
    num_tokens: int,
    kv_cache_dtype: str,
    scale: torch.Tensor,
    seq_starts: torch.Tensor | None = None,
) -> list[Expected]:
    value = _dequant(
        torch.float64, src_cache, dst, block_table, cu_seq_lens, token_to_seq, kv_cache_dtype,
        scale, seq_starts,
    )  # fmt: skip
    if kv_cache_dtype == "auto":
        return [Expected(value, dst.dtype)]
    return [Expected(value, dst.dtype, value.abs(), tolerance=_ROUNDED)]


def _dequant_second(
    src_cache: torch.Tensor,
    dst: torch.Tensor,
    block_table: torch.Tensor,
    cu_seq_lens: torch.Tensor,
    token_to_seq: torch.Tensor,
    num_tokens: int,
    kv_cache_dtype: str,
    scale: torch.Tensor,
    seq_starts: torch.Tensor | None = None,
) -> list[torch.Tensor]:
    cache = src_cache
    if kv_cache_dtype != "auto":
        sign = torch.where(src_cache > 127, -1.0, 1.0)
        cache = float8_table()[(src_cache & 0x7F).long()] * sign * float(scale)
    out = torch.empty(dst.shape, dtype=cache.dtype)
    batch = len(cu_seq_lens) - 1
    return cp_second(cache, out, block_table, cu_seq_lens, batch, seq_starts)


def _dequant_cost(case: Case) -> Cost:
    cache, dst, table, lengths, owner = case.args[:5]
    read = dst.numel * cache.dtype.itemsize
    flops = dst.numel if cache.dtype == byte else 0
    return Cost(flops, read + dst.nbytes + table.nbytes + lengths.nbytes + owner.nbytes)


def _dequant_mutant(variant: str) -> Any:
    def mutant(
        src_cache: torch.Tensor,
        dst: torch.Tensor,
        block_table: torch.Tensor,
        cu_seq_lens: torch.Tensor,
        token_to_seq: torch.Tensor,
        num_tokens: int,
        kv_cache_dtype: str,
        scale: torch.Tensor,
        seq_starts: torch.Tensor | None = None,
    ) -> None:
        if variant == "scale dropped":
            scale = torch.ones_like(scale)
        if variant == "divided by the scale":
            scale = 1 / scale
        bound = {"src_cache": src_cache, "dst": dst, "block_table": block_table,
                 "cu_seq_lens": cu_seq_lens, "token_to_seq": token_to_seq,
                 "num_tokens": num_tokens, "kv_cache_dtype": kv_cache_dtype, "scale": scale,
                 "seq_starts": seq_starts}  # fmt: skip
        if variant == "codes taken for integers" and src_cache.dtype == byte:
            bound.update(src_cache=src_cache.float(), kv_cache_dtype="auto")
        _gather_and_maybe_dequant_cache(**wrong_tables(variant, bound))

    return mutant


OPERATORS = (
    Operator(
        id="vllm::cp_gather_indexer_k_quant_cache",
        family="kv-cache-quant",
        signatures=(
            "cp_gather_indexer_k_quant_cache(kv_cache: Tensor, dst_k: Tensor!, "
            "dst_scale: Tensor!, block_table: Tensor, cu_seq_lens: Tensor) -> ()",
        ),
        description=(
            "Gathers 8-bit indexer keys and their scales from a paged cache, as bytes. `kv_cache` "
            "is uint8 [blocks, block_size, head_dim + 4 * head_dim / 128], but a block is laid out "
            "as block_size keys of head_dim bytes, followed by block_size times the 4 * head_dim / "
            "128 bytes of float32 scales. `dst_k` is uint8 [tokens, head_dim], `dst_scale` uint8 "
            "[tokens, 4 * head_dim / 128]. All contiguous. " + TABLES.format(start="")
        ),
        sources=(
            "vLLM 0.13, vllm._custom_ops.cp_gather_indexer_k_quant_cache",
            "csrc/cache_kernels.cu",
        ),
        cases=_indexer_cases,
        oracle=_indexer_oracle,
        second=_indexer_second,
        baseline=CustomOp("cp_gather_indexer_k_quant_cache", _indexer_gather),
        baseline_name=NAME,
        cost=_indexer_cost,
        tolerance=EXACT,
        mutants=tuple(
            Mutant(name, _indexer_mutant(name))
            for name in (
                "scale after each key",
                "scales left",
                "table of the first sequence",
                "table ignored",
                "lengths shifted",
            )
        ),
        prepare=_indexer_prepare,
        note="The cache's shape says nothing of its layout: keys first, then scales, in each block",
    ),
    Operator(
        id="vllm::gather_and_maybe_dequant_cache",
        family="kv-cache-quant",
        signatures=(
            "gather_and_maybe_dequant_cache(src_cache: Tensor, dst: Tensor!, "
            "block_table: Tensor, cu_seq_lens: Tensor, token_to_seq: Tensor, num_tokens: int, "
            "kv_cache_dtype: str, scale: Tensor, seq_starts: Tensor?=None) -> ()",
        ),
        description=(
            "Gathers latent (MLA) entries of a batch of sequences from a paged cache into one "
            "packed tensor, converting them from 8 bits where the cache is. `src_cache` is [blocks,"
            " block_size, 576], `dst` [num_tokens, 576] (float16, bfloat16 or float32), contiguous."
            " " + TABLES.format(start=START) + "Starts are multiples of block_size. "
            "`token_to_seq` (int32 [num_tokens]) gives b for every row. `kv_cache_dtype` 'auto': "
            "`src_cache` has the dtype of `dst`, entries are copied. 'fp8' or 'fp8_e4m3': it is "
            "uint8 with float8_e4m3fn codes, and dst = value * scale (float32 [1]), rounded once."
        ),
        sources=(
            "vLLM 0.13, vllm._custom_ops.gather_and_maybe_dequant_cache",
            "csrc/cache_kernels.cu",
        ),
        cases=_dequant_cases,
        oracle=_dequant_oracle,
        second=_dequant_second,
        baseline=CustomOp("gather_and_maybe_dequant_cache", _gather_and_maybe_dequant_cache),
        baseline_name=NAME,
        cost=_dequant_cost,
        tolerance=EXACT,
        mutants=tuple(
            Mutant(name, _dequant_mutant(name))
            for name in (
                "starts ignored",
                "table of the first sequence",
                "table ignored",
                "lengths shifted",
                "scale dropped",
                "divided by the scale",
                "codes taken for integers",
            )
        ),
        prepare=_dequant_prepare,
    ),
)
