"""What a run shows on standard error while it goes: a line a verdict, and a bar with operators
done, solved, tokens, dollars, and the time that is left at this pace."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from kernelmark.benchmark import rendering
from kernelmark.evaluators.campaigns.campaign import Event
from kernelmark.evaluators.campaigns.folder import RunFolder


class Meter(Protocol):
    """What the run's model has used so far."""

    @property
    def spent_tokens(self) -> int:
        """Tokens, every class."""
        ...

    @property
    def spent_usd(self) -> float | None:
        """Dollars; None where a price is not known."""
        ...


class Show:
    """Takes a campaign's events. `meter` may be set once there is a model."""

    def __init__(self, progress: Progress, total: int, budgets: dict[str, float]) -> None:
        self.meter: Meter | None = None
        self._progress = progress
        self._budgets = budgets
        self._bar = progress.add_task("operators", total=total, solved=0, spent="")
        self._solved: set[str] = set()
        self._finished: set[str] = set()
        self._ungraded: Counter[str] = Counter()
        self._lock = threading.Lock()

    def __call__(self, event: Event) -> None:
        """Shows what has happened."""
        with self._lock:
            self._count(event)
        if event.verdict is not None:
            self._line(event.operator, event.verdict.status, event.verdict.message)
        elif event.what == "produced" and event.attempt and event.attempt.failure:
            self._line(event.operator, event.attempt.failure, event.attempt.note)
        elif event.what == "compiled":
            failed = [row.target for row in event.portability if row.status != "passed"]
            text = f"for {len(event.portability) - len(failed)} of {len(event.portability)} targets"
            self._line(event.operator, "compiled", text, good=not failed)

    def _count(self, event: Event) -> None:
        if event.what == "produced" and event.attempt and event.attempt.candidate:
            self._ungraded[event.operator] += 1
        elif event.what == "graded":
            self._ungraded[event.operator] -= 1
            if event.verdict and event.verdict.status == "passed":
                self._solved.add(event.operator)
        elif event.what == "finished":
            self._finished.add(event.operator)
        done = sum(not self._ungraded[operator] for operator in self._finished)
        solved, spent = len(self._solved), self._spent()
        self._progress.update(self._bar, completed=done, solved=solved, spent=spent)

    def _spent(self) -> str:
        if self.meter is None:
            return ""
        tokens, usd = self.meter.spent_tokens, self.meter.spent_usd
        limit = self._budgets.get("run.tokens")
        text = f"{tokens:,} tokens" + (f" of {limit:,.0f}" if limit is not None else "")
        if usd is None:
            return f"{text}, price not known"
        limit = self._budgets.get("run.usd")
        return f"{text}, ${usd:.2f}" + (f" of ${limit:.2f}" if limit is not None else "")

    def _line(self, operator: str, status: str, message: str, good: bool = False) -> None:
        good = good or status == "passed"
        line = rendering.plain(f"{status:<14} ", rendering.GOOD if good else rendering.BAD)
        told = "" if status == "passed" else message
        self._progress.console.print(line + rendering.plain(f"{operator}  {told}".rstrip()))


@contextmanager
def shown_progress(folder: RunFolder, total: int) -> Iterator[Show]:
    """A bar on standard error until the block ends."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[solved]} solved"),
        TextColumn("{task.fields[spent]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=rendering.err()) as progress:
        progress.console.print(rendering.plain(f"run folder {folder.root}"))
        yield Show(progress, total, folder.run.budgets)
