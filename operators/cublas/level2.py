"""cuBLAS level 2 beside gemv: rank updates, symmetric, banded and triangular matrices.

Second statement: SciPy's BLAS in double precision (symv by symm with one column).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from kernelmark.operators.cublas.layout import (
    LETTERS,
    LOWER,
    NON_UNIT,
    OP_N,
    OP_T,
    UNIT,
    UPPER,
    directed,
    in_triangle,
    matrix,
    symmetric,
    transposed,
    triangle,
    vector,
)
from kernelmark.operators.cublas.routines import (
    Args,
    Values,
    flipping,
    halving,
    number,
    numbers,
    rewriting,
    routine,
    scalars,
    setting,
)
from kernelmark.operators.cublas.triangular import condition_scale, well_conditioned
from kernelmark.operators.records import Case, Cost, Operator


def _outer(x: Any, y: Any) -> Any:
    return x.unsqueeze(1) * y.unsqueeze(0)


def _ger(
    m: int, n: int, alpha: Any, x: Any, incx: int, y: Any, incy: int, a: Any, lda: int
) -> Values:
    new = a.clone()
    new[:m, :n] += alpha * _outer(directed(x[:m], incx), directed(y[:n], incy))
    return [new]


def _gerc(m: int, n: int, alpha: Any, x: Any, incx: int, y: Any, *rest: Any) -> Values:
    return _ger(m, n, alpha, x, incx, y.conj(), *rest)


def _symv(
    uplo: int, n: int, alpha: Any, a: Any, lda: int, x: Any, incx: int, beta: Any, y: Any, incy: int
) -> Values:
    product = alpha * (symmetric(a[:n, :n], uplo) @ directed(x[:n], incx))
    return [_updated(y, n, incy, beta, product)]


def _updated(y: Any, n: int, incy: int, beta: Any, product: Any) -> Any:
    new = y.clone()
    old = directed(y[:n], incy)
    new[:n] = directed(product if beta == 0 else product + beta * old, incy)
    return new


def _diagonal(a: Any, uplo: int, k: int, d: int, n: int) -> Any:
    """Diagonal number d (0 is the main one) of a band matrix, its n - d elements."""
    return a[d, : n - d] if uplo == LOWER else a[k - d, d:n]


def _sbmv(
    uplo: int, n: int, k: int, alpha: Any, a: Any, lda: int, x: Any, incx: int, beta: Any, y: Any,
    incy: int,
) -> Values:  # fmt: skip
    v = directed(x[:n], incx)
    product = torch.zeros_like(v)
    for d in range(min(k + 1, n)):
        band = _diagonal(a, uplo, k, d, n)
        product[d:] += band * v[: n - d]
        if d:
            product[: n - d] += band * v[d:]
    return [_updated(y, n, incy, beta, alpha * product)]


def _tbmv(
    uplo: int, trans: int, diag: int, n: int, k: int, a: Any, lda: int, x: Any, incx: int
) -> Values:
    v = directed(x[:n], incx)
    product = torch.zeros_like(v)
    down = (uplo == LOWER) == (trans == OP_N)  # the band moves elements to larger indices
    for d in range(min(k + 1, n)):
        band = _diagonal(a, uplo, k, d, n)
        if d == 0:
            product += v if diag == UNIT else band * v
        elif down:
            product[d:] += band * v[: n - d]
        else:
            product[: n - d] += band * v[d:]
    return [_updated(x, n, incx, 0, product)]


def _syr2(
    uplo: int, n: int, alpha: Any, x: Any, incx: int, y: Any, incy: int, a: Any, lda: int
) -> Values:
    p, q = directed(x[:n], incx), directed(y[:n], incy)
    new = a.clone()
    update = alpha * (_outer(p, q) + _outer(q, p))
    new[:n, :n] = torch.where(in_triangle(a[:n, :n], uplo), a[:n, :n] + update, a[:n, :n])
    return [new]


def _trsv(uplo: int, trans: int, diag: int, n: int, a: Any, lda: int, x: Any, incx: int) -> Values:
    t = transposed(triangle(a[:n, :n], uplo, diag), trans)
    upper = (uplo == UPPER) == (trans == OP_N)
    right = directed(x[:n], incx).unsqueeze(1)
    solved = torch.linalg.solve_triangular(t, right, upper=upper).squeeze(1)
    return [_updated(x, n, incx, 0, solved)]


def _trsv_scale(
    uplo: int, trans: int, diag: int, n: int, a: Any, lda: int, x: Any, incx: int
) -> Values:
    t = transposed(triangle(a[:n, :n], uplo, diag), trans)
    upper = (uplo == UPPER) == (trans == OP_N)
    (solved,) = _trsv(uplo, trans, diag, n, a, lda, x, incx)
    scale = condition_scale(t, directed(solved, incx).unsqueeze(1), upper).squeeze(1)
    return [_updated(x.abs(), n, incx, 0, scale)]


def _walk(x: Any, inc: int) -> Any:
    return (x if inc > 0 else x[::-1]).copy()


def _second(base: str, *args: Any) -> list[Any]:
    import numpy as np
    from scipy.linalg import blas

    g = numbers(args)
    if base in ("ger", "geru", "gerc"):
        ger = {"ger": blas.dger, "geru": blas.zgeru, "gerc": blas.zgerc}[base]
        _, _, alpha, x, incx, y, incy, a, _ = g
        if a.size == 0:
            return [a]
        return [ger(alpha, _walk(x, incx), _walk(y, incy), a=a.copy(order="F"))]
    if base == "symv":
        uplo, n, alpha, a, _, x, incx, beta, y, incy = g
        old = np.zeros(n, y.dtype) if beta == 0 else _walk(y, incy)
        column = blas.zsymm(
            alpha, a, _walk(x, incx)[:, None], beta, old[:, None], lower=uplo == LOWER
        )
        return [_walk(column[:, 0], incy)]
    if base == "sbmv":
        uplo, _, k, alpha, a, _, x, incx, beta, y, incy = g
        old = np.zeros_like(y) if beta == 0 else _walk(y, incy)
        new = blas.dsbmv(k, alpha, a, _walk(x, incx), beta=beta, y=old, lower=uplo == LOWER)
        return [_walk(new, incy)]
    if base == "tbmv":
        uplo, trans, diag, _, k, a, _, x, incx = g
        new = blas.dtbmv(k, a, _walk(x, incx), lower=uplo == LOWER, trans=trans, diag=diag)
        return [_walk(new, incx)]
    if base == "syr2":
        uplo, _, alpha, x, incx, y, incy, a, _ = g
        p, q = _walk(x, incx), _walk(y, incy)
        return [blas.dsyr2(alpha, p, q, a=a.copy(order="F"), lower=uplo == LOWER)]
    uplo, trans, diag, _, a, _, x, incx = g
    new = blas.dtrsv(a, _walk(x, incx), lower=uplo == LOWER, trans=trans, diag=diag)
    return [_walk(new, incx)]


def _arguments(base: str, letter: str, **o: Any) -> Args:
    """A routine's arguments from options m, n, k, uplo, trans, diag, incx, incy, pad, beta, nan."""
    dtype = LETTERS[letter]
    alpha, other = (number(v, letter) for v in scalars(letter))
    n, m, k = o["n"], o.get("m", o["n"]), o.get("k", 0)
    uplo, trans, diag = o.get("uplo", LOWER), o.get("trans", OP_N), o.get("diag", NON_UNIT)
    incx, incy, pad = o.get("incx", 1), o.get("incy", 1), o.get("pad", 0)
    beta = number(o["beta"], letter) if "beta" in o else other
    x, y = vector(n, dtype, incx), vector(n, dtype, incy, "nan" if o.get("nan") else "normal")
    a, lda = matrix(m, n, dtype, pad), max(m + pad, 1)
    band, ldb = matrix(k + 1, n, dtype, pad), k + 1 + pad
    return {
        "ger": (m, n, alpha, vector(m, dtype, incx), incx, y, incy, a, lda),
        "symv": (uplo, n, alpha, a, lda, x, incx, beta, y, incy),
        "sbmv": (uplo, n, k, alpha, band, ldb, x, incx, beta, y, incy),
        "tbmv": (uplo, trans, diag, n, k, band, ldb, x, incx),
        "syr2": (uplo, n, alpha, x, incx, y, incy, a, lda),
        "trsv": (uplo, trans, diag, n, a, lda, x, incx),
    }[{"geru": "ger", "gerc": "ger"}.get(base, base)]


