"""What the comparison allows in attention over paged caches: any honest order of float32 sums."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kernelmark.evaluators.grading.compare import compare
from kernelmark.evaluators.grading.records import Comparison
from kernelmark.operators.draws import draw
from kernelmark.operators.registry import get_operator
from kernelmark.operators.vllm import attention

CPU = torch.device("cpu")
OPERATOR = get_operator("vllm::paged_attention_v1")
LONG = attention._case("long", 1, 4096, 7, 1, 128, 16, torch.float32)


def _one_after_another(out: torch.Tensor, *rest: Any) -> None:
    """Float32 throughout, position by position, as a loop over keys accumulates."""
    made = attention._formula(rest)
    scores, values = made["scores"], made["values"]
    p = torch.exp(scores - scores.amax(-1, keepdim=True))
    total, weighted = torch.zeros_like(p[..., 0]), torch.zeros_like(made["query"])
    for t in range(p.shape[-1]):
        total += p[..., t]
        weighted.addcmul_(p[..., t, None], values[:, :, None, t])
    out.copy_((weighted / total[..., None]).flatten(1, 2))


def _ten_bits(out: torch.Tensor, *rest: Any) -> None:
    """Weights and values with the 10 bits of mantissa that TensorFloat-32 keeps."""
    made = attention._formula(rest)
    p, values = (_rounded(t) for t in (torch.softmax(made["scores"], -1), made["values"]))
    out.copy_(attention._weighted(p, values))


def _rounded(x: torch.Tensor) -> torch.Tensor:
    return ((x.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


def _judged(function: Any, case: Any, variation: str, seed: int) -> Comparison:
    call = draw(OPERATOR, case, variation, seed, CPU)
    [expected] = OPERATOR.oracle(*call.args)
    function(*call.args)
    return compare(expected, call.args[0], OPERATOR.tolerance)


@pytest.mark.parametrize("variation", ["structured", "small"])
def test_float32_sums_over_long_sequences_pass_one_term_after_another(variation: str) -> None:
    found = _judged(_one_after_another, LONG, variation, 3)
    assert found.status == "passed", found
    assert found.max_error > 0.05  # the sums do lose something


@pytest.mark.parametrize("variation", ["base", "structured", "small"])
def test_ten_bits_of_mantissa_do_not_pass_for_float32(variation: str) -> None:
    [case] = (c for c in OPERATOR.cases() if c.name == "float32")
    assert _judged(_ten_bits, case, variation, 3).status == "wrong_values"
