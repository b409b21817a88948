"""Parts that the vLLM families share: costs over named tensors, draws of dependent contents."""

from __future__ import annotations

from typing import Any

import torch

from kernelmark.operators.draws import Call
from kernelmark.operators.records import Case, Cost, Operator, TensorSpec, parse_signature

#: dtypes, by their usual short names
half, brain, single, byte = torch.float16, torch.bfloat16, torch.float32, torch.uint8

#: draws for operators whose results overflow or saturate when inputs are scaled up
MODERATE = ("base", "base", "small", "structured")


def arguments(case: Case, signature: str) -> dict[str, Any]:
    """A case's declared arguments by parameter name, defaults of None for those left out."""
    names = [p.name for p in parse_signature(signature)]
    given = {**dict(zip(names, case.args, strict=False)), **case.kwargs}
    return {name: given.get(name) for name in names}


def by_name(operator_signature: str, call: Call) -> dict[str, Any]:
    """A made call's arguments by parameter name."""
    names = [p.name for p in parse_signature(operator_signature)]
    return {**dict(zip(names, call.args, strict=False)), **call.kwargs}


def nbytes(*values: Any) -> int:
    """Bytes of the declared tensors among `values` (each counted once per mention)."""
    total = 0
    for value in values:
        if isinstance(value, TensorSpec):
            total += value.nbytes
        elif isinstance(value, tuple):
            total += nbytes(*value)
    return total


def moved(flops: int, *values: Any) -> Cost:
    """Cost of reading or writing each of `values` once; name a tensor twice to do both."""
    return Cost(flops=flops, nbytes=nbytes(*values))


def distinct(
    high: int, shape: tuple[int, ...], generator: torch.Generator, device: torch.device
) -> torch.Tensor:
    """Distinct integers below `high`, in random order, int64."""
    count = 1
    for n in shape:
        count *= n
    if count > high:
        raise ValueError(f"{count} distinct values below {high}")
    keys = torch.rand(high, generator=generator, device=device)
    return keys.argsort()[:count].view(shape)


def random_integers(
    low: int, high: int, shape: tuple[int, ...], generator: torch.Generator, device: torch.device
) -> torch.Tensor:
    """Uniform integers in [low, high), int64."""
    return torch.randint(low, high, shape, generator=generator, device=device)


def signature_of(operator: Operator, case: Case) -> str:
    """The signature that a case calls."""
    return operator.signatures[case.overload]


def split_dim(tensor: torch.Tensor, dim: int, sizes: tuple[int, int]) -> torch.Tensor:
    """`tensor` with dimension `dim` cut into two (a second size of -1 is inferred)."""
    dim = dim % tensor.dim()
    first, second = sizes
    second = tensor.shape[dim] // first if second < 0 else second
    return tensor.reshape(*tensor.shape[:dim], first, second, *tensor.shape[dim + 1 :])
