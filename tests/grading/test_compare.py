"""The short way to a comparison never says right where the thorough one says wrong."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernelmark.evaluators.grading import compare as module
from kernelmark.evaluators.grading.compare import compare
from kernelmark.operators.records import Expected, Tolerance

ROUNDED = (
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
)
values = st.one_of(
    st.sampled_from([0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan]),
    st.sampled_from([65504.0, 65519.0, 1e5, 3.4028235e38, -3.5e38, 448.0, 57344.0, 1e-40]),
    st.floats(-100, 100),
)


@given(
    dtype=st.sampled_from(ROUNDED),
    pairs=st.lists(st.tuples(values, values, st.booleans()), min_size=1, max_size=6),
    scale=st.sampled_from([None, 0.0, 1.0, 1e4, math.inf, math.nan]),
    limit=st.sampled_from([1.0, 8.0]),
)
def test_both_ways_agree(
    dtype: torch.dtype,
    pairs: list[tuple[float, float, bool]],
    scale: float | None,
    limit: float,
) -> None:
    """`compare` against the thorough way alone, over specials, overflow and ordinary values."""
    wide = torch.complex128 if dtype.is_complex else torch.float64
    reference = torch.tensor([r for r, _, _ in pairs], dtype=wide)
    got = torch.tensor([r if same else g for r, g, same in pairs], dtype=wide).to(dtype)
    scales = None if scale is None else torch.full(reference.shape, scale, dtype=torch.float64)
    tolerance = Tolerance(limit=limit)
    expected = Expected(reference, dtype, scale=scales)
    found = compare(expected, got, tolerance)
    thorough = module._walk(expected, got, tolerance, limit, module._errors).tolist()
    assert (found.status == "passed") == (thorough[0] == 0)
    assert found.max_error == pytest.approx(thorough[4], rel=1e-9, abs=1e-12) or (
        # out of range in both, which the thorough way alone calls the same
        found.status == "passed" and found.max_error is not None and found.max_error <= limit
    )


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_nan_is_no_neighbour_of_the_largest_code(dtype: torch.dtype) -> None:
    top = torch.finfo(dtype).max
    tolerance = Tolerance("codes", limit=1.0, max_mismatch=1.0)
    expected = Expected(torch.tensor([top, math.nan], dtype=torch.float64), dtype)
    for first, second, right in (
        (top, math.nan, True),
        (math.nan, math.nan, False),
        (top, top, False),
    ):
        got = torch.tensor([first, second]).to(dtype)
        assert (compare(expected, got, tolerance).status == "passed") is right
