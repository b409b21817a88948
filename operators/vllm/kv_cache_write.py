"""Writing keys and values of new tokens into a paged cache.

A cache is cut into blocks of `block_size` token slots; slot s is place s % block_size of block
s // block_size. Slots of one call are distinct; a negative slot marks a padding token, which is
skipped. Oracle: indexed writes into a copy of the cache. Second statement: NumPy, token by token.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from kernelmark.operators.building import spec
from kernelmark.operators.draws import Call
from kernelmark.operators.records import EXACT, Case, Cost, Expected, Mutant, Operator, TensorSpec
from kernelmark.operators.vllm.baselines import NAME, CustomOp
from kernelmark.operators.vllm.formats import FLOAT8, expect_codes, to_float8
from kernelmark.operators.vllm.parts import distinct

#: index of a cache's (block, place) given as tensors, for each layout
_Index = Callable[[torch.Tensor, torch.Tensor], tuple[Any, ...]]


def stored(x: torch.Tensor, kv_cache_dtype: str, scale: torch.Tensor) -> torch.Tensor:
    """What the cache holds for `x`: itself, or the float8 codes of x / scale as bytes."""
    if kv_cache_dtype == "auto":
        return x
    return to_float8(x.double() / scale.double(), FLOAT8[kv_cache_dtype]).view(torch.uint8)


def stored_fast(x: torch.Tensor, kv_cache_dtype: str, scale: torch.Tensor) -> torch.Tensor:
    """`stored` in float32."""
    if kv_cache_dtype == "auto":
        return x
    return to_float8(x.float() / scale, FLOAT8[kv_cache_dtype]).view(torch.uint8)


def write_slots(
    cache: torch.Tensor, rows: torch.Tensor, slots: torch.Tensor, block_size: int, index: _Index
) -> None:
    """Writes rows[t] to slot slots[t] of `cache`, skipping negative slots, with no host wait.

    A skipped token repeats the write of the first token that is not skipped.
    """
    if slots.numel() == 0:
        return
    first = (slots >= 0).to(torch.int8).argmax()
    source = torch.where(slots >= 0, torch.arange(len(slots), device=slots.device), first)
    target = slots[source].clamp_min(0)
    where = index(target // block_size, target % block_size)
    rows = torch.where((slots >= 0).any(), rows[source], cache[where])
    cache[where] = rows


def _paged_key(block: torch.Tensor, place: torch.Tensor) -> tuple[Any, ...]:
    return block, slice(None), slice(None), place, slice(None)


def _paged_value(block: torch.Tensor, place: torch.Tensor) -> tuple[Any, ...]:
    return block, slice(None), slice(None), place


def index_flash(block: torch.Tensor, place: torch.Tensor) -> tuple[Any, ...]:
    return block, place


def expected_cache(cache: torch.Tensor, kv_cache_dtype: str) -> Expected:
    return Expected(cache, cache.dtype) if kv_cache_dtype == "auto" else expect_codes(cache)


def draw_slots(slot_mapping: torch.Tensor, slots: int, generator: torch.Generator) -> None:
    """Distinct slots in random order; every eighth token is padding."""
    count = slot_mapping.numel()
    slot_mapping.copy_(distinct(slots, (count,), generator, slot_mapping.device))
    slot_mapping[5::8] = -1


def draw_runs(
    slot_mapping: torch.Tensor, blocks: int, block_size: int, generator: torch.Generator
) -> None:
    """Slots of a prefill: blocks in random order, each filled in turn; the last 16 are padding."""
    count = slot_mapping.numel()
    block = distinct(blocks, (-(-count // block_size),), generator, slot_mapping.device)
    place = torch.arange(block_size, device=slot_mapping.device)
    slot_mapping.copy_((block.unsqueeze(1) * block_size + place).flatten()[:count])
    slot_mapping[-16:] = -1


# reshape_and_cache: keys in groups of x, values with the place last


def _paged_case(
    name: str,
    tokens: int,
    heads: int,
    head_size: int,
    blocks: int,
    block_size: int,
    dtype: torch.dtype = torch.float16,
    kv_cache_dtype: str = "auto",
    split: int = 0,
    padded: int = 0,
    offset: int = 0,
    tier: Any = "small",
    origin: str = "",
) -> Case:
    """`split`: token stride of key and value in elements; `padded`: key rows beyond the slots."""
    cache = dtype if kv_cache_dtype == "auto" else torch.uint8
    fill = "normal" if kv_cache_dtype == "auto" else "bits"
    x = 16 // cache.itemsize
    strides = (split, head_size, 1) if split else None
    new = spec((tokens + padded, heads, head_size), dtype, strides=strides, offset=offset)
    scale = spec((1,), fill="uniform", low=0.3, high=1.5)
    args = (
        new,
        new,
        spec((blocks, heads, head_size // x, block_size, x), cache, fill=fill),
        spec((blocks, heads, head_size, block_size), cache, fill=fill),
        spec((tokens,), torch.int64, fill="zeros"),
        kv_cache_dtype,
        scale,
        scale,
    )
    return Case(name, args, tier=tier, origin=origin)


def _flash_case(
    name: str,
    tokens: int,
    heads: int,
    head_size: int,
    blocks: int,
    block_size: int,
    dtype: torch.dtype = torch.float16,
    kv_cache_dtype: str = "auto",
    split: int = 0,
    padded: int = 0,
    offset: int = 0,
    tier: Any = "small",
    origin: str = "",
    interleaved: bool = False,
) -> Case:
    """`interleaved`: key and value caches are halves of one [blocks, 2, ...] allocation, so
    blocks are twice as far apart."""
    paged = _paged_case(
        name,
        tokens,
        heads,
        head_size,
        blocks,
        block_size,
        dtype,
        kv_cache_dtype,
        split,
        padded,
        offset,
        tier,
        origin,
    )
    old: TensorSpec = paged.args[2]
    shape = (blocks, block_size, heads, head_size)
    size = block_size * heads * head_size
    strides = (2 * size, heads * head_size, head_size, 1) if interleaved else None
    cache = spec(shape, old.dtype, fill=old.fill, strides=strides)
    args = (*paged.args[:2], cache, cache, *paged.args[4:])
    return Case(name, args, tier=tier, origin=origin)


def _cases(make: Callable[..., Case], **extra: bool) -> Sequence[Case]:
    half, brain, single = torch.float16, torch.bfloat16, torch.float32
    small = [
        make("float16", 9, 2, 32, 6, 4, half),
        make("bfloat16", 12, 3, 64, 4, 8, brain),
        make("float32", 7, 2, 16, 5, 4, single),
        make("float8", 10, 2, 32, 6, 4, half, "fp8"),
        make("float8-from-bfloat16", 8, 1, 64, 3, 8, brain, "fp8_e4m3"),
        make("float8-from-float32", 7, 2, 32, 5, 4, single, "fp8"),
        make("float8-e5m2", 10, 2, 32, 6, 4, half, "fp8_e5m2"),
        make("one-token", 1, 1, 32, 2, 16, half),
        make("no-tokens", 0, 2, 32, 2, 4, half),
        make("split-from-qkv", 9, 2, 32, 6, 4, half, split=256),
        make("more-keys-than-slots", 7, 2, 32, 6, 4, brain, padded=3),
        make("head-size-80", 6, 2, 80, 3, 16, half),
        make("misaligned", 6, 2, 32, 3, 8, half, offset=1),
        make("every-slot", 24, 1, 32, 3, 8, brain),
    ]
    full = [
        make(
            "llama-3-8b",
            16384,
            8,
            128,
            2048,
            16,
            brain,
            split=6144,
            tier="full",
            origin="Llama 3 8B: 8 key/value heads of 128, 16384 new tokens, blocks of 16",
        ),
        make(
            "llama-3-8b-float8",
            16384,
            8,
            128,
            2048,
            16,
            brain,
            "fp8",
            tier="full",
            origin="Llama 3 8B with an 8-bit cache",
        ),
        make(
            "llama-2-7b",
            8192,
            32,
            128,
            1024,
            16,
            half,
            tier="full",
            origin="Llama 2 7B: 32 heads of 128, 8192 new tokens",
        ),
        make(
            "opt-13b",
            8192,
            40,
            128,
            512,
            32,
            half,
            tier="full",
            origin="OPT 13B: 40 heads of 128, blocks of 32",
        ),
        make("phi-2", 8192, 32, 80, 1024, 16, half, tier="full", origin="Phi-2: 32 heads of 80"),
        make(
            "gpt-j-6b-float8",
            8192,
            16,
            256,
            1024,
            16,
            half,
            "fp8",
            tier="full",
            origin="GPT-J 6B: 16 heads of 256 with an 8-bit cache",
        ),
        make(
            "gemma-2-9b",
            16384,
            8,
            256,
            2048,
            16,
            brain,
            tier="full",
            origin="Gemma 2 9B: 8 key/value heads of 256",
        ),
    ]
    return (*small, *full)


@functools.cache
def _paged_cases() -> Sequence[Case]:
    return _cases(_paged_case)


@functools.cache
def _flash_cases() -> Sequence[Case]:
    more = _flash_case("interleaved-caches", 9, 2, 32, 6, 4, interleaved=True)
    return (more, *_cases(_flash_case))


def _prepare(call: Call, case: Case, generator: torch.Generator) -> None:
    key_cache, slot_mapping = call.args[2], call.args[4]
    block_size = key_cache.shape[3 if key_cache.dim() == 5 else 1]
    if case.tier == "small":
        draw_slots(slot_mapping, key_cache.shape[0] * block_size, generator)
    else:
        draw_runs(slot_mapping, key_cache.shape[0], block_size, generator)


def _grouped(key: torch.Tensor, x: int) -> torch.Tensor:
    """[tokens, heads, head_size] as [tokens, heads, head_size / x, x]."""
    return key.reshape(*key.shape[:2], key.shape[2] // x, x)


def _write_both(
    convert: Callable[..., torch.Tensor],
    key: torch.Tensor,
    value: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
    kv_cache_dtype: str,
    k_scale: torch.Tensor,
    v_scale: torch.Tensor,
) -> None:
    """The operator, for both layouts (told apart by the key cache's dimensions)."""
    count = slot_mapping.numel()
    keys = convert(key[:count], kv_cache_dtype, k_scale)
    values = convert(value[:count], kv_cache_dtype, v_scale)
    if key_cache.dim() == 5:
        block_size, x = key_cache.shape[3:]
        write_slots(key_cache, _grouped(keys, x), slot_mapping, block_size, _paged_key)
        write_slots(value_cache, values, slot_mapping, block_size, _paged_value)
    else:
        for cache, rows in ((key_cache, keys), (value_cache, values)):
            write_slots(cache, rows, slot_mapping, cache.shape[1], index_flash)


def _oracle(
    key: torch.Tensor,
    value: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
    kv_cache_dtype: str,
    k_scale: torch.Tensor,
    v_scale: torch.Tensor,
) -> list[Expected]:
    _write_both(
        stored, key, value, key_cache, value_cache, slot_mapping, kv_cache_dtype, k_scale, v_scale
    )
    return [expected_cache(key_cache, kv_cache_dtype), expected_cache(value_cache, kv_cache_dtype)]


def _second(
    key: torch.Tensor,
    value: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
    kv_cache_dtype: str,
    k_scale: torch.Tensor,
    v_scale: torch.Tensor,
) -> list[torch.Tensor]:
    """Element by element over tokens, by the layouts' index formulas."""
    paged = key_cache.dim() == 5
    block_size = key_cache.shape[3 if paged else 1]
    keys, values = (
        stored_fast(t, kv_cache_dtype, s) for t, s in ((key, k_scale), (value, v_scale))
    )
    for token, slot in enumerate(slot_mapping.tolist()):
        if slot < 0:
            continue
        block, place = divmod(slot, block_size)
        if not paged:
            key_cache[block, place] = keys[token]
            value_cache[block, place] = values[token]
            continue
        for d in range(key.shape[2]):
            group, rest = divmod(d, key_cache.shape[4])
            key_cache[block, :, group, place, rest] = keys[token, :, d]
            value_cache[block, :, d, place] = values[token, :, d]
    return [key_cache, value_cache]


def _reshape_and_cache(*args: Any) -> None:
    _write_both(stored_fast, *args)


def _cost(case: Case) -> Cost:
    key, _, key_cache, _, slots = case.args[:5]
    count = slots.shape[0] * key.shape[1] * key.shape[2]
    item = key.dtype.itemsize + key_cache.dtype.itemsize
    flops = 0 if case.args[5] == "auto" else 2 * count
    return Cost(flops=flops, nbytes=2 * count * item + slots.nbytes)


def _mutant(variant: str) -> Any:
    def mutant(
        key: torch.Tensor,
        value: torch.Tensor,
        key_cache: torch.Tensor,
        value_cache: torch.Tensor,
        slot_mapping: torch.Tensor,
        kv_cache_dtype: str,
        k_scale: torch.Tensor,
        v_scale: torch.Tensor,
    ) -> None:
        slots, convert = slot_mapping, stored_fast
        if variant == "padding written to the last slot":
            last = key_cache.shape[0] * key_cache.shape[3 if key_cache.dim() == 5 else 1] - 1
            slots = torch.where(slots < 0, last, slots)
        if variant == "slot moved by one":
            slots = torch.where(slots > 0, slots - 1, slots)
        if variant == "scale dropped":
            k_scale = v_scale = torch.ones_like(k_scale)
        if variant == "multiplied by the scale":
            k_scale, v_scale = 1 / k_scale, 1 / v_scale
        if variant == "scales exchanged":
            k_scale, v_scale = v_scale, k_scale
        if variant == "rounded towards zero":
            convert = stored_truncated
        if variant == "value cache left":
            value_cache = value_cache.clone()
        if variant == "cache cleared first":
            key_cache.zero_()
            value_cache.zero_()
        _write_both(
            convert, key, value, key_cache, value_cache, slots, kv_cache_dtype, k_scale, v_scale
        )

    return mutant


def stored_truncated(x: torch.Tensor, kv_cache_dtype: str, scale: torch.Tensor) -> torch.Tensor:
    if kv_cache_dtype == "auto":
        return x
    wanted = x.float() / scale
    codes = to_float8(wanted, FLOAT8[kv_cache_dtype])
    above = codes.float().abs() > wanted.abs()
    return codes.view(torch.uint8) - above.to(torch.uint8)


_MUTANTS = tuple(
    Mutant(name, _mutant(name))
    for name in (
        "padding written to the last slot",
        "slot moved by one",
        "scale dropped",
        "multiplied by the scale",
        "scales exchanged",
        "rounded towards zero",
        "value cache left",
        "cache cleared first",
    )
)
_COMMON = (
    "`key` and `value` are [tokens, heads, head_size], float16, bfloat16 or float32; the last two "
    "dimensions are contiguous, tokens may be strided (slices of a fused projection), and there "
    "may be more rows than slots: the count is that of `slot_mapping` (int64). Slot s is place "
    "s % block_size of block s // block_size; slots are distinct; a negative one marks a padding "
    "token and is skipped. Everything else in the caches stays as it was. With kv_cache_dtype "
    "'auto' the caches have the dtype of `key` and the scales are ignored. With 'fp8' or "
    "'fp8_e4m3' (float8_e4m3fn) or 'fp8_e5m2' the caches are uint8 and hold the float8 code of "
    "x / k_scale (x / v_scale for values; float32 tensors of one element), rounded to nearest "
    "even, saturated to the largest finite value, the sign of zero kept. "
)

OPERATORS = (
    Operator(
        id="vllm::reshape_and_cache",
        family="kv-cache",
        signatures=(
            "reshape_and_cache(key: Tensor, value: Tensor, key_cache: Tensor!, "
            "value_cache: Tensor!, slot_mapping: Tensor, kv_cache_dtype: str, k_scale: Tensor, "
            "v_scale: Tensor) -> ()",
        ),
        description=(
            "Writes the keys and values of new tokens into a paged cache in the layout of vLLM's "
            "paged attention. " + _COMMON + "`key_cache` is [blocks, heads, head_size / x, "
            "block_size, x] with x = 16 / itemsize of the cache: element d of a key lies at "
            "[block, head, d // x, place, d % x]. `value_cache` is [blocks, heads, head_size, "
            "block_size]: element d of a value lies at [block, head, d, place]. Both caches are "
            "contiguous."
        ),
        sources=("vLLM 0.13, vllm._custom_ops.reshape_and_cache", "csrc/cache_kernels.cu"),
        cases=_paged_cases,
        oracle=_oracle,
        second=_second,
        baseline=CustomOp("reshape_and_cache", _reshape_and_cache),
        baseline_name=NAME,
        cost=_cost,
        tolerance=EXACT,
        mutants=_MUTANTS,
        prepare=_prepare,
    ),
    Operator(
        id="vllm::reshape_and_cache_flash",
        family="kv-cache",
        signatures=(
            "reshape_and_cache_flash(key: Tensor, value: Tensor, key_cache: Tensor!, "
            "value_cache: Tensor!, slot_mapping: Tensor, kv_cache_dtype: str, k_scale: Tensor, "
            "v_scale: Tensor) -> ()",
        ),
        description=(
            "Writes the keys and values of new tokens into a paged cache in the layout of "
            "FlashAttention. " + _COMMON + "`key_cache` and `value_cache` are [blocks, "
            "block_size, heads, head_size]; a token's heads are contiguous, and blocks may be "
            "strided (both caches halves of one allocation), alike in both."
        ),
        sources=("vLLM 0.13, vllm._custom_ops.reshape_and_cache_flash", "csrc/cache_kernels.cu"),
        cases=_flash_cases,
        oracle=_oracle,
        second=_second,
        baseline=CustomOp("reshape_and_cache_flash", _reshape_and_cache),
        baseline_name=NAME,
        cost=_cost,
        tolerance=EXACT,
        mutants=_MUTANTS,
        prepare=_prepare,
    ),
)
