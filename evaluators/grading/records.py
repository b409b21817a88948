"""The records that a grade is made of; they cross processes and are stored.

Frozen dataclasses of plain values, defined once: `to_json` and `from_json` are the wire and disk
format; the host layer validates the same classes. Times in microseconds unless the name says
otherwise; `None` is a measurement that was not made, never a guess.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import types
import typing
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, get_args

SCHEMA_VERSION = 1

Status = Literal[
    "passed",
    "no_candidate",
    "rejected",
    "build_error",
    "runtime_error",
    "out_of_memory",
    "timed_out",
    "wrong_shape",
    "wrong_dtype",
    "wrong_layout",
    "wrong_values",
    "mutated_input",
    "nondeterministic",
    "tampered",
    "implausible",
    "unsupported",
    "budget_exhausted",
    "method_error",
    "infrastructure_error",
]
STATUSES: tuple[str, ...] = get_args(Status)

#: the cascade of DESIGN section 3, in order
GATES = ("scan", "build", "correctness", "integrity", "timing")

Attestation = Literal["executed", "interpreted", "compiled"]


@dataclass(frozen=True)
class Candidate:
    """Source text in one language, meant to implement one operator.

    `language` names a file of `evaluators/languages/`; `entry` the function to call.
    """

    operator: str
    source: str
    language: str = "triton"
    entry: str = ""

    @property
    def id(self) -> str:
        """sha256 over what is executed: language, entry point and source; 64 hex digits."""
        text = json.dumps([self.language, self.entry_point, self.source])
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def entry_point(self) -> str:
        """The function's name: `entry`, or the operator's name."""
        return self.entry or self.operator.split("::")[-1]


@dataclass(frozen=True)
class Finding:
    """One reason of the scan, with the line (1-based) that it stands on."""

    line: int
    reason: str


@dataclass(frozen=True)
class Gate:
    """What one gate said. `detail` is one line for a person."""

    name: str
    passed: bool
    seconds: float
    detail: str = ""


@dataclass(frozen=True)
class KernelBuild:
    """What the compiler said of one kernel for one target. None: the compiler does not tell."""

    kernel: str
    registers: int | None = None
    spilled_bytes: int | None = None  #: local memory per thread
    shared_bytes: int | None = None
    num_warps: int | None = None
    config: str = ""  #: compile-time arguments and options, as text
    occupancy: float | None = None  #: static, warps resident over warps possible
    matrix_instructions: int | None = None  #: in the code, not executed
    error: str = ""  #: why this configuration cannot be built or launched


@dataclass(frozen=True)
class Comparison:
    """One result of one call against the oracle. Errors in units of the tolerance's formula.

    `worst_index` locates the worst element of result number `result`; `got` and `expected` are its
    values, as text.
    """

    case: str
    draw: str
    result: int
    status: Status
    max_error: float | None = None
    mean_error: float | None = None
    p999_error: float | None = None
    limit: float | None = None
    bad: int = 0
    total: int = 0
    worst_index: tuple[int, ...] = ()
    got: str = ""
    expected: str = ""
    detail: str = ""


@dataclass(frozen=True)
class Samples:
    """Raw samples of one side (candidate or baseline) of one case, in the order taken."""

    device_us: tuple[float, ...] = ()
    block_us: tuple[float, ...] = ()  #: median of each ABBA block, device time
    warm_us: float | None = None  #: device time with a warm cache, median
    latency_us: float | None = None  #: end to end per call, judge's wall clock, median
    kernels: int | None = None  #: device activities per call


@dataclass(frozen=True)
class Timing:
    """Times of one full-tier case: candidate against baseline, measured interleaved."""

    case: str
    device_us: float  #: median of block medians
    baseline_us: float
    speedup: float  #: baseline_us / device_us
    speedup_low: float  #: bootstrap interval, 95%
    speedup_high: float
    floor_us: float | None  #: max(bytes/bandwidth, flops/peak); None where peaks are unknown
    clock: str  #: "cupti", "events", ...
    latency_us: float | None = None
    baseline_latency_us: float | None = None
    warm_us: float | None = None
    baseline_warm_us: float | None = None
    sm_clock_mhz: tuple[int, ...] = ()
    throttle_reasons: tuple[str, ...] = ()
    candidate: Samples = field(default_factory=Samples)
    baseline: Samples = field(default_factory=Samples)

    @property
    def roofline(self) -> float | None:
        """Fraction of the roofline reached: floor over time."""
        return None if self.floor_us is None else self.floor_us / self.device_us


@dataclass(frozen=True)
class Portability:
    """Whether a candidate compiles for one target, and what comes out."""

    target: str
    status: Status  #: passed, build_error, unsupported, timed_out, runtime_error
    error: str = ""
    kernels: tuple[KernelBuild, ...] = ()
    occupancy: float | None = None  #: static, lowest of the kernels, 0 to 1
    matrix_instructions: int | None = None  #: tensor-core or MFMA instructions found
    seconds: float = 0.0


@dataclass(frozen=True)
class Verdict:
    """What the judge says of one candidate on one chip."""

    operator: str
    candidate: str  #: `Candidate.id`
    chip: str  #: back end, e.g. "nvidia"
    attests: Attestation
    status: Status
    message: str  #: one line: what is wrong and where, or what was established
    sku: str = ""  #: e.g. "NVIDIA H200"
    gates: tuple[Gate, ...] = ()
    findings: tuple[Finding, ...] = ()
    builds: tuple[KernelBuild, ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    timings: tuple[Timing, ...] = ()
    evidence: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    baseline: str = ""
    tier: str = "small"
    dataset: str = ""  #: content hash of the data set its cases are of; empty: those installed
    seconds: float = 0.0
    created_at: str = ""  #: UTC, ISO 8601
    schema_version: int = SCHEMA_VERSION

    def __post_init__(self) -> None:
        if self.status not in STATUSES:
            raise ValueError(f"unknown status {self.status!r}")
        if self.timings and self.status not in ("passed", "implausible", "tampered"):
            raise ValueError(f"a verdict {self.status!r} carries no timings")


T = TypeVar("T")


def to_json(record: Any) -> Any:
    """Plain values (dict, list, str, number, bool, None) of a record."""
    return dataclasses.asdict(record)


def from_json(kind: type[T], data: dict[str, Any]) -> T:
    """The record of class `kind` that `to_json` gave. Unknown or missing fields raise."""
    hints = typing.get_type_hints(kind)
    unknown = set(data) - set(hints)
    if unknown:
        raise ValueError(f"{kind.__name__}: unknown fields {sorted(unknown)}")
    return kind(**{name: _revive(hints[name], value) for name, value in data.items()})


def _revive(hint: Any, value: Any) -> Any:
    if dataclasses.is_dataclass(hint) and isinstance(hint, type) and isinstance(value, dict):
        return from_json(hint, value)
    origin, args = typing.get_origin(hint), get_args(hint)
    if origin in (types.UnionType, typing.Union):
        inner = [arg for arg in args if arg is not types.NoneType]
        return None if value is None else _revive(inner[0], value)
    if origin is tuple and isinstance(value, list | tuple):
        return tuple(_revive(args[0], item) for item in value)
    return value
