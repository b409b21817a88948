"""cuBLAS itself, through ctypes: the baseline of the `cublas` operators on NVIDIA chips.

Loaded when first called, never at import. Every status is checked. Scalars are passed from the
host; results of reductions are written to the device (`CUBLAS_POINTER_MODE_DEVICE`). The library's
default math mode is kept: float32 is IEEE float32, not TF32.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from pathlib import Path
from typing import Any

import torch

from kernelmark.operators.records import Parameter

_NAMES = ("libcublas.so.13", "libcublas.so.12", "libcublas.so")
_HOST, _DEVICE = 0, 1  # cublasPointerMode_t
_SCALARS: dict[torch.dtype, Any] = {
    torch.float16: ctypes.c_uint16,
    torch.float32: ctypes.c_float,
    torch.float64: ctypes.c_double,
    torch.complex64: ctypes.c_float * 2,
    torch.complex128: ctypes.c_double * 2,
}


class CublasError(RuntimeError):
    """A routine did not answer CUBLAS_STATUS_SUCCESS, or the library cannot be had."""


def call(
    name: str,
    parameters: tuple[Parameter, ...],
    args: tuple[Any, ...],
    scalar: torch.dtype,
) -> None:
    """Calls routine `name` on the current stream; `scalar` is the dtype of alpha and beta.

    Integers go as 64 bits: a callee that declares `int` reads the low half of the register or
    stack slot (System V x86-64, AAPCS64).
    """
    device = next(a.device for a in args if isinstance(a, torch.Tensor))
    library, handle = _library(), _handle(device.index or 0)
    stream = ctypes.c_void_p(torch.cuda.current_stream(device).cuda_stream)
    _check("cublasSetStream_v2", library.cublasSetStream_v2(handle, stream))
    mode = _DEVICE if any(p.name == "result" for p in parameters) else _HOST
    _check("cublasSetPointerMode_v2", library.cublasSetPointerMode_v2(handle, mode))
    given = [_argument(p, a, scalar) for p, a in zip(parameters, args, strict=True)]
    _check(name, getattr(library, name)(handle, *given))


def version() -> str:
    """``cuBLAS 13.0.2`` of the loaded library. Raises `CublasError` if there is none."""
    number = ctypes.c_int()
    _check("cublasGetVersion_v2", _library().cublasGetVersion_v2(_handle(0), ctypes.byref(number)))
    major, rest = divmod(number.value, 10000)
    return f"cuBLAS {major}.{rest // 100}.{rest % 100}"


def _argument(parameter: Parameter, value: Any, scalar: torch.dtype) -> Any:
    if isinstance(value, torch.Tensor):
        return ctypes.c_void_p(value.data_ptr())
    if parameter.type == "int":
        return ctypes.c_int64(value)
    return ctypes.byref(_host_scalar(value, scalar))


def _host_scalar(value: complex, dtype: torch.dtype) -> Any:
    kind = _SCALARS[dtype]
    if dtype.is_complex:
        return kind(complex(value).real, complex(value).imag)
    if dtype == torch.float16:
        return kind(int(torch.tensor(value, dtype=dtype).view(torch.int16).item()) & 0xFFFF)
    return kind(value)


@functools.cache
def _library() -> ctypes.CDLL:
    """The libcublas that torch brought, else one of NVIDIA's wheels, else the system's."""
    wheels = [
        path
        for folder in sys.path
        for name in _NAMES
        for path in Path(folder).glob(f"nvidia/*/lib/{name}")
    ]
    for candidate in (*_NAMES, *map(str, wheels)):
        try:
            return ctypes.CDLL(candidate)
        except OSError:
            continue
    raise CublasError("no libcublas found: install nvidia-cublas, or a torch built for CUDA")


@functools.cache
def _handle(device: int) -> ctypes.c_void_p:
    handle = ctypes.c_void_p()
    with torch.cuda.device(device):
        torch.cuda.current_stream().synchronize()  # the context must exist
        _check("cublasCreate_v2", _library().cublasCreate_v2(ctypes.byref(handle)))
    return handle


def _check(name: str, status: int) -> None:
    if status != 0:
        raise CublasError(f"{name} answered cublasStatus_t {status}")
