"""What a method is: one file in this folder, one `METHOD` in it.

`METHOD` is a frozen dataclass whose fields are the method's options; the registry makes it from
what the command line gave. A method yields proposals and never grades, writes records or counts
tokens: the campaign does. To hand out work it has the workspace: `complete` asks the model (by the
gateway, remembered on disk), `verify` asks the judge.

A method must be a function of its task and of what the workspace answers: a resumed run calls
`propose` again from its start, and the workspace answers from its memory as far as that goes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol, runtime_checkable

from kernelmark.evaluators.campaigns.records import MethodKind, Selection
from kernelmark.evaluators.grading.records import Candidate, Status, Verdict
from kernelmark.operators.records import Operator

Message = Mapping[str, Any]


@dataclass(frozen=True)
class Task:
    """One operator to be written, for one chip, in one language."""

    operator: Operator
    chip: str
    language: str
    prompt: str


@dataclass(frozen=True)
class Proposal:
    """One attempt's outcome: a candidate, or a failure (a status) that says why there is none."""

    candidate: Candidate | None = None
    failure: Status | None = None
    note: str = ""


@dataclass(frozen=True)
class Reply:
    """A model's answer. `finish_reason` in the provider's words (``stop``, ``length``, ...)."""

    text: str
    finish_reason: str
    model: str  #: as served
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Line:
    """A line to the run's model for programs that call it themselves: the gateway, as one attempt.

    `url` has no version and holds for this machine's loopback; `path` is its path alone. `socket`
    is a Unix socket of the gateway. `token` stands in for a key. `secrets` must not be kept.
    `refused` tells why a budget refused a request, `trouble` what kept the provider from answering
    the last one, `refusal` how it refused the last one; empty where nothing did.
    """

    model: str
    url: str
    path: str
    token: str
    socket: Path
    secrets: tuple[str, ...]
    refused: Callable[[], str]
    trouble: Callable[[], str]
    refusal: Callable[[], str]


class MethodError(Exception):
    """A method could not do its work; the attempt is recorded with `status` and the run goes on."""

    def __init__(self, message: str, status: Status = "method_error") -> None:
        super().__init__(message)
        self.status: Status = status


class Workspace(Protocol):
    """What a method may use while it works on one operator."""

    root: Path  #: a folder of its own

    def complete(self, messages: Sequence[Message], **parameters: Any) -> Reply:
        """Asks the run's model. Raises `MethodError` where there is no answer to be had."""
        ...

    def verify(self, candidate: Candidate) -> Verdict:
        """Asks the judge, and waits."""
        ...

    def line(self) -> Line:
        """A line to the run's model for a program of this attempt. Raises `MethodError`."""
        ...

    def check(self, candidate: Candidate) -> Future[Verdict]:
        """Asks for a verdict on the calls that the task tells: feedback, no part of the run.

        Cancel it where nobody waits any more. Raises `MethodError` where the run gives none.
        """
        ...

    def stopping(self) -> bool:
        """Whether the run is being stopped: long work should end with `CancelledError`."""
        ...


class Method(Protocol):
    """Anything that produces candidates from operators. Options are the dataclass's fields."""

    kind: ClassVar[MethodKind]
    language: ClassVar[str]
    selection: ClassVar[Selection]
    summary: ClassVar[str]

    @property
    def uses_model(self) -> bool:
        """Whether the run must name a model."""
        ...

    def check(self) -> None:
        """Raises `UserError` where the options cannot work, before anything is started."""
        ...

    def propose(self, task: Task, workspace: Workspace) -> Iterator[Proposal]:
        """Yields one proposal an attempt; at least one."""
        ...


@runtime_checkable
class CallsModelItself(Protocol):
    """A method whose programs call the model by themselves, in the words of one provider."""

    @property
    def provider(self) -> str:
        """``openai``, ``anthropic`` or ``gemini``."""
        ...
