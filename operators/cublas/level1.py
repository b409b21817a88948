"""cuBLAS vector routines: copy, swap, scal, axpy, dot, asum. Second statement: SciPy's BLAS."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from kernelmark.operators.cublas.layout import LETTERS, directed, vector
from kernelmark.operators.cublas.routines import (
    Args,
    Values,
    halving,
    number,
    numbers,
    rewriting,
    routine,
    scalars,
    setting,
)
from kernelmark.operators.records import Case, Cost, Operator, TensorSpec

#: (n, incx, incy, origin): lengths of real models' parameter vectors
_FULL = (
    (25_557_032, 1, 1, "ResNet-50 parameters"),
    (38_597_376, 1, 1, "GPT-2 small embedding"),
    (23_440_896, 1, 1, "BERT base embedding"),
    (16_777_216, 1, 1, "Llama 3 8B query weight"),
    (16_777_216, 2, 1, "Llama 3 8B query weight, every second element"),
    (58_720_256, 1, 1, "Llama 3 8B MLP weight"),
)
_SMALL = (
    ("one", 1, 1, 1),
    ("tail", 71, 1, 1),
    ("block", 1024, 1, 1),
    ("several-blocks", 5333, 1, 1),
    ("increments", 497, 2, 3),
    ("wide-increment", 160, 5, 1),
    ("backwards-x", 333, -1, 1),
    ("backwards-both", 100, -2, -3),
)


def _put(y: torch.Tensor, n: int, inc: int, new: torch.Tensor) -> torch.Tensor:
    result = y.clone()
    result[:n] = directed(new, inc)
    return result


def _copy(n: int, x: Any, incx: int, y: Any, incy: int) -> Values:
    return [_put(y, n, incy, directed(x[:n], incx))]


def _swap(n: int, x: Any, incx: int, y: Any, incy: int) -> Values:
    return [
        _put(x, n, incx, directed(y[:n], incy)),
        _put(y, n, incy, directed(x[:n], incx)),
    ]


def _scal(n: int, alpha: Any, x: Any, incx: int) -> Values:
    return [_put(x, n, 1, alpha * x[:n])]


def _axpy(n: int, alpha: Any, x: Any, incx: int, y: Any, incy: int) -> Values:
    return [_put(y, n, incy, directed(y[:n], incy) + alpha * directed(x[:n], incx))]


def _dot(n: int, x: Any, incx: int, y: Any, incy: int, result: Any) -> Values:
    return [(directed(x[:n], incx) * directed(y[:n], incy)).sum().reshape(1)]


def _dotc(n: int, x: Any, incx: int, y: Any, incy: int, result: Any) -> Values:
    return _dot(n, x.conj(), incx, y, incy, result)


def _asum(n: int, x: Any, incx: int, result: Any) -> Values:
    return [x[:n].abs().sum().reshape(1)]


def _walk(x: Any, inc: int) -> Any:
    return x if inc > 0 else x[::-1]


def _second(base: str, *args: Any) -> list[Any]:
    """By SciPy's BLAS; vectors are handed over in walking order."""
    import numpy as np
    from scipy.linalg import blas

    given = numbers(args)
    if base == "copy":
        _, x, incx, _, incy = given
        return [_walk(_walk(x, incx), incy).copy()]
    if base == "swap":
        _, x, incx, y, incy = given
        p, q = blas.zswap(_walk(x, incx).copy(), _walk(y, incy).copy())
        return [_walk(p, incx).copy(), _walk(q, incy).copy()]
    if base == "scal":
        _, alpha, x, _ = given
        return [blas.dscal(alpha, x.copy())]
    if base == "axpy":
        _, alpha, x, incx, y, incy = given
        return [_walk(blas.daxpy(_walk(x, incx), _walk(y, incy).copy(), a=alpha), incy).copy()]
    if base == "asum":
        return [np.array([blas.dasum(given[1])])]
    _, x, incx, y, incy, _ = given
    dot = {"dot": blas.ddot, "dotu": blas.zdotu, "dotc": blas.zdotc}[base]
    return [np.array([dot(_walk(x, incx), _walk(y, incy))])]


