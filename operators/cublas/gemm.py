"""cuBLAS general matrix products, C = alpha op(A) op(B) + beta C: plain and batched.

Second statement: BLAS gemm through SciPy, in double precision.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from kernelmark.operators.cublas.layout import (
    DATA_TYPES,
    LETTERS,
    OP_C,
    OP_N,
    OP_T,
    matrix,
    stride_of,
    strided,
    transposed,
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

#: (m, n, k, op(A), op(B), batch, origin): batch 1 for plain products
_FULL = (
    (4096, 2048, 4096, OP_T, OP_N, "Llama 3 8B query projection, 2048 tokens"),
    (1024, 4096, 4096, OP_T, OP_N, "Llama 3 8B key projection, 4096 tokens"),
    (14336, 512, 4096, OP_T, OP_N, "Llama 3 8B MLP gate, 512 tokens"),
    (4096, 512, 14336, OP_T, OP_N, "Llama 3 8B MLP down, 512 tokens"),
    (3072, 4096, 768, OP_N, OP_N, "GPT-2 small MLP, 4096 tokens"),
    (1024, 1024, 8192, OP_N, OP_T, "BERT large weight gradient, 8192 tokens"),
)
_FULL_BATCHED = (
    (512, 512, 64, OP_T, OP_N, 256, "BERT large attention scores, batch 16"),
    (64, 512, 512, OP_N, OP_N, 256, "BERT large attention values, batch 16"),
    (1024, 1024, 64, OP_T, OP_N, 48, "GPT-2 small attention scores, batch 4"),
    (197, 197, 64, OP_T, OP_N, 384, "ViT-B/16 attention scores, batch 32"),
    (2048, 128, 1024, OP_T, OP_N, 32, "Qwen3-MoE expert, 128 tokens for each of 32 experts"),
    (128, 2048, 2048, OP_N, OP_N, 32, "Llama 3 8B attention values of 32 heads, 2048 tokens"),
)
_WHY = "K products accumulated in the output's real dtype or wider; S = |alpha||A||B| + |beta||C|"


def _product(ta: int, tb: int, m: int, n: int, k: int, alpha: Any, a: Any, b: Any) -> torch.Tensor:
    left = transposed(a, ta)[..., :m, :k]
    right = transposed(b, tb)[..., :k, :n]
    return alpha * (left @ right)


def _update(c: torch.Tensor, beta: Any, product: torch.Tensor) -> torch.Tensor:
    """beta C is not read where beta is 0, so NaN in C does not spread."""
    return product if beta == 0 else product + beta * c


def _gemm(
    ta: int, tb: int, m: int, n: int, k: int, alpha: Any, a: Any, lda: int, b: Any, ldb: int,
    beta: Any, c: Any, ldc: int,
) -> Values:  # fmt: skip
    return [_update(c, beta, _product(ta, tb, m, n, k, alpha, a, b))]


def _gemm_strided(
    ta: int, tb: int, m: int, n: int, k: int, alpha: Any, a: Any, lda: int, sa: int, b: Any,
    ldb: int, sb: int, beta: Any, c: Any, ldc: int, sc: int, count: int,
) -> Values:  # fmt: skip
    return _gemm(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)


def _gemm_pointers(
    ta: int, tb: int, m: int, n: int, k: int, alpha: Any, a: Any, lda: int, b: Any, ldb: int,
    beta: Any, c: Any, ldc: int, count: int,
) -> Values:  # fmt: skip
    left, right, old = (table.stacked() for table in (a, b, c))
    (new,) = _gemm(ta, tb, m, n, k, alpha, left, lda, right, ldb, beta, old, ldc)
    return [c.unstacked(new)]


def _gemm_ex(
    ta: int, tb: int, m: int, n: int, k: int, alpha: Any, a: Any, atype: int, lda: int, b: Any,
    btype: int, ldb: int, beta: Any, c: Any, ctype: int, ldc: int,
) -> Values:  # fmt: skip
    return _gemm(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)


def _blas(ta: int, tb: int, k: int, alpha: Any, a: Any, b: Any, beta: Any, c: Any) -> Any:
    """One product by SciPy's BLAS; c is replaced by zeros where beta is 0."""
    from scipy.linalg import blas

    gemm = blas.zgemm if c.dtype.kind == "c" else blas.dgemm
    old = c if beta else c * 0
    if beta == 0:
        old = old.copy()
        old[...] = 0
    if k == 0 or c.size == 0:
        return beta * old
    return gemm(alpha, a, b, beta, old, trans_a=ta, trans_b=tb)


