"""RMS norm with quantisation: its limits are the worst that its two stated roundings can do.

A float32 ulp of the reciprocal root can move the normalised value n by one ulp of the dtype; the
product n * w is exact in float32 and rounded once. All mantissas of n and w are tried.
"""

from __future__ import annotations

import dataclasses
import functools
import math

import pytest
import torch

from kernelmark.evaluators.grading.compare import compare
from kernelmark.operators.records import Expected
from kernelmark.operators.registry import get_operator
from kernelmark.operators.vllm import norm_quant

HALVES = (torch.float16, torch.bfloat16)


@functools.cache
def _moved(dtype: torch.dtype) -> torch.Tensor:
    """Distinct pairs (d(n * w), d(n' * w)) for n, w in [1, 2) and n' an ulp above n: [pairs, 2]."""
    eps = torch.finfo(dtype).eps
    n = 1 + eps * torch.arange(round(1 / eps), dtype=torch.float64)
    both = [(value[:, None] * n).to(dtype).double().reshape(-1) for value in (n, n + eps)]
    return torch.unique(torch.stack(both, dim=1), dim=0)


@pytest.mark.parametrize("dtype", HALVES)
def test_scales_follow_two_roundings_to_the_dtype_and_no_more(dtype: torch.dtype) -> None:
    low, high = _moved(dtype).unbind(1)
    worst = ((high - low) / low).max().item() / torch.finfo(dtype).eps
    assert 1.5 < worst <= norm_quant._SCALES.limit
    assert norm_quant._SCALES.limit < worst + 0.25


@pytest.mark.parametrize("quant_dtype", [torch.int8, norm_quant.E4M3])
@pytest.mark.parametrize("dtype", HALVES)
def test_codes_move_by_the_steps_of_their_limit_and_no_more(
    dtype: torch.dtype, quant_dtype: torch.dtype
) -> None:
    pairs = _moved(dtype)
    tops = torch.unique(pairs)
    tops = tops[:: max(1, len(tops) // 256)]
    limit = norm_quant._code_tolerance(dtype, quant_dtype).limit
    worst = max(_steps(pairs, top, quant_dtype) for top in tops)
    assert worst == limit


def _steps(pairs: torch.Tensor, top: torch.Tensor, quant_dtype: torch.dtype) -> float:
    """The most steps between the codes of a pair in a row whose largest element is `top`."""
    low, high = pairs[pairs[:, 1] <= top].unbind(1)
    if not len(low):
        return 0.0
    scale = norm_quant._scale_of(top, quant_dtype, None).float().double()
    want, got = (norm_quant._codes(value / scale, quant_dtype) for value in (low, high))
    wide = want.double() if quant_dtype.is_floating_point else want
    one = dataclasses.replace(norm_quant._CODES, limit=math.inf, max_mismatch=1.0)
    found = compare(Expected(wide, quant_dtype, tolerance=one), got, one)
    assert found.status == "passed"
    assert found.max_error is not None
    return found.max_error


@pytest.mark.parametrize(("steps", "status"), [(1, "passed"), (2, "passed"), (3, "wrong_values")])
def test_codes_two_steps_off_pass_where_the_definition_says_so(steps: int, status: str) -> None:
    tolerance = get_operator("vllm::rms_norm_dynamic_per_token_quant").tolerance
    want = torch.full((100,), 112, dtype=torch.int8)
    got = want.clone()
    got[7] += steps
    assert compare(Expected(want, torch.int8), got, tolerance).status == status
    one = norm_quant._code_tolerance(torch.float16, torch.int8)
    passes = "passed" if steps == 1 else "wrong_values"
    assert compare(Expected(want, torch.int8), got, one).status == passes


def test_the_share_of_codes_that_may_be_off_is_kept() -> None:
    tolerance = norm_quant._CODES
    want = torch.zeros(100, dtype=torch.int8)
    got = want.clone()
    got[: math.ceil(100 * tolerance.max_mismatch)] = 2
    assert compare(Expected(want, torch.int8), got, tolerance).status == "passed"
    got[50] = 1
    assert compare(Expected(want, torch.int8), got, tolerance).status == "wrong_values"
