"""NVIDIA's libdevice on numpy arrays, for Triton's interpreter.

Functions compute in float64 through torch and round once to the type that the symbol names, so
they are at least as accurate as the library (NVIDIA, libdevice user's guide, accuracy tables).
Not here: directed rounding of arithmetic other than to nearest and toward zero.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

Array = NDArray[Any]


def call(name: str, *args: Array) -> Array:
    """One of the float functions by its bare name (``erf``), in float64."""
    wide = [torch.from_numpy(np.ascontiguousarray(a, dtype=np.float64)) for a in args]
    return np.asarray(_FLOAT[name](*wide))


def symbol(name: str, args: list[Array]) -> Array:
    """The function that libdevice's `name` (``__nv_tanhf``) names, applied to `args`.

    Raises `NotImplementedError` for one that is not here.
    """
    bare = name.removeprefix("__nv_").removeprefix("fast_")
    for candidate in (bare, re.sub(r"f$", "", bare), re.sub(r"(f|d|ll)$", "", bare)):
        if candidate in _EXACT:
            return np.asarray(_EXACT[candidate](*args))
        if candidate in _FLOAT:
            return call(candidate, *args)
    converted = _conversion(bare, args)
    if converted is None:
        raise NotImplementedError(f"{name} is not supported in interpreter mode")
    return converted


_ARITHMETIC: dict[str, Callable[..., Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "rcp": np.reciprocal,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1.0 / np.sqrt(x.astype(np.float64)),
}
_INTEGERS: dict[str, type[np.signedinteger[Any] | np.unsignedinteger[Any]]] = {
    "int": np.int32,
    "uint": np.uint32,
    "ll": np.int64,
    "ull": np.uint64,
}
_ROUND: dict[str, Callable[[Array], Array]] = {
    "rn": np.rint,
    "rz": np.trunc,
    "rd": np.floor,
    "ru": np.ceil,
}


def _conversion(bare: str, args: list[Array]) -> Array | None:
    """``float2int_rz``, ``ll2float_rn``, ``fadd_rn`` and their like; None for anything else."""
    if match := re.fullmatch(r"(float|double)2(int|uint|ll|ull)_(rn|rz|rd|ru)", bare):
        limits = np.iinfo(_INTEGERS[match[2]])
        whole = np.nan_to_num(_ROUND[match[3]](args[0]).astype(np.longdouble), nan=0.0)
        return np.clip(whole, limits.min, limits.max).astype(_INTEGERS[match[2]])
    if re.fullmatch(r"(int|uint|ll|ull|double)2(float|double)(_rn)?", bare):
        return args[0].astype(np.float32 if "2float" in bare else np.float64)
    if (match := re.fullmatch(r"[fd](add|sub|mul|div|rcp|sqrt|rsqrt)_rn", bare)) is not None:
        return _ARITHMETIC[match[1]](*args)
    if re.fullmatch(r"fmaf?_rn", bare):
        return call("fma", *args)
    return None


def _tgamma(x: torch.Tensor) -> torch.Tensor:
    reflected = torch.pi / (torch.sin(torch.pi * x) * torch.exp(torch.lgamma(1 - x)))
    positive = torch.exp(torch.lgamma(x))
    pole = (x <= 0) & (x == torch.floor(x))
    value = torch.where(x > 0, positive, reflected)
    return torch.where(pole, torch.where(x == 0, torch.copysign(1 / x.abs(), x), torch.nan), value)


def _jn(first: Callable[..., Any], second: Callable[..., Any]) -> Callable[..., Any]:
    """Bessel functions of integer order by upward recurrence (inexact for order above x)."""

    def bessel(order: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        below, here = first(x), second(x)
        result = torch.where(order == 0, below, here)
        for n in range(1, int(order.max())):
            below, here = here, 2 * n / x * here - below
            result = torch.where(order == n + 1, here, result)
        return result

    return bessel


def _norm(*parts: torch.Tensor) -> torch.Tensor:
    return torch.sqrt(sum((p * p for p in parts), torch.zeros_like(parts[0])))


_SAME_IN_TORCH = (
    "acos acosh asin asinh atan atan2 atanh ceil copysign cos cosh erf erfc erfinv exp exp2 expm1"
    " floor fmod hypot lgamma log log10 log1p log2 nextafter pow rsqrt sin sinh sqrt tan tanh trunc"
)
_special = torch.special
_FLOAT: dict[str, Callable[..., torch.Tensor]] = {
    **{name: getattr(torch, name) for name in _SAME_IN_TORCH.split()},
    "fabs": torch.abs,
    "cbrt": lambda x: torch.sign(x) * x.abs() ** (1 / 3),
    "rcbrt": lambda x: torch.sign(x) * x.abs() ** (-1 / 3),
    "cospi": lambda x: torch.cos(torch.pi * torch.remainder(x, 2.0)),
    "sinpi": lambda x: torch.sin(torch.pi * torch.remainder(x, 2.0)),
    "cyl_bessel_i0": _special.i0,
    "cyl_bessel_i1": _special.i1,
    "j0": _special.bessel_j0,
    "j1": _special.bessel_j1,
    "y0": _special.bessel_y0,
    "y1": _special.bessel_y1,
    "jn": _jn(_special.bessel_j0, _special.bessel_j1),
    "yn": _jn(_special.bessel_y0, _special.bessel_y1),
    "erfcx": _special.erfcx,
    "erfcinv": lambda x: torch.where(x < 0.1, -_special.ndtri(x / 2) / 2**0.5, torch.erfinv(1 - x)),
    "exp10": lambda x: 10.0**x,
    "fdividef": torch.div,
    "fdim": lambda x, y: torch.where(x > y, x - y, torch.where(x <= y, 0.0, x + y)),
    "fma": lambda x, y, z: x * y + z,
    "ilogb": lambda x: torch.frexp(x)[1] - 1,
    "logb": lambda x: (torch.frexp(x)[1] - 1).to(x.dtype),
    "ldexp": torch.ldexp,
    "scalbn": torch.ldexp,
    "llrint": torch.round,
    "llround": lambda x: torch.copysign(torch.floor(x.abs() + 0.5), x),
    "round": lambda x: torch.copysign(torch.floor(x.abs() + 0.5), x),
    "nearbyint": torch.round,
    "rint": torch.round,
    "norm3d": _norm,
    "norm4d": _norm,
    "rnorm3d": lambda *parts: 1 / _norm(*parts),
    "rnorm4d": lambda *parts: 1 / _norm(*parts),
    "rhypot": lambda x, y: 1 / torch.hypot(x, y),
    "normcdf": _special.ndtr,
    "normcdfinv": _special.ndtri,
    "powi": torch.pow,
    "remainder": lambda x, y: x - y * torch.round(x / y),
    "saturate": lambda x: torch.nan_to_num(x, nan=0.0).clamp(0, 1),
    "tgamma": _tgamma,
}


def _bits(array: Array) -> Array:
    """Each integer as its bits, most significant first, along a new last axis."""
    raw = np.ascontiguousarray(array).view(f"u{array.itemsize}")
    shifts = np.arange(8 * array.itemsize - 1, -1, -1, dtype=raw.dtype)
    bits: Array = (raw[..., None] >> shifts) & raw.dtype.type(1)
    return bits


def _clz(x: Array) -> Array:
    bits = _bits(x)
    first: Array = np.where(bits.any(-1), bits.argmax(-1), bits.shape[-1])
    return first.astype(np.int32)


def _ffs(x: Array) -> Array:
    bits = _bits(x)[..., ::-1]
    return np.where(bits.any(-1), bits.argmax(-1) + 1, 0).astype(np.int32)


def _brev(x: Array) -> Array:
    bits = _bits(x)[..., ::-1]
    weights = np.uint64(1) << np.arange(bits.shape[-1] - 1, -1, -1, dtype=np.uint64)
    total: Array = (bits.astype(np.uint64) * weights).sum(-1, dtype=np.uint64)
    return total.astype(x.dtype)


def _mulhi(x: Array, y: Array) -> Array:
    width = 8 * x.itemsize
    product = x.astype(object) * y.astype(object)
    high: Array = np.vectorize(lambda p: int(p) >> width, otypes=[x.dtype])(product)
    return high


def _mul24(x: Array, y: Array) -> Array:
    def low(a: Array) -> Array:
        wide: Array = a.astype(np.int64) & 0xFFFFFF
        signed: Array = np.where(wide >> 23, wide - (1 << 24), wide)
        return signed if a.dtype.kind == "i" else wide

    product: Array = low(x) * low(y)
    return product.astype(x.dtype)


def _average(up: int) -> Callable[[Array, Array], Array]:
    return lambda x, y: (x.astype(np.int64) + y.astype(np.int64) + up) >> 1


def _sad(x: Array, y: Array, z: Array) -> Array:
    total: Array = np.abs(x.astype(np.int64) - y.astype(np.int64)) + z.astype(np.int64)
    return total


def _byte_perm(x: Array, y: Array, selector: Array) -> Array:
    both = x.astype(np.uint32).astype(np.uint64) | (y.astype(np.uint32).astype(np.uint64) << 32)
    result = np.zeros_like(both)
    for i in range(4):
        chosen = (selector.astype(np.uint64) >> (4 * i)) & 7
        result |= ((both >> (8 * chosen)) & 0xFF) << (8 * i)
    return result.astype(np.uint32).astype(x.dtype)


def _view(dtype: type[np.generic]) -> Callable[[Array], Array]:
    return lambda x: np.ascontiguousarray(x).view(dtype)


#: functions of integers and bits, which must not pass through float64
_EXACT: dict[str, Callable[..., Array]] = {
    "abs": np.abs,
    "llabs": np.abs,
    "clz": _clz,
    "clzll": _clz,
    "ffs": _ffs,
    "ffsll": _ffs,
    "popc": lambda x: _bits(x).sum(-1).astype(np.int32),
    "popcll": lambda x: _bits(x).sum(-1).astype(np.int32),
    "brev": _brev,
    "brevll": _brev,
    "byte_perm": _byte_perm,
    "mulhi": _mulhi,
    "umulhi": _mulhi,
    "mul64hi": _mulhi,
    "umul64hi": _mulhi,
    "mul24": _mul24,
    "umul24": _mul24,
    "hadd": _average(0),
    "uhadd": _average(0),
    "rhadd": _average(1),
    "urhadd": _average(1),
    "sad": _sad,
    "usad": _sad,
    "float_as_int": _view(np.int32),
    "float_as_uint": _view(np.uint32),
    "int_as_float": _view(np.float32),
    "uint_as_float": _view(np.float32),
    "double_as_longlong": _view(np.int64),
    "longlong_as_double": _view(np.float64),
    "double2hiint": lambda x: (_view(np.int64)(x) >> 32).astype(np.int32),
    "double2loint": lambda x: _view(np.int64)(x).astype(np.int32),
    "hiloint2double": lambda hi, lo: _view(np.float64)(
        (hi.astype(np.int64) << 32) | lo.astype(np.uint32).astype(np.int64)
    ),
    "finite": np.isfinite,
    "isfinite": np.isfinite,
    "isinf": np.isinf,
    "isnan": np.isnan,
    "signbit": np.signbit,
    "nextafterf": np.nextafter,  # the neighbour in the operand's own type
    "nextafter": np.nextafter,
}
