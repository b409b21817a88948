"""Every operator's definition: complete, agreed on three ways, able to tell right from wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kernelmark.evaluators.grading.lint import draw_bytes, lint
from kernelmark.operators.draws import draw
from kernelmark.operators.records import Operator
from kernelmark.operators.registry import all_operators

#: the operators of the reference benchmark: 110 of ATen, 50 of vLLM 0.13, 50 of cuBLAS
IDS = (Path(__file__).parent / "ids.txt").read_text().split()
#: the quick part of the sweep; `make test-all` and CI run all
QUICK = {
    *("aten::softmax", "aten::add", "aten::sum", "aten::sort", "aten::gather", "aten::mm"),
    *("vllm::rms_norm", "vllm::rotary_embedding", "vllm::reshape_and_cache"),
    *("cublas::cublasSgemm_v2", "cublas::cublasStrsv_v2", "cublas::cublasZgemvBatched"),
}
OPERATORS = [
    pytest.param(operator, id=name, marks=() if name in QUICK else (pytest.mark.slow,))
    for name, operator in all_operators().items()
]


def test_the_ids_are_those_of_the_reference_benchmark() -> None:
    assert sorted(all_operators()) == sorted(IDS)


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.mark.parametrize("operator", OPERATORS)
def test_definition_is_sound(operator: Operator) -> None:
    assert lint(operator) == []


@pytest.mark.parametrize("operator", all_operators().values(), ids=lambda o: o.id)
def test_draws_repeat_from_a_seed_and_differ_between_seeds(operator: Operator) -> None:
    differs = False
    for case in operator.tier("small"):
        first, again, other = (
            draw_bytes(draw(operator, case, "base", seed, torch.device("cpu")))
            for seed in (5, 5, 6)
        )
        assert first == again, case.name
        differs |= first != other
    drawn = any(case.tensors for case in operator.tier("small"))
    assert differs or not drawn or all(case.seedless for case in operator.tier("small"))
