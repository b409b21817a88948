"""cuBLAS level 3 beside gemm: symm, syrk, trsm, and the extensions geam and dgmm.

Second statement: SciPy's BLAS in double precision; NumPy for the extensions.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from kernelmark.operators.cublas.layout import (
    DATA_TYPES,
    LEFT,
    LETTERS,
    LOWER,
    NON_UNIT,
    OP_C,
    OP_N,
    OP_T,
    RIGHT,
    UNIT,
    UPPER,
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
from kernelmark.operators.records import Case, Cost, Operator, Pointers


def _symm(
    side: int, uplo: int, m: int, n: int, alpha: Any, a: Any, lda: int, b: Any, ldb: int,
    beta: Any, c: Any, ldc: int,
) -> Values:  # fmt: skip
    size = m if side == LEFT else n
    s, right = symmetric(a[:size, :size], uplo), b[:m, :n]
    product = alpha * (s @ right if side == LEFT else right @ s)
    new = c.clone()
    new[:m, :n] = product if beta == 0 else product + beta * c[:m, :n]
    return [new]


def _syrk(
    uplo: int, trans: int, n: int, k: int, alpha: Any, a: Any, lda: int, beta: Any, c: Any,
    ldc: int,
) -> Values:  # fmt: skip
    part = a[:n, :k] if trans == OP_N else a[:k, :n].mT
    product = alpha * (part @ part.mT)
    old = c[:n, :n]
    new = c.clone()
    result = product if beta == 0 else product + beta * old
    new[:n, :n] = torch.where(in_triangle(old, uplo), result, old)
    return [new]


def _syrk_ex(
    uplo: int, trans: int, n: int, k: int, alpha: Any, a: Any, atype: int, lda: int, beta: Any,
    c: Any, ctype: int, ldc: int,
) -> Values:  # fmt: skip
    return _syrk(uplo, trans, n, k, alpha, a, lda, beta, c, ldc)


def _trsm(
    side: int, uplo: int, trans: int, diag: int, m: int, n: int, alpha: Any, a: Any, lda: int,
    b: Any, ldb: int,
) -> Values:  # fmt: skip
    t, upper = _op_triangle(side, uplo, trans, diag, m, n, a)
    new = b.clone()
    right = alpha * b[..., :m, :n]
    new[..., :m, :n] = torch.linalg.solve_triangular(t, right, upper=upper, left=side == LEFT)
    return [new]


def _op_triangle(
    side: int, uplo: int, trans: int, diag: int, m: int, n: int, a: Any
) -> tuple[Any, bool]:
    size = m if side == LEFT else n
    t = transposed(triangle(a[..., :size, :size], uplo, diag), trans)
    return t, (uplo == UPPER) == (trans == OP_N)


def _trsm_scale(
    side: int, uplo: int, trans: int, diag: int, m: int, n: int, alpha: Any, a: Any, lda: int,
    b: Any, ldb: int,
) -> Values:  # fmt: skip
    t, upper = _op_triangle(side, uplo, trans, diag, m, n, a)
    (solved,) = _trsm(side, uplo, trans, diag, m, n, alpha, a, lda, b, ldb)
    if side == LEFT:
        return [condition_scale(t, solved, upper)]
    return [condition_scale(t.mT, solved.mT, not upper).mT]


def _each(one: Callable[..., Values]) -> Callable[..., Values]:
    """The meaning over a batch of pointers: alpha, A table, lda, B table, ldb, count last."""

    def meaning(*args: Any) -> Values:
        *head, a, lda, b, ldb, _ = args
        return [b.unstacked(one(*head, a.stacked(), lda, b.stacked(), ldb)[0])]

    return meaning


def _geam(
    ta: int, tb: int, m: int, n: int, alpha: Any, a: Any, lda: int, beta: Any, b: Any, ldb: int,
    c: Any, ldc: int,
) -> Values:  # fmt: skip
    new = c.clone()
    new[:m, :n] = alpha * transposed(a, ta)[:m, :n] + beta * transposed(b, tb)[:m, :n]
    return [new]


def _dgmm(
    mode: int, m: int, n: int, a: Any, lda: int, x: Any, incx: int, c: Any, ldc: int
) -> Values:
    new = c.clone()
    factor = x[:m].unsqueeze(1) if mode == LEFT else x[:n].unsqueeze(0)
    new[:m, :n] = a[:m, :n] * factor
    return [new]


def _second_symm(*args: Any) -> list[Any]:
    from scipy.linalg import blas

    side, uplo, _, _, alpha, a, _, b, _, beta, c, _ = numbers(args)
    old = c if beta else _zeros(c)
    return [blas.zsymm(alpha, a, b, beta, old, side=side, lower=uplo == LOWER)]


def _zeros(c: Any) -> Any:
    import numpy as np

    return np.zeros_like(c)


def _second_syrk(*args: Any) -> list[Any]:
    import numpy as np
    from scipy.linalg import blas

    given = numbers(args)
    uplo, trans, n, _, alpha, a = given[:6]
    beta, c = next(pair for pair in itertools.pairwise(given[6:]) if not isinstance(pair[0], int))
    syrk = blas.zsyrk if c.dtype.kind == "c" else blas.dsyrk
    old = c if beta else _zeros(c)
    new = syrk(alpha, a, beta, old, trans=trans, lower=uplo == LOWER)
    kept = np.tri(n, dtype=bool) if uplo == LOWER else np.tri(n, dtype=bool).T
    return [np.where(kept, new, c)]


def _second_trsm(*args: Any) -> list[Any]:
    from scipy.linalg import blas

    side, uplo, trans, diag, _, _, alpha, a, _, b, _ = numbers(args)
    trsm = blas.ztrsm if b.dtype.kind == "c" else blas.dtrsm
    return [trsm(alpha, a, b, side=side, lower=uplo == LOWER, trans_a=trans, diag=diag)]


def _second_trsm_batched(*args: Any) -> list[Any]:
    import numpy as np

    *head, a, lda, b, ldb, _ = args
    new = [_second_trsm(*head, p, lda, q, ldb)[0] for p, q in zip(a, b, strict=True)]
    return [b.unstacked(np.stack(new))]


def _second_geam(*args: Any) -> list[Any]:
    ta, tb, _, _, alpha, a, _, beta, b, _, _, _ = numbers(args)
    return [alpha * (a.T if ta else a) + beta * (b.T if tb else b)]


def _second_dgmm(*args: Any) -> list[Any]:
    import numpy as np

    mode, _, _, a, _, x, _, _, _ = numbers(args)
    return [np.diag(x) @ a if mode == LEFT else a @ np.diag(x)]


def _arguments(base: str, letter: str, **o: Any) -> Args:
    """A routine's arguments from options (sizes, enumerations, scalars, padding, batch count)."""
    dtype = LETTERS[letter]
    alpha, other = (number(v, letter) for v in scalars(letter))
    m, n, k, pad = o.get("m", o["n"]), o["n"], o.get("k", 0), o.get("pad", 0)
    side, uplo, diag = o.get("side", LEFT), o.get("uplo", LOWER), o.get("diag", NON_UNIT)
    trans, trans_b = o.get("trans", OP_N), o.get("trans_b", OP_N)
    beta = number(o["beta"], letter) if "beta" in o else other
    alpha = number(o["alpha"], letter) if "alpha" in o else alpha

    def mat(rows: int, cols: int, fill: str = "normal") -> Args:
        return matrix(rows, cols, dtype, pad, fill), max(rows + pad, 1)

    nan = "nan" if o.get("nan") else "normal"
    size = m if side == LEFT else n
    typ = DATA_TYPES[dtype]
    if base == "symm":
        return (side, uplo, m, n, alpha, *mat(size, size), *mat(m, n), beta, *mat(m, n, nan))
    if base == "syrk":
        a = mat(n, k) if trans == OP_N else mat(k, n)
        return (uplo, trans, n, k, alpha, *a, beta, *mat(n, n, nan))
    if base == "syrkEx":
        a = mat(n, k) if trans == OP_N else mat(k, n)
        c = mat(n, n, nan)
        return (uplo, trans, n, k, alpha, a[0], typ, a[1], beta, c[0], typ, c[1])
    if base == "trsm":
        head = (side, uplo, trans, diag, m, n, alpha)
        if "count" not in o:
            return (*head, *mat(size, size), *mat(m, n))
        a, b = mat(size, size), mat(m, n)
        tables = (Pointers(a[0], o["count"]), a[1], Pointers(b[0], o["count"]), b[1])
        return (*head, *tables, o["count"])
    if base == "geam":
        a = mat(m, n) if trans == OP_N else mat(n, m)
        b = mat(m, n) if trans_b == OP_N else mat(n, m)
        return (trans, trans_b, m, n, alpha, *a, beta, *b, *mat(m, n))
    x = vector(m if side == LEFT else n, dtype, o.get("incx", 1))
    return (side, m, n, *mat(m, n), x, o.get("incx", 1), *mat(m, n, "nan"))


