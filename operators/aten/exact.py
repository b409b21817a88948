"""ATen functions of one tensor that need no approximation: neg, square, floor, sgn, bitwise_not.

Oracle: torch in float64, complex128 or int64, rounded at most once. Second statement: NumPy.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from kernelmark.operators.aten import elementwise as e
from kernelmark.operators.building import spec, wide
from kernelmark.operators.records import EXACT, Case, Expected, Mutant, Operator, Tolerance

_SMALL: dict[str, Any] = {"fill": "integers", "low": -9, "high": 10}
_BYTES: dict[str, Any] = {"fill": "integers", "low": 0, "high": 256}
_HALVES: dict[str, Any] = {"fill": "uniform", "low": -40.0, "high": 40.0}


@dataclass(frozen=True)
class Exact:
    """What is particular to one function. `function` is on float64, complex128, int64 or bool."""

    name: str
    function: e.Function
    second: Callable[[np.ndarray], np.ndarray]
    does: str
    wrong: dict[str, e.Function]  # label -> a wrong function of the tensor itself
    floats: bool = True
    complexes: bool = False
    bools: bool = False
    tolerance: Tolerance = EXACT
    ulps: float = 0.0  # of the condition scale, where the tolerance is not exact
    flops: int = 1
    fill: tuple[tuple[str, Any], ...] = ()


def _np_sgn(x: np.ndarray) -> np.ndarray:
    if np.iscomplexobj(x):
        size = np.abs(x)
        return np.where(size == 0, 0, x / np.where(size == 0, 1, size))
    # NaN is neither above nor below zero, and its sign is 0.
    return (x > 0).astype(np.int64) - (x < 0).astype(np.int64)


def _sgn(x: torch.Tensor) -> torch.Tensor:
    if not x.is_complex():
        return x if x.dtype == torch.bool else (x > 0).to(x.dtype) - (x < 0).to(x.dtype)
    size = x.abs()
    return torch.where(size == 0, torch.zeros_like(x), x / torch.where(size == 0, 1.0, size))


_TABLE = (
    Exact(
        "neg",
        torch.neg,
        np.negative,
        "-self. Integers wrap around (the lowest value is its own negative, unsigned ones count "
        "modulo 2**bits); bool is refused; of a complex number both parts change sign.",
        {
            "unchanged": lambda x: x.clone(),
            "absolute value": lambda x: -x.abs() if not x.is_complex() else x.clone(),
            "imaginary part kept": lambda x: x.conj().neg().resolve_conj() if x.is_complex() else x,
        },
        complexes=True,
    ),
    Exact(
        "square",
        lambda x: x * x,
        np.square,
        "self * self. float16 and bfloat16 are multiplied in float32 and rounded once; integers "
        "wrap around.",
        {
            "cube": lambda x: x * x * x,
            "sign kept": lambda x: x * x.abs() if not x.is_complex() else -x * x,
            "doubled": lambda x: x + x,
        },
        complexes=True,
        tolerance=e.ARITHMETIC,
        ulps=2.0,
    ),
    Exact(
        "floor",
        lambda x: x if not x.is_floating_point() else torch.floor(x),
        np.floor,
        "The largest integer not above self, in self's dtype; integers are returned unchanged, "
        "infinities and NaN too. -0.5 gives -1.",
        {
            "rounded toward zero": lambda x: x.trunc() if x.is_floating_point() else x.clone(),
            "rounded to nearest": lambda x: x.round() if x.is_floating_point() else x.clone(),
            "rounded up": lambda x: x.ceil() if x.is_floating_point() else x.clone(),
        },
        fill=tuple(_HALVES.items()),
    ),
    Exact(
        "sgn",
        _sgn,
        _np_sgn,
        "The sign: 1, 0 or -1, 0 for NaN; bool is returned unchanged. For a complex "
        "number self / |self|, and 0 at 0.",
        {
            "never zero": lambda x: torch.where(x.real >= 0, 1.0, -1.0).to(x.dtype),
            "sign bit only": lambda x: torch.where(x.real > 0, 1, 0).to(x.dtype),
            "absolute value": lambda x: x.sgn().abs().to(x.dtype),
            "not divided by the modulus": lambda x: x.clone() if x.is_complex() else x.sgn(),
        },
        complexes=True,
        bools=True,
        tolerance=Tolerance(
            limit=1.0,
            accumulator=torch.float32,
            why="real signs are exact; a complex quotient rounds its modulus and parts in float32",
        ),
        ulps=3.0,
    ),
    Exact(
        "bitwise_not",
        torch.bitwise_not,
        np.invert,
        "Every bit of an integer turned (-1 - self when signed); for bool the logical not. Floats "
        "are refused.",
        {
            "negative": lambda x: -x if x.dtype != torch.bool else x,
            "logical not": lambda x: torch.logical_not(x).to(x.dtype),
            "lowest bit only": lambda x: x ^ 1,
        },
        floats=False,
        bools=True,
    ),
)


def _oracle(f: Exact) -> Callable[..., Sequence[Expected]]:
    def oracle(self: torch.Tensor, out: torch.Tensor | None = None) -> list[Expected]:
        value = f.function(wide(self))
        if not (self.is_floating_point() or self.is_complex()):
            return [Expected(e.exact_as(value, self.dtype), self.dtype)]
        if f.tolerance.kind == "exact" or (f.name == "sgn" and not self.is_complex()):
            return [Expected(value, self.dtype, tolerance=EXACT)]
        return [Expected(value, self.dtype, e.condition(value, ulps=f.ulps))]

    return oracle


def _second(f: Exact) -> Callable[..., Sequence[Any]]:
    def second(self: torch.Tensor, out: torch.Tensor | None = None) -> list[Any]:
        with np.errstate(all="ignore"):
            if self.is_floating_point() or self.is_complex():
                return [f.second(e.array(self))]
            return [f.second(self.cpu().numpy())]

    return second


def _integer_cases() -> list[Case]:
    made = {
        "int64": spec((11, 65), e.I64, **_SMALL),
        "int32": spec((11, 65), e.I32, **_SMALL),
        "int32-bits": spec((513,), e.I32, fill="bits"),
        "int16-transposed": spec((11, 65), e.I16, strides=(1, 11), **_SMALL),
        "int8-bits": spec((1025,), e.I8, fill="bits"),
        "uint8": spec((3, 257), e.U8, **_BYTES),
    }
    return [Case(name, (x,), draws=("base",)) for name, x in made.items()]


def _cases(f: Exact) -> Callable[[], Sequence[Case]]:
    fill = dict(f.fill)

    @functools.cache
    def cases() -> Sequence[Case]:
        small = _integer_cases()
        dtype = e.F16 if f.floats else e.I32
        ints = {} if f.floats else _SMALL
        if f.floats:
            small += e.layout_cases(e.unary_layouts(**fill))
            small.append(Case("specials", (spec((37, 53)),), draws=("specials", "base", "large")))
            small.append(Case("specials-float16", (spec((9, 65), e.F16),), draws=("specials",)))
            small.append(Case("wide-range", (spec((9, 65), fill="wide"),)))
        else:
            small += e.layout_cases(e.unary_layouts((e.I64, e.I16), **_SMALL))
        if f.complexes:
            small.append(Case("complex64", (spec((5, 33), e.C64),), draws=("base", "large")))
            small.append(Case("complex64-transposed", (spec((5, 33), e.C64, strides=(1, 5)),)))
        if f.bools:
            small.append(Case("bool", (spec((5, 33), e.BOOL, fill="bool"),), draws=("base",)))
        x = spec((9, 65), dtype, **(fill or ints))
        small += [
            Case("out", (x,), {"out": spec((9, 65), dtype, **ints)}, overload=1),
            Case(
                "out-transposed",
                (x,),
                {"out": spec((9, 65), dtype, strides=(1, 9), **ints)},
                overload=1,
            ),
        ]
        return (*small, *(_full() if f.floats else _full_integers()))

    def _full() -> list[Case]:
        return [e.full_case(n, (x,), origin) for n, (x, origin) in e.unary_full(**fill).items()]

    return cases


def _full_integers() -> list[Case]:
    ids: dict[str, Any] = {"fill": "integers", "low": 0, "high": 128256}
    flag: dict[str, Any] = {"fill": "bool"}
    made = {
        "token-ids-int64": (spec((4096, 8192), e.I64, **ids), "Llama 3 token ids, 4096 sequences"),
        "token-ids-int32": (spec((8192, 8192), e.I32, **ids), "Llama 3 token ids, 8192 sequences"),
        "attention-mask": (spec((64, 1, 2048, 2048), e.BOOL, **flag), "causal masks, batch 64"),
        "attention-mask-transposed": (
            spec((64, 1, 2048, 2048), e.BOOL, strides=(2048 * 2048, 2048 * 2048, 1, 2048), **flag),
            "causal masks, batch 64, keys and queries exchanged",
        ),
        "gptq-codes": (spec((8192, 28672), e.U8, **_BYTES), "Llama 3 70B MLP, 8-bit codes"),
        "gptq-words": (
            spec((8192, 3584), e.I32, fill="bits"),
            "Llama 3 70B MLP, 4-bit codes in 32-bit words",
        ),
        "coordinates-int16": (spec((4096, 16384), e.I16, fill="bits"), "16-bit audio, 4096 clips"),
    }
    return [e.full_case(name, (x,), origin) for name, (x, origin) in made.items()]


def _wrong(label: str, function: e.Function) -> Mutant:
    return Mutant(label, e.into_out(function))


def _operator(f: Exact) -> Operator:
    aten = e.packet(f.name)
    return Operator(
        id=f"aten::{f.name}",
        family="pointwise-unary",
        signatures=(
            f"{f.name}(self: Tensor) -> Tensor",
            f"{f.name}.out(self: Tensor, *, out: Tensor!) -> Tensor!",
        ),
        description=f"{f.does} The result has the shape and the dtype of `self`.",
        sources=(
            f"PyTorch 2.13, torch.ops.aten.{f.name}",
            "aten/src/ATen/native/UnaryOps.cpp",
        ),
        cases=_cases(f),
        oracle=_oracle(f),
        second=_second(f),
        baseline=aten,
        baseline_name="aten",
        cost=e.elementwise_cost(e.first_dtype, f.flops),
        tolerance=f.tolerance,
        mutants=(
            *(_wrong(label, function) for label, function in f.wrong.items()),
            e.strides_ignored(aten),
        ),
    )


OPERATORS = tuple(_operator(f) for f in _TABLE)
