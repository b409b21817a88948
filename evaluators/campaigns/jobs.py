"""Grading on another machine: candidates go out as a job folder, verdicts come back.

The other machine needs the device layer alone::

    python -m kernelmark.evaluators.grading JOB OUT

JOB holds ``candidates/`` and ``job.json`` (`Job`: chip, tier, and for each candidate a `JobItem`
with the path of its source), and ``cases/`` where the run's cases are those of a published data
set. OUT holds ``verdicts/``, one file a candidate, named as in a run
folder.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from kernelmark.benchmark.errors import UserError
from kernelmark.evaluators.campaigns.files import read_json, slug, write_bytes, write_json
from kernelmark.evaluators.campaigns.folder import RunFolder
from kernelmark.evaluators.grading.records import Candidate, Verdict, from_json, to_json
from kernelmark.evaluators.grading.settings import Settings

JOB_SCHEMA_VERSION = 1


@dataclass(frozen=True)
class JobItem:
    """One candidate. `file` is relative to the job folder."""

    operator: str
    candidate: str
    language: str
    entry: str
    file: str


@dataclass(frozen=True)
class Job:
    """``job.json``."""

    run: str
    chip: str
    tier: str
    candidates: tuple[JobItem, ...]
    dataset: str = ""  #: content hash of the data set that the cases are of
    cases: dict[str, str] = field(default_factory=dict)  #: operator to the file with its cases
    schema_version: int = JOB_SCHEMA_VERSION


def export_job(folder: RunFolder, root: Path) -> int:
    """Writes the run's candidates that have no verdict as a job; how many there are.

    `UserError` where `root` holds something, or nothing is left to grade.
    """
    _must_be_empty(root)
    waiting: dict[tuple[str, str], Candidate] = {}
    for attempt in folder.attempts():
        if attempt.candidate and not _graded(folder, attempt.operator, attempt.candidate):
            waiting[attempt.operator, attempt.candidate] = folder.candidate(attempt)
    if not waiting:
        raise UserError(f"{folder.root}: no candidate waits for a verdict")
    run, cases = folder.run, _export_cases(folder, root, {operator for operator, _ in waiting})
    _write(root, Job(run.id, run.chip, run.tier, (), run.dataset, cases), waiting.values())
    return len(waiting)


def write_job(root: Path, run: str, chip: str, tier: str, candidates: Iterable[Candidate]) -> None:
    """Writes any candidates as a job over the installed cases; `run` says what they are of.

    `UserError` where `root` holds something.
    """
    _must_be_empty(root)
    _write(root, Job(run, chip, tier, ()), candidates)


def _must_be_empty(root: Path) -> None:
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        raise UserError(f"{root} is not empty")


def _write(root: Path, job: Job, candidates: Iterable[Candidate]) -> None:
    items = []
    for candidate in candidates:
        file = f"candidates/{candidate.id}.py"
        write_bytes(root / file, candidate.source.encode())
        language, entry = candidate.language, candidate.entry
        items.append(JobItem(candidate.operator, candidate.id, language, entry, file))
    write_json(root / "job.json", to_json(replace(job, candidates=tuple(items))))


def _export_cases(folder: RunFolder, root: Path, operators: set[str]) -> dict[str, str]:
    """Writes the published cases of `operators`; their files by operator. None are installed."""
    source, files = folder.cases(), {}
    for operator in sorted(operators) if source.cases is not None else ():
        files[operator] = f"cases/{slug(operator)}.json"
        settings = source.settings(Settings(), operator)
        write_bytes(root / files[operator], settings.published_cases.encode())
    return files


def import_results(folder: RunFolder, results: Path) -> int:
    """Takes verdicts from `results` into the run; how many there were.

    All are checked before any is taken: `UserError` for a file that is no verdict, or is one of
    another candidate or chip.
    """
    known = {(attempt.operator, attempt.candidate) for attempt in folder.attempts()}
    verdicts = read_results(results)
    for verdict in verdicts:
        if (verdict.operator, verdict.candidate) not in known:
            raise UserError(
                f"{results}: {verdict.operator} {verdict.candidate[:16]} is not of {folder.root}"
            )
        if verdict.chip != folder.run.chip:
            raise UserError(
                f"{results}: graded on {verdict.chip}, the run is for {folder.run.chip}"
            )
        if verdict.dataset != folder.run.dataset:
            raise UserError(
                f"{results}: graded over {verdict.dataset[:12] or 'installed cases'}, the run is "
                f"over {folder.run.dataset[:12] or 'installed cases'}"
            )
    for verdict in verdicts:
        folder.add_verdict(verdict)
    return len(verdicts)


def read_results(results: Path) -> list[Verdict]:
    """The verdicts in `results`. `UserError` where there are none, or a file is no verdict."""
    verdicts = [_read(path) for path in sorted((results / "verdicts").glob("*.json"))]
    if not verdicts:
        raise UserError(f"{results} holds no verdicts/")
    return verdicts


def _graded(folder: RunFolder, operator: str, candidate: str) -> bool:
    verdict = folder.verdict(operator, candidate)
    return verdict is not None and verdict.status != "infrastructure_error"


def _read(path: Path) -> Verdict:
    try:
        return from_json(Verdict, read_json(path))
    except (TypeError, ValueError, AttributeError) as error:
        raise UserError(f"{path}: not a verdict ({error})") from None