Options = dict[str, dict[str, Any]]

_SYMM_SMALL: Options = {
    "one": {"n": 1},
    **{
        f"{'lr'[s]}{'lu'[u]}": {"m": 33, "n": 20, "side": s, "uplo": u}
        for s in (LEFT, RIGHT)
        for u in (LOWER, UPPER)
    },
    "padded": {"m": 17, "n": 40, "pad": 3},
    "beta-zero": {"m": 16, "n": 16, "beta": 0.0, "nan": True},
    "beta-one": {"m": 24, "n": 9, "side": RIGHT, "beta": 1.0},
}
_SYRK_SMALL: Options = {
    "one": {"n": 1, "k": 1},
    **{
        f"{'lu'[u]}{'nt'[t]}": {"n": 33, "k": 20, "uplo": u, "trans": t}
        for u in (LOWER, UPPER)
        for t in (OP_N, OP_T)
    },
    "padded": {"n": 17, "k": 40, "pad": 3, "uplo": UPPER},
    "beta-zero": {"n": 16, "k": 24, "beta": 0.0, "nan": True},
    "inner-empty": {"n": 12, "k": 0},
    "deep": {"n": 8, "k": 300, "trans": OP_T, "beta": 1.0},
}
_TRSM_SMALL: Options = {
    "one": {"n": 1},
    **{
        f"{'lr'[s]}{'lu'[u]}{'nt'[t]}{'-unit' if d else ''}": {
            "m": 17, "n": 12, "side": s, "uplo": u, "trans": t, "diag": d,
        }
        for s in (LEFT, RIGHT)
        for u in (LOWER, UPPER)
        for t in (OP_N, OP_T)
        for d in (NON_UNIT, UNIT)
    },
    "padded": {"m": 33, "n": 20, "pad": 3},
    "alpha-one": {"m": 24, "n": 9, "alpha": 1.0, "side": RIGHT},
}  # fmt: skip
_TRSM_BATCHED_SMALL: Options = {
    **{k: {**o, "count": 2} for k, o in _TRSM_SMALL.items()},
    "padded": {**_TRSM_SMALL["padded"], "count": 3},
}
_TRSM_COMPLEX_SMALL: Options = {
    **_TRSM_BATCHED_SMALL,
    "conjugate": {"m": 17, "n": 12, "trans": OP_C, "uplo": UPPER, "count": 3},
}
_GEAM_SMALL: Options = {
    "one": {"n": 1},
    **{
        f"{'nt'[t]}{'nt'[u]}": {"m": 33, "n": 20, "trans": t, "trans_b": u}
        for t in (OP_N, OP_T)
        for u in (OP_N, OP_T)
    },
    "padded": {"m": 17, "n": 70, "pad": 3, "trans": OP_T},
    "beta-one": {"m": 40, "n": 9, "beta": 1.0},
    "wide": {"m": 3, "n": 300},
}
_DGMM_SMALL: Options = {
    "one": {"n": 1},
    "left": {"m": 33, "n": 20},
    "right": {"m": 33, "n": 20, "side": RIGHT},
    "padded": {"m": 17, "n": 70, "pad": 3},
    "increment": {"m": 40, "n": 9, "incx": 3},
    "right-increment": {"m": 40, "n": 65, "incx": 2, "side": RIGHT},
    "wide": {"m": 3, "n": 300, "side": RIGHT},
    "tall": {"m": 300, "n": 3},
}
_SYMM_FULL: Options = {
    "Shampoo update of BERT base attention": {"m": 768, "n": 3072},
    "Shampoo update of Llama 3 8B attention": {"n": 4096},
    "Shampoo update of Llama 3 8B key weight": {"m": 1024, "n": 4096, "side": RIGHT},
    "Shampoo update of BERT large MLP": {"m": 1024, "n": 4096, "uplo": UPPER},
    "Shampoo update of GPT-2 XL MLP": {"m": 1600, "n": 6400},
    "graph propagation over 8192 nodes": {"m": 8192, "n": 512, "beta": 0.0},
}
_SYRK_FULL: Options = {
    "GPTQ Hessian of BERT base, 8192 tokens": {"n": 768, "k": 8192, "beta": 1.0},
    "GPTQ Hessian of Llama 3 8B attention, 2048 tokens": {"n": 4096, "k": 2048, "beta": 1.0},
    "Shampoo statistics of Llama 3 8B key weight": {"n": 1024, "k": 4096, "trans": OP_T},
    "Shampoo statistics of GPT-2 XL": {"n": 1600, "k": 6400, "uplo": UPPER},
    "style transfer Gram matrix of VGG-19": {"n": 512, "k": 4096, "beta": 0.0},
    "whitening of ViT-B/16 features, 50000 images": {"n": 768, "k": 50000, "beta": 0.0},
}
_TRSM_FULL: Options = {
    "Gaussian process over 1024 points, 256 targets": {"m": 1024, "n": 256},
    "GPTQ inverse of BERT base attention": {"m": 768, "n": 768, "uplo": UPPER},
    "GPTQ inverse of BERT base MLP": {"m": 3072, "n": 3072},
    "GPTQ inverse of Llama 3 8B attention": {"m": 4096, "n": 4096, "trans": OP_T},
    "Cholesky whitening of ViT-B/16 features": {"m": 4096, "n": 768, "side": RIGHT},
    "triangular correction of gated delta rule": {"m": 2048, "n": 128, "diag": UNIT},
}
_TRSM_BATCHED_FULL: Options = {
    "gated delta rule chunks of 64, 32 heads": {"m": 64, "n": 128, "count": 256, "diag": UNIT},
    "gated delta rule chunks of 32": {"m": 32, "n": 64, "count": 1024, "diag": UNIT},
    "Kalman filters of 16 states": {"m": 16, "n": 16, "count": 2048},
    "Gaussian processes of 128 points": {"m": 128, "n": 16, "count": 256},
    "batched Cholesky solve of 64 unknowns": {"m": 64, "n": 64, "count": 512, "trans": OP_T},
    "whitening of groups of 32 channels": {
        "m": 256, "n": 32, "count": 256, "side": RIGHT, "uplo": UPPER,
    },
}  # fmt: skip
_GEAM_FULL: Options = {
    "Llama 3 8B query weight, LoRA merge": {"n": 4096, "beta": 1.0},
    "Llama 3 8B MLP weight, LoRA merge": {"m": 14336, "n": 4096, "beta": 1.0},
    "Llama 3 8B MLP weight, transposed merge": {"m": 4096, "n": 14336, "trans": OP_T},
    "BERT large weight, both transposed": {"m": 4096, "n": 1024, "trans": OP_T, "trans_b": OP_T},
    "Llama 3 70B output weight, exponential average": {"n": 8192},
    "GPT-2 small embedding, average": {"m": 768, "n": 50257, "trans_b": OP_T},
}
_DGMM_FULL: Options = {
    "Llama 3 8B query weight, channel scale": {"n": 4096},
    "Llama 3 8B MLP weight, channel scale": {"m": 14336, "n": 4096},
    "Llama 3 8B MLP weight, token scale": {"m": 4096, "n": 14336, "side": RIGHT},
    "AWQ scales of Llama 3 70B output": {"n": 8192, "side": RIGHT},
    "GPT-2 small embedding, row scale": {"m": 768, "n": 50257, "side": RIGHT},
    "BERT large activations, 8192 tokens": {"m": 1024, "n": 8192},
}


