"""Float8 sums as Hopper's tensor cores make them lie within the tolerance."""

from __future__ import annotations

import pytest
import torch

from kernelmark.evaluators.grading.compare import compare
from kernelmark.operators.registry import get_operator

BLOCK = 128


def truncated_sum(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a @ b by steps of 32: what is added in a step, and the sum so far, lose all bits below 2^-13
    of the largest among them."""
    total = torch.zeros(a.shape[0], b.shape[1], dtype=torch.float64)
    for k in range(0, a.shape[1], 32):
        terms = a[:, None, k : k + 32] * b.T[None, :, k : k + 32]
        terms = torch.cat([terms, total[..., None]], dim=-1)
        unit = torch.exp2(terms.abs().amax(-1).clamp_min(2.0**-60).log2().floor() - 13)
        total = (terms / unit[..., None]).trunc().sum(-1) * unit
    return total


@pytest.mark.parametrize("blockwise", [True, False])
def test_truncated_sums_pass(blockwise: bool) -> None:
    operator = get_operator("vllm::cutlass_scaled_mm")
    generator = torch.Generator().manual_seed(5)
    m, k, n = 48, 2048, 128
    a, b = (torch.randn(*shape, generator=generator) for shape in ((m, k), (n, k)))
    a, b = a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn).T
    columns = k // BLOCK if blockwise else 1
    scale_a = torch.rand(m, columns, generator=generator) * 0.02 + 0.001
    scale_b = torch.rand(columns, n // BLOCK if blockwise else n, generator=generator) * 0.02
    (expected,) = operator.oracle(a, b, scale_a, scale_b, torch.bfloat16)

    total = torch.zeros(m, n, dtype=torch.float64)
    for i in range(columns):
        part = slice(i * k // columns, (i + 1) * k // columns)
        product = truncated_sum(a[:, part].double(), b[part].double())
        factors = scale_b[i].repeat_interleave(n // scale_b.shape[1])
        total += product * scale_a[:, i : i + 1].double() * factors.double()
    found = compare(expected, total.to(torch.bfloat16), operator.tolerance)
    assert found.status == "passed"
    # the largest of 6,000; of 10 million it is 1.5 times as large
    assert found.max_error < found.limit / 1.5
    exact = compare(expected, expected.value.to(torch.bfloat16), operator.tolerance)
    assert found.mean_error > 1.01 * exact.mean_error, "nothing was truncated"
