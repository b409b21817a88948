"""What a candidate language is: one file in this folder, one `LANGUAGE` in it.

The scan runs in the judge, on text; `load`, `disable_kernels` and `kernel_names` run in the runner,
beside the candidate. Device layer.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Protocol

from kernelmark.evaluators.grading.records import Finding
from kernelmark.operators.records import Operator


@dataclass
class Skipped:
    """Launches that `Language.disable_kernels` turned into nothing."""

    launches: int = 0


class Language(Protocol):
    """A language that candidates are written in. `name` is the word in `Candidate.language`."""

    name: str
    suffix: str  #: of a candidate's file, with the dot
    template: str  #: rules that go into prompts
    own_kernels: bool  #: True: the candidate's own kernels must do the work (integrity gate)
    kinds: frozenset[str] | None  #: kinds of method that may hand it in; None: all

    def scan(self, source: str, entry: str, operator: Operator | None = None) -> list[Finding]:
        """Reasons to refuse `source`, by line; empty where there is none. Never raises."""
        ...

    def load(self, path: str, entry: str) -> Callable[..., Any]:
        """Imports the file at `path` as a module and returns its function `entry`.

        Raises whatever importing the candidate raises, and `AttributeError` without an entry.
        """
        ...

    def disable_kernels(self) -> AbstractContextManager[Skipped]:
        """While open, launches of the candidate's kernels do nothing; all else works."""
        ...

    def kernel_names(self, module: ModuleType) -> frozenset[str]:
        """Names under which the candidate's own kernels appear in a device trace."""
        ...