def _second(*args: Any) -> list[Any]:
    ta, tb, _, _, k, alpha, a, _, b, _, beta, c, _ = numbers(args)
    return [_blas(ta, tb, k, alpha, a, b, beta, c)]


def _second_strided(*args: Any) -> list[Any]:
    import numpy as np

    ta, tb, _, _, k, alpha, a, _, _, b, _, _, beta, c, _, _, _ = numbers(args)
    members = [_blas(ta, tb, k, alpha, x, y, beta, z) for x, y, z in zip(a, b, c, strict=True)]
    return [np.stack(members)]


def _second_pointers(*args: Any) -> list[Any]:
    import numpy as np

    ta, tb, _, _, k, alpha, a, _, b, _, beta, c, _, _ = numbers(args)
    members = [_blas(ta, tb, k, alpha, x, y, beta, z) for x, y, z in zip(a, b, c, strict=True)]
    return [c.unstacked(np.stack(members))]


def _second_ex(*args: Any) -> list[Any]:
    ta, tb, _, _, k, alpha, a, _, _, b, _, _, beta, c, _, _ = numbers(args)
    return [_blas(ta, tb, k, alpha, a, b, beta, c)]


Problem = tuple[int, int, int, int, int, Any, Any, int, bool]


def _small(letter: str) -> list[tuple[str, Problem, int]]:
    """(name, (m, n, k, ta, tb, alpha, beta, padding, NaN in C), batch): small ones."""
    full, some = scalars(letter)
    rows: list[tuple[str, Problem, int]] = [
        ("one", (1, 1, 1, OP_N, OP_N, 1.0, 0.0, 0, False), 2),
        ("square-nn", (16, 16, 16, OP_N, OP_N, full, some, 0, False), 1),
        ("square-tt", (16, 16, 16, OP_T, OP_T, full, some, 0, False), 2),
        ("tails-nt", (33, 17, 65, OP_N, OP_T, full, 1.0, 3, False), 3),
        ("tails-tn", (17, 40, 31, OP_T, OP_N, 1.0, some, 5, False), 2),
        ("beta-zero", (24, 20, 40, OP_N, OP_N, full, 0.0, 1, True), 2),
        ("alpha-zero", (12, 9, 20, OP_T, OP_N, 0.0, some, 0, False), 1),
        ("inner-empty", (8, 8, 0, OP_N, OP_N, 1.0, some, 0, False), 1),
        ("deep", (8, 8, 300, OP_N, OP_N, 1.0, 0.0, 0, False), 2),
    ]
    if letter in "CZ":
        rows += [
            ("conj-n", (16, 16, 16, OP_C, OP_N, full, some, 2, False), 2),
            ("n-conj", (16, 16, 16, OP_N, OP_C, full, some, 0, False), 2),
            ("conj-t", (20, 33, 18, OP_C, OP_T, full, 1.0, 0, False), 2),
        ]
    return rows


def _operands(problem: Problem, dtype: torch.dtype) -> tuple[Any, Any, Any]:
    m, n, k, ta, tb, _, _, pad, nan = problem
    a = matrix(m, k, dtype, pad) if ta == OP_N else matrix(k, m, dtype, pad)
    b = matrix(k, n, dtype, pad) if tb == OP_N else matrix(n, k, dtype, pad)
    return a, b, matrix(m, n, dtype, pad, "nan" if nan else "normal")


def _ld(spec: Any) -> int:
    return spec.strides[1]


