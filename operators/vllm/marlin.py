"""Marlin: products with weights in its layout, dense and 2:4 sparse; codes made ready for float8.

Packed words are drawn as random bits: every word is valid. Second statements take words apart
thread by thread, as a kernel would, without the tables of `packing`.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from kernelmark.operators.building import full, small, spec
from kernelmark.operators.draws import Call
from kernelmark.operators.records import Case, Cost, Expected, Mutant, Operator, TensorSpec
from kernelmark.operators.vllm.baselines import NAME, CustomOp
from kernelmark.operators.vllm.packing import (
    MARLIN_LAYOUT,
    marlin_24_dense,
    marlin_24_unpack,
    marlin_24_unpermute_scales,
    marlin_unpack,
    marlin_unpack_zeros,
    marlin_unpermute_scales,
)
from kernelmark.operators.vllm.parts import nbytes
from kernelmark.operators.vllm.weight_gemm import ROUNDING, TOLERANCE, product, summed_in

_HALF, _BRAIN, _WORD = torch.float16, torch.bfloat16, torch.int32
_U4, _U8 = "uint4b8", "uint8b128"
#: type of the weights: (bits, what is subtracted from a code; None: its zero point)
TYPES: dict[str, tuple[int, int | None]] = {
    "uint4": (4, None),
    "uint4b8": (4, 8),
    "uint8b128": (8, 128),
}


def _with_type(position: int) -> Callable[..., Any]:
    """Calls vLLM's function with its own object for the type named at `position`."""

    def adapt(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        types = importlib.import_module("vllm.scalar_type").scalar_types
        given = list(args)
        given[position] = getattr(types, args[position])
        return function(*given, **kwargs)

    return adapt


def _scale(kind: str, groups: int, n: int, dtype: torch.dtype) -> TensorSpec:
    low = 0.002 if TYPES[kind][0] == 4 else 0.0002
    return spec((groups, n), dtype, fill="uniform", low=low, high=10 * low)


# gptq_marlin_gemm


@functools.cache
def _gemm_cases() -> Sequence[Case]:
    def tensors(
        m: int, k: int, n: int, group: int, kind: str, dtype: torch.dtype, ordered: bool,
        bias: bool, into: bool, flags: tuple[bool, bool, bool],
    ) -> tuple[Any, ...]:  # fmt: skip
        bits, bias_of_codes = TYPES[kind]
        groups = k // group
        zeros = spec((groups, n * bits // 32), _WORD, fill="bits")
        rows = k if ordered else 0
        return (
            spec((m, k), dtype),
            spec((m, n), dtype, fill="zeros") if into else None,
            spec((k // 16, n * bits // 2), _WORD, fill="bits"),
            spec((n,), dtype) if bias else None,
            _scale(kind, groups, n, dtype),
            None,
            None,
            zeros if bias_of_codes is None else spec((0,), _WORD),
            spec((rows,), _WORD, fill="zeros"),  # `_prepare_gemm` makes groups of rows of it
            spec((rows,), _WORD, fill="permutation"),
            spec((1024,), _WORD, fill="zeros"),
            kind, m, n, k, *flags,
        )  # fmt: skip

    plain, reduced, ragged = (True, False, True), (True, True, False), (False, False, True)
    shapes: Sequence[tuple[Any, ...]] = (
        ("uint4b8", 9, 128, 128, 64, "uint4b8", _HALF, False, False, False, plain),
        ("uint4b8-bfloat16", 16, 256, 64, 128, "uint4b8", _BRAIN, False, False, False, plain),
        ("uint4b8-one-group", 7, 128, 64, 128, "uint4b8", _HALF, False, False, False, reduced),
        ("uint4b8-groups-of-32", 5, 128, 64, 32, "uint4b8", _HALF, False, False, False, plain),
        ("uint8b128", 12, 128, 64, 64, "uint8b128", _HALF, False, False, False, plain),
        ("uint8b128-one-group", 3, 128, 128, 128, "uint8b128", _BRAIN, False, True, False, plain),
        ("uint4-zero-points", 8, 128, 128, 64, "uint4", _HALF, False, False, False, plain),
        ("uint4-one-group", 8, 128, 64, 128, "uint4", _BRAIN, False, False, False, reduced),
        ("act-order", 9, 128, 64, 32, "uint4b8", _HALF, True, False, False, plain),
        ("act-order-8", 4, 128, 64, 64, "uint8b128", _BRAIN, True, False, False, plain),
        ("act-order-shard", 6, 256, 64, 64, "uint4b8", _HALF, True, False, False, ragged),
        ("bias", 10, 128, 64, 64, "uint4b8", _HALF, False, True, False, plain),
        ("into", 10, 128, 64, 64, "uint4b8", _HALF, False, True, True, plain),
        ("one-row", 1, 256, 64, 128, "uint4b8", _HALF, False, False, False, reduced),
        ("many-rows", 70, 128, 64, 128, "uint4", _HALF, False, True, False, plain),
        ("deep", 3, 1024, 64, 128, "uint4b8", _BRAIN, False, False, False, plain),
        ("no-rows", 0, 128, 64, 64, "uint4b8", _HALF, False, False, False, plain),
    )
    models: Sequence[tuple[Any, ...]] = (
        ("llama-3-8b-qkv", "Llama 3 8B qkv", 2048, 4096, 6144, _U4, _HALF, 0, 0),
        ("llama-3-8b-up", "Llama 3 8B gate and up", 16, 4096, 28672, _U4, _BRAIN, 0, 0),
        ("llama-3-8b-down-awq", "Llama 3 8B down, AWQ", 512, 14336, 4096, "uint4", _HALF, 0, 0),
        ("qwen2.5-7b-up-8", "Qwen2.5 7B gate and up", 64, 3584, 37888, _U8, _BRAIN, 0, 0),
        ("qwen2.5-7b-qkv-bias", "Qwen2.5 7B qkv", 4096, 3584, 4608, _U4, _HALF, 0, 1),
        ("qwen2.5-32b-order", "Qwen2.5 32B down, act-order", 128, 27648, 5120, _U4, _HALF, 1, 0),
        ("llama-3-70b-decode", "Llama 3 70B up", 1, 8192, 28672, _U4, _BRAIN, 0, 0),
        ("mixtral-awq", "Mixtral 8x7B expert up, AWQ", 256, 4096, 14336, "uint4", _BRAIN, 0, 0),
    )  # fmt: skip
    return (
        *(
            small(shape[0], *tensors(*shape[1:]), overload=int(shape[9]))
            for shape in shapes
        ),
        *(
            full(
                name, f"{origin}, {m} tokens",
                *tensors(m, k, n, 128, kind, dtype, bool(ordered), bool(bias), False, plain),
            )
            for name, origin, m, k, n, kind, dtype, ordered, bias in models
        ),
    )  # fmt: skip


def _prepare_gemm(call: Call, case: Case, generator: torch.Generator) -> None:
    """Groups of sorted rows: equal in number, or (a shard of K) as chance has them."""
    scales, index, k_full = call.args[4], call.args[8], call.args[15]
    if not index.numel():
        return
    if k_full:
        rows = torch.arange(len(index), device=index.device)
        index.copy_(rows // (len(index) // len(scales)))
    else:
        drawn = torch.randint(
            0, len(scales), (len(index),), generator=generator, device=index.device
        )
        index.copy_(drawn.sort().values)


def _gemm_weights(
    b_q_weight: torch.Tensor,
    b_scales: torch.Tensor,
    b_zeros: torch.Tensor,
    g_idx: torch.Tensor,
    kind: str,
    work: torch.dtype,
) -> torch.Tensor:
    """Weights [K, N] in the order of the packed rows."""
    bits, offset = TYPES[kind]
    codes = marlin_unpack(b_q_weight, bits)
    groups = len(b_scales)
    scales = marlin_unpermute_scales(b_scales, groups == 1).to(work)
    if g_idx.numel():
        group = g_idx.long()
    else:
        group = torch.arange(len(codes), device=codes.device) // (len(codes) // groups)
    zeros = marlin_unpack_zeros(b_zeros, bits)[group] if offset is None else offset
    return (codes - zeros).to(work) * scales[group]


def _gemm_oracle(
    a: torch.Tensor, c: torch.Tensor | None, b_q_weight: torch.Tensor,
    b_bias: torch.Tensor | None, b_scales: torch.Tensor, a_scales: torch.Tensor | None,
    global_scale: torch.Tensor | None, b_zeros: torch.Tensor, g_idx: torch.Tensor,
    perm: torch.Tensor, workspace: torch.Tensor, b_q_type: str, size_m: int, size_n: int,
    size_k: int, is_k_full: bool = True, use_atomic_add: bool = False,
    use_fp32_reduce: bool = False, is_zp_float: bool = False,
) -> list[Expected]:  # fmt: skip
    weights = _gemm_weights(b_q_weight, b_scales, b_zeros, g_idx, b_q_type, torch.float64)
    bias = None if b_bias is None else marlin_unpermute_scales(b_bias, True)
    return product(a[:, perm.long()] if perm.numel() else a, weights, bias)


def _codes_by_threads(words: np.ndarray, bits: int, k: int, n: int) -> np.ndarray:
    """Codes [K, N]: tile by tile, thread by thread, word by word."""
    flat = words.view(np.uint32).reshape(-1)
    order = (0, 2, 4, 6, 1, 3, 5, 7) if bits == 4 else (0, 2, 1, 3, 4, 6, 5, 7)
    per_word = 32 // bits
    codes = np.zeros((k, n), dtype=np.int64)
    at = 0
    for top in range(0, k, 16):
        for left in range(0, n, 64):
            for thread in range(32):
                for tile in range(4):
                    column = left + 16 * tile + thread // 4
                    row = top + thread % 4 * 2
                    places = [
                        (row + r, column + c) for c in (0, 8) for r in (0, 1, 8, 9)
                    ]  # fmt: skip
                    for i in range(8):
                        word = int(flat[at + i // per_word])
                        codes[places[order[i]]] = word >> i % per_word * bits & (1 << bits) - 1
                    at += 8 // per_word
    return codes


def _column_at(position: int, single: bool) -> int:
    """The column whose scale is stored at `position`."""
    if single:
        lane, j = divmod(position % 32, 8)
        return position // 32 * 32 + 2 * lane + j // 2 * 8 + j % 2
    return position // 64 * 64 + position % 64 // 8 + position % 8 * 8


def _gemm_second(
    a: torch.Tensor, c: torch.Tensor | None, b_q_weight: torch.Tensor,
    b_bias: torch.Tensor | None, b_scales: torch.Tensor, a_scales: torch.Tensor | None,
    global_scale: torch.Tensor | None, b_zeros: torch.Tensor, g_idx: torch.Tensor,
    perm: torch.Tensor, workspace: torch.Tensor, b_q_type: str, size_m: int, size_n: int,
    size_k: int, is_k_full: bool = True, use_atomic_add: bool = False,
    use_fp32_reduce: bool = False, is_zp_float: bool = False,
) -> list[np.ndarray]:  # fmt: skip
    bits, offset = TYPES[b_q_type]
    weights = _codes_by_threads(b_q_weight.numpy(), bits, size_k, size_n).astype(np.float64)
    groups = len(b_scales)
    scales, zeros = np.zeros((2, groups, size_n))
    stored = b_scales.double().numpy()
    for position in range(size_n):
        scales[:, _column_at(position, groups == 1)] = stored[:, position]
    if offset is None:
        words = b_zeros.numpy().view(np.uint32)
        for position in range(size_n):
            nibble = (0, 4, 1, 5, 2, 6, 3, 7)[position % 8]
            value = words[:, position // 8].astype(np.int64) >> 4 * nibble & 15
            zeros[:, _column_at(position, False)] = value
    else:
        zeros[:] = offset
    for row in range(size_k):
        group = int(g_idx[row]) if len(g_idx) else row * groups // size_k
        weights[row] = (weights[row] - zeros[group]) * scales[group]
    x = a.double().numpy()
    out = np.zeros((size_m, size_n))
    for row in range(size_k):
        source = int(perm[row]) if len(perm) else row
        out += np.outer(x[:, source], weights[row])
    if b_bias is not None:
        for position in range(size_n):
            out[:, _column_at(position, True)] += float(b_bias[position])
    return [out]


def _gemm(
    a: torch.Tensor, c: torch.Tensor | None, b_q_weight: torch.Tensor,
    b_bias: torch.Tensor | None, b_scales: torch.Tensor, a_scales: torch.Tensor | None,
    global_scale: torch.Tensor | None, b_zeros: torch.Tensor, g_idx: torch.Tensor,
    perm: torch.Tensor, workspace: torch.Tensor, b_q_type: str, size_m: int, size_n: int,
    size_k: int, is_k_full: bool = True, use_atomic_add: bool = False,
    use_fp32_reduce: bool = False, is_zp_float: bool = False,
) -> torch.Tensor:  # fmt: skip
    weights = _gemm_weights(b_q_weight, b_scales, b_zeros, g_idx, b_q_type, a.dtype)
    out = (a[:, perm.long()] if perm.numel() else a) @ weights
    if b_bias is not None:
        out = out + marlin_unpermute_scales(b_bias, True)
    return out if c is None else c.copy_(out)


def _gemm_mutant(variant: str) -> Callable[..., torch.Tensor]:
    def mutant(a: torch.Tensor, c: torch.Tensor | None, *args: Any) -> torch.Tensor:
        words, bias, scales, _, _, zeros, index, perm, _, kind = args[:10]
        offset = TYPES[kind][1]
        if variant == "bias dropped":
            bias = None
        if variant == "bias in the stored order" and bias is not None:
            bias = bias[_order(bias)]
        if variant == "scales in the stored order":
            single = len(scales) == 1
            order = marlin_unpermute_scales(torch.arange(scales.shape[1])[None], single)[0]
            scales = scales[:, order.argsort()]
        if variant == "scales of the first group":
            scales = scales[:1].expand_as(scales) if len(scales) > 1 else scales
        if variant == "activations in their own order":
            perm = perm[:0]
        if variant == "groups of equal size":
            index = index[:0]
        if variant == "zero points in the stored order" and offset is None:
            zeros = zeros.roll(1, -1)
        weights = _gemm_weights(words, scales, zeros, index, kind, torch.float32)
        if variant == "half of K":
            weights = weights.clone()
            weights[len(weights) // 2 :] = 0
        x = (a[:, perm.long()] if perm.numel() else a).float()
        out = x @ weights
        if variant == "sums in the dtype":
            out = summed_in(a.dtype, x, weights).float()
        if bias is not None:
            out = out + marlin_unpermute_scales(bias, True).float()
        result = out.to(a.dtype)
        return result if c is None else c.copy_(result)

    return mutant


def _order(bias: torch.Tensor) -> torch.Tensor:
    """Positions that undo `marlin_unpermute_scales` of a bias."""
    return marlin_unpermute_scales(torch.arange(len(bias)), True).argsort()


def _gemm_cost(case: Case) -> Cost:
    a, _, words, bias, scales, _, _, zeros, index, perm = case.args[:10]
    m, n, k = case.args[12:15]
    read = nbytes(a, words, scales, zeros, index, perm)
    read += 0 if bias is None else bias.nbytes
    return Cost(flops=2 * m * n * k, nbytes=read + m * n * a.dtype.itemsize)


# gptq_marlin_24_gemm


@functools.cache
def _sparse_cases() -> Sequence[Case]:
    def tensors(m: int, k: int, n: int, group: int, kind: str) -> tuple[Any, ...]:
        bits = TYPES[kind][0]
        return (
            spec((m, k), _HALF),
            spec((k // 32, n * bits // 2), _WORD, fill="bits"),
            spec((k // 32, 2 * n), torch.int16, fill="zeros"),  # drawn by `_prepare_sparse`
            _scale(kind, k // group, n, _HALF),
            spec((4096,), _WORD, fill="zeros"),
            kind, m, n, k,
        )  # fmt: skip

    shapes: Sequence[tuple[Any, ...]] = (
        ("uint4b8", 9, 256, 128, 128, "uint4b8"),
        ("uint4b8-one-group", 16, 256, 128, 256, "uint4b8"),
        ("uint8b128", 7, 256, 128, 128, "uint8b128"),
        ("uint8b128-one-group", 5, 128, 256, 128, "uint8b128"),
        ("one-row", 1, 256, 128, 128, "uint4b8"),
        ("many-rows", 65, 128, 128, 128, "uint4b8"),
        ("deep", 3, 1024, 128, 128, "uint4b8"),
        ("wide", 4, 128, 384, 128, "uint8b128"),
        ("no-rows", 0, 128, 128, 128, "uint4b8"),
    )
    models: Sequence[tuple[Any, ...]] = (
        ("llama-3-8b-qkv", "Llama 3 8B qkv", 2048, 4096, 6144, 128, "uint4b8"),
        ("llama-3-8b-up", "Llama 3 8B gate and up", 16, 4096, 28672, 128, "uint4b8"),
        ("llama-3-8b-down-8", "Llama 3 8B down", 512, 14336, 4096, 14336, "uint8b128"),
        ("llama-3-8b-out", "Llama 3 8B output", 4096, 4096, 4096, 4096, "uint4b8"),
        ("llama-3-70b-decode", "Llama 3 70B up", 1, 8192, 28672, 128, "uint4b8"),
        ("llama-3-70b-down", "Llama 3 70B down", 64, 28672, 8192, 128, "uint4b8"),
        ("mistral-up-8", "Mistral 7B up", 128, 4096, 14336, 128, "uint8b128"),
    )
    return (
        *(small(name, *tensors(*shape)) for name, *shape in shapes),
        *(
            full(name, f"{origin} pruned 2:4, {shape[0]} tokens", *tensors(*shape))
            for name, origin, *shape in models
        ),
    )


def _prepare_sparse(call: Call, case: Case, generator: torch.Generator) -> None:
    """Metadata of random pairs of places: 4 bits a pair, the first below the second."""
    meta = call.args[2]
    pairs = torch.tensor((0b0100, 0b1000, 0b1001, 0b1100, 0b1101, 0b1110), device=meta.device)
    choice = torch.randint(0, 6, (*meta.shape, 4), generator=generator, device=meta.device)
    value = (pairs[choice] << torch.arange(0, 16, 4, device=meta.device)).sum(-1)
    meta.copy_(torch.where(value >= 1 << 15, value - (1 << 16), value))


def _sparse_weights(
    words: torch.Tensor, meta: torch.Tensor, scales: torch.Tensor, kind: str, work: torch.dtype
) -> torch.Tensor:
    """Dense weights [K, N]."""
    bits, offset = TYPES[kind]
    assert offset is not None
    kept, places = marlin_24_unpack(words, meta, bits)
    dense = marlin_24_dense((kept - offset).to(work), places)
    plain = marlin_24_unpermute_scales(scales, len(scales) == 1).to(work)
    return dense * plain.repeat_interleave(len(dense) // len(plain), 0)


def _sparse_oracle(
    a: torch.Tensor, b_q_weight: torch.Tensor, b_meta: torch.Tensor, b_scales: torch.Tensor,
    workspace: torch.Tensor, b_q_type: str, size_m: int, size_n: int, size_k: int,
) -> list[Expected]:  # fmt: skip
    return product(a, _sparse_weights(b_q_weight, b_meta, b_scales, b_q_type, torch.float64))


def _sparse_second(
    a: torch.Tensor, b_q_weight: torch.Tensor, b_meta: torch.Tensor, b_scales: torch.Tensor,
    workspace: torch.Tensor, b_q_type: str, size_m: int, size_n: int, size_k: int,
) -> list[np.ndarray]:  # fmt: skip
    """Word by word; a metadata element at a time."""
    bits, offset = TYPES[b_q_type]
    words = b_q_weight.numpy().view(np.uint32).reshape(-1)
    per_word, half_k = 32 // bits, size_k // 2
    order = (0, 2, 4, 6, 1, 3, 5, 7) if bits == 4 else (0, 2, 1, 3, 4, 6, 5, 7)
    flat = np.zeros(half_k * size_n, dtype=np.int64)
    at = 0
    for base in range(0, half_k * size_n, 1024):
        for thread in range(32):
            column, quarter = thread // 4, thread % 4
            for tile in range(4):
                places = [
                    16 * (2 * quarter + r) + column // 2 * 256 + column % 2 * 8 + 4 * half + tile
                    for half in (0, 1)
                    for r in (0, 1, 8, 9)
                ]
                for i in range(8):
                    word = int(words[at + i // per_word])
                    code = word >> i % per_word * bits & (1 << bits) - 1
                    flat[base + places[order[i]]] = code
                at += 8 // per_word
    tiles = flat.reshape(half_k // 16, size_n // 16, 16, 16)
    meta = b_meta.numpy().view(np.uint16).reshape(-1)
    stored = b_scales.double().numpy()
    dense = np.zeros((size_k, size_n))
    for n in range(size_n):
        eight = (0, 2, 4, 6, 1, 3, 5, 7)[n % 8] if len(stored) > 1 else n % 8
        scale = stored[:, n // 8 * 8 + eight]
        for column in range(size_k // 16):
            element = int(meta[_meta_place(n, column, size_n)])
            for quad in range(4):
                for which in (0, 1):
                    row = 8 * column + 2 * quad + which
                    place = element >> (4 * quad + 2 * which) & 3
                    code = tiles[row // 16, n // 16, row % 16, n % 16]
                    k = 16 * column + 4 * quad + place
                    dense[k, n] = (code - offset) * scale[k * len(scale) // size_k]
    return [a.double().numpy() @ dense]


def _meta_place(n: int, column: int, size_n: int) -> int:
    row = n // 64 * 64 + n % 2 * 2 + n % 8 // 4 + n % 4 // 2 * 32 + n % 64 // 8 * 4
    if row % 2 == 0 and column % 2 == 1:
        row, column = row + 1, column - 1
    elif row % 2 == 1 and column % 2 == 0:
        row, column = row - 1, column + 1
    return column // 2 * 2 * size_n + 2 * row + column % 2


def _sparse_gemm(
    a: torch.Tensor, b_q_weight: torch.Tensor, b_meta: torch.Tensor, b_scales: torch.Tensor,
    workspace: torch.Tensor, b_q_type: str, size_m: int, size_n: int, size_k: int,
) -> torch.Tensor:  # fmt: skip
    return a @ _sparse_weights(b_q_weight, b_meta, b_scales, b_q_type, a.dtype)


def _sparse_mutant(variant: str) -> Callable[..., torch.Tensor]:
    def mutant(
        a: torch.Tensor, b_q_weight: torch.Tensor, b_meta: torch.Tensor, b_scales: torch.Tensor,
        workspace: torch.Tensor, b_q_type: str, size_m: int, size_n: int, size_k: int,
    ) -> torch.Tensor:  # fmt: skip
        if variant == "first and second place always":
            b_meta = torch.full_like(b_meta, 0x4444)
        if variant == "metadata in the stored order":
            b_meta = b_meta.view(-1, 4).flip(1).reshape(b_meta.shape)
        if variant == "scales in the stored order" and len(b_scales) > 1:
            b_scales = b_scales.view(-1, 4, 2).transpose(1, 2).reshape(b_scales.shape)
        if variant == "scales of the first group":
            b_scales = b_scales[:1].expand(len(b_scales), -1).contiguous()
        weights = _sparse_weights(b_q_weight, b_meta, b_scales, b_q_type, torch.float32)
        if variant == "half of K":
            weights[size_k // 2 :] = 0
        if variant == "codes not centred":
            shift = torch.where(weights == 0, 0.0, 1e-2)
            weights = weights + shift
        return (a.float() @ weights).to(a.dtype)

    return mutant


def _sparse_cost(case: Case) -> Cost:
    """Half of the products of the dense matrix are useful."""
    m, n, k = case.args[6:9]
    return Cost(flops=m * n * k, nbytes=nbytes(*case.args[:4]) + 2 * m * n)


_DESCRIPTION = (
    "Product of `a` [size_m, size_k] (float16 or bfloat16) with quantised weights in Marlin's "
    "layout: [size_m, size_n]. `b_q_type` names the weights' type: uint4b8 (codes less 8), "
    "uint8b128 (8 bits, codes less 128) or uint4 (codes less their zero point). `b_q_weight` is "
    "int32 [K / 16, N * bits / 2]. " + MARLIN_LAYOUT + "`b_scales` [groups, N] has its columns "
    "reordered: with more than one group, of each 64 columns position 8 i + j holds column "
    "i + 8 j; with one group, of each 32 position 8 i + j holds column 2 i + (0, 1, 8, 9, 16, 17, "
    "24, 25)[j]. `b_zeros` (uint4: int32 [groups, N / 8], else empty) holds zero points with "
    "columns reordered as for many groups, then in each word the nibbles from the low end are "
    "positions 0, 2, 4, 6, 1, 3, 5, 7. Row k belongs to group k // (K / groups), or, if `g_idx` "
    "(int32 [K], sorted) is not empty, g_idx[k]; then packed row k meets column perm[k] of `a`. "
    "`b_bias` [N] (reordered as the scales of one group) is added. "
    + ROUNDING
    + "`workspace` is scratch of int32 zeros and must be left as found. `is_k_full` False: rows "
    "are a shard, groups of any size. `use_atomic_add` and `use_fp32_reduce` are about how parts "
    "of K are added. `a_scales` and `global_scale` are None. With `c` the result is written there "
    "and returned. K is a multiple of 128, N of 64."
)


def _signature(c: str, result: str) -> str:
    return (
        f"gptq_marlin_gemm(a: Tensor, c: {c}, b_q_weight: Tensor, b_bias: Tensor?, "
        "b_scales: Tensor, a_scales: Tensor?, global_scale: Tensor?, b_zeros: Tensor, "
        "g_idx: Tensor, perm: Tensor, workspace: Tensor, b_q_type: str, size_m: int, size_n: int, "
        "size_k: int, is_k_full: bool=True, use_atomic_add: bool=False, "
        f"use_fp32_reduce: bool=False, is_zp_float: bool=False) -> {result}"
    )


OPERATORS = (
    Operator(
        id="vllm::gptq_marlin_gemm",
        family="gemm-quant",
        signatures=(_signature("Tensor?", "Tensor"), _signature("Tensor!", "Tensor!")),
        description=_DESCRIPTION,
        sources=(
            "vLLM 0.13, vllm._custom_ops.gptq_marlin_gemm",
            "csrc/quantization/gptq_marlin; quantization/utils/marlin_utils.py, "
            "marlin_utils_test.py",
        ),
        cases=_gemm_cases,
        oracle=_gemm_oracle,
        second=_gemm_second,
        baseline=CustomOp("gptq_marlin_gemm", _gemm, _with_type(11)),
        baseline_name=NAME,
        cost=_gemm_cost,
        tolerance=TOLERANCE,
        prepare=_prepare_gemm,
        mutants=tuple(
            Mutant(name, _gemm_mutant(name))
            for name in (
                "bias dropped",
                "bias in the stored order",
                "scales in the stored order",
                "scales of the first group",
                "activations in their own order",
                "groups of equal size",
                "zero points in the stored order",
                "half of K",
                "sums in the dtype",
            )
        ),
        note=(
            "In vLLM `b_q_type` is a ScalarType object; here its name. Activations of 8 bits and "
            "float weights, which the function also takes there, do not appear in cases."
        ),
    ),
    Operator(
        id="vllm::gptq_marlin_24_gemm",
        family="gemm-quant-sparse",
        signatures=(
            "gptq_marlin_24_gemm(a: Tensor, b_q_weight: Tensor, b_meta: Tensor, b_scales: Tensor, "
            "workspace: Tensor, b_q_type: str, size_m: int, size_n: int, size_k: int) -> Tensor",
        ),
        description=(
            "Product of `a` [size_m, size_k] (float16) with 2:4 sparse weights [K, N] of type "
            "`b_q_type` (uint4b8: codes less 8; uint8b128: 8 bits, codes less 128): two of every "
            "four neighbouring rows of a column are kept, the others are zero. Kept codes [K / 2, "
            "N] are cut into 16 x 16 tiles, tiles of a row of tiles one after the other; of each "
            "1024 codes in that order thread t = 0 to 31 in turn gets, for i = 0 to 3, v[4 h + s] "
            "= code 16 r(s) + 256 (c // 2) + 8 (c % 2) + 4 h + i with c = t // 4, h = 0, 1, r(s) = "
            "2 (t % 4) + (0, 1, 8, 9)[s]; 4 bits: a word with nibbles v0, v2, v4, v6, v1, v3, v5, "
            "v7; 8 bits: words with bytes v0, v2, v1, v3 and v4, v6, v5, v7. `b_q_weight` is int32 "
            "[K / 32, N * bits / 2]. `b_meta` is int16 [K / 32, 2 N]: element (n, j), for rows 16 "
            "j to 16 j + 15 of column n, has four bits for each four rows, low two the place of "
            "the first kept, high two of the second. It is stored flat: first n becomes 64 (n // "
            "64) + 2 (n % 2) + n % 8 // 4 + 32 (n % 4 // 2) + 4 (n % 64 // 8), then of each 2 x 2 "
            "block the top right and bottom left elements are exchanged, then (n, j) lies at 2 N "
            "(j // 2) + 2 n + j % 2. `b_scales` float16 [groups, N]: with more than one group, of "
            "each 8 columns position j holds column (0, 4, 1, 5, 2, 6, 3, 7)[j]; row k of the "
            "dense matrix belongs to group k // (K / groups). "
            + ROUNDING
            + "`workspace` is scratch of int32 zeros and must be left as found. K and N are "
            "multiples of 128."
        ),
        sources=(
            "vLLM 0.13, vllm._custom_ops.gptq_marlin_24_gemm",
            "csrc/quantization/marlin/sparse; tests' marlin_utils_test_24; CUTLASS, host_reorder.h",
        ),
        cases=_sparse_cases,
        oracle=_sparse_oracle,
        second=_sparse_second,
        baseline=CustomOp("gptq_marlin_24_gemm", _sparse_gemm, _with_type(5)),
        baseline_name=NAME,
        cost=_sparse_cost,
        tolerance=TOLERANCE,
        prepare=_prepare_sparse,
        mutants=tuple(
            Mutant(name, _sparse_mutant(name))
            for name in (
                "first and second place always",
                "metadata in the stored order",
                "scales in the stored order",
                "scales of the first group",
                "half of K",
                "codes not centred",
            )
        ),
        note="In vLLM `b_q_type` is a ScalarType object; here its name.",
    ),
)