Options = dict[str, dict[str, Any]]

_RANK_SMALL: Options = {
    "one": {"n": 1},
    "square": {"n": 32},
    "tails": {"m": 71, "n": 33, "pad": 2},
    "wide": {"m": 5, "n": 200},
    "increments": {"m": 40, "n": 33, "incx": 2, "incy": 3},
    "backwards": {"m": 24, "n": 17, "incx": -1, "incy": -2},
    "empty": {"m": 0, "n": 4},
}
_SYMMETRIC_SMALL: Options = {
    "one": {"n": 1},
    "lower": {"n": 33, "uplo": LOWER},
    "upper": {"n": 33, "uplo": UPPER},
    "padded": {"n": 64, "uplo": LOWER, "pad": 5},
    "increments": {"n": 40, "uplo": UPPER, "incx": 2, "incy": 3},
    "backwards": {"n": 24, "uplo": LOWER, "incx": -2, "incy": -1},
    "beta-zero": {"n": 20, "uplo": UPPER, "beta": 0.0, "nan": True},
    "beta-one": {"n": 71, "uplo": LOWER, "beta": 1.0},
}
_BAND_SMALL: Options = {
    name: {**options, "k": k}
    for (name, options), k in zip(_SYMMETRIC_SMALL.items(), (0, 2, 3, 7, 1, 5, 4, 16), strict=True)
}
_TRIANGULAR_SMALL: Options = {
    "one": {"n": 1},
    **{
        f"{'lu'[u]}{'nt'[t]}{'-unit' if d else ''}": {"n": 33, "uplo": u, "trans": t, "diag": d}
        for u in (LOWER, UPPER)
        for t in (OP_N, OP_T)
        for d in (NON_UNIT, UNIT)
    },
    "padded": {"n": 71, "uplo": LOWER, "pad": 5},
    "increments": {"n": 40, "uplo": UPPER, "trans": OP_T, "incx": 3},
    "backwards": {"n": 24, "uplo": LOWER, "incx": -2},
}
_TRIANGULAR_BAND_SMALL: Options = {
    name: {**options, "k": 0 if name == "one" else 1 + i % 5}
    for i, (name, options) in enumerate(_TRIANGULAR_SMALL.items())
}
_RANK_FULL: Options = {
    "BERT base attention weight, rank-one update": {"m": 768, "n": 30522},
    "Llama 3 8B query weight, rank-one update": {"n": 4096},
    "Llama 3 8B MLP weight, rank-one update": {"m": 14336, "n": 4096},
    "Llama 2 7B MLP weight, rank-one update": {"m": 4096, "n": 11008},
    "Llama 3 70B output weight, rank-one update": {"n": 8192},
    "GPT-2 small head, rank-one update": {"m": 50257, "n": 768},
}
_SQUARE_FULL: Options = {
    "Shampoo preconditioner of BERT base MLP": {"n": 3072},
    "Shampoo preconditioner of Llama 3 8B attention": {"n": 4096},
    "Shampoo preconditioner of Llama 2 13B attention": {"n": 5120, "uplo": UPPER},
    "Gaussian process over 6144 points": {"n": 6144},
    "Shampoo preconditioner of Llama 3 70B attention": {"n": 8192},
    "Gaussian process over 10000 points": {"n": 10000, "uplo": UPPER},
}
_BAND_FULL: Options = {
    "Poisson equation in one dimension, 8 M points": {"n": 1 << 23, "k": 1},
    "fourth-order stencil, 8 M points": {"n": 1 << 23, "k": 2, "uplo": UPPER},
    "cubic spline system, 8 M knots": {"n": 1 << 23, "k": 3},
    "local attention window of 8, 4 M tokens": {"n": 1 << 22, "k": 8},
    "finite elements, half bandwidth 16": {"n": 1 << 21, "k": 16, "uplo": UPPER},
    "finite elements, half bandwidth 32": {"n": 1 << 20, "k": 32},
}
_TRSV_FULL: Options = {
    "Gaussian process over 1024 points": {"n": 1024},
    "Shampoo solve of BERT base MLP": {"n": 3072, "uplo": UPPER},
    "GPTQ Hessian of Llama 3 8B attention": {"n": 4096},
    "GPTQ Hessian of Llama 3 8B attention, transposed": {"n": 4096, "trans": OP_T},
    "GPTQ Hessian of Llama 2 13B attention": {"n": 5120, "uplo": UPPER, "diag": UNIT},
    "GPTQ Hessian of Llama 3 70B attention": {"n": 8192},
}


