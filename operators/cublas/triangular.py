"""Triangular systems that can be judged: well-conditioned matrices and the error to expect.

A random triangular matrix is exponentially ill-conditioned, and a harness that then only keeps the
diagonal alive tests nothing. Here off-diagonal elements are N(0, 1/n) and the diagonal lies in
[1, 2]: every element matters, and the growth of the solution stays near exp(1/2).
"""

from __future__ import annotations

from typing import Any

import torch

from kernelmark.operators.draws import Call, PointerList
from kernelmark.operators.records import Case


def well_conditioned(call: Call, case: Case, generator: torch.Generator, argument: int) -> None:
    """Rewrites the triangular matrix (or those pointed to) at position `argument`, in place.

    Both triangles are filled, so reading the wrong one gives a wrong answer.
    """
    given = call.args[argument]
    a = given.members if isinstance(given, PointerList) else given
    n = a.shape[-1]
    noise = torch.randn(a.shape, generator=generator, device=a.device, dtype=a.dtype)
    a.copy_(noise / max(n, 1) ** 0.5)
    spread = torch.rand(a.shape[:-1], generator=generator, device=a.device)
    a.diagonal(dim1=-2, dim2=-1).copy_(1 + spread)


def condition_scale(t: Any, solution: Any, upper: bool) -> Any:
    """S = |T^-1| |T| |X|, the componentwise bound of substitution (Higham, theorem 8.5)."""
    eye = torch.eye(t.shape[-1], dtype=t.dtype, device=t.device)
    inverse = torch.linalg.solve_triangular(t, eye, upper=upper)
    return inverse.abs() @ (t.abs() @ solution.abs())
