"""What a run is made of, as it is stored: the run itself and each attempt.

Frozen dataclasses of plain values like those of `evaluators.grading.records`; verdicts, candidates
and portability rows are stored as that module defines them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from kernelmark.evaluators.grading.records import STATUSES, Status

RUN_SCHEMA_VERSION = 1

#: what kind of thing wrote the candidates; shown and filterable on the board
MethodKind = Literal["agent", "model", "compiler", "library", "human"]

#: which attempt at an operator counts: the last one handed in, or the best by verdict
Selection = Literal["last", "best"]

METHOD_KINDS: tuple[str, ...] = get_args(MethodKind)


@dataclass(frozen=True)
class Run:
    """A method over a suite on a chip.

    `operators` maps the id of each operator asked for to the digest of its definition
    (`benchmark.suites.operator_digest`); `suite_size` says how many the suite has, so that a
    partial run is visible. `targets` are the compile targets of the portability columns.
    `budgets` are the limits that the gateway enforced, by scope and limit (``run.usd``: 2.0);
    `budget_tokens` is ``run.tokens`` among them, None where there was none. `cases_from` names the
    published data set that the cases are of (``REPO@COMMIT`` or a folder), `dataset` is its content
    hash, which stands in every verdict; both are empty where the installed cases were used.
    """

    id: str
    method: str
    kind: MethodKind
    model: str
    language: str
    selection: Selection
    suite: str
    suite_digest: str
    suite_size: int
    operators: dict[str, str]
    chip: str
    tier: str
    targets: tuple[str, ...] = ()
    options: dict[str, str] = field(default_factory=dict)
    budget_tokens: int | None = None
    budgets: dict[str, float] = field(default_factory=dict)
    benchmark_version: str = ""
    cases_from: str = ""
    dataset: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    created_at: str = ""  #: UTC, ISO 8601
    schema_version: int = RUN_SCHEMA_VERSION


def tokens_of(budgets: Mapping[str, float]) -> int | None:
    """The run's limit on tokens, among its budgets."""
    tokens = budgets.get("run.tokens")
    return None if tokens is None else int(tokens)


@dataclass(frozen=True)
class Attempt:
    """One try of a method at an operator.

    Either `candidate` (its id) is set, and a verdict of that candidate says how it went; or
    `failure` says why there is none. `note` is one line of the method's own.
    """

    operator: str
    number: int  #: from 1
    candidate: str = ""
    language: str = ""
    entry: str = ""
    failure: Status | None = None
    note: str = ""
    seconds: float = 0.0
    created_at: str = ""  #: UTC, ISO 8601

    def __post_init__(self) -> None:
        if self.failure is not None and self.failure not in STATUSES:
            raise ValueError(f"unknown status {self.failure!r}")
        if bool(self.candidate) == bool(self.failure):
            raise ValueError(f"attempt {self.number} at {self.operator}: candidate or failure")


@dataclass(frozen=True)
class Production:
    """All attempts at one operator so far. `complete`: the method has no more to hand in."""

    operator: str
    attempts: tuple[Attempt, ...] = ()
    complete: bool = False
