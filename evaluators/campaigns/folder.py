"""The run folder: everything that a run has established, on disk as soon as it is known.

::

    run.json                         the run (`Run`)
    cases.json                       cases, where they are those of a published data set
    attempts/<operator>.json         attempts at one operator (`Production`)
    candidates/<id>.py               source text, named by its id
    verdicts/<operator>.<id>.json    what the judge said (`Verdict`)
    portability/<operator>.<id>.json one row a compile target (`Portability`)
    ledger.jsonl                     token ledger, if a model was called
    workspaces/<operator>/           the method's own files; replies that are already paid for

Each file is written once, or replaced whole; a run killed at any moment resumes from what is there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from kernelmark.benchmark.errors import UserError
from kernelmark.evaluators.campaigns.files import read_json, slug, write_bytes, write_json
from kernelmark.evaluators.campaigns.published import CaseSource, read_source
from kernelmark.evaluators.campaigns.records import Attempt, Production, Run, tokens_of
from kernelmark.evaluators.grading.records import (
    Candidate,
    Portability,
    Verdict,
    from_json,
    to_json,
)


class RunFolder:
    """Reads and writes one run folder. Safe for several threads: they write different files."""

    def __init__(self, root: Path, run: Run) -> None:
        self.root = root
        self.run = run

    @staticmethod
    def create(root: Path, run: Run, cases: CaseSource | None = None) -> RunFolder:
        """A new run folder. `UserError` where `root` holds a run or anything else already."""
        if root.exists() and (not root.is_dir() or any(root.iterdir())):
            raise UserError(f"{root} is not empty; --resume continues a run, --out names another")
        if cases is not None:
            cases.write(root)
        write_json(root / "run.json", to_json(run))
        return RunFolder(root, run)

    @staticmethod
    def open(root: Path) -> RunFolder:
        """The run folder at `root`. `UserError` where it is not one."""
        if not (root / "run.json").is_file():
            raise UserError(f"{root} is not a run folder (it holds no run.json)")
        try:
            return RunFolder(root, from_json(Run, read_json(root / "run.json")))
        except (TypeError, ValueError) as error:
            raise UserError(f"{root / 'run.json'}: {error}") from None

    def cases(self) -> CaseSource:
        """Where the run's cases are from. `UserError` where they were published, and are lost."""
        return read_source(self.root, self.run.dataset)

    @property
    def ledger_path(self) -> Path:
        """Where the token ledger lies."""
        return self.root / "ledger.jsonl"

    @property
    def workspaces(self) -> Path:
        """The folder of all workspaces."""
        return self.root / "workspaces"

    def workspace(self, operator: str) -> Path:
        """The method's own folder for one operator; made when first used."""
        return self.workspaces / slug(operator)

    def raise_budgets(self, budgets: dict[str, float]) -> RunFolder:
        """The run with other limits; operators that a budget ended are begun again from there."""
        for operator in self.run.operators:
            production = self.production(operator)
            kept = until(production.attempts, "budget_exhausted")
            if len(kept) < len(production.attempts):
                self.record(Production(operator, kept))
        run = replace(self.run, budgets=budgets, budget_tokens=tokens_of(budgets))
        write_json(self.root / "run.json", to_json(run))
        return RunFolder(self.root, run)

    def production(self, operator: str) -> Production:
        """Attempts recorded so far (none, for an operator not begun)."""
        path = self.root / "attempts" / f"{slug(operator)}.json"
        if not path.exists():
            return Production(operator)
        return from_json(Production, read_json(path))

    def record(self, production: Production) -> None:
        """Replaces the attempts at one operator."""
        write_json(
            self.root / "attempts" / f"{slug(production.operator)}.json", to_json(production)
        )

    def add_candidate(self, candidate: Candidate) -> None:
        """Stores a candidate's source under its id."""
        path = self._candidate_path(candidate.id)
        if not path.exists():
            write_bytes(path, candidate.source.encode())

    def candidate(self, attempt: Attempt) -> Candidate:
        """The candidate of an attempt."""
        source = self._candidate_path(attempt.candidate).read_bytes().decode()
        return Candidate(attempt.operator, source, attempt.language, attempt.entry)

    def add_verdict(self, verdict: Verdict) -> None:
        """Stores what the judge said."""
        write_json(self._judged("verdicts", verdict.operator, verdict.candidate), to_json(verdict))

    def verdict(self, operator: str, candidate: str) -> Verdict | None:
        """What the judge said of a candidate, if it has been asked."""
        path = self._judged("verdicts", operator, candidate)
        return from_json(Verdict, read_json(path)) if path.exists() else None

    def add_portability(self, operator: str, candidate: str, rows: tuple[Portability, ...]) -> None:
        """Stores the portability rows of a candidate."""
        write_json(self._judged("portability", operator, candidate), [to_json(row) for row in rows])

    def portability(self, operator: str, candidate: str) -> tuple[Portability, ...] | None:
        """The portability rows of a candidate, if they have been made."""
        path = self._judged("portability", operator, candidate)
        if not path.exists():
            return None
        return tuple(from_json(Portability, row) for row in read_json(path))

    def attempts(self) -> Iterator[Attempt]:
        """Every attempt, operator by operator, in the order made."""
        for operator in self.run.operators:
            yield from self.production(operator).attempts

    def missing(self) -> list[str]:
        """What keeps the run from being complete, a line each; empty when nothing does."""
        lines = []
        for operator in self.run.operators:
            production = self.production(operator)
            if not production.complete:
                lines.append(f"{operator}: the method has not finished")
            for attempt in production.attempts:
                if attempt.candidate and self.verdict(operator, attempt.candidate) is None:
                    lines.append(f"{operator}: attempt {attempt.number} has not been graded")
        return lines

    def _candidate_path(self, id: str) -> Path:
        return self.root / "candidates" / f"{id}.py"

    def _judged(self, folder: str, operator: str, candidate: str) -> Path:
        return self.root / folder / f"{slug(operator)}.{candidate[:16]}.json"


def until(attempts: tuple[Attempt, ...], failure: str) -> tuple[Attempt, ...]:
    """The attempts before the first one that failed so."""
    for index, attempt in enumerate(attempts):
        if attempt.failure == failure:
            return attempts[:index]
    return attempts
