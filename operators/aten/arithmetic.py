"""ATen sums and products of two tensors: add, add_, sub, rsub, mul.

Oracle: torch in float64, complex128 or int64. Second statement: NumPy.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from kernelmark.operators.aten import elementwise as e
from kernelmark.operators.building import spec, wide
from kernelmark.operators.records import Case, Expected, Mutant, Operator

_INTEGERS: dict[str, Any] = {"fill": "integers", "low": -100, "high": 100}
#: exact in every dtype, so that where a 0-d tensor is rounded to does not matter
_EIGHTHS: dict[str, Any] = {"fill": "integers", "low": -8, "high": 8}
_PROMOTION = (
    "Operands are broadcast against each other and promoted as torch.result_type says: a Python "
    "scalar or 0-d tensor does not raise the dtype of a tensor of the same kind, float16 with "
    "bfloat16 gives float32, integers with floats give the float. float16 and bfloat16 are "
    "computed in float32 and rounded once; a Python scalar enters in that precision. Integers "
    "wrap around."
)
_SOURCES = ("PyTorch 2.13, torch.ops.aten", "aten/src/ATen/native/BinaryOps.cpp")


def _promotions() -> dict[str, e.Pair]:
    """Pairs of unlike dtypes."""
    return {
        "float16-float32": (spec((5, 33), e.F16), spec((5, 33))),
        "float16-bfloat16": (spec((5, 33), e.F16), spec((5, 33), e.BF16)),
        "bfloat16-int64": (spec((5, 33), e.BF16), spec((33,), e.I64, **_INTEGERS)),
        "int32-float32": (spec((129,), e.I32, **_INTEGERS), spec((129,))),
        "int16-int64": (spec((4, 65), e.I16, **_INTEGERS), spec((65,), e.I64, **_INTEGERS)),
        "uint8-int8": (
            spec((99,), e.U8, fill="integers", low=0, high=256),
            spec((99,), e.I8, fill="integers", low=-128, high=128),
        ),
        "int32-wraps": (
            spec((200,), e.I32, fill="bits"),
            spec((200,), e.I32, fill="bits"),
        ),
        "float16-float32-zero-dimensions": (spec((65,), e.F16), spec((), **_EIGHTHS)),
        "int64-float32-zero-dimensions": (spec((65,), e.I64, **_INTEGERS), spec((), **_EIGHTHS)),
        "complex64": (spec((7, 33), e.C64), spec((33,), e.C64)),
    }


# --- add, sub, rsub: one sum with two coefficients --------------------------------------------


def _weights(name: str, alpha: complex) -> tuple[complex, complex]:
    """Coefficients of `self` and `other`."""
    bare = name.rstrip("_")
    return {"add": (1, alpha), "sub": (1, -alpha), "rsub": (-alpha, 1)}[bare]


def _sum_oracle(name: str) -> Callable[..., Sequence[Expected]]:
    def oracle(
        self: torch.Tensor, other: Any, alpha: complex = 1, out: torch.Tensor | None = None
    ) -> list[Expected]:
        dtype = self.dtype if name.endswith("_") else e.promoted(self, other)
        common = e.promoted(self, other)
        if common == torch.bool:
            return [Expected(self | other, torch.bool)]
        a, b = (wide(torch.as_tensor(x, device=self.device)) for x in (self, other))
        p, q = _weights(name, alpha)
        if not (common.is_floating_point or common.is_complex):
            value = e.exact_as(a.to(torch.int64) * p + b.to(torch.int64) * q, dtype)
            return [Expected(value, dtype)]
        left, right = a * p, b * q
        return [Expected(left + right, dtype, e.condition(left, right))]

    return oracle


def _sum_second(name: str) -> Callable[..., Sequence[Any]]:
    def second(
        self: torch.Tensor, other: Any, alpha: complex = 1, out: torch.Tensor | None = None
    ) -> list[Any]:
        a, b = e.array(self), e.array(other)
        if a.dtype == np.bool_ and b.dtype == np.bool_:
            return [np.logical_or(a, b)]
        p, q = _weights(name, alpha)
        with np.errstate(all="ignore"):
            return [np.add(np.multiply(a, p), np.multiply(b, q))]

    return second


def _sum_cases(name: str) -> Callable[[], Sequence[Case]]:
    functional, rsub = not name.endswith("_"), name == "rsub"
    pairs = {**e.binary_layouts(), **_promotions()}
    if functional and not rsub and name != "sub":
        pairs["bool"] = (spec((65,), e.BOOL, fill="bool"), spec((65,), e.BOOL, fill="bool"))

    @functools.cache
    def cases() -> Sequence[Case]:
        small = e.layout_cases({n: p for n, p in pairs.items() if functional or e.holds_result(p)})
        x, y = spec((11, 65)), spec((65,), e.BF16)
        half, ints = spec((11, 65), e.F16), spec((11, 65), e.I64, **_INTEGERS)
        small += [
            Case("alpha", (x, x), {"alpha": -2.5}),
            # Powers of two for 16-bit dtypes: ATen's CPU kernels round alpha and the product.
            Case("alpha-half", (half, half), {"alpha": 0.25}),
            Case("alpha-broadcast", (spec((3, 65), e.BF16), y), {"alpha": 4}),
            Case("alpha-not-exact", (x, spec((65,))), {"alpha": 0.1}),
            Case("alpha-zero", (x, x), {"alpha": 0}),
            Case("alpha-integer", (ints, ints), {"alpha": 7}),
            Case("scalar", (half, 3.25), overload=1),
            Case("scalar-integer-alpha", (ints, -5, 3), overload=1),
            Case("scalar-alpha", (spec((2, 129)), 0.1, 3), overload=1),
            Case("wide-range", (spec((9, 65), fill="wide"), spec((9, 65), fill="wide"))),
            Case("specials", (x, x), {"alpha": 2}, draws=("specials", "base")),
        ]
        if functional:
            small += [
                Case("scalar-raises-dtype", (ints, 0.5), overload=1),
                Case("out", (half, half), {"alpha": 2, "out": spec((11, 65), e.F16)}, overload=2),
                Case(
                    "out-transposed",
                    (x, spec((65,))),
                    {"out": spec((11, 65), strides=(1, 11))},
                    overload=2,
                ),
            ]
        full = [
            e.full_case(n, (a, b), origin)
            for n, (a, b, origin) in e.binary_full().items()
            if functional or a.shape == e.result_shape(Case(n, (a, b)))
        ]
        full.append(
            e.full_case(
                "lora-alpha",
                (spec((8192, 4096), e.BF16), spec((8192, 4096), e.BF16)),
                "Llama 3 8B with a LoRA update of weight 0.1, 8192 tokens",
                kwargs={"alpha": 0.1},
            )
        )
        return (*small, *full)

    return cases


def _alpha_ignored(name: str) -> Mutant:
    function = e.packet(name)

    def mutant(self: Any, other: Any, alpha: Any = 1, out: Any = None) -> Any:
        return function(self, other) if out is None else function(self, other, out=out)

    return Mutant("alpha ignored", mutant)


def _mutated(name: str, change: Callable[..., torch.Tensor], label: str) -> Mutant:
    """`change` in place of the operator; writes where the operator writes."""

    def mutant(
        self: torch.Tensor, other: Any, alpha: complex = 1, out: torch.Tensor | None = None
    ) -> torch.Tensor:
        b = torch.as_tensor(other, device=self.device)
        dtype = e.promoted(self, other)
        p, q = _weights(name, alpha)
        value = change(wide(self), wide(b), p, q).to(dtype)
        target = self if name.endswith("_") else out
        return value if target is None else target.copy_(value)

    return Mutant(label, mutant)


def _other_dropped(a: torch.Tensor, b: torch.Tensor, p: Any, q: Any) -> torch.Tensor:
    return a * p + torch.zeros_like(b)


def _operands_swapped(a: torch.Tensor, b: torch.Tensor, p: Any, q: Any) -> torch.Tensor:
    return a * q + b * p


def _difference_of_signs(a: torch.Tensor, b: torch.Tensor, p: Any, q: Any) -> torch.Tensor:
    return a * p - b * q


def _sum(name: str, does: str) -> Operator:
    inplace = name.endswith("_")
    me, back = ("Tensor!", "Tensor!") if inplace else ("Tensor", "Tensor")
    signatures = [
        f"{name}.Tensor(self: {me}, other: Tensor, *, alpha: Scalar=1) -> {back}",
        f"{name}.Scalar(self: {me}, other: Scalar, alpha: Scalar=1) -> {back}",
    ]
    out = "Tensor_out" if name == "rsub" else "out"
    if not inplace:
        signatures.append(
            f"{name}.{out}(self: Tensor, other: Tensor, *, alpha: Scalar=1, out: Tensor!)"
            " -> Tensor!"
        )
    dtype = e.first_dtype if inplace else e.promoted_of_case
    return Operator(
        id=f"aten::{name}",
        family="pointwise-binary",
        signatures=tuple(signatures),
        description=f"{does} {_PROMOTION}",
        sources=_SOURCES,
        cases=_sum_cases(name),
        oracle=_sum_oracle(name),
        second=_sum_second(name),
        baseline=e.packet(name),
        baseline_name="aten",
        cost=e.elementwise_cost(dtype, 2),
        tolerance=e.ARITHMETIC,
        mutants=(
            _alpha_ignored(name),
            _mutated(name, _other_dropped, "other dropped"),
            _mutated(name, _operands_swapped, "operands swapped"),
            _mutated(name, _difference_of_signs, "sign of other turned"),
            *(() if inplace else (e.strides_ignored(e.packet(name)),)),
        ),
    )


# --- mul ---------------------------------------------------------------------------------------


def _mul_oracle(self: torch.Tensor, other: Any, out: torch.Tensor | None = None) -> list[Expected]:
    dtype = e.promoted(self, other)
    if dtype == torch.bool:
        return [Expected(self & other, torch.bool)]
    a, b = (wide(torch.as_tensor(x, device=self.device)) for x in (self, other))
    if not (dtype.is_floating_point or dtype.is_complex):
        return [Expected(e.exact_as(a * b, dtype), dtype)]
    value = a * b
    # The parts of a complex product cancel; its modulus does not.
    return [Expected(value, dtype, e.condition(value, ulps=2.0 if dtype.is_complex else 1.0))]


def _mul_second(self: torch.Tensor, other: Any, out: torch.Tensor | None = None) -> list[Any]:
    with np.errstate(all="ignore"):
        return [np.multiply(e.array(self), e.array(other))]


@functools.cache
def _mul_cases() -> Sequence[Case]:
    pairs = {
        **e.binary_layouts(),
        **_promotions(),
        "bool": (spec((65,), e.BOOL, fill="bool"), spec((65,), e.BOOL, fill="bool")),
        "bool-float32": (spec((3, 65), e.BOOL, fill="bool"), spec((3, 65))),
        "wide-range": (spec((9, 65), fill="wide"), spec((9, 65), fill="wide")),
    }
    x, half = spec((11, 65)), spec((11, 65), e.F16)
    small = e.layout_cases(pairs)
    small += [
        Case("scalar", (half, 0.1), overload=1),
        Case("scalar-integer", (spec((130,), e.I32, **_INTEGERS), -7), overload=1),
        Case("scalar-raises-dtype", (spec((130,), e.I64, **_INTEGERS), 0.5), overload=1),
        Case("out", (half, half), {"out": spec((11, 65), e.F16)}, overload=2),
        Case("out-gaps", (x, x), {"out": spec((11, 65), strides=(130, 2))}, overload=2),
        Case("specials", (x, x), draws=("specials", "base")),
    ]
    full = [e.full_case(n, (a, b), origin) for n, (a, b, origin) in e.binary_full().items()]
    return (*small, *full)


def _second_operand_only(self: Any, other: Any, out: torch.Tensor | None = None) -> Any:
    value = (torch.ones_like(self) * other).to(e.promoted(self, other))
    return value if out is None else out.copy_(value)


def _sum_for_product(self: Any, other: Any, out: torch.Tensor | None = None) -> Any:
    value = torch.add(self, other)
    return value if out is None else out.copy_(value)


def _saturating(self: Any, other: Any, out: torch.Tensor | None = None) -> Any:
    """Integers clipped, not wrapped."""
    value, dtype = torch.mul(self, other), e.promoted(self, other)
    if dtype == torch.int32 and out is None:
        limits = torch.iinfo(dtype)
        value = (self.long() * other).clamp(limits.min, limits.max).to(dtype)
    return value if out is None else out.copy_(value)


_MUL = Operator(
    id="aten::mul",
    family="pointwise-binary",
    signatures=(
        "mul.Tensor(self: Tensor, other: Tensor) -> Tensor",
        "mul.Scalar(self: Tensor, other: Scalar) -> Tensor",
        "mul.out(self: Tensor, other: Tensor, *, out: Tensor!) -> Tensor!",
    ),
    description=f"out = self * other; for bool the logical and. {_PROMOTION}",
    sources=_SOURCES,
    cases=_mul_cases,
    oracle=_mul_oracle,
    second=_mul_second,
    baseline=e.packet("mul"),
    baseline_name="aten",
    cost=e.elementwise_cost(e.promoted_of_case, 1),
    tolerance=e.ARITHMETIC,
    mutants=(
        Mutant("self dropped", _second_operand_only),
        Mutant("sum for product", _sum_for_product),
        Mutant("integers saturate", _saturating),
        e.strides_ignored(e.packet("mul")),
    ),
)

OPERATORS = (
    _sum("add", "out = self + alpha * other; for bool the logical or."),
    _sum(
        "add_",
        "In place: self = self + alpha * other, rounded to the dtype of `self`, which must be of "
        "the promoted kind (a float result cannot be written to integers); `other` is broadcast to "
        "the shape of `self`, never the reverse. Returns `self`.",
    ),
    _sum("sub", "out = self - alpha * other. bool is refused."),
    _sum("rsub", "Reversed: out = other - alpha * self; alpha multiplies `self`. bool is refused."),
    _MUL,
)
