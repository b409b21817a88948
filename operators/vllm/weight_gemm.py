"""What products of 16-bit activations with quantised weights share: oracle, tolerance, draws.

A kernel may round a dequantised weight to the activations' dtype (tensor cores want that) or keep
it wider; it accumulates in float32. Either passes. Sums kept in 16 bits do not.
"""

from __future__ import annotations

import torch

from kernelmark.operators.records import Case, Cost, Expected, TensorSpec, Tolerance
from kernelmark.operators.vllm.parts import nbytes

TOLERANCE = Tolerance(
    limit=2.0,
    accumulator=None,
    why="S is the root of (0.75 R)^2 + (D / 2)^2: R the root of the sum of squared terms, D what "
    "rounding the weights to the dtype moves this element by, in eps. Kernels may round them. Of "
    "random terms D is 0.2 R (standard deviation) and the limit lies 7 deviations out; where "
    "activations are all positive and a group repeats a few weights, their roundings add up, D "
    "reaches 2 R and S must grow with it. The rounding of the result costs 0.5 of the other half "
    "of the bound. Sums in 16 bits cost 10 at K = 4096",
)

ROUNDING = (
    "A dequantised weight may be rounded to the dtype of the activations once before it is "
    "multiplied; products are accumulated in float32 and rounded once to that dtype. "
)


def product(
    a: torch.Tensor, weights: torch.Tensor, bias: torch.Tensor | None = None
) -> list[Expected]:
    """a [M, K] times float64 weights [K, N] (plus bias [N]), in the dtype of `a`.

    Kernels that round the weights once land `moved` away from the value: twice the scale covers it.
    """
    value = a.double() @ weights
    squares = a.float().square() @ weights.float().square()
    eps = torch.finfo(a.dtype).eps
    moved = a.float() @ (weights.to(a.dtype).double() - weights).float()
    scale = torch.hypot(0.75 * squares.double().sqrt(), moved.double() / (TOLERANCE.limit * eps))
    if bias is not None:
        # The product may be rounded to the dtype before the bias is added.
        scale = scale + 0.5 * value.abs()
        value = value + bias.double()
    return [Expected(value, a.dtype, scale)]


def summed_in(dtype: torch.dtype, x: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """For mutants: x [M, K] times weights [K, N], summed in `dtype`, 8 terms at a time."""
    total = torch.zeros((), dtype=dtype, device=x.device)
    for start in range(0, x.shape[1], 8):
        part = slice(start, start + 8)
        total = (total + x[:, part] @ weights[part]).to(dtype)
    return total


def gemm_cost(case: Case, m: int, n: int, k: int, written: int, *read: TensorSpec | None) -> Cost:
    """2 M N K useful flops; every tensor in `read` once, `written` bytes."""
    return Cost(flops=2 * m * n * k, nbytes=nbytes(*read) + written)


def random_codes(
    bits: int, shape: tuple[int, ...], generator: torch.Generator, device: torch.device
) -> torch.Tensor:
    """Uniform codes of `bits` bits, int64."""
    return torch.randint(0, 1 << bits, shape, generator=generator, device=device)
