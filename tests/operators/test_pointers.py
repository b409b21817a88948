"""Tables of pointers: where their members lie, and that a candidate must read every address."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

from kernelmark.evaluators.chips.registry import get_chip
from kernelmark.evaluators.grading.judge import Settings, grade
from kernelmark.evaluators.grading.records import Candidate
from kernelmark.evaluators.methods.reference import KERNELS
from kernelmark.operators.draws import PointerList, arguments_for_candidate, draw
from kernelmark.operators.records import POINTER_ALIGNMENT, Operator, Pointers
from kernelmark.operators.registry import get_operator, source_operators


def counts(operator: Operator, tier: str) -> list[int]:
    cases = [case for case in operator.cases() if case.tier == tier]
    return [arg.count for case in cases for arg in case.args if isinstance(arg, Pointers)]


BATCHED = [
    operator for operator in source_operators("cublas").values() if counts(operator, "small")
]


def test_the_routines_with_tables_are_found() -> None:
    assert len(BATCHED) == 10


@pytest.mark.parametrize("count", [1, 2, 3, 64])
def test_every_address_is_that_of_its_member(count: int) -> None:
    members = torch.arange(count * 256.0).view(count, 256)[:, :5]
    table = PointerList(members)
    rows = [(at - members.data_ptr()) // (256 * 4) for at in table.addresses().tolist()]
    assert sorted(rows) == list(range(count))
    assert torch.equal(members[rows], table.stacked())
    assert torch.equal(torch.stack(list(table)), table.stacked())
    assert torch.equal(table.unstacked(table.stacked()), members)


@pytest.mark.parametrize("operator", BATCHED, ids=lambda o: o.id)
def test_no_table_is_evenly_spaced(operator: Operator) -> None:
    """Those of three entries and more; with two it can't be otherwise."""
    assert max(counts(operator, "small")) >= 3
    for count in {*counts(operator, "small"), *counts(operator, "full")}:
        at = PointerList(torch.empty(count, 1)).addresses().tolist()
        steps = {after - before for before, after in pairwise(at)}
        assert len(steps) > 1 or count < 3, count


def test_members_are_aligned_as_allocations_are() -> None:
    operator = get_operator("cublas::cublasZtrsmBatched")
    for case in operator.tier("small"):
        call = draw(operator, case, "base", 3, torch.device("cpu"))
        tables = [a for a in call.args if isinstance(a, PointerList)]
        given = arguments_for_candidate(call)
        for pointed in tables:
            base = pointed.members.data_ptr()
            assert all((at - base) % POINTER_ALIGNMENT == 0 for at in pointed.addresses().tolist())
        assert [a.dtype for a in given.args if isinstance(a, torch.Tensor)] == [torch.int64] * 2


def test_taking_the_members_for_evenly_spaced_is_wrong() -> None:
    source = (KERNELS / "cublas/cublasDgemvBatched.py").read_text()
    load = "tl.load(a_table + member)"
    assert load in source
    first, second = "tl.load(a_table)", "tl.load(a_table + 1 % tl.num_programs(1))"
    guessed = f"({first} + member * ({second} - {first}))"
    operator = get_operator("cublas::cublasDgemvBatched")
    settings = Settings(tier="small", timing=False, draws=1)
    chip = get_chip("interpreter")
    honest = grade(Candidate(operator.id, source), operator, chip, settings)
    assert honest.status == "passed", honest.message
    guess = Candidate(operator.id, source.replace(load, guessed))
    assert grade(guess, operator, chip, settings).status in ("wrong_values", "runtime_error")
