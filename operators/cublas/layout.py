"""How cuBLAS sees memory: column-major matrices with a leading dimension, vectors with an
increment, batches by stride or by a table of pointers; and its enumerations.

A matrix argument is declared as the tensor of shape (rows, columns) and strides (1, ld) over its
buffer, so its data pointer is the routine's pointer and the padding between columns is memory that
must stay untouched. A vector of n elements with increment inc is the tensor of shape (n,) and
stride |inc|; a negative increment walks it backwards (reference BLAS).
Source: cuBLAS documentation, "Data Layout"; values from `cublas_api.h` and `library_types.h`.
"""

from __future__ import annotations

import ctypes
import math
from typing import Any

import torch

from kernelmark.operators.draws import PointerList
from kernelmark.operators.records import TensorSpec

OP_N, OP_T, OP_C = 0, 1, 2  # cublasOperation_t
LOWER, UPPER = 0, 1  # cublasFillMode_t
NON_UNIT, UNIT = 0, 1  # cublasDiagType_t
LEFT, RIGHT = 0, 1  # cublasSideMode_t

LETTERS = {
    "H": torch.float16,
    "S": torch.float32,
    "D": torch.float64,
    "C": torch.complex64,
    "Z": torch.complex128,
}
#: cudaDataType of a dtype
DATA_TYPES = {
    torch.float32: 0,
    torch.float64: 1,
    torch.float16: 2,
    torch.int8: 3,
    torch.complex64: 4,
    torch.complex128: 5,
    torch.bfloat16: 14,
}


def matrix(
    rows: int, cols: int, dtype: torch.dtype, pad: int = 0, fill: str = "normal", offset: int = 0
) -> TensorSpec:
    """A column-major matrix whose leading dimension is ``rows + pad`` (at least 1)."""
    ld = max(rows + pad, 1)
    return TensorSpec((rows, cols), dtype, fill, strides=(1, ld), offset=offset)


def vector(n: int, dtype: torch.dtype, inc: int = 1, fill: str = "normal") -> TensorSpec:
    """A vector of n elements, |inc| apart."""
    return TensorSpec((n,), dtype, fill, strides=(abs(inc),))


def strided(spec: TensorSpec, count: int, pad: int = 0) -> TensorSpec:
    """`count` copies of `spec` in one buffer, ``stride_of`` elements apart."""
    step = stride_of(spec, pad)
    shape, strides = (count, *spec.shape), (step, *(spec.strides or ()))
    return TensorSpec(shape, spec.dtype, spec.fill, strides=strides)


def stride_of(spec: TensorSpec, pad: int = 0) -> int:
    """Elements from one member of a strided batch to the next: whole columns, plus `pad`."""
    strides = spec.strides or ()
    return max(spec.shape[-1] * strides[-1], 1) + pad


def transposed(a: torch.Tensor, trans: int) -> torch.Tensor:
    """op(a) over the last two dimensions: a, its transpose, or its conjugate transpose."""
    if trans == OP_N:
        return a
    return a.mT if trans == OP_T else a.mH


def directed(x: torch.Tensor, inc: int) -> torch.Tensor:
    """The elements of a vector in the order in which the routine walks them."""
    return x.flip(-1) if inc < 0 else x


def triangle(a: torch.Tensor, uplo: int, diag: int = NON_UNIT) -> torch.Tensor:
    """The triangle that is referenced, zeros elsewhere; a unit diagonal replaces the stored one."""
    part = a.tril() if uplo == LOWER else a.triu()
    if diag == UNIT:
        part = part - torch.diag_embed(part.diagonal(dim1=-2, dim2=-1))
        part = part + torch.eye(a.shape[-1], dtype=a.dtype, device=a.device)
    return part


def symmetric(a: torch.Tensor, uplo: int) -> torch.Tensor:
    """The symmetric (not Hermitian) matrix of which one triangle is stored."""
    part = triangle(a, uplo)
    return part + part.mT - torch.diag_embed(part.diagonal(dim1=-2, dim2=-1))


def in_triangle(a: torch.Tensor, uplo: int) -> torch.Tensor:
    """True where an element belongs to the stored triangle, diagonal included."""
    whole = torch.ones(a.shape[-2:], dtype=torch.bool, device=a.device)
    return whole.tril() if uplo == LOWER else whole.triu()


def on_host(table: torch.Tensor, like: Any, dtype: torch.dtype) -> PointerList:
    """What a CPU address table points to. `like`: (shape, strides) of each member."""
    shape, strides = like
    if not math.prod(shape):
        return PointerList(torch.empty((len(table), *shape), dtype=dtype))
    first, last = int(table.min()), int(table.max())
    pitch = (last - first) // dtype.itemsize // max(len(table) - 1, 1)
    reach = 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
    buffer = (ctypes.c_char * (last - first + reach * dtype.itemsize)).from_address(first)
    flat = torch.frombuffer(buffer, dtype=dtype)
    return PointerList(flat.as_strided((len(table), *shape), (pitch, *strides)))