def _case(
    form: str, letter: str, name: str, problem: Problem, batch: int, types: Any = None, **more: Any
) -> Case:
    """One case in the argument order of `form`: plain, strided, pointers or ex."""
    m, n, k, ta, tb, alpha, beta, pad, _ = problem
    dtype = LETTERS[letter]
    in_type, out_type = types or (dtype, dtype)
    a, b, _ = _operands(problem, in_type)
    c = _operands(problem, out_type)[2]
    head = (ta, tb, m, n, k, number(alpha, letter))
    second = number(beta, letter)
    if form == "plain":
        args: Args = (*head, a, _ld(a), b, _ld(b), second, c, _ld(c))
    elif form == "ex":
        ta_, tc_ = DATA_TYPES[in_type], DATA_TYPES[out_type]
        args = (*head, a, ta_, _ld(a), b, ta_, _ld(b), second, c, tc_, _ld(c))
    elif form == "strided":
        gaps = [(spec, stride_of(spec, pad)) for spec in (a, b, c)]
        big = [(strided(spec, batch, pad), _ld(spec), step) for spec, step in gaps]
        args = (*head, *big[0], *big[1], second, *big[2], batch)
    else:
        tables = [(Pointers(spec, batch), _ld(spec)) for spec in (a, b, c)]
        args = (*head, *tables[0], *tables[1], second, *tables[2], batch)
    if letter == "H":  # products of values scaled by 64 overflow a float16 accumulator
        more["draws"] = ("base", "base", "small", "structured")
    return Case(name, args, **more)


@functools.cache
def _cases(form: str, letter: str) -> Sequence[Case]:
    batched = form in ("strided", "pointers")
    cases = [_case(form, letter, name, problem, batch) for name, problem, batch in _small(letter)]
    if form == "ex":
        cases += [
            _case(form, letter, f"half-in-{out}", _small(letter)[3][1], 1, types)
            for out, types in {
                "float-out": (torch.float16, torch.float32),
                "half-out": (torch.float16, torch.float16),
                "bfloat16": (torch.bfloat16, torch.bfloat16),
                "bfloat16-float-out": (torch.bfloat16, torch.float32),
            }.items()
        ]
    shapes = _FULL_BATCHED if batched else tuple((*s[:5], 1, s[5]) for s in _FULL)
    for i, (m, n, k, ta, tb, batch, origin) in enumerate(shapes):
        beta = 1.0 if i == 1 else 0.0
        types = ((torch.float16, torch.float32) if i % 2 else None) if form == "ex" else None
        problem = (m, n, k, ta, tb, 1.0, beta, 0, False)
        name = f"full-{m}x{n}x{k}" + (f"x{batch}" if batched else "")
        cases.append(_case(form, letter, name, problem, batch, types, tier="full", origin=origin))
    return tuple(cases)


def _cost(form: str, case: Case) -> Cost:
    m, n, k = case.args[2:5]
    batch = case.args[-1] if form in ("strided", "pointers") else 1
    complex_ = case.tensors[0].dtype.is_complex
    beta = next(x for x in case.args[6:] if isinstance(x, float | complex))
    out = case.tensors[-1].dtype.itemsize * m * n * batch
    read = sum(spec.nbytes for spec in case.tensors) - (0 if beta else out)
    return Cost(flops=(8 if complex_ else 2) * m * n * k * batch, nbytes=read + out)


