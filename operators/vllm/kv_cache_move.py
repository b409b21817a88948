"""Moving whole blocks of paged caches.

Nothing is computed, so results are exact. Oracles index; second statements walk pairs in Python.
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
from kernelmark.operators.vllm.parts import brain, byte, distinct, half, random_integers, single

# copy_blocks, copy_blocks_mla, swap_blocks


def _fill_pairs(
    mapping: torch.Tensor, blocks: int, generator: torch.Generator, sources: int | None = None
) -> None:
    """(source, target) pairs: targets distinct and never sources. `sources` is the number of
    blocks of another tensor to read from, where there is one."""
    pairs = len(mapping)
    if sources is not None:
        mapping[:, 0] = random_integers(0, sources, (pairs,), generator, mapping.device)
        mapping[:, 1] = distinct(blocks, (pairs,), generator, mapping.device)
        return
    order = distinct(blocks, (blocks,), generator, mapping.device)
    pick = random_integers(0, max(blocks - pairs, 1), (pairs,), generator, mapping.device)
    mapping[:, 0] = order[pairs:][pick] if pairs else order[:0]
    mapping[:, 1] = order[:pairs]


def _copy_pairs(caches: Sequence[torch.Tensor], mapping: torch.Tensor) -> None:
    for cache in caches:
        cache[mapping[:, 1]] = cache[mapping[:, 0]]


#: (name, layers, blocks, shape of a key block, shape of a value block, pairs, dtype, model)
_COPY_FULL: tuple[tuple[str, int, int, tuple[int, ...], tuple[int, ...], int, Any, str], ...] = (
    ("llama-3-8b", 4, 512, (8, 16, 16, 8), (8, 128, 16), 256, brain,
     "Llama 3 8B, four layers: 8 heads of 128, blocks of 16"),
    ("llama-2-7b", 2, 512, (32, 16, 16, 8), (32, 128, 16), 192, half,
     "Llama 2 7B, two layers: 32 heads of 128, blocks of 16"),
    ("opt-13b", 2, 256, (40, 16, 32, 8), (40, 128, 32), 96, half,
     "OPT 13B, two layers: 40 heads of 128, blocks of 32"),
    ("llama-3-8b-float8", 8, 512, (8, 8, 16, 16), (8, 128, 16), 256, byte,
     "Llama 3 8B with an 8-bit cache, eight layers"),
    ("phi-2", 4, 512, (32, 10, 16, 8), (32, 80, 16), 200, half,
     "Phi-2, four layers: 32 heads of 80"),
    ("gemma-2-9b", 4, 512, (8, 32, 16, 8), (8, 256, 16), 256, brain,
     "Gemma 2 9B, four layers: 8 heads of 256"),
    ("llama-3-8b-one-layer-float32", 1, 512, (8, 32, 16, 4), (8, 128, 16), 256, single,
     "Llama 3 8B, one layer in float32"),
)  # fmt: skip


def _cache_spec(blocks: int, shape: tuple[int, ...], dtype: torch.dtype) -> Any:
    return spec((blocks, *shape), dtype, fill="bits" if dtype == byte else "normal")


@functools.cache
def _copy_cases() -> Sequence[Case]:
    def case(
        name: str, layers: int, blocks: int, key: tuple[int, ...], value: tuple[int, ...],
        pairs: int, dtype: torch.dtype, origin: str = "",
    ) -> Case:  # fmt: skip
        keys = (_cache_spec(blocks, key, dtype),) * layers
        values = (_cache_spec(blocks, value, dtype),) * layers
        mapping = spec((pairs, 2), torch.int64, fill="zeros")
        tier: Any = "full" if origin else "small"
        return Case(name, (keys, values, mapping), tier=tier, origin=origin)

    small = [
        case("float16", 2, 8, (2, 4, 4, 8), (2, 32, 4), 3, half),
        case("bfloat16", 1, 6, (3, 2, 4, 8), (3, 16, 4), 2, brain),
        case("float32", 3, 5, (1, 8, 2, 4), (1, 32, 2), 2, single),
        case("float8", 2, 8, (2, 2, 4, 16), (2, 32, 4), 3, byte),
        case("one-pair", 1, 4, (1, 2, 4, 8), (1, 16, 4), 1, half),
        case("no-pair", 1, 4, (1, 2, 4, 8), (1, 16, 4), 0, half),
        case("most-blocks", 1, 9, (1, 2, 4, 8), (1, 16, 4), 8, half),
        case("head-size-80", 1, 4, (2, 10, 4, 8), (2, 80, 4), 2, half),
    ]
    return (*small, *(case(*row) for row in _COPY_FULL))


@functools.cache
def _copy_mla_cases() -> Sequence[Case]:
    def case(
        name: str, layers: int, blocks: int, shape: tuple[int, int], pairs: int,
        dtype: torch.dtype, origin: str = "",
    ) -> Case:  # fmt: skip
        caches = (_cache_spec(blocks, shape, dtype),) * layers
        mapping = spec((pairs, 2), torch.int64, fill="zeros")
        tier: Any = "full" if origin else "small"
        return Case(name, (caches, mapping), tier=tier, origin=origin)

    deepseek = "DeepSeek V3: latent entries of 576"
    return (
        case("float16", 2, 8, (4, 80), 3, half),
        case("bfloat16", 1, 6, (2, 576), 2, brain),
        case("float32", 3, 5, (4, 33), 2, single),
        case("float8", 2, 8, (4, 80), 3, byte),
        case("one-pair", 1, 4, (4, 48), 1, half),
        case("no-pair", 1, 4, (4, 48), 0, half),
        case("most-blocks", 1, 9, (4, 48), 8, half),
        case("blocks-of-16", 1, 4, (16, 64), 2, brain),
        case("deepseek-v3", 8, 256, (64, 576), 96, brain, f"{deepseek}, 8 layers, blocks of 64"),
        case("deepseek-v3-61-layers", 61, 64, (64, 576), 12, brain, f"{deepseek}, all 61 layers"),
        case("deepseek-v3-float8", 8, 256, (64, 576), 128, byte, f"{deepseek}, 8-bit cache"),
        case("deepseek-v2-lite", 27, 256, (16, 576), 96, half, "DeepSeek V2 Lite, all 27 layers"),
        case("minicpm-3", 62, 256, (16, 288), 64, brain, "MiniCPM 3, all 62 layers"),
        case("deepseek-v3-float32", 4, 256, (64, 576), 96, single, f"{deepseek}, float32"),
    )


def _copy_prepare(call: Call, case: Case, generator: torch.Generator) -> None:
    _fill_pairs(call.args[-1], call.args[0][0].shape[0], generator)


def _copy_blocks(key_caches: Any, value_caches: Any, block_mapping: torch.Tensor) -> None:
    _copy_pairs([*key_caches, *value_caches], block_mapping)


def _copy_blocks_mla(kv_caches: Any, block_mapping: torch.Tensor) -> None:
    _copy_pairs(kv_caches, block_mapping)


def _exactly(tensors: Sequence[torch.Tensor]) -> list[Expected]:
    return [Expected(t, t.dtype) for t in tensors]


def _copy_oracle(*args: Any) -> list[Expected]:
    caches = [cache for group in args[:-1] for cache in group]
    _copy_pairs(caches, args[-1])
    return _exactly(caches)


def _copy_second(*args: Any) -> list[torch.Tensor]:
    caches = [cache for group in args[:-1] for cache in group]
    for cache in caches:
        for source, target in args[-1].tolist():
            cache[target] = cache[source].clone()
    return caches


def _copy_cost(case: Case) -> Cost:
    caches = [cache for group in case.args[:-1] for cache in group]
    pairs = case.args[-1].shape[0]
    moved = sum(pairs * cache.nbytes // cache.shape[0] for cache in caches)
    return Cost(flops=0, nbytes=2 * moved + case.args[-1].nbytes)


def _copy_mutant(variant: str) -> Any:
    def mutant(*args: Any) -> None:
        caches = [cache for group in args[:-1] for cache in group]
        mapping = args[-1]
        if variant == "backwards":
            mapping = mapping.flip(1)
        if variant == "first layer only":
            caches = caches[:1]
        if variant == "last pair forgotten":
            mapping = mapping[:-1]
        if variant == "exchanged instead of copied":
            for cache in caches:
                cache[mapping[:, 0]] = cache[mapping[:, 1]]
            return
        if variant == "last element of a block forgotten":
            for cache in caches:
                flat = cache.view(cache.shape[0], -1)[:, :-1]
                flat[mapping[:, 1]] = flat[mapping[:, 0]]
            return
        _copy_pairs(caches, mapping)

    return mutant


_COPY_MUTANTS = tuple(
    Mutant(name, _copy_mutant(name))
    for name in (
        "backwards",
        "first layer only",
        "last pair forgotten",
        "exchanged instead of copied",
        "last element of a block forgotten",
    )
)


@functools.cache
def _swap_cases() -> Sequence[Case]:
    def case(
        name: str, sources: int, blocks: int, shape: tuple[int, ...], pairs: int,
        dtype: torch.dtype, origin: str = "",
    ) -> Case:  # fmt: skip
        args = (
            _cache_spec(sources, shape, dtype),
            _cache_spec(blocks, shape, dtype),
            spec((pairs, 2), torch.int64, fill="zeros"),
        )
        return Case(name, args, tier="full" if origin else "small", origin=origin)

    llama, deepseek = "Llama 3 8B: 8 heads of 128", "DeepSeek V3: latent entries of 576"
    return (
        case("float16", 6, 8, (2, 4, 4, 8), 4, half),
        case("bfloat16", 8, 6, (4, 3, 16), 3, brain),
        case("float32", 5, 5, (33,), 2, single),
        case("float8", 6, 8, (4, 80), 4, byte),
        case("one-pair", 3, 4, (4, 16), 1, half),
        case("no-pair", 3, 4, (4, 16), 0, half),
        case("every-block", 7, 7, (4, 16), 7, half),
        case("odd-block", 5, 6, (3, 7), 4, half),
        case("llama-3-8b-keys", 2048, 2048, (8, 16, 16, 8), 1024, brain, f"{llama}, keys"),
        case("llama-3-8b-flash", 1024, 2048, (16, 8, 128), 1000, brain, f"{llama}, flash layout"),
        case("llama-3-8b-float8", 2048, 2048, (8, 8, 16, 16), 2048, byte, f"{llama}, 8-bit cache"),
        case("llama-2-7b", 512, 1024, (32, 128, 16), 400, half, "Llama 2 7B: 32 heads of 128"),
        case("deepseek-v3", 1024, 1024, (64, 576), 512, brain, f"{deepseek}, blocks of 64"),
        case("deepseek-v3-float32", 512, 512, (64, 576), 256, single, f"{deepseek}, float32"),
    )


def _swap_prepare(call: Call, case: Case, generator: torch.Generator) -> None:
    source, target, mapping = call.args
    _fill_pairs(mapping, target.shape[0], generator, sources=source.shape[0])


def _swap_blocks(src: torch.Tensor, dst: torch.Tensor, block_mapping: torch.Tensor) -> None:
    dst[block_mapping[:, 1]] = src[block_mapping[:, 0]]


def _swap_oracle(
    src: torch.Tensor, dst: torch.Tensor, block_mapping: torch.Tensor
) -> list[Expected]:
    _swap_blocks(src, dst, block_mapping)
    return _exactly([dst])


def _swap_second(
    src: torch.Tensor, dst: torch.Tensor, block_mapping: torch.Tensor
) -> list[torch.Tensor]:
    for source, target in block_mapping.tolist():
        dst[target] = src[source]
    return [dst]


def _swap_cost(case: Case) -> Cost:
    source, _, mapping = case.args
    moved = mapping.shape[0] * source.nbytes // source.shape[0]
    return Cost(flops=0, nbytes=2 * moved + mapping.nbytes)


def _swap_mutant(variant: str) -> Any:
    def mutant(src: torch.Tensor, dst: torch.Tensor, block_mapping: torch.Tensor) -> None:
        if variant == "mapping ignored":
            count = min(len(block_mapping), len(src), len(dst))
            dst[:count] = src[:count]
            return
        if variant == "columns exchanged":
            block_mapping = block_mapping.flip(1)
            block_mapping = block_mapping % min(len(src), len(dst))
        if variant == "last pair forgotten":
            block_mapping = block_mapping[:-1]
        if variant == "target read":
            dst[block_mapping[:, 1]] = dst[block_mapping[:, 0] % len(dst)]
            return
        _swap_blocks(src, dst, block_mapping)

    return mutant


_PAIRS = (
    "`block_mapping` is int64 [pairs, 2], on the device: (source block, target block). Targets are "
    "distinct"
)


OPERATORS = (
    Operator(
        id="vllm::copy_blocks",
        family="kv-cache",
        signatures=(
            "copy_blocks(key_caches: Tensor[]!, value_caches: Tensor[]!, block_mapping: Tensor) "
            "-> ()",
        ),
        description=(
            "Copies blocks within every layer's key cache and value cache, in place: for each pair "
            "and each cache, cache[target] = cache[source]. Caches are [blocks, ...], contiguous, "
            "one dtype (float16, bfloat16, float32, uint8); key and value blocks have equal "
            "numbers of elements. " + _PAIRS + " and are no pair's source."
        ),
        sources=("vLLM 0.13, vllm._custom_ops.copy_blocks", "csrc/cache_kernels.cu"),
        cases=_copy_cases,
        oracle=_copy_oracle,
        second=_copy_second,
        baseline=CustomOp("copy_blocks", _copy_blocks),
        baseline_name=NAME,
        cost=_copy_cost,
        tolerance=EXACT,
        mutants=_COPY_MUTANTS,
        prepare=_copy_prepare,
    ),
    Operator(
        id="vllm::copy_blocks_mla",
        family="kv-cache",
        signatures=("copy_blocks_mla(kv_caches: Tensor[]!, block_mapping: Tensor) -> ()",),
        description=(
            "Copies blocks within every layer's latent (MLA) cache, in place: for each pair and "
            "each cache, cache[target] = cache[source]. Caches are [blocks, block_size, entry], "
            "contiguous, one dtype (float16, bfloat16, float32, uint8). "
            + _PAIRS
            + " and are no pair's source."
        ),
        sources=("vLLM 0.13, vllm._custom_ops.copy_blocks_mla", "csrc/cache_kernels.cu"),
        cases=_copy_mla_cases,
        oracle=_copy_oracle,
        second=_copy_second,
        baseline=CustomOp("copy_blocks_mla", _copy_blocks_mla),
        baseline_name=NAME,
        cost=_copy_cost,
        tolerance=EXACT,
        mutants=_COPY_MUTANTS,
        prepare=_copy_prepare,
    ),
    Operator(
        id="vllm::swap_blocks",
        family="kv-cache",
        signatures=("swap_blocks(src: Tensor, dst: Tensor!, block_mapping: Tensor) -> ()",),
        description=(
            "Copies blocks from one cache to another (despite the name nothing is exchanged): for "
            "each pair dst[target] = src[source]. `src` and `dst` are contiguous, of one dtype, "
            "with blocks of one shape; their numbers of blocks may differ. " + _PAIRS + "."
        ),
        sources=("vLLM 0.13, vllm._custom_ops.swap_blocks", "csrc/cache_kernels.cu"),
        cases=_swap_cases,
        oracle=_swap_oracle,
        second=_swap_second,
        baseline=CustomOp("", _swap_blocks),
        baseline_name="torch.compile formulation",
        cost=_swap_cost,
        tolerance=EXACT,
        mutants=tuple(
            Mutant(name, _swap_mutant(name))
            for name in (
                "mapping ignored",
                "columns exchanged",
                "last pair forgotten",
                "target read",
            )
        ),
        prepare=_swap_prepare,
        note="vLLM takes the mapping on the host and issues one memory copy a block; here it is on "
        "the device, so the baseline is the formulation.",
    ),
)