@functools.cache
def _cases(base: str, letter: str, batched: bool) -> Sequence[Case]:
    facts = _ROUTINES[base]
    small, full = facts.small, facts.full
    if batched:
        small = _TRSM_COMPLEX_SMALL if letter == "Z" else _TRSM_BATCHED_SMALL
        full = _TRSM_BATCHED_FULL
    cases = [Case(name, _arguments(base, letter, **o)) for name, o in small.items()]
    for origin, o in full.items():
        name = "full-" + "-".join(f"{key}{value}" for key, value in o.items())
        args = _arguments(base, letter, **o)
        cases.append(Case(name, args, tier="full", origin=origin))
    return tuple(cases)


def _cost(base: str, case: Case) -> Cost:
    """Half of a symmetric or triangular matrix is compulsory traffic."""
    dtype, args = case.tensors[0].dtype, case.args
    per, item = (4 if dtype.is_complex else 1), dtype.itemsize
    if base == "symm":
        side, _, m, n = args[:4]
        size = m if side == LEFT else n
        moved = size * (size + 1) // 2 + (3 if args[9] else 2) * m * n
        return Cost(2 * per * size * m * n, moved * item)
    if base.startswith("syrk"):
        n, k = args[2:4]
        half = n * (n + 1) // 2
        beta = args[7] if base == "syrk" else args[8]
        return Cost(2 * per * half * k, (n * k + (2 if beta else 1) * half) * item)
    if base == "trsm":
        side, m, n = args[0], args[4], args[5]
        size = m if side == LEFT else n
        count = args[-1] if len(args) == 12 else 1
        moved = size * (size + 1) // 2 + 2 * m * n
        return Cost(per * size * m * n * count, moved * count * item)
    m, n = (args[2], args[3]) if base == "geam" else (args[1], args[2])
    if base == "geam":
        return Cost(3 * m * n, 3 * m * n * item)
    return Cost(m * n, (2 * m * n + (m if args[0] == LEFT else n)) * item)