def _arguments(base: str, letter: str, n: int, incx: int, incy: int, alpha: Any) -> Args:
    dtype = LETTERS[letter]
    x, y = vector(n, dtype, incx), vector(n, dtype, incy)
    result = TensorSpec((1,), dtype)
    return {
        "copy": (n, x, incx, y, incy),
        "swap": (n, x, incx, y, incy),
        "scal": (n, alpha, x, incx),
        "axpy": (n, alpha, x, incx, y, incy),
        "asum": (n, x, incx, result),
    }.get(base, (n, x, incx, y, incy, result))


@functools.cache
def _cases(base: str, letter: str) -> Sequence[Case]:
    alpha = number(scalars(letter)[0], letter)
    forward = base in ("scal", "asum")  # increments below 1 do nothing there
    cases = [
        Case(name, _arguments(base, letter, n, incx, incy, alpha))
        for name, n, incx, incy in _SMALL
        if incx > 0 or not forward
    ]
    for n, incx, incy, origin in _FULL:
        name = f"full-{n}" + (f"-by-{incx}" if incx > 1 else "")
        args = _arguments(base, letter, n, incx, incy, alpha)
        cases.append(Case(name, args, tier="full", origin=origin))
    return tuple(cases)


#: base: signature after n, meaning, flops an element (real), vectors read, vectors written
_ROUTINES: dict[str, tuple[str, Callable[..., Values], int, int, int, str]] = {
    "copy": ("x: Tensor, incx: int, y: Tensor!, incy: int", _copy, 0, 1, 1, "y = x."),
    "swap": (
        "x: Tensor!, incx: int, y: Tensor!, incy: int", _swap, 0, 2, 2, "x and y change places.",
    ),
    "scal": ("alpha: {s}, x: Tensor!, incx: int", _scal, 1, 1, 1, "x = alpha x."),
    "axpy": (
        "alpha: {s}, x: Tensor, incx: int, y: Tensor!, incy: int", _axpy, 2, 2, 1,
        "y = alpha x + y.",
    ),
    "asum": (
        "x: Tensor, incx: int, result: Tensor!", _asum, 1, 1, 0,
        "result[0] = sum of |x[i]|. result is a device tensor of shape (1,).",
    ),
    "dot": (
        "x: Tensor, incx: int, y: Tensor, incy: int, result: Tensor!", _dot, 2, 2, 0,
        "result[0] = sum of x[i] y[i]. result is a device tensor of shape (1,).",
    ),
}  # fmt: skip
_ROUTINES["dotu"] = _ROUTINES["dot"]
_ROUTINES["dotc"] = (
    _ROUTINES["dot"][0], _dotc, 2, 2, 0,
    "result[0] = sum of conj(x[i]) y[i]. result is a device tensor of shape (1,).",
)  # fmt: skip


def _cost(base: str, case: Case) -> Cost:
    _, _, flops, read, written, _ = _ROUTINES[base]
    dtype = case.tensors[0].dtype
    n = case.args[0]
    per = flops * (4 if dtype.is_complex else 1)
    return Cost(flops=per * n, nbytes=(read + written) * n * dtype.itemsize)


def _vector_operator(name: str) -> Operator:
    letter = name.removeprefix("cublas")[0]
    base = name.removeprefix("cublas")[1:].removesuffix("_v2")
    tail, meaning, *_, text = _ROUTINES[base]
    kind = "complex" if letter in "CZ" else "float"
    mutants: dict[str, Callable[[Args], Args]] = {"half of n": halving(0)}
    if "alpha" in tail:
        mutants["alpha ignored"] = setting(1, 1.0)
    if "incy" in tail:
        mutants["direction of x ignored"] = lambda args: tuple(
            abs(a) if i == tail.split(", ").index("incx: int") + 1 else a
            for i, a in enumerate(args)
        )
    if base == "dotc":
        mutants["conjugation ignored"] = rewriting(1, torch.conj_physical)
    return routine(
        f"{name}(n: int, {tail.format(s=kind)}) -> ()",
        "blas1",
        text,
        functools.partial(_cases, base, letter),
        meaning,
        functools.partial(_second, base),
        functools.partial(_cost, base),
        mutants,
        limit=2.0,
        why="one rounding a term; sums in any order over S = sum of |terms|",
        exact=base in ("copy", "swap"),
    )


OPERATORS = tuple(
    _vector_operator(f"cublas{name}_v2")
    for name in (
        "Ccopy",
        "Dcopy",
        "Zswap",
        "Sscal",
        "Saxpy",
        "Daxpy",
        "Sdot",
        "Cdotu",
        "Zdotc",
        "Dasum",
    )
)
