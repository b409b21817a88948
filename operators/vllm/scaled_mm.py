"""Products of 8-bit matrices with scales: symmetric, and with zero points of the activations.

int8 products are exact in int32, so the tolerance is that of a few float32 operations. float8
products are exact too, but NVIDIA's Hopper tensor cores add them with about 14 bits of significand
and truncate; the bound leaves room for that, growing with K.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from kernelmark.operators.building import dtype_name, spec
from kernelmark.operators.draws import Call
from kernelmark.operators.records import (
    Case,
    Cost,
    Expected,
    Mutant,
    Operator,
    TensorSpec,
    Tolerance,
)
from kernelmark.operators.vllm.baselines import NAME, CustomOp

_I8, _E4M3, _HALF, _BRAIN = torch.int8, torch.float8_e4m3fn, torch.float16, torch.bfloat16
_BLOCK = 128

_TOLERANCE = Tolerance(
    limit=1.5,
    accumulator=torch.float32,
    why="rounding to the 16-bit dtype costs 0.5, the float32 epilogue (conversion, two scales, "
    "zero point, bias) up to 4 eps of S; truncating float8 sums is in S: K / 32 steps of 2^-13 of "
    "the sum's size, or two for each step of a block, whose sums are truncated on their own",
)


def _spread(scale: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """A scale of any allowed shape, repeated over `shape`: one, per row or column, or per block."""
    if scale.numel() == 1:
        return scale.reshape(1, 1)
    for dim, size in enumerate(shape):
        if scale.shape[dim] not in (1, size):
            times = -(-size // scale.shape[dim])
            scale = scale.repeat_interleave(times, dim).narrow(dim, 0, size)
    return scale


def _blockwise(scale_a: torch.Tensor, a: torch.Tensor) -> bool:
    return scale_a.dim() == 2 and scale_a.shape[1] > 1


def _by_outer(scale_a: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
    """scale_a with a column for rows: [1, 1] or [M, 1]."""
    return scale_a.reshape(-1, 1)


def _sums(
    a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(scaled product in float64, sum of absolute terms, root of the sum of squared terms)."""
    if _blockwise(scale_a, a):
        left = a.double() * _spread(scale_a.double(), tuple(a.shape))
        right = b.double() * _spread(scale_b.double(), tuple(b.shape))
        factor = torch.ones((), dtype=torch.float64, device=a.device)
    else:
        left, right = a.double(), b.double()
        factor = _by_outer(scale_a.double(), a) * scale_b.double().reshape(1, -1)
    squares = (left.float().square() @ right.float().square()).double().sqrt()
    return (left @ right) * factor, factor.abs(), squares * factor.abs()


def _truncation(a: torch.Tensor, blockwise: bool) -> float:
    """Allowance for float8 sums, in float32 eps of their size.

    Errors of blocks have either sign and add up like their sums do, to a size whose largest of 1e7
    elements was seen at 7 times 2^-13 on an H200 (K = 2048): twice a block's steps.
    """
    if a.dtype == torch.int8:
        return 0.0
    steps = (2 * _BLOCK if blockwise else a.shape[1]) / 32
    return max(steps, 1.0) * 2.0**-13 / torch.finfo(torch.float32).eps


def _oracle(
    a: torch.Tensor,
    b: torch.Tensor,
    scale_a: torch.Tensor,
    scale_b: torch.Tensor,
    out_dtype: torch.dtype,
    bias: torch.Tensor | None = None,
) -> list[Expected]:
    value, _, root = _sums(a.reshape(-1, a.shape[-1]), b, scale_a, scale_b)
    size = value.abs() + root
    scale = 4 * size + _truncation(a, _blockwise(scale_a, a)) * size
    if bias is not None:
        scale = scale + bias.double().abs()
        value = value + bias.double()
    shape = (*a.shape[:-1], b.shape[1])
    return [Expected(value.view(shape), out_dtype, scale.view(shape))]