_FORMS: dict[str, tuple[Callable[..., Values], Callable[..., Any], str]] = {
    "plain": (
        _gemm,
        _second,
        "A: Tensor, lda: int, B: Tensor, ldb: int, beta: {s}, C: Tensor!, ldc: int",
    ),
    "strided": (
        _gemm_strided,
        _second_strided,
        "A: Tensor, lda: int, strideA: int, B: Tensor, ldb: int, strideB: int, beta: {s}, "
        "C: Tensor!, ldc: int, strideC: int, batchCount: int",
    ),
    "pointers": (
        _gemm_pointers,
        _second_pointers,
        "Aarray: Tensor, lda: int, Barray: Tensor, ldb: int, beta: {s}, "
        "Carray: Tensor!, ldc: int, batchCount: int",
    ),
    "ex": (
        _gemm_ex,
        _second_ex,
        "A: Tensor, Atype: int, lda: int, B: Tensor, Btype: int, ldb: int, beta: {s}, "
        "C: Tensor!, Ctype: int, ldc: int",
    ),
}
_BETA = {"plain": 10, "strided": 12, "pointers": 10, "ex": 12}
_TABLES: dict[str, Callable[..., Any]] = {
    "Aarray": lambda ta, tb, m, n, k, al, a, lda, *_: ((m, k) if ta == 0 else (k, m), (1, lda)),
    "Barray": lambda ta, tb, m, n, k, al, a, lda, b, ldb, *_: (
        (k, n) if tb == 0 else (n, k),
        (1, ldb),
    ),
    "Carray": lambda ta, tb, m, n, k, al, a, lda, b, ldb, be, c, ldc, *_: ((m, n), (1, ldc)),
}


def _gemm_operator(name: str, form: str, family: str) -> Operator:
    letter = name.removeprefix("cublas")[0]
    meaning, second, tail = _FORMS[form]
    kind = "complex" if letter in "CZ" else "float"
    head = f"transa: int, transb: int, m: int, n: int, k: int, alpha: {kind}, "
    beta = _BETA[form]
    mutants: dict[str, Callable[[Args], Args]] = {
        "alpha ignored": setting(5, 1.0),
        "beta ignored": setting(beta, 0.0),
        "half of k": halving(4),
    }
    if kind == "complex":
        mutants["conjugation ignored"] = lambda args: (
            *(OP_T if t == OP_C else t for t in args[:2]),
            *args[2:],
        )
    extra = {
        "H": " Products are accumulated in float16 or wider, as cublasHgemm does.",
        "S": " float32 products are IEEE float32; TF32 is not enough.",
    }.get(letter, "")
    if form == "ex":
        extra = (
            " Atype, Btype and Ctype are cudaDataType values (float32 0, float16 2, bfloat16 14); "
            "A and B share one type; products are accumulated in float32 and rounded once to C."
        )
    batch = {
        "strided": " for each of batchCount matrices, strideX elements apart",
        "pointers": " for each of batchCount matrices, each behind its own pointer",
    }.get(form, "")
    return routine(
        f"{name}({head}{tail.format(s=kind)}) -> ()",
        family,
        f"C = alpha op(A) op(B) + beta C{batch}; op(A) is m by k, op(B) k by n, C m by n; op is "
        f"the matrix, its transpose or its conjugate transpose. C is not read where beta is 0."
        f"{extra}",
        functools.partial(_cases, form, letter),
        meaning,
        second,
        functools.partial(_cost, form),
        mutants,
        depth=None if letter == "H" else (lambda ta, tb, m, n, k, *_: int(k)),
        limit={"H": 1.5, "S": 8.0 if form == "ex" else 4.0}.get(letter, 4.0),
        why=_WHY,
        shapes=_TABLES if form == "pointers" else None,
    )


OPERATORS = (
    _gemm_operator("cublasSgemm_v2", "plain", "blas3-gemm"),
    _gemm_operator("cublasCgemm_v2", "plain", "blas3-gemm"),
    _gemm_operator("cublasSgemmEx", "ex", "blas3-gemm"),
    *(
        _gemm_operator(f"cublas{name}", "strided", "blas3-gemm-batched")
        for name in (
            "HgemmStridedBatched",
            "SgemmStridedBatched",
            "DgemmStridedBatched",
            "CgemmStridedBatched",
            "ZgemmStridedBatched",
            "DgemmStridedBatched_64",
            "CgemmStridedBatched_64",
        )
    ),
    *(
        _gemm_operator(f"cublas{name}", "pointers", "blas3-gemm-batched")
        for name in ("HgemmBatched", "DgemmBatched", "ZgemmBatched", "SgemmBatched_64")
    ),
)
