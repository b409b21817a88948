"""ATen operators that allocate without writing, or bring one number to the host.

No kernel is needed or timed. Oracle: shape, strides and dtype of what is allocated (its contents
are undefined and not compared); the number itself. Second statement: the same, plainly.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from kernelmark.operators.aten import elementwise as e
from kernelmark.operators.building import FLOATS, dtype_name, spec
from kernelmark.operators.records import (
    EXACT,
    Case,
    Cost,
    Expected,
    Mutant,
    OnDevice,
    Operator,
    TensorSpec,
)

_HERE = {"device": OnDevice()}
_FACTORY = (
    "dtype: ScalarType?=None, layout: Layout?=None, device: Device?=None, pin_memory: bool?=None"
)
_LAYOUTS: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "contiguous": ((9, 65), (65, 1)),
    "reversed": ((9, 65), (1, 9)),
    "padded": ((9, 65), (80, 1)),
    "steps": ((9, 65), (130, 2)),
    "expanded": ((9, 65), (0, 1)),
    "overlapping": ((9, 65), (3, 1)),
    "vector": ((1024,), (1,)),
    "permuted": ((8, 16, 4), (4, 32, 1)),
    "zero-dimensions": ((), ()),
    "empty": ((0, 3), (3, 1)),
    "large": ((512, 512), (1, 512)),
}


def _no_cost(case: Case) -> Cost:
    return Cost(0, 0)


def _allocated(size: Any, stride: Any, dtype: torch.dtype, device: Any) -> list[Expected]:
    value = torch.zeros((), dtype=dtype, device=device).expand(tuple(size))
    nowhere = torch.zeros((), dtype=torch.bool, device=device)
    return [Expected(value, dtype, mask=nowhere, strides=tuple(stride))]


def _operator(
    name: str,
    family: str,
    signatures: tuple[str, ...],
    description: str,
    file: str,
    cases: Callable[[], Sequence[Case]],
    oracle: Callable[..., Sequence[Any]],
    second: Callable[..., Sequence[Any]],
    mutants: tuple[Mutant, ...],
) -> Operator:
    return Operator(
        id=f"aten::{name}",
        family=family,
        signatures=signatures,
        description=description,
        sources=(f"PyTorch 2.13, torch.ops.aten.{name}", f"aten/src/ATen/native/{file}"),
        cases=functools.cache(cases),
        oracle=oracle,
        second=second,
        baseline=e.packet(name),
        baseline_name="aten",
        cost=_no_cost,
        tolerance=EXACT,
        mutants=mutants,
        kind="metadata",
    )


# --- empty_strided, new_empty_strided -----------------------------------------------------------


def _made(*args: Any, **kwargs: Any) -> list[Any]:
    return [torch.zeros(tuple(args[-2]))]


def _contiguous_instead(*args: Any, dtype: Any = None, device: Any = None) -> torch.Tensor:
    own = args[0] if isinstance(args[0], torch.Tensor) else torch.empty(0, device=device)
    return torch.empty(args[-2], dtype=dtype or own.dtype, device=own.device)


def _double_instead(*args: Any, dtype: Any = None, device: Any = None) -> torch.Tensor:
    own = args[0] if isinstance(args[0], torch.Tensor) else torch.empty(0, device=device)
    return torch.empty_strided(*args[-2:], dtype=torch.float64, device=own.device)


_WRONG = (
    Mutant("strides ignored", _contiguous_instead),
    Mutant("dtype ignored", _double_instead),
)


def _empty_strided_cases() -> tuple[Case, ...]:
    one = ("base",)
    return (
        *(Case(n, pair, dict(_HERE), draws=one, seedless=True) for n, pair in _LAYOUTS.items()),
        *(
            Case(
                dtype_name(t), _LAYOUTS["reversed"], {"dtype": t, **_HERE}, draws=one, seedless=True
            )
            for t in (e.F16, e.BF16, e.I64, e.I32, e.BOOL)
        ),
    )


_EMPTY_STRIDED = _operator(
    "empty_strided",
    "allocation only",
    (f"empty_strided(size: int[], stride: int[], *, {_FACTORY}) -> Tensor",),
    "A new tensor on `device` with the given shape and strides (in elements) at storage offset 0, "
    "dtype float32 where None. The storage reaches to the last element; strides may leave gaps, be "
    "0 or overlap. The contents are undefined.",
    "TensorFactories.cpp",
    _empty_strided_cases,
    lambda size, stride, *, dtype=None, device=None: _allocated(
        size, stride, dtype or torch.float32, device
    ),
    _made,
    _WRONG,
)


def _new_empty_strided_cases() -> tuple[Case, ...]:
    x, one = spec((2, 3), e.BF16), ("base",)
    return (
        *(Case(n, (x, *pair), draws=one) for n, pair in _LAYOUTS.items()),
        *(
            Case(
                f"from-{dtype_name(t)}",
                (spec((3,), t, fill="ones"), *_LAYOUTS["padded"]),
                draws=one,
            )
            for t in (e.F32, e.F16, e.I64, e.BOOL)
        ),
        Case("dtype", (x, *_LAYOUTS["steps"]), {"dtype": e.I32}, draws=one),
    )


_NEW_EMPTY_STRIDED = _operator(
    "new_empty_strided",
    "allocation only",
    (f"new_empty_strided(self: Tensor, size: int[], stride: int[], *, {_FACTORY}) -> Tensor",),
    "`empty_strided` with the dtype (where None) and the device of `self`, whose values, shape and "
    "strides do not matter. The contents are undefined.",
    "TensorFactories.cpp",
    _new_empty_strided_cases,
    lambda self, size, stride, *, dtype=None: _allocated(
        size, stride, dtype or self.dtype, self.device
    ),
    _made,
    _WRONG,
)


# --- item, _local_scalar_dense ------------------------------------------------------------------


def _one_element(zero_dimensions_only: bool) -> dict[str, TensorSpec]:
    whole: dict[str, Any] = {"fill": "integers", "low": -100, "high": 100}
    made = {dtype_name(t): spec((), t) for t in (*FLOATS, torch.float64, e.C64)}
    made |= {dtype_name(t): spec((), t, **whole) for t in (e.I64, e.I32, e.I16, e.I8)}
    made |= {
        "uint8": spec((), e.U8, fill="integers", low=0, high=256),
        "int64-bits": spec((), e.I64, fill="bits"),
        "bool": spec((), e.BOOL, fill="bool"),
        "offset": spec((), e.F16, offset=3),
    }
    if not zero_dimensions_only:
        made |= {"one-element": spec((1,)), "deep": spec((1, 1, 1), e.I32, **whole)}
    return made


def _number(self: torch.Tensor) -> list[Any]:
    return [self.reshape(-1).tolist()[0]]


def _number_from_bytes(self: torch.Tensor) -> list[Any]:
    """Through NumPy, by way of a wider dtype where NumPy has none."""
    x = self.float() if self.dtype == torch.bfloat16 else self
    return [x.detach().cpu().numpy().reshape(-1)[0].item()]


def _changed(self: torch.Tensor) -> Any:
    number = self.item()
    return not number if isinstance(number, bool) else number + 1


def _as_float(self: torch.Tensor) -> Any:
    number = self.item()
    return number if isinstance(number, complex) else float(number)


def _scalar(name: str, takes: str, zero_dimensions_only: bool) -> Operator:
    def cases() -> tuple[Case, ...]:
        made = [Case(n, (x,)) for n, x in _one_element(zero_dimensions_only).items()]
        return (*made, Case("specials", (spec(()),), draws=("specials", "large", "small")))

    return _operator(
        name,
        "host sync",
        (f"{name}(self: Tensor) -> Scalar",),
        f"The one element of `self`{takes} as a Python number: bool, int, float or complex, as "
        "self's dtype is. Waits for the device.",
        "Scalar.cpp",
        cases,
        _number,
        _number_from_bytes,
        (
            Mutant("another number", _changed),
            Mutant("always a float", _as_float),
            Mutant("a tensor", lambda self: self.clone()),
            Mutant("not a number", lambda self: math.nan),
        ),
    )


OPERATORS = (
    _EMPTY_STRIDED,
    _NEW_EMPTY_STRIDED,
    _scalar("item", " (of any number of dimensions)", False),
    _scalar("_local_scalar_dense", ", 0-d,", True),
)
