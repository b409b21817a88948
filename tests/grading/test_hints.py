"""The hint about autotuned kernels that update in place: given where it applies, and only there."""

from __future__ import annotations

import pytest

from kernelmark.evaluators.grading.hints import autotuned_in_place

KERNEL = """
import triton
import triton.language as tl

@triton.autotune(configs=[], key=["n"]{restore})
@triton.jit
def gemm(a_ptr, c_ptr, n, B: tl.constexpr):
    offsets = tl.program_id(0) * B + tl.arange(0, B)
    inside = offsets < n
    a = tl.load(a_ptr + offsets, mask=inside)
    c_ptrs = c_ptr + offsets
    {body}
"""
IN_PLACE = "tl.store(c_ptrs, a + tl.load(c_ptrs, mask=inside), mask=inside)"


@pytest.mark.parametrize("body", [IN_PLACE, "tl.atomic_add(c_ptrs, a, mask=inside)"])
def test_an_update_in_place_is_named(body: str) -> None:
    hint = autotuned_in_place(KERNEL.format(restore="", body=body))
    assert "'gemm'" in hint
    assert "restore_value=['c_ptr']" in hint


@pytest.mark.parametrize(
    "source",
    [
        KERNEL.format(restore=', restore_value=["c_ptr"]', body=IN_PLACE),
        KERNEL.format(restore=', reset_to_zero=["c_ptr"]', body="tl.atomic_add(c_ptrs, a)"),
        KERNEL.format(restore="", body="tl.store(c_ptrs, a, mask=inside)"),
        KERNEL.format(restore="", body=IN_PLACE).replace("@triton.autotune", "# "),
        "def broken(:",
    ],
)
def test_no_hint_where_it_does_not_apply(source: str) -> None:
    assert autotuned_in_place(source) == ""