class _Routine:
    """Facts of one base name."""

    def __init__(
        self,
        tail: str,
        meaning: Callable[..., Values],
        second: Callable[..., Any],
        text: str,
        small: Options,
        full: Options,
        mutants: dict[str, Callable[[Args], Args]],
        matrix: int | None = None,
        depth: Callable[..., int] | None = None,
    ) -> None:
        self.tail, self.meaning, self.second, self.text = tail, meaning, second, text
        self.small, self.full, self.mutants = small, full, mutants
        self.matrix, self.depth = matrix, depth


_TRSM_TEXT = (
    "Solves op(A) X = alpha B (side left, A is m by m) or X op(A) = alpha B (side right, A is n by "
    "n){batch}; B is m by n and is replaced by X; A is triangular. A unit diagonal is not read."
)
_TRSM_MUTANTS: dict[str, Callable[[Args], Args]] = {
    "alpha ignored": setting(6, 1.0),
    "transposition ignored": lambda args: (*args[:2], OP_N, *args[3:]),
    "the other triangle": flipping(1),
    "diagonal kind ignored": lambda args: (*args[:3], NON_UNIT, *args[4:]),
}
_SYRK_MUTANTS: dict[str, Callable[[Args], Args]] = {
    "alpha ignored": setting(4, 1.0),
    "half of k": halving(3),
    "the other triangle": flipping(0),
}
_ROUTINES = {
    "symm": _Routine(
        "side: int, uplo: int, m: int, n: int, alpha: {s}, A: Tensor, lda: int, B: Tensor, "
        "ldb: int, beta: {s}, C: Tensor!, ldc: int",
        _symm,
        _second_symm,
        "C = alpha A B + beta C (side left, A is m by m) or alpha B A + beta C (side right, A is n "
        "by n); A is symmetric (not Hermitian), one triangle stored. C is not read where beta "
        "is 0.",
        _SYMM_SMALL,
        _SYMM_FULL,
        {
            "alpha ignored": setting(4, 1.0),
            "beta ignored": setting(9, 0.0),
            "the other triangle": flipping(1),
        },
        depth=lambda side, uplo, m, n, *_: int(m if side == LEFT else n),
    ),
    "syrk": _Routine(
        "uplo: int, trans: int, n: int, k: int, alpha: {s}, A: Tensor, lda: int, beta: {s}, "
        "C: Tensor!, ldc: int",
        _syrk,
        _second_syrk,
        "C = alpha op(A) op(A)^T + beta C over the stored triangle of the symmetric n by n matrix "
        "C; op(A) is n by k. C is not read where beta is 0.",
        _SYRK_SMALL,
        _SYRK_FULL,
        {**_SYRK_MUTANTS, "beta ignored": setting(7, 0.0)},
        depth=lambda uplo, trans, n, k, *_: int(k),
    ),
    "syrkEx": _Routine(
        "uplo: int, trans: int, n: int, k: int, alpha: {s}, A: Tensor, Atype: int, lda: int, "
        "beta: {s}, C: Tensor!, Ctype: int, ldc: int",
        _syrk_ex,
        _second_syrk,
        "C = alpha op(A) op(A)^T + beta C over the stored triangle of the symmetric (not "
        "Hermitian) n by n matrix C; op(A) is n by k. Atype and Ctype are cudaDataType values "
        "(complex float is 4). C is not read where beta is 0.",
        _SYRK_SMALL,
        _SYRK_FULL,
        {**_SYRK_MUTANTS, "beta ignored": setting(8, 0.0)},
        depth=lambda uplo, trans, n, k, *_: int(k),
    ),
    "trsm": _Routine(
        "side: int, uplo: int, trans: int, diag: int, m: int, n: int, alpha: {s}, A: Tensor, "
        "lda: int, B: Tensor!, ldb: int",
        _trsm,
        _second_trsm,
        _TRSM_TEXT,
        _TRSM_SMALL,
        _TRSM_FULL,
        _TRSM_MUTANTS,
        matrix=7,
    ),
    "geam": _Routine(
        "transa: int, transb: int, m: int, n: int, alpha: {s}, A: Tensor, lda: int, beta: {s}, "
        "B: Tensor, ldb: int, C: Tensor!, ldc: int",
        _geam,
        _second_geam,
        "C = alpha op(A) + beta op(B); op(A), op(B) and C are m by n. C is not read.",
        _GEAM_SMALL,
        _GEAM_FULL,
        {"alpha ignored": setting(4, 1.0), "beta ignored": setting(7, 1.0)},
    ),
    "dgmm": _Routine(
        "mode: int, m: int, n: int, A: Tensor, lda: int, x: Tensor, incx: int, C: Tensor!, "
        "ldc: int",
        _dgmm,
        _second_dgmm,
        "C = diag(x) A (mode left, x has m elements) or A diag(x) (mode right, n elements); A and "
        "C are m by n. C is not read.",
        _DGMM_SMALL,
        _DGMM_FULL,
        {
            "half of n": halving(2),
            "half of m": halving(1),
            "scaled twice": rewriting(5, torch.square),
        },
    ),
}
_TABLES: dict[str, Callable[..., Any]] = {
    "Aarray": lambda side, u, t, d, m, n, al, a, lda, *_: (
        (m, m) if side == LEFT else (n, n),
        (1, lda),
    ),
    "Barray": lambda side, u, t, d, m, n, al, a, lda, b, ldb, *_: ((m, n), (1, ldb)),
}


