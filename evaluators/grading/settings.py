"""How a grade is made. Imports no torch. Device layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Settings:
    """How a grade is made. The defaults are the rules of the board."""

    tier: Literal["small", "full"] = "small"  #: "full" grades small and full cases
    cases: tuple[str, ...] = ()  #: names; empty takes the tier's
    draws: int | None = None  #: at most so many draws a case; None takes the case's own
    seed: int | None = None  #: None is secret, as it must be for anything that counts
    timing: bool = True
    timeout_s: float = 60.0  #: for one request to a runner: a load, or a call with its compilation
    grade_timeout_s: float = 900.0  #: for all of them together
    patience_s: float = 1.0  #: time of calls after which an interpreted case gets no more draws
    index: int = 0  #: which accelerator
    #: folder where baselines keep what they compile, never a candidate's; empty: the user's own
    #: under the system's temporary folder
    baseline_cache: str = ""
    memory_bytes: int = 8 << 30  #: address space of a runner, where the device is the CPU
    dataset: str = ""  #: content hash of the data set that the cases are of (`published`)
    published_cases: str = ""  #: those cases of the operator, JSON

    @property
    def longest_s(self) -> float:
        """The longest that a grade may take: two attempts, each of which may wait as long again for
        what the baseline compiles."""
        return 4 * self.grade_timeout_s
