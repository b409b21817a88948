"""The records of DESIGN section 2 that describe work to be done: operator, case, tolerance.

Everything here is data or a pure function of data. A `Case` is complete: its tensors are declared
(shape, dtype, strides, distribution), not made, so a case can be listed, published and rebuilt
anywhere. `operators.draws` makes the tensors; `evaluators.grading` judges what comes back.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import torch

Tier = Literal["small", "full"]
Source = Literal["aten", "vllm", "cublas"]
Kind = Literal["compute", "metadata", "random"]

#: bytes; what CUDA's allocator and torch's align to
POINTER_ALIGNMENT = 512

#: A value in a case's arguments: `TensorSpec`, `Pointers`, `OnDevice`, a Python scalar, a
#: `torch.dtype`, None, or a (nested) tuple of these.
Argument = Any


@dataclass(frozen=True)
class TensorSpec:
    """A tensor argument, declared. `strides` and `offset` are in elements; None is contiguous.

    `fill` names a distribution of `operators.draws.FILLS`; `low` and `high` are its parameters
    (half-open for integers). `offset` elements are left free before the tensor's first element, so
    an odd offset gives a misaligned view.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype = torch.float32
    fill: str = "normal"
    low: float = 0.0
    high: float = 1.0
    strides: tuple[int, ...] | None = None
    offset: int = 0

    @property
    def numel(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the distinct elements (a broadcast dimension, stride 0, counts once)."""
        strides = self.strides or contiguous_strides(self.shape)
        distinct = math.prod(n for n, s in zip(self.shape, strides, strict=True) if s or n == 0)
        return distinct * self.dtype.itemsize

    @property
    def storage_numel(self) -> int:
        """Elements from the storage's start to the last element of the view, `offset` included."""
        if self.numel == 0:
            return self.offset
        strides = self.strides or contiguous_strides(self.shape)
        reach = sum((n - 1) * s for n, s in zip(self.shape, strides, strict=True))
        return self.offset + reach + 1


@dataclass(frozen=True)
class Pointers:
    """A table of device addresses (int64 tensor of shape (count,)), each of a tensor like `member`.

    The members lie in one `buffer`, but not in the table's order (`operators.draws.PointerList`):
    a candidate must read every address. Each is aligned as an allocation of its own would be.
    The candidate gets the table; the oracle gets the `PointerList`. Writing through a pointer is
    allowed only where the parameter is marked mutable in the signature.
    """

    member: TensorSpec
    count: int

    @property
    def buffer(self) -> TensorSpec:
        """All members, of shape (count, *member.shape)."""
        member = self.member
        strides = member.strides or contiguous_strides(member.shape)
        alignment = POINTER_ALIGNMENT // member.dtype.itemsize
        pitch = -(-max(member.storage_numel, 1) // alignment) * alignment
        shape = (self.count, *member.shape)
        return replace(member, shape=shape, strides=(pitch, *strides))


@dataclass(frozen=True)
class OnDevice:
    """Stands for the `torch.device` that a case's tensors live on (for factory functions)."""


@dataclass(frozen=True)
class Case:
    """One concrete call of an operator.

    `name` is unique within the operator. `overload` indexes `Operator.signatures`. `origin` says
    where the shape comes from (a named model for the full tier). `draws` lists the value
    variations that the judge walks through (`operators.draws.VARIATIONS`).
    """

    name: str
    args: tuple[Argument, ...]
    kwargs: dict[str, Argument] = field(default_factory=dict)
    tier: Tier = "small"
    overload: int = 0
    origin: str = ""
    draws: tuple[str, ...] = ("base", "base", "small", "large", "structured")
    seedless: bool = False  #: True if no tensor is drawn at random (fill_, arange)

    @cached_property
    def tensors(self) -> tuple[TensorSpec, ...]:
        """Every declared tensor, in argument order; of `Pointers` the buffer of the members."""
        return tuple(_specs((self.args, tuple(self.kwargs.values()))))

    @property
    def dtypes(self) -> tuple[torch.dtype, ...]:
        """Distinct dtypes of the declared tensors, in order of appearance."""
        return tuple(dict.fromkeys(spec.dtype for spec in self.tensors))


@dataclass(frozen=True)
class Expected:
    """One right result, from the oracle.

    `value`: float64 or complex128, or the exact integer or bool tensor. `dtype`: what the candidate
    must return (default: `value`'s own). `scale`: condition scale S, the same operation over
    absolute values, broadcastable to `value`; None takes the rms of `value`. `mask`: True where an
    element is defined (None: everywhere). `strides`: required strides; None accepts any layout
    that is dense and does not overlap. For random operators `value` is each element's mean and
    `scale` its standard deviation (`operators.calling.must_differ`). `tolerance` stands in
    for the operator's where results
    differ in kind (codes beside their scales). `canonical` maps what was returned to a normal form
    before it is compared with `value`, where several answers are right (order within a group, ties
    of a selection); it must keep the shape.
    """

    value: torch.Tensor
    dtype: torch.dtype
    scale: torch.Tensor | None = None
    mask: torch.Tensor | None = None
    strides: tuple[int, ...] | None = None
    tolerance: Tolerance | None = None
    canonical: Callable[[torch.Tensor], torch.Tensor] | None = None


@dataclass(frozen=True)
class Alias:
    """A right result that must be a view of argument number `argument` (metadata operators)."""

    argument: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int  #: storage offset in elements, relative to the storage of the argument


Result = Expected | Alias | int | float | bool | complex


@dataclass(frozen=True)
class Tolerance:
    """How far a result may be from the oracle's, and why.

    Error of an element: ``|y - ref| / (eps_out * |ref| + eps_acc * S)``, in units of rounding; it
    must stay at or below `limit`. `accumulator` names the dtype whose eps is `eps_acc` (None: the
    output's own). `kind` ``exact`` compares bit patterns (NaN equal to NaN, -0 equal to 0);
    ``codes`` lets `max_mismatch` of the elements (rounded up to whole elements) be off by at most
    `limit` quantisation steps (a whole number); ``distribution`` hands the judgement to
    `Operator.accepts`. `why` says how the limit was calibrated.
    Source of the formula: condition-scaled forward error (Higham, Accuracy and Stability of
    Numerical Algorithms, chapter 3).
    """

    kind: Literal["exact", "scaled", "codes", "distribution"] = "scaled"
    limit: float = 4.0
    accumulator: torch.dtype | None = torch.float32
    max_mismatch: float = 0.0
    why: str = ""


EXACT = Tolerance(kind="exact", limit=0.0, why="no rounding takes place")


@dataclass(frozen=True)
class Cost:
    """Work that any implementation must do: useful operations, compulsory bytes."""

    flops: int
    nbytes: int


@dataclass(frozen=True)
class Mutant:
    """A wrong implementation, called like the operator, that the comparison must reject."""

    name: str
    function: Callable[..., Any]


@dataclass(frozen=True)
class Operator:
    """A thing to implement, complete.

    All callables take the operator's own arguments (``*args, **kwargs``):

    - `oracle` returns a list of results: first what is returned (flattened), then every mutated
      tensor, in the order of the parameters (lists flattened). A result that *is* a mutated
      argument (``-> Tensor!``) is listed once, as the argument. It gets private copies, on any
      device, and `Pointers` as `operators.draws.PointerList`.
    - `second` states the same independently (NumPy, SciPy, loops) and returns plain tensors in the
      order of `oracle`; used by tests, on CPU, over small cases.
    - `baseline` is what a user would call instead; it gets exactly what a candidate gets (address
      tables too), and returns or mutates like one.
    - `cost(case)` gives useful flops and compulsory bytes.
    - `prepare(call, case, generator)` writes consistent contents into drawn tensors where
      independent draws would not do (block tables, packed weights); it may only write in place.
    - `accepts(case, args, results)`, for random operators, answers with an empty string or the
      reason for refusal.
    """

    id: str
    family: str
    signatures: tuple[str, ...]
    description: str
    sources: tuple[str, ...]
    cases: Callable[[], Sequence[Case]]
    oracle: Callable[..., Sequence[Result]]
    second: Callable[..., Sequence[Any]]
    baseline: Callable[..., Any]
    baseline_name: str
    cost: Callable[[Case], Cost]
    tolerance: Tolerance
    mutants: tuple[Mutant, ...] = ()
    kind: Kind = "compute"
    prepare: Callable[[Any, Case, torch.Generator], None] | None = None
    accepts: Callable[..., str] | None = None
    chips: tuple[str, ...] = ()  #: vendors that it makes sense on; empty: all
    note: str = ""  #: quirks worth a reader's attention

    @property
    def source(self) -> str:
        """``aten``, ``vllm`` or ``cublas``."""
        return self.id.split("::")[0]

    @property
    def name(self) -> str:
        """The id without its source: the default entry point of a candidate."""
        return self.id.split("::")[1]

    def parameters(self, overload: int = 0) -> tuple[Parameter, ...]:
        """Parameters of one overload, from its signature."""
        return parse_signature(self.signatures[overload])

    def tier(self, tier: Tier) -> list[Case]:
        """Cases of one tier."""
        return [case for case in self.cases() if case.tier == tier]


@dataclass(frozen=True)
class Parameter:
    """One parameter of a signature. `mutable`: its type is marked with ``!``."""

    name: str
    type: str
    mutable: bool
    keyword_only: bool
    default: str | None


_PARAMETER = re.compile(r"(?P<name>\w+): (?P<type>[^=]+?)(?:=(?P<default>.+))?$")


def parse_signature(signature: str) -> tuple[Parameter, ...]:
    """Parameters of ``name(a: Tensor!, b: int=0, *, c: float) -> Tensor``, ATen's notation."""
    inside = signature[signature.index("(") + 1 : signature.rindex(") ->")]
    parameters: list[Parameter] = []
    keyword_only = False
    for part in _split_commas(inside):
        if part == "*":
            keyword_only = True
            continue
        match = _PARAMETER.match(part)
        if match is None:
            raise ValueError(f"signature {signature!r}: cannot read parameter {part!r}")
        kind = match["type"].strip()
        parameters.append(
            Parameter(match["name"], kind, "!" in kind, keyword_only, match["default"])
        )
    return tuple(parameters)


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides in elements, as torch gives them (size-0 dimensions count as 1)."""
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def _split_commas(text: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for i, char in enumerate(text):
        depth += (char in "[(") - (char in "])")
        if char == "," and depth == 0:
            parts.append(text[start:i].strip())
            start = i + 1
    parts.append(text[start:].strip())
    return [part for part in parts if part]


def _specs(value: Argument) -> list[TensorSpec]:
    if isinstance(value, TensorSpec):
        return [value]
    if isinstance(value, Pointers):
        return [value.buffer]
    if isinstance(value, tuple):
        return [spec for item in value for spec in _specs(item)]
    return []
