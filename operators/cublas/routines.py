"""Makes an `Operator` of a cuBLAS routine from its meaning.

A meaning is one function of the routine's own arguments that returns the new values of what the
routine writes. Run in float64 it is the oracle, over absolute values the condition scale, in the
case's own dtype the baseline on a chip without cuBLAS; on NVIDIA the baseline is cuBLAS itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from kernelmark.operators.building import wide
from kernelmark.operators.cublas import layout, library
from kernelmark.operators.draws import Call, map_tensors
from kernelmark.operators.records import (
    Case,
    Cost,
    Expected,
    Mutant,
    Operator,
    Parameter,
    Tolerance,
    parse_signature,
)

Values = list[torch.Tensor]
Meaning = Callable[..., Values]
Args = tuple[Any, ...]

_SOURCES = ("NVIDIA cuBLAS 13 documentation", "cublas_api.h (CUDA 13.0)")
_COMMON = (
    "All arguments are the C routine's in its order, without the handle; enumerations are their "
    "integer values (operation N=0 T=1 C=2, fill lower=0 upper=1, diagonal non-unit=0 unit=1, side "
    "left=0 right=1); alpha and beta are host numbers. Matrices are column-major with leading "
    "dimension ld: element (i, j) stands at i + j*ld from the tensor's data pointer. Vectors step "
    "by their increment; a negative one walks backwards from the end. Pointer arrays are int64 "
    "tensors of device addresses. Memory between columns, beyond an increment, or in a triangle "
    "that is not referenced stays untouched. Nothing is returned."
)


def routine(
    signature: str,
    family: str,
    text: str,
    cases: Callable[[], Sequence[Case]],
    meaning: Meaning,
    second: Callable[..., Sequence[Any]],
    cost: Callable[[Case], Cost],
    mutants: dict[str, Callable[[Args], Args]],
    *,
    scale: Meaning | None = None,
    depth: Callable[..., int] | None = None,
    scalar: torch.dtype | None = None,
    limit: float = 4.0,
    why: str = "",
    exact: bool = False,
    prepare: Callable[[Call, Case, torch.Generator], None] | None = None,
    shapes: dict[str, Callable[..., Any]] | None = None,
) -> Operator:
    """The operator. `mutants`: name to a change of the arguments that makes the answer wrong.

    `scale` gives the condition scale, from the arguments in float64, where the meaning over
    absolute values does not; `depth` the length of its sums. `shapes`
    gives, for each pointer table, shape and strides behind it from the routine's arguments.
    """
    tables = shapes or {}
    name = signature.split("(")[0]
    letter = name.removeprefix("cublas")[0]
    dtype = layout.LETTERS[letter]
    parameters = parse_signature(signature)

    def oracle(*args: Any) -> list[Expected]:
        values = meaning(*_wide(args))
        written = _written(parameters, args)
        if exact:
            return [Expected(v, t.dtype) for v, t in zip(values, written, strict=True)]
        scales = scale(*_wide(args)) if scale else meaning(*_magnitudes(args))
        # A running sum of k terms of one sign is rounded k times near its final size: about
        # sqrt(k)/2 roundings of the result, beside those of the terms.
        walk = 0.5 * depth(*args) ** 0.5 if depth else 0.0
        return [
            Expected(value, target.dtype, s.abs() + walk * value.abs())
            for value, s, target in zip(values, scales, written, strict=True)
        ]

    def baseline(*args: Any) -> None:
        if any(isinstance(a, torch.Tensor) and a.is_cuda for a in args):
            library.call(name, parameters, args, scalar or dtype)
            return
        given = tuple(
            _resolve(a, tables.get(p.name), args, dtype)
            for p, a in zip(parameters, args, strict=True)
        )
        values = meaning(*map_tensors(given, _working))
        for target, value in zip(_written(parameters, given), values, strict=True):
            target.copy_(value)

    def name_on(device: torch.device) -> str:
        return library.version() if device.type == "cuda" else "the routine's meaning in torch"

    baseline.name_on = name_on  # type: ignore[attr-defined]

    def mutant(change: Callable[[Args], Args]) -> Callable[..., None]:
        return lambda *args: baseline(*change(args))

    tolerance = (
        Tolerance("exact", 0.0, why="elements are moved, not computed")
        if exact
        else Tolerance(limit=limit, accumulator=_accumulator(dtype), why=why)
    )
    return Operator(
        id=f"cublas::{name}",
        family=family,
        signatures=(signature,),
        description=f"{text} {_COMMON}",
        sources=_SOURCES,
        cases=cases,
        oracle=oracle,
        second=second,
        baseline=baseline,
        baseline_name="cublas",
        cost=cost,
        tolerance=tolerance,
        mutants=tuple(Mutant(n, mutant(change)) for n, change in mutants.items()),
        prepare=prepare,
    )


def replaced(args: Args, **changes: Any) -> Args:
    """`args` with ``a3=value`` put at position 3."""
    return tuple(changes.get(f"a{i}", value) for i, value in enumerate(args))


def numbers(value: Any) -> Any:
    """Tensors as NumPy arrays in float64 or complex128; for second statements."""
    return map_tensors(value, lambda t: wide(t).numpy())


def _wide(args: Args) -> Args:
    return map_tensors(args, wide)


def _working(tensor: torch.Tensor) -> torch.Tensor:
    """Half precision is computed in float32 and rounded once."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def _magnitudes(args: Args) -> Args:
    """Absolute values of tensors and of floating scalars; integers stay."""
    moduli = map_tensors(
        args, lambda t: wide(t).abs() if t.is_floating_point() or t.is_complex() else t
    )
    return tuple(abs(a) if isinstance(a, float | complex) else a for a in moduli)