@functools.cache
def _cases(base: str, letter: str) -> Sequence[Case]:
    small, full = _ROUTINES[base].small, _ROUTINES[base].full
    cases = [Case(name, _arguments(base, letter, **o)) for name, o in small.items()]
    for origin, o in full.items():
        name = "full-" + "-".join(f"{key}{value}" for key, value in o.items())
        args = _arguments(base, letter, **o)
        cases.append(Case(name, args, tier="full", origin=origin))
    return tuple(cases)


def _cost(base: str, case: Case) -> Cost:
    """Half of a symmetric or triangular matrix is compulsory traffic, all of a general one."""
    dtype, args = case.tensors[0].dtype, case.args
    per = 4 if dtype.is_complex else 1
    if base.startswith("ger"):
        m, n = args[:2]
        return Cost(2 * per * m * n, (2 * m * n + m + n) * dtype.itemsize)
    if base in ("sbmv", "tbmv"):
        n, k = (args[1], args[2]) if base == "sbmv" else (args[3], args[4])
        flops = (4 if base == "sbmv" else 2) * per * n * (k + 1)
        return Cost(flops, ((k + 1) * n + (3 if base == "sbmv" else 2) * n) * dtype.itemsize)
    n = args[1] if base in ("symv", "syr2") else args[3]
    half = n * (n + 1) // 2
    moved = {"symv": half + 3 * n, "syr2": 2 * half + 2 * n, "trsv": half + 2 * n}[base]
    return Cost((2 if base == "trsv" else 4) * per * half, moved * dtype.itemsize)


