"""Joining the attention over two disjoint sets of keys.

Oracle: float64; second statement: NumPy, by way of logaddexp.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from kernelmark.operators.building import dtype_name, spec
from kernelmark.operators.draws import Call
from kernelmark.operators.records import Case, Cost, Expected, Mutant, Operator, Tolerance
from kernelmark.operators.vllm.baselines import NAME, CustomOp
from kernelmark.operators.vllm.parts import brain, half, moved, single

# merge_attn_states


@functools.cache
def _merge_cases() -> Sequence[Case]:
    def case(
        name: str, tokens: int, heads: int, size: int, dtype: torch.dtype, with_lse: bool = True,
        offset: int = 0, origin: str = "",
    ) -> Case:  # fmt: skip
        out = spec((tokens, heads, size), dtype, offset=offset)
        lse = spec((heads, tokens))
        kwargs = {"output_lse": lse} if with_lse else {}
        tier: Any = "full" if origin else "small"
        return Case(name, (out, out, lse, out, lse), kwargs, tier=tier, origin=origin,
                    overload=int(with_lse))  # fmt: skip

    small = (
        *(case(dtype_name(t), 7, 3, 32, t) for t in (half, brain, single)),
        *(case(f"{dtype_name(t)}-no-lse", 5, 2, 64, t, False) for t in (half, brain, single)),
        case("one-token", 1, 4, 64, half),
        case("one-head", 9, 1, 128, brain),
        case("head-size-192", 3, 2, 192, brain),
        case("wide", 20, 5, 16, half),
        case("no-tokens", 0, 2, 32, half),
    )
    deepseek = "DeepSeek V3 chunked prefill: 128 heads of 128"
    return (
        *small,
        case("deepseek-v3", 2048, 128, 128, brain, origin=f"{deepseek}, 2048 tokens"),
        case("deepseek-v3-last-chunk", 2048, 128, 128, brain, False, origin=f"{deepseek}, no lse"),
        case("llama-3-8b-cascade", 8192, 32, 128, brain,
             origin="Llama 3 8B cascade attention: 32 heads of 128, 8192 tokens"),
        case("llama-3-70b-cascade", 4096, 64, 128, half,
             origin="Llama 3 70B cascade attention: 64 heads of 128"),
        case("qwen-2.5-7b-float32", 4096, 28, 128, single, origin="Qwen 2.5 7B, float32"),
        case("deepseek-v2-lite", 8192, 16, 128, half, origin="DeepSeek V2 Lite: 16 heads of 128"),
        case("gemma-2-9b", 4096, 16, 256, brain, origin="Gemma 2 9B: 16 heads of 256"),
    )  # fmt: skip


def _merge_prepare(call: Call, case: Case, generator: torch.Generator) -> None:
    """Some tokens have nothing in one part: an lse of -inf, or of +inf which means the same."""
    for lse, first, value in ((call.args[2], 1, -torch.inf), (call.args[4], 2, torch.inf)):
        flat = lse.view(-1)
        flat[first::11] = value
        flat[first + 5 :: 22] = -value
    both = call.args[2].isinf() & call.args[4].isinf()
    call.args[4].masked_fill_(both, 0.5)


def _shares(prefix: torch.Tensor, suffix: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """(prefix share, suffix share, joint lse), each [heads, tokens]."""
    prefix = prefix.masked_fill(prefix.isinf(), -torch.inf)
    suffix = suffix.masked_fill(suffix.isinf(), -torch.inf)
    top = prefix.maximum(suffix)
    p, s = torch.exp(prefix - top), torch.exp(suffix - top)
    return p / (p + s), s / (p + s), torch.log(p + s) + top


def _per_token(share: torch.Tensor) -> torch.Tensor:
    return share.t().unsqueeze(-1)


def _merge_oracle(
    output: torch.Tensor,
    prefix_output: torch.Tensor,
    prefix_lse: torch.Tensor,
    suffix_output: torch.Tensor,
    suffix_lse: torch.Tensor,
    output_lse: torch.Tensor | None = None,
) -> list[Expected]:
    p, s, joint = _shares(prefix_lse.double(), suffix_lse.double())
    a, b = _per_token(p) * prefix_output.double(), _per_token(s) * suffix_output.double()
    # exp magnifies the rounding of lse - max by the size of either.
    size = sum(t.double().nan_to_num(0.0, 0.0, 0.0).abs() for t in (prefix_lse, suffix_lse))
    assert isinstance(size, torch.Tensor)
    results = [Expected(a + b, output.dtype, (a.abs() + b.abs()) * (1 + _per_token(size)))]
    if output_lse is not None:
        results.append(Expected(joint, torch.float32, 1 + size))
    return results


def _merge_second(
    output: torch.Tensor,
    prefix_output: torch.Tensor,
    prefix_lse: torch.Tensor,
    suffix_output: torch.Tensor,
    suffix_lse: torch.Tensor,
    output_lse: torch.Tensor | None = None,
) -> list[np.ndarray]:
    p, s = (np.where(np.isinf(x), -np.inf, x) for x in
            (prefix_lse.double().numpy(), suffix_lse.double().numpy()))  # fmt: skip
    joint = np.logaddexp(p, s)
    out = np.exp(p - joint).T[..., None] * prefix_output.double().numpy()
    out = out + np.exp(s - joint).T[..., None] * suffix_output.double().numpy()
    return [out] if output_lse is None else [out, joint]


def _merge_attn_states(
    output: torch.Tensor,
    prefix_output: torch.Tensor,
    prefix_lse: torch.Tensor,
    suffix_output: torch.Tensor,
    suffix_lse: torch.Tensor,
    output_lse: torch.Tensor | None = None,
) -> None:
    p, s, joint = _shares(prefix_lse, suffix_lse)
    output.copy_(_per_token(p) * prefix_output.float() + _per_token(s) * suffix_output.float())
    if output_lse is not None:
        output_lse.copy_(joint)


def _merge_cost(case: Case) -> Cost:
    out, _, lse, _, _ = case.args
    return moved(4 * out.numel, out, out, out, lse, lse, *([lse] if case.kwargs else []))


def _merge_mutant(variant: str) -> Any:
    def mutant(
        output: torch.Tensor,
        prefix_output: torch.Tensor,
        prefix_lse: torch.Tensor,
        suffix_output: torch.Tensor,
        suffix_lse: torch.Tensor,
        output_lse: torch.Tensor | None = None,
    ) -> None:
        p, s = prefix_lse, suffix_lse
        if variant == "mean of both":
            p, s = torch.zeros_like(p), torch.zeros_like(s)
        if variant == "parts exchanged":
            p, s = s, p
        if variant == "lse read by token":
            p, s = (t.reshape(t.shape[1], t.shape[0]).t().contiguous() for t in (p, s))
        if variant == "+inf taken for a number":
            p, s = p.clamp(-50, 50), s.clamp(-50, 50)
        if variant == "lse left" and output_lse is not None:
            output_lse = output_lse.clone()
        _merge_attn_states(output, prefix_output, p, suffix_output, s, output_lse)
        if variant == "lse without the maximum" and output_lse is not None:
            output_lse -= p.maximum(s)

    return mutant


OPERATORS = (
    Operator(
        id="vllm::merge_attn_states",
        family="attention",
        signatures=(
            "merge_attn_states(output: Tensor!, prefix_output: Tensor, prefix_lse: Tensor, "
            "suffix_output: Tensor, suffix_lse: Tensor, output_lse: Tensor?=None) -> ()",
            "merge_attn_states(output: Tensor!, prefix_output: Tensor, prefix_lse: Tensor, "
            "suffix_output: Tensor, suffix_lse: Tensor, output_lse: Tensor!) -> ()",
        ),
        description=(
            "Joins the attention over two disjoint sets of keys. Outputs are [tokens, heads, "
            "head_size] (float16, bfloat16 or float32, contiguous), lse (logarithm of the sum of "
            "exponentials of scores) float32 [heads, tokens]. With m = max(prefix_lse, suffix_lse),"
            " p = exp(prefix_lse - m), s = exp(suffix_lse - m): output = (p * prefix_output + s * "
            "suffix_output) / (p + s), computed in float32 and rounded once, and output_lse = "
            "log(p + s) + m where it is given. An lse of -inf or +inf means that the part is empty "
            "(both count as -inf); at most one part of a token is empty."
        ),
        sources=(
            "vLLM 0.13, vllm._custom_ops.merge_attn_states",
            "csrc/attention/merge_attn_states.cu",
            "FlashInfer, section 2.2 (arXiv 2501.01005)",
        ),
        cases=_merge_cases,
        oracle=_merge_oracle,
        second=_merge_second,
        baseline=CustomOp("merge_attn_states", _merge_attn_states),
        baseline_name=NAME,
        cost=_merge_cost,
        tolerance=Tolerance(
            limit=3.0,
            why="two expf of 2 ulp, a division, two products, one sum; the difference of lse is "
            "in the scale",
        ),
        mutants=tuple(
            Mutant(name, _merge_mutant(name))
            for name in (
                "mean of both",
                "parts exchanged",
                "lse read by token",
                "+inf taken for a number",
                "lse left",
                "lse without the maximum",
            )
        ),
        prepare=_merge_prepare,
    ),
)
