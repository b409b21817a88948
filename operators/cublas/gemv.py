"""cuBLAS matrix-vector products: y = alpha op(A) x + beta y, plain, strided and pointer batches.

Second statement: BLAS gemv through SciPy, in double precision.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from kernelmark.operators.cublas.layout import (
    LETTERS,
    OP_C,
    OP_N,
    OP_T,
    directed,
    matrix,
    stride_of,
    strided,
    transposed,
    vector,
)
from kernelmark.operators.cublas.routines import (
    Args,
    Values,
    halving,
    number,
    numbers,
    routine,
    scalars,
    setting,
)
from kernelmark.operators.records import Case, Cost, Operator, Pointers

#: (m, n, op(A), batch, origin)
_FULL = (
    (4096, 4096, OP_T, "Llama 3 8B query projection, one token"),
    (4096, 14336, OP_T, "Llama 3 8B MLP gate, one token"),
    (14336, 4096, OP_T, "Llama 3 8B MLP down, one token"),
    (4096, 32000, OP_T, "Llama 2 7B vocabulary head, one token"),
    (8192, 8192, OP_N, "Llama 3 70B output projection, one token"),
    (11008, 4096, OP_N, "Llama 2 7B MLP, one token"),
)
_FULL_BATCHED = (
    (128, 2048, OP_T, 512, "Llama 3 8B decoding scores, 2048 tokens, batch 16"),
    (128, 2048, OP_N, 512, "Llama 3 8B decoding values, 2048 tokens, batch 16"),
    (64, 1024, OP_T, 768, "GPT-2 small decoding scores, batch 64"),
    (64, 1024, OP_N, 768, "GPT-2 small decoding values, batch 64"),
    (2048, 768, OP_T, 64, "Qwen3-MoE expert projection, 64 active experts"),
    (512, 512, OP_N, 256, "MLA latent projection of 256 heads"),
)


def _gemv(
    trans: int, m: int, n: int, alpha: Any, a: Any, lda: int, x: Any, incx: int, beta: Any, y: Any,
    incy: int,
) -> Values:  # fmt: skip
    rows, cols = (m, n) if trans == OP_N else (n, m)
    part = transposed(a[..., :m, :n], trans)
    product = alpha * (part @ directed(x[..., :cols], incx).unsqueeze(-1)).squeeze(-1)
    new = y.clone()
    old = directed(y[..., :rows], incy)
    new[..., :rows] = directed(product if beta == 0 else product + beta * old, incy)
    return [new]


def _gemv_strided(
    trans: int, m: int, n: int, alpha: Any, a: Any, lda: int, sa: int, x: Any, incx: int, sx: int,
    beta: Any, y: Any, incy: int, sy: int, count: int,
) -> Values:  # fmt: skip
    return _gemv(trans, m, n, alpha, a, lda, x, incx, beta, y, incy)


def _gemv_pointers(
    trans: int, m: int, n: int, alpha: Any, a: Any, lda: int, x: Any, incx: int, beta: Any, y: Any,
    incy: int, count: int,
) -> Values:  # fmt: skip
    left, right, old = (table.stacked() for table in (a, x, y))
    return [y.unstacked(_gemv(trans, m, n, alpha, left, lda, right, incx, beta, old, incy)[0])]


def _blas(trans: int, alpha: Any, a: Any, x: Any, incx: int, beta: Any, y: Any, incy: int) -> Any:
    import numpy as np
    from scipy.linalg import blas

    gemv = blas.zgemv if y.dtype.kind == "c" else blas.dgemv
    old = (y if incy > 0 else y[::-1]) if beta else np.zeros_like(y)
    if a.size == 0:
        new = beta * old
    else:
        new = gemv(alpha, a, x if incx > 0 else x[::-1], beta, old, trans=trans)
    return new if incy > 0 else new[::-1]


def _second(*args: Any) -> list[Any]:
    trans, _, _, alpha, a, _, x, incx, beta, y, incy = numbers(args)
    return [_blas(trans, alpha, a, x, incx, beta, y, incy).copy()]


def _second_strided(*args: Any) -> list[Any]:
    import numpy as np

    trans, _, _, alpha, a, _, _, x, incx, _, beta, y, incy, _, _ = numbers(args)
    members = zip(a, x, y, strict=True)
    return [np.stack([_blas(trans, alpha, p, q, incx, beta, r, incy) for p, q, r in members])]


def _second_pointers(*args: Any) -> list[Any]:
    import numpy as np

    trans, _, _, alpha, a, _, x, incx, beta, y, incy, _ = numbers(args)
    members = zip(a, x, y, strict=True)
    new = [_blas(trans, alpha, p, q, incx, beta, r, incy) for p, q, r in members]
    return [y.unstacked(np.stack(new))]


#: m, n, op, alpha, beta, incx, incy, padding, NaN in y
Problem = tuple[int, int, int, Any, Any, int, int, int, bool]


def _small(letter: str) -> list[tuple[str, Problem, int]]:
    alpha, beta = scalars(letter)
    rows: list[tuple[str, Problem, int]] = [
        ("one", (1, 1, OP_N, 1.0, 0.0, 1, 1, 0, False), 2),
        ("square-n", (16, 16, OP_N, alpha, beta, 1, 1, 0, False), 1),
        ("square-t", (32, 32, OP_T, alpha, beta, 1, 1, 0, False), 2),
        ("tall-n", (65, 17, OP_N, alpha, 1.0, 1, 1, 3, False), 3),
        ("wide-t", (17, 70, OP_T, 1.0, beta, 1, 1, 2, False), 2),
        ("increments", (33, 20, OP_N, alpha, beta, 2, 3, 1, False), 2),
        ("backwards", (20, 33, OP_T, alpha, beta, -1, -2, 0, False), 2),
        ("beta-zero", (24, 40, OP_T, alpha, 0.0, 1, 2, 0, True), 2),
        ("deep", (8, 600, OP_N, 1.0, 0.0, 1, 1, 0, False), 2),
    ]
    if letter in "CZ":
        rows.append(("conjugate", (24, 33, OP_C, alpha, beta, 1, 1, 0, False), 2))
    return rows


def _case(form: str, letter: str, name: str, problem: Problem, batch: int, **more: Any) -> Case:
    m, n, trans, alpha, beta, incx, incy, pad, nan = problem
    dtype = LETTERS[letter]
    rows, cols = (m, n) if trans == OP_N else (n, m)
    a = matrix(m, n, dtype, pad)
    x = vector(cols, dtype, incx)
    y = vector(rows, dtype, incy, "nan" if nan else "normal")
    lda = (a.strides or ())[1]
    head = (trans, m, n, number(alpha, letter))
    last = number(beta, letter)
    if form == "plain":
        args: Args = (*head, a, lda, x, incx, last, y, incy)
    elif form == "strided":
        steps = [stride_of(s, pad) for s in (a, x, y)]
        big = [strided(s, batch, pad) for s in (a, x, y)]
        args = (*head, big[0], lda, steps[0], big[1], incx, steps[1], last, big[2], incy, steps[2])
        args = (*args, batch)
    else:
        t = [Pointers(s, batch) for s in (a, x, y)]
        args = (*head, t[0], lda, t[1], incx, last, t[2], incy, batch)
    return Case(name, args, **more)


@functools.cache
def _cases(form: str, letter: str) -> Sequence[Case]:
    batched = form != "plain"
    cases = [_case(form, letter, name, problem, count) for name, problem, count in _small(letter)]
    shapes = _FULL_BATCHED if batched else tuple((m, n, t, 1, o) for m, n, t, o in _FULL)
    for i, (m, n, trans, batch, origin) in enumerate(shapes):
        problem: Problem = (m, n, trans, 1.0, 1.0 if i == 1 else 0.0, 1, 1, 0, False)
        name = f"full-{m}x{n}-{'ntc'[trans]}" + (f"x{batch}" if batched else "")
        cases.append(_case(form, letter, name, problem, batch, tier="full", origin=origin))
    return tuple(cases)


def _cost(form: str, case: Case) -> Cost:
    _, m, n = case.args[:3]
    batch = 1 if form == "plain" else case.args[-1]
    beta = next(x for x in case.args[4:] if isinstance(x, float | complex))
    out = case.tensors[-1].nbytes
    read = sum(spec.nbytes for spec in case.tensors) - (0 if beta else out)
    per = 8 if case.tensors[0].dtype.is_complex else 2
    return Cost(flops=per * m * n * batch, nbytes=read + out)


_FORMS: dict[str, tuple[Callable[..., Values], Callable[..., Any], str, int]] = {
    "plain": (
        _gemv,
        _second,
        "A: Tensor, lda: int, x: Tensor, incx: int, beta: {s}, y: Tensor!, incy: int",
        8,
    ),
    "strided": (
        _gemv_strided,
        _second_strided,
        "A: Tensor, lda: int, strideA: int, x: Tensor, incx: int, stridex: int, beta: {s}, "
        "y: Tensor!, incy: int, stridey: int, batchCount: int",
        10,
    ),
    "pointers": (
        _gemv_pointers,
        _second_pointers,
        "Aarray: Tensor, lda: int, xarray: Tensor, incx: int, beta: {s}, yarray: Tensor!, "
        "incy: int, batchCount: int",
        8,
    ),
}


def _x_shape(t: int, m: int, n: int, al: Any, a: Any, lda: int, x: Any, incx: int, *_: Any) -> Any:
    return ((n if t == OP_N else m,), (abs(incx),))


def _y_shape(t: int, m: int, n: int, *rest: Any) -> Any:
    return ((m if t == OP_N else n,), (abs(rest[-2]),))


_TABLES: dict[str, Callable[..., Any]] = {
    "Aarray": lambda t, m, n, al, a, lda, *_: ((m, n), (1, lda)),
    "xarray": _x_shape,
    "yarray": _y_shape,
}


def _gemv_operator(name: str, form: str, family: str) -> Operator:
    letter = name.removeprefix("cublas")[0]
    meaning, second, tail, beta = _FORMS[form]
    kind = "complex" if letter in "CZ" else "float"
    mutants: dict[str, Callable[[Args], Args]] = {
        "alpha ignored": setting(3, 1.0),
        "beta ignored": setting(beta, 0.0),
        "half of m": halving(1),
        "half of n": halving(2),
    }
    if kind == "complex":
        mutants["conjugation ignored"] = lambda args: (OP_T if args[0] else OP_N, *args[1:])
    batch = "" if form == "plain" else " for each of batchCount members"
    return routine(
        f"{name}(trans: int, m: int, n: int, alpha: {kind}, {tail.format(s=kind)}) -> ()",
        family,
        f"y = alpha op(A) x + beta y{batch}; A is m by n as stored, op is the matrix, its "
        "transpose or its conjugate transpose. y is not read where beta is 0.",
        functools.partial(_cases, form, letter),
        meaning,
        second,
        functools.partial(_cost, form),
        mutants,
        depth=lambda trans, m, n, *_: int(n if trans == OP_N else m),
        why="a row's products accumulated in the real dtype; S = |alpha||A||x| + |beta||y|",
        shapes=_TABLES if form == "pointers" else None,
    )


OPERATORS = (
    _gemv_operator("cublasCgemv_v2", "plain", "blas2"),
    _gemv_operator("cublasDgemv_v2", "plain", "blas2"),
    *(_gemv_operator(f"cublas{x}gemvStridedBatched", "strided", "blas2-batched") for x in "SDCZ"),
    *(_gemv_operator(f"cublas{x}gemvBatched", "pointers", "blas2-batched") for x in "SDZ"),
    _gemv_operator("cublasCgemvBatched_64", "pointers", "blas2-batched"),
)