class _Routine:
    """Facts of one base name."""

    def __init__(
        self,
        tail: str,
        meaning: Callable[..., Values],
        text: str,
        small: Options,
        full: Options,
        mutants: dict[str, Callable[[Args], Args]],
    ) -> None:
        self.tail, self.meaning, self.text = tail, meaning, text
        self.small, self.full, self.mutants = small, full, mutants


_RANK = (
    "m: int, n: int, alpha: {s}, x: Tensor, incx: int, y: Tensor, incy: int, A: Tensor!, lda: int"
)
_RANK_MUTANTS: dict[str, Callable[[Args], Args]] = {
    "alpha ignored": setting(2, 1.0),
    "half of n": halving(1),
    "half of m": halving(0),
}
_TRIANGULAR_MUTANTS: dict[str, Callable[[Args], Args]] = {
    "transposition ignored": lambda args: (args[0], OP_N, *args[2:]),
    "the other triangle": flipping(0),
    "diagonal kind ignored": lambda args: (*args[:2], NON_UNIT, *args[3:]),
}
_ROUTINES = {
    "ger": _Routine(
        _RANK, _ger, "A = alpha x y^T + A; A is m by n.", _RANK_SMALL, _RANK_FULL, _RANK_MUTANTS
    ),
    "geru": _Routine(
        _RANK,
        _ger,
        "A = alpha x y^T + A without conjugation; A is m by n.",
        _RANK_SMALL,
        _RANK_FULL,
        {
            **_RANK_MUTANTS,
            "y conjugated": rewriting(5, torch.conj_physical),
        },
    ),
    "gerc": _Routine(
        _RANK,
        _gerc,
        "A = alpha x conj(y)^T + A; A is m by n.",
        _RANK_SMALL,
        _RANK_FULL,
        {
            **_RANK_MUTANTS,
            "y not conjugated": rewriting(5, torch.conj_physical),
        },
    ),
    "symv": _Routine(
        "uplo: int, n: int, alpha: {s}, A: Tensor, lda: int, x: Tensor, incx: int, beta: {s}, "
        "y: Tensor!, incy: int",
        _symv,
        "y = alpha A x + beta y; A is n by n, symmetric (not Hermitian), one triangle stored. y is "
        "not read where beta is 0.",
        _SYMMETRIC_SMALL,
        _SQUARE_FULL,
        {
            "alpha ignored": setting(2, 1.0),
            "beta ignored": setting(7, 0.0),
            "the other triangle": flipping(0),
            "half of n": halving(1),
        },
    ),
    "sbmv": _Routine(
        "uplo: int, n: int, k: int, alpha: {s}, A: Tensor, lda: int, x: Tensor, incx: int, "
        "beta: {s}, y: Tensor!, incy: int",
        _sbmv,
        "y = alpha A x + beta y; A is n by n, symmetric, with k diagonals on each side, stored by "
        "columns as a band of k + 1 rows: with uplo lower, element (i, j) stands in row i - j of "
        "column j; with upper in row k + i - j. y is not read where beta is 0.",
        _BAND_SMALL,
        _BAND_FULL,
        {
            "alpha ignored": setting(3, 1.0),
            "beta ignored": setting(8, 0.0),
            "half of n": halving(1),
        },
    ),
    "tbmv": _Routine(
        "uplo: int, trans: int, diag: int, n: int, k: int, A: Tensor, lda: int, x: Tensor!, "
        "incx: int",
        _tbmv,
        "x = op(A) x; A is n by n, triangular, with k diagonals beside the main one, stored by "
        "columns as a band of k + 1 rows: with uplo lower, element (i, j) stands in row i - j of "
        "column j; with upper in row k + i - j. A unit diagonal is not read.",
        _TRIANGULAR_BAND_SMALL,
        _BAND_FULL,
        {k: v for k, v in _TRIANGULAR_MUTANTS.items() if k != "the other triangle"},
    ),
    "syr2": _Routine(
        "uplo: int, n: int, alpha: {s}, x: Tensor, incx: int, y: Tensor, incy: int, A: Tensor!, "
        "lda: int",
        _syr2,
        "A = alpha (x y^T + y x^T) + A over the stored triangle of the symmetric n by n matrix A.",
        {k: v for k, v in _SYMMETRIC_SMALL.items() if not k.startswith("beta")},
        _SQUARE_FULL,
        {
            "alpha ignored": setting(2, 1.0),
            "the other triangle": flipping(0),
            "half of n": halving(1),
        },
    ),
    "trsv": _Routine(
        "uplo: int, trans: int, diag: int, n: int, A: Tensor, lda: int, x: Tensor!, incx: int",
        _trsv,
        "Solves op(A) x = b, b given in x and replaced by the solution; A is n by n, triangular. A "
        "unit diagonal is not read.",
        _TRIANGULAR_SMALL,
        _TRSV_FULL,
        _TRIANGULAR_MUTANTS,
    ),
}


def _level2_operator(name: str) -> Operator:
    letter = name.removeprefix("cublas")[0]
    base = name.removeprefix("cublas")[1:].removesuffix("_v2")
    facts = _ROUTINES[base]
    kind = "complex" if letter in "CZ" else "float"
    solve = base == "trsv"
    return routine(
        f"{name}({facts.tail.format(s=kind)}) -> ()",
        "blas2",
        facts.text,
        functools.partial(_cases, base, letter),
        facts.meaning,
        functools.partial(_second, base),
        functools.partial(_cost, base),
        facts.mutants,
        scale=_trsv_scale if solve else None,
        depth=(lambda uplo, n, *_: int(n)) if base == "symv" else None,
        why="componentwise bound |A^-1||A||x| of substitution" if solve else "S over moduli",
        prepare=functools.partial(well_conditioned, argument=4) if solve else None,
    )


OPERATORS = tuple(
    _level2_operator(f"cublas{name}_v2")
    for name in ("Sger", "Cgeru", "Zgerc", "Csymv", "Dsbmv", "Dsyr2", "Stbmv", "Strsv")
)
