"""What the vLLM families share: number formats, baselines that name themselves, normal forms."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kernelmark.evaluators.grading.compare import compare
from kernelmark.operators import calling
from kernelmark.operators.draws import draw
from kernelmark.operators.records import EXACT, Expected
from kernelmark.operators.registry import get_operator
from kernelmark.operators.vllm import baselines
from kernelmark.operators.vllm.formats import float8_table, look_up_float8, rounded, to_float8

CPU = torch.device("cpu")
E4M3 = torch.float8_e4m3fn


def test_the_table_of_float8_values_is_torchs_own() -> None:
    codes = torch.arange(127, dtype=torch.uint8).view(E4M3)
    assert torch.equal(codes.double(), float8_table())


def test_float8_rounding_agrees_with_a_search_in_the_table_at_ties_and_beyond_the_range() -> None:
    table = float8_table()
    middles = (table[1:] + table[:-1]) / 2
    beyond = torch.tensor([448.0, 449.0, 1e6, 2.0**-10, 3 * 2.0**-11, 0.0, 1e-30])
    values = torch.cat([table, middles, middles * (1 + 1e-6), middles * (1 - 1e-6), beyond])
    values = torch.cat([values, -values])
    assert torch.equal(to_float8(values, E4M3).view(torch.uint8), look_up_float8(values))


def test_a_baseline_is_vllms_op_only_where_it_is_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    operator = get_operator("vllm::rms_norm")
    assert calling.baseline_name(operator, CPU) == "eager formulation"
    monkeypatch.setattr(baselines, "_vllm_function", lambda name: None)
    cuda = torch.device("cuda")
    assert calling.baseline_name(operator, cuda) == "torch.compile formulation"


@pytest.mark.slow
def test_a_compiled_formulation_keeps_the_roundings_that_it_states() -> None:
    def formulation(x: torch.Tensor) -> torch.Tensor:
        return rounded(x * 1.3, torch.bfloat16) * 3

    x = torch.randn(4096, generator=torch.Generator().manual_seed(1))
    assert torch.equal(baselines._compiled(formulation)(x), (x * 1.3).bfloat16().float() * 3)


def test_an_adapted_op_gets_vllms_function_and_the_operators_arguments() -> None:
    def adapt(custom: Any, *args: Any) -> Any:
        return custom, args

    op = baselines.CustomOp("rms_norm", lambda *args: None, adapt=adapt)
    assert op(1, 2) is None  # no accelerator: the formulation


def test_the_order_within_an_expert_is_free_and_the_expert_is_not() -> None:
    operator = get_operator("vllm::moe_align_block_size")
    case = next(c for c in operator.tier("small") if c.name == "eight-experts")
    want = calling.expected_of(operator, draw(operator, case, "base", 7, CPU))[0]
    assert isinstance(want, Expected)
    right = want.value.to(torch.int32)
    block = case.args[2]
    swapped = right.clone()
    swapped[:block] = right[:block].flip(0)
    assert compare(want, swapped, EXACT).status == "passed"
    moved = right.clone()
    moved[0], moved[-1] = right[-1], right[0]
    assert compare(want, moved, EXACT).status == "wrong_values"


def test_experts_that_tie_may_be_taken_for_one_another_and_others_may_not() -> None:
    operator = get_operator("vllm::topk_softmax")
    gating = torch.tensor([[0.5, 2.0, 2.0, 1.0]])
    empty = (torch.zeros(1, 2), torch.zeros(1, 2, dtype=torch.int32))
    ids = operator.oracle(*empty, empty[1].clone(), gating, False)[1]
    assert isinstance(ids, Expected)
    for answer, status in (
        ([1, 2], "passed"),
        ([2, 1], "passed"),
        ([1, 3], "wrong_values"),
        ([9, 1], "wrong_values"),
    ):
        got = torch.tensor([answer], dtype=torch.int32)
        assert compare(ids, got, EXACT).status == status