def _second(
    a: torch.Tensor,
    b: torch.Tensor,
    scale_a: torch.Tensor,
    scale_b: torch.Tensor,
    out_dtype: torch.dtype,
    bias: torch.Tensor | None = None,
) -> list[np.ndarray]:
    """Scales written out for every element of the operands, one product, in NumPy."""
    left = a.reshape(-1, a.shape[-1]).double().numpy()
    right = b.double().numpy()
    sa, sb = scale_a.double().numpy(), scale_b.double().numpy()
    if _blockwise(scale_a, a):
        rows, inner = np.indices(left.shape)
        left = left * sa[rows, inner // _BLOCK]
        inner, columns = np.indices(right.shape)
        right = right * sb[inner // _BLOCK, columns // _BLOCK]
    else:
        left = left * np.broadcast_to(sa.reshape(-1, 1), (left.shape[0], 1))
        right = right * np.broadcast_to(sb.reshape(1, -1), (1, right.shape[1]))
    total = np.einsum("mk,kn->mn", left, right)
    if bias is not None:
        total = total + bias.double().numpy()
    return [total.reshape(*a.shape[:-1], b.shape[1])]


def _raw(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The unscaled product in float32, by a device's own 8-bit products where it has them."""
    m, k = a.shape
    fits = a.device.type == "cuda" and k % 16 == 0 and b.shape[1] % 16 == 0 and m > 0
    if a.dtype != torch.int8:
        if not fits:
            return a.float() @ b.float()
        one = torch.ones((), device=a.device)
        return torch._scaled_mm(a, b, one, one, out_dtype=torch.float32)
    if fits and m > 16:
        return torch._int_mm(a, b).float()
    return (a.double() @ b.double()).float()


def _raw_by_blocks(
    a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor
) -> torch.Tensor:
    """The product with block scales, 128 rows of K at a time."""
    total = torch.zeros(a.shape[0], b.shape[1], device=a.device)
    columns = _spread(scale_b, (scale_b.shape[0], b.shape[1]))
    for i in range(scale_a.shape[1]):
        part = slice(i * _BLOCK, min((i + 1) * _BLOCK, a.shape[1]))
        total = total + _raw(a[:, part], b[part]) * scale_a[:, i : i + 1] * columns[i : i + 1]
    return total


def _scaled_mm(
    a: torch.Tensor,
    b: torch.Tensor,
    scale_a: torch.Tensor,
    scale_b: torch.Tensor,
    out_dtype: torch.dtype,
    bias: torch.Tensor | None = None,
) -> torch.Tensor:
    flat = a.reshape(-1, a.shape[-1])
    if _blockwise(scale_a, a):
        out = _raw_by_blocks(flat, b, scale_a, scale_b)
    else:
        out = _raw(flat, b) * scale_b.reshape(1, -1) * _by_outer(scale_a, flat)
    if bias is not None:
        out = out + bias.float()
    return out.to(out_dtype).view(*a.shape[:-1], b.shape[1])


def _mutant(variant: str) -> Callable[..., torch.Tensor]:
    def mutant(
        a: torch.Tensor,
        b: torch.Tensor,
        scale_a: torch.Tensor,
        scale_b: torch.Tensor,
        out_dtype: torch.dtype,
        bias: torch.Tensor | None = None,
    ) -> torch.Tensor:
        if variant == "scale_a of the first row":
            scale_a = scale_a.reshape(-1)[:1]
            scale_b = scale_b.reshape(-1)[:1] if scale_b.dim() == 2 else scale_b
        if variant == "scale_b of the first column":
            scale_b = scale_b[..., :1].expand_as(scale_b)
        if variant == "bias dropped":
            bias = None
        if variant == "bias scaled" and bias is not None:
            bias = bias * scale_b.reshape(-1)[0].to(bias.dtype)
        if variant == "half of K":
            half = a.shape[-1] // 2
            if not _blockwise(scale_a, a):
                a, b = a[..., :half], b[:half]
        if variant == "product rounded to the dtype" and not _blockwise(scale_a, a):
            raw = _raw(a.reshape(-1, a.shape[-1]), b) / 256
            out = raw.to(out_dtype).float() * 256 * scale_b.reshape(1, -1) * _by_outer(scale_a, a)
            out = out if bias is None else out + bias
            return out.to(out_dtype).view(*a.shape[:-1], b.shape[1])
        return _scaled_mm(a, b, scale_a, scale_b, out_dtype, bias)

    return mutant


def _operands(
    dtype: torch.dtype, m: tuple[int, ...], k: int, n: int
) -> tuple[TensorSpec, TensorSpec]:
    """a [..., K] row-major and b [K, N] column-major."""
    if dtype == torch.int8:
        fill: dict[str, Any] = {"fill": "integers", "low": -128, "high": 128}
    else:
        fill = {"fill": "uniform", "low": -4.0, "high": 4.0}
    return spec((*m, k), dtype, **fill), spec((k, n), dtype, strides=(1, k), **fill)


def _scale(*shape: int, strides: tuple[int, ...] | None = None) -> TensorSpec:
    return spec(shape, fill="uniform", low=0.001, high=0.02, strides=strides)


@functools.cache
def _mm_cases() -> Sequence[Case]:
    def case(
        name: str, dtype: torch.dtype, m: tuple[int, ...], k: int, n: int, out: torch.dtype,
        rows: bool = False, columns: bool = False, bias: bool = False, blocks: bool = False,
        origin: str = "",
    ) -> Case:  # fmt: skip
        flat = int(np.prod(m))
        a, b = _operands(dtype, m, k, n)
        sa = _scale(flat, 1) if rows else _scale(1)
        sb = _scale(1, n) if columns else _scale(1)
        if blocks:
            sa = _scale(flat, -(-k // _BLOCK), strides=(1, flat))
            sb = _scale(-(-k // _BLOCK), -(-n // _BLOCK), strides=(1, -(-k // _BLOCK)))
        more = {"bias": spec((n,), out)} if bias else {}
        tier: Any = "full" if origin else "small"
        args = (a, b, sa, sb, out)
        return Case(name, args, more, tier=tier, origin=origin, draws=("base", "base", "small"))

    small = [
        case(f"{dtype_name(d)}-{kind}-{dtype_name(o)}", d, (33,), 96, 80, o, r, c, bias)
        for d, o in ((_I8, _HALF), (_I8, _BRAIN), (_E4M3, _BRAIN), (_E4M3, _HALF))
        for kind, r, c, bias in (("one-scale", False, False, False), ("rows", True, True, True))
    ]
    small += [
        case("int8-row-scales", _I8, (16,), 64, 48, _BRAIN, rows=True),
        case("int8-column-scales-bias", _I8, (16,), 64, 48, _HALF, columns=True, bias=True),
        case("int8-deep", _I8, (5,), 2048, 32, _HALF, rows=True, columns=True),
        case("float8-deep", _E4M3, (5,), 1024, 32, _BRAIN, rows=True, columns=True),
        case("three-dimensions", _I8, (2, 9), 64, 32, _BRAIN, rows=True, columns=True),
        case("odd-sizes", _I8, (7,), 50, 37, _HALF, rows=True, columns=True),
        case("one-row", _E4M3, (1,), 128, 64, _BRAIN, rows=True, columns=True, bias=True),
        case("blocks", _E4M3, (24,), 256, 256, _BRAIN, blocks=True),
        case("blocks-float16", _E4M3, (5,), 384, 128, _HALF, blocks=True),
        case("no-rows", _I8, (0,), 64, 32, _HALF, rows=True, columns=True),
    ]
    models = (
        ("llama-3-8b-up-int8", _I8, 4096, 4096, 28672, _BRAIN, "Llama 3 8B gate and up"),
        ("llama-3-8b-down-int8", _I8, 2048, 14336, 4096, _HALF, "Llama 3 8B down"),
        ("llama-3-70b-up-float8", _E4M3, 2048, 8192, 28672, _BRAIN, "Llama 3 70B up, FP8"),
        ("qwen2.5-7b-decode-int8", _I8, 64, 3584, 37888, _BRAIN, "Qwen2.5 7B gate and up"),
        ("llama-3-70b-decode-float8", _E4M3, 32, 8192, 57344, _BRAIN, "Llama 3 70B, FP8"),
        ("qwen2.5-32b-qkv-float8", _E4M3, 4096, 5120, 7168, _HALF, "Qwen2.5 32B qkv, FP8"),
    )
    full = [
        case(
            name, d, (m,), k, n, out, rows=True, columns=True, bias="qwen" in name,
            origin=f"{origin}, {m} tokens",
        )
        for name, d, m, k, n, out, origin in models
    ]  # fmt: skip
    full += [
        case(
            f"deepseek-v3-{name}", _E4M3, (m,), k, n, _BRAIN, blocks=True,
            origin=f"DeepSeek V3 {name} projection with 128 x 128 blocks, {m} tokens",
        )
        for name, m, k, n in (("kv", 4096, 7168, 4096), ("down", 1024, 2048, 7168))
    ]  # fmt: skip
    return (*small, *full)


def _cost(case: Case) -> Cost:
    a, b = case.args[0], case.args[1]
    m, n = a.numel // a.shape[-1], b.shape[1]
    return Cost(
        flops=2 * m * n * a.shape[-1],
        nbytes=sum(t.nbytes for t in case.tensors) + 2 * m * n,
    )


# cutlass_scaled_mm_azp


def _azp_value(
    work: torch.dtype,
    a: torch.Tensor,
    b: torch.Tensor,
    azp_adj: torch.Tensor,
    azp: torch.Tensor | None,
) -> torch.Tensor:
    """The integer product less the zero point's share, in `work`."""
    raw = a.to(work) @ b.to(work)
    share = azp_adj.to(work).reshape(1, -1)
    return raw - (share if azp is None else azp.to(work).reshape(-1, 1) * share)


def _azp_oracle(
    a: torch.Tensor,
    b: torch.Tensor,
    scale_a: torch.Tensor,
    scale_b: torch.Tensor,
    out_dtype: torch.dtype,
    azp_adj: torch.Tensor,
    azp: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
) -> list[Expected]:
    flat = a.reshape(-1, a.shape[-1])
    factor = _by_outer(scale_a.double(), flat) * scale_b.double().reshape(1, -1)
    value = _azp_value(torch.float64, flat, b, azp_adj, azp) * factor
    scale = 4 * value.abs()
    if bias is not None:
        scale, value = scale + bias.double().abs(), value + bias.double()
    shape = (*a.shape[:-1], b.shape[1])
    return [Expected(value.view(shape), out_dtype, scale.view(shape))]


def _azp_second(
    a: torch.Tensor,
    b: torch.Tensor,
    scale_a: torch.Tensor,
    scale_b: torch.Tensor,
    out_dtype: torch.dtype,
    azp_adj: torch.Tensor,
    azp: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
) -> list[np.ndarray]:
    """In 64-bit integers."""
    left = a.reshape(-1, a.shape[-1]).numpy().astype(np.int64)
    exact = left @ b.numpy().astype(np.int64)
    adjust = azp_adj.numpy().astype(np.int64).reshape(1, -1)
    exact -= adjust if azp is None else np.outer(azp.numpy().astype(np.int64), adjust[0])
    total = exact * scale_a.double().numpy().reshape(-1, 1) * scale_b.double().numpy().reshape(-1)
    if bias is not None:
        total += bias.double().numpy()
    return [total.reshape(*a.shape[:-1], b.shape[1])]


def _scaled_mm_azp(
    a: torch.Tensor,
    b: torch.Tensor,
    scale_a: torch.Tensor,
    scale_b: torch.Tensor,
    out_dtype: torch.dtype,
    azp_adj: torch.Tensor,
    azp: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
) -> torch.Tensor:
    flat = a.reshape(-1, a.shape[-1])
    if a.device.type == "cuda" and flat.shape[0] > 16:
        share = azp_adj.reshape(1, -1)
        share = share if azp is None else azp.reshape(-1, 1) * share
        exact = (torch._int_mm(flat, b) - share).float()
    else:
        exact = _azp_value(torch.float64, flat, b, azp_adj, azp).float()
    out = exact * scale_b.reshape(1, -1) * _by_outer(scale_a, flat)
    if bias is not None:
        out = out + bias.float()
    return out.to(out_dtype).view(*a.shape[:-1], b.shape[1])


def _azp_mutant(variant: str) -> Callable[..., torch.Tensor]:
    def mutant(
        a: torch.Tensor,
        b: torch.Tensor,
        scale_a: torch.Tensor,
        scale_b: torch.Tensor,
        out_dtype: torch.dtype,
        azp_adj: torch.Tensor,
        azp: torch.Tensor | None = None,
        bias: torch.Tensor | None = None,
    ) -> torch.Tensor:
        if variant == "zero point ignored":
            azp_adj = torch.zeros_like(azp_adj)
        if variant == "zero point added":
            azp_adj = -azp_adj
        if variant == "azp of the first row" and azp is not None:
            azp = azp[:1].expand_as(azp)
        if variant == "azp taken as one" and azp is not None:
            azp = None
        if variant == "bias dropped":
            bias = None
        if variant == "product in 16 bits":
            raw = (a.double() @ b.double()).float()
            share = azp_adj.float() if azp is None else azp.view(-1, 1).float() * azp_adj.float()
            out = (raw.bfloat16().float() - share) * scale_b.view(1, -1) * _by_outer(scale_a, a)
            return (out if bias is None else out + bias).to(out_dtype)
        if variant == "scale_b of the first column":
            scale_b = scale_b[..., :1].expand_as(scale_b)
        return _scaled_mm_azp(a, b, scale_a, scale_b, out_dtype, azp_adj, azp, bias)

    return mutant


def _prepare_azp(call: Call, case: Case, generator: torch.Generator) -> None:
    """azp_adj: column sums of b, times the zero point where that is one for all rows."""
    b, adjust, azp = call.args[1], call.args[5], call.args[6]
    sums = b.float().sum(0).reshape(adjust.shape)
    if azp is None:
        sums = sums * adjust.reshape(-1)[0].item() if adjust.numel() else sums
    adjust.copy_(sums)


@functools.cache
def _azp_cases() -> Sequence[Case]:
    def case(
        name: str, m: int, k: int, n: int, out: torch.dtype, rows: bool, bias: bool,
        columns: bool = True, origin: str = "",
    ) -> Case:  # fmt: skip
        a, b = _operands(torch.int8, (m,), k, n)
        integer: dict[str, Any] = {"fill": "integers", "low": -100, "high": 100}
        # Drawn as the zero point of all rows; `_prepare_azp` makes column sums of it.
        adjust = spec((1, n), torch.int32, **integer)
        azp = spec((m, 1), torch.int32, **integer) if rows else None
        args = (
            a, b, _scale(m, 1) if rows else _scale(1), _scale(1, n) if columns else _scale(1), out,
            adjust, azp, spec((n,), out) if bias else None,
        )  # fmt: skip
        tier: Any = "full" if origin else "small"
        return Case(name, args, tier=tier, origin=origin, draws=("base", "base", "small"))

    small = [
        case(
            f"{'rows' if rows else 'tensor'}{'-bias' if bias else ''}-{dtype_name(out)}",
            33, 96, 80, out, rows, bias,
        )
        for out in (_HALF, _BRAIN)
        for rows in (False, True)
        for bias in (False, True)
    ]  # fmt: skip
    small += [
        case("deep", 5, 2048, 32, _HALF, True, False),
        case("one-row", 1, 64, 48, _BRAIN, True, True),
        case("one-scale", 9, 64, 16, _HALF, False, True, columns=False),
        case("many-rows", 100, 32, 32, _BRAIN, True, False),
        case("no-rows", 0, 64, 32, _HALF, True, True),
    ]
    models = (
        ("llama-3-8b-up", 4096, 4096, 28672, _BRAIN, True, False, "Llama 3 8B gate and up"),
        ("llama-3-8b-down", 2048, 14336, 4096, _HALF, True, False, "Llama 3 8B down"),
        ("qwen2.5-7b-qkv", 8192, 3584, 4608, _BRAIN, True, True, "Qwen2.5 7B qkv"),
        ("qwen2.5-7b-decode", 64, 3584, 37888, _BRAIN, True, False, "Qwen2.5 7B gate and up"),
        ("llama-3-70b-static", 1024, 8192, 28672, _HALF, False, False, "Llama 3 70B up, static"),
        ("mixtral-static", 512, 4096, 14336, _BRAIN, False, True, "Mixtral 8x7B expert up"),
    )
    full = [
        case(name, m, k, n, out, rows, bias, origin=f"{origin}, {m} tokens")
        for name, m, k, n, out, rows, bias, origin in models
    ]
    return (*small, *full)


_EPILOGUE = (
    "`scale_a` (float32) is one scale or one a row ([M, 1]), `scale_b` one or one a column ([1, "
    "N]). `bias` is [N] of `out_dtype`, which is float16 or bfloat16. `a` is row-major; its "
    "leading dimensions are rows. `b` is column-major (strides (1, K)). M = 0 gives an empty "
    "tensor."
)

OPERATORS = (
    Operator(
        id="vllm::cutlass_scaled_mm",
        family="gemm-quant",
        signatures=(
            "cutlass_scaled_mm(a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, "
            "out_dtype: ScalarType, bias: Tensor?=None) -> Tensor",
        ),
        description=(
            "(scale_a * a) @ (scale_b * b) + bias, rounded once to `out_dtype`: [..., N] for `a` "
            "[..., K] and `b` [K, N], both int8 or both float8_e4m3fn. int8 products are summed "
            "exactly (int32), float8 products in float32; scales and bias are applied in float32. "
            + _EPILOGUE
            + " float8 operands may have block scales: `scale_a` [M, ceil(K / 128)] with strides "
            "(1, M), `scale_b` [ceil(K / 128), ceil(N / 128)] with strides (1, ceil(K / 128)); "
            "then a[m, k] is scaled by scale_a[m, k // 128], b[k, n] by "
            "scale_b[k // 128, n // 128], and there is no bias."
        ),
        sources=(
            "vLLM 0.13, vllm._custom_ops.cutlass_scaled_mm",
            "csrc/quantization/w8a8/cutlass, Epilogues.md",
        ),
        cases=_mm_cases,
        oracle=_oracle,
        second=_second,
        baseline=CustomOp("cutlass_scaled_mm", _scaled_mm),
        baseline_name=NAME,
        cost=_cost,
        tolerance=_TOLERANCE,
        mutants=tuple(
            Mutant(name, _mutant(name))
            for name in (
                "scale_a of the first row",
                "scale_b of the first column",
                "bias dropped",
                "bias scaled",
                "half of K",
                "product rounded to the dtype",
            )
        ),
        note="Where K or N is no multiple of 16 vLLM takes a Triton kernel instead of CUTLASS.",
    ),
    Operator(
        id="vllm::cutlass_scaled_mm_azp",
        family="gemm-quant",
        signatures=(
            "cutlass_scaled_mm_azp(a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, "
            "out_dtype: ScalarType, azp_adj: Tensor, azp: Tensor?=None, bias: Tensor?=None) -> "
            "Tensor",
        ),
        description=(
            "Product of int8 `a` [..., K], whose values have zero points, and int8 `b` [K, N]: "
            "scale_a * scale_b * (a @ b - z) + bias, rounded once to `out_dtype`. With `azp` "
            "(int32 [M, 1], a zero point a row) z[m, n] = azp[m] * azp_adj[n], `azp_adj` (int32 "
            "[1, N]) being the column sums of `b`; without, z[m, n] = azp_adj[n], which then "
            "includes the zero point of all rows. a @ b - z is exact in int32 and must be: it "
            "cancels. Scales and bias are applied in float32. K and N are multiples of 16. "
            + _EPILOGUE
        ),
        sources=(
            "vLLM 0.13, vllm._custom_ops.cutlass_scaled_mm_azp",
            "csrc/quantization/w8a8/cutlass, Epilogues.md",
        ),
        cases=_azp_cases,
        oracle=_azp_oracle,
        second=_azp_second,
        baseline=CustomOp("cutlass_scaled_mm_azp", _scaled_mm_azp),
        baseline_name=NAME,
        cost=_cost,
        tolerance=_TOLERANCE,
        prepare=_prepare_azp,
        mutants=tuple(
            Mutant(name, _azp_mutant(name))
            for name in (
                "zero point ignored",
                "zero point added",
                "azp of the first row",
                "azp taken as one",
                "bias dropped",
                "product in 16 bits",
                "scale_b of the first column",
            )
        ),
    ),
)