def _accumulator(dtype: torch.dtype) -> torch.dtype:
    return torch.empty(0, dtype=dtype).real.dtype if dtype.is_complex else dtype


def _written(parameters: tuple[Parameter, ...], args: Args) -> Values:
    found: Values = []
    for parameter, value in zip(parameters, args, strict=True):
        if parameter.mutable:
            map_tensors(value, found.append)
    return found


def _resolve(value: Any, shape: Callable[..., Any] | None, args: Args, dtype: torch.dtype) -> Any:
    """On a host, an address table becomes the tensors behind it."""
    return value if shape is None else layout.on_host(value, shape(*args), dtype)


def setting(position: int, value: Any) -> Callable[[Args], Args]:
    """A change of arguments: `value` (or its type's version of it) at `position`."""

    def change(args: Args) -> Args:
        new = complex(value) if isinstance(args[position], complex) else value
        return replaced(args, **{f"a{position}": new})

    return change


def halving(position: int) -> Callable[[Args], Args]:
    """A change of arguments: the size at `position` is halved, rounded up."""
    return lambda args: replaced(args, **{f"a{position}": (args[position] + 1) // 2})


def flipping(position: int) -> Callable[[Args], Args]:
    """A change of arguments: the two-valued enumeration at `position` takes its other value."""
    return lambda args: replaced(args, **{f"a{position}": 1 - args[position]})


def scalars(letter: str) -> tuple[Any, ...]:
    """An alpha and a beta that are neither 0 nor 1, complex where the routine is.

    They are no short binary fractions: passing a double's alpha as float32 costs precision.
    """
    complex_ = (0.7 - 0.55j, -0.3 + 1.4j)
    return tuple(number(v if letter in "CZ" else v.real * 1.1, letter) for v in complex_)


def number(value: complex, letter: str) -> Any:
    """`value` as the host scalar of a routine of that letter, rounded to its dtype."""
    given = complex(value) if letter in "CZ" else complex(value).real
    return torch.tensor(given, dtype=layout.LETTERS[letter]).item()


def rewriting(position: int, change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., Args]:
    """A change of arguments: the (private) tensor at `position` is overwritten, strides kept."""

    def apply(args: Args) -> Args:
        args[position].copy_(change(args[position]))
        return args

    return apply