def _scale_batched(*args: Any) -> Values:
    return _each(_trsm_scale)(*args)


def _level3_operator(name: str, family: str) -> Operator:
    letter = name.removeprefix("cublas")[0]
    base = name.removeprefix("cublas")[1:].removesuffix("_v2")
    batched = base.endswith("Batched")
    base = base.removesuffix("Batched")
    facts = _ROUTINES[base]
    tail, meaning, second, scale = facts.tail, facts.meaning, facts.second, None
    if base == "trsm":
        scale = _scale_batched if batched else _trsm_scale
    if batched:
        tail = tail.replace("A: Tensor", "Aarray: Tensor").replace("B: Tensor!", "Barray: Tensor!")
        tail += ", batchCount: int"
        meaning, second = _each(meaning), _second_trsm_batched
    kind = "complex" if letter in "CZ" else "float"
    prepare = None
    if facts.matrix is not None:
        prepare = functools.partial(well_conditioned, argument=facts.matrix)
    return routine(
        f"{name}({tail.format(s=kind)}) -> ()",
        family,
        facts.text.format(batch=" for each of batchCount pairs of pointers" if batched else ""),
        functools.partial(_cases, base, letter, batched),
        meaning,
        second,
        functools.partial(_cost, base),
        facts.mutants,
        scale=scale,
        depth=facts.depth,
        why="componentwise bound |A^-1||A||X| of substitution" if scale else "S over moduli",
        prepare=prepare,
        shapes=_TABLES if batched else None,
    )


OPERATORS = (
    _level3_operator("cublasCsymm_v2", "blas3-other"),
    _level3_operator("cublasSsyrk_v2", "blas3-other"),
    _level3_operator("cublasCsyrkEx", "blas3-other"),
    _level3_operator("cublasStrsm_v2", "blas3-other"),
    _level3_operator("cublasDtrsmBatched", "blas3-other-batched"),
    _level3_operator("cublasZtrsmBatched", "blas3-other-batched"),
    _level3_operator("cublasSgeam", "blas-extension"),
    _level3_operator("cublasSdgmm", "blas-extension"),
)
