"""What `kernelmark run` does: begins or reopens a run folder, carries the run out, reports."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from kernelmark.benchmark import rendering
from kernelmark.benchmark.errors import UserError
from kernelmark.benchmark.suites import Suite, get_suite, operator_digest
from kernelmark.evaluators.campaigns.campaign import Campaign, Event, Tools
from kernelmark.evaluators.campaigns.folder import RunFolder
from kernelmark.evaluators.campaigns.placing import split_chips, tier_for, usable_chip
from kernelmark.evaluators.campaigns.plan import make_tasks, plan_run
from kernelmark.evaluators.campaigns.workspace import ModelAccess
from kernelmark.evaluators.chips.base import Chip
from kernelmark.evaluators.chips.portability import Compiler
from kernelmark.evaluators.chips.registry import get_chip
from kernelmark.evaluators.grading.judge import Settings, grade
from kernelmark.evaluators.grading.records import Candidate, Portability, Verdict
from kernelmark.evaluators.languages.base import Language
from kernelmark.evaluators.languages.registry import get_language
from kernelmark.evaluators.methods.base import Method
from kernelmark.evaluators.methods.registry import make_method
from kernelmark.operators.records import Operator, Tier
from kernelmark.operators.registry import UnknownName, get_operator


@dataclass(frozen=True)
class Request:
    """What was asked for. `chips`: one chip to grade on, and compile targets."""

    method: str
    suite: str
    chips: tuple[str, ...]
    model: str = ""
    options: dict[str, str] = field(default_factory=dict)
    operators: tuple[str, ...] = ()
    tier: str = "auto"
    budget_tokens: int | None = None
    grade: bool = True  #: False: candidates are graded elsewhere, the chip need not be here


@dataclass(frozen=True)
class Access:
    """How a model's provider is reached. `key_name`: where the key was looked for."""

    base_url: str
    key: str
    key_name: str


def begin(request: Request, out: Path | None, runs: Path) -> RunFolder:
    """Makes the run folder of a new run, `out` or one under `runs`, after checking everything."""
    method = make_method(request.method, request.options)
    _check_model(request.method, method, request.model)
    suite = get_suite(request.suite)
    chip, targets = split_chips(request.chips, here=request.grade)
    run = plan_run(
        request.method,
        method,
        request.model,
        suite,
        _chosen(suite, request.operators),
        chip,
        tier=tier_for(request.tier, chip),
        targets=targets,
        options=request.options,
        budget_tokens=request.budget_tokens,
    )
    return RunFolder.create(out or runs / run.id, run)


def reopen(root: Path) -> RunFolder:
    """The run folder of a run to go on with. `UserError` where its operators have changed."""
    folder = RunFolder.open(root)
    for id, digest in folder.run.operators.items():
        if operator_digest(get_operator(id)) != digest:
            raise UserError(f"{root}: {id} is defined differently now; start a new run")
    return folder


def carry_out(folder: RunFolder, access: Access, workers: int, *, grading: bool = True) -> None:
    """Does what is missing of a run, showing progress on standard error.

    Without `grading`, candidates are only produced (and compiled).
    """
    run = folder.run
    method = make_method(run.method, run.options)
    operators = [get_operator(id) for id in run.operators]
    chip = usable_chip(run.chip) if grading else get_chip(run.chip)
    language = get_language(method.language)
    if language.kinds is not None and method.kind not in language.kinds:
        raise UserError(f"a method of kind {method.kind} may not hand in language {language.name}")
    tasks = make_tasks(operators, chip, language)
    with (
        _shown_progress(folder, len(tasks)) as show,
        _model(folder, access, method) as model,
        _compiler(run.targets, language) as compile_all,
    ):
        tools = Tools(
            grade=_grader(chip, cast(Tier, run.tier)) if grading else None,
            compile=compile_all,
            model=model,
            workers=max(workers, 1) if method.uses_model else 1,
            notify=show,
        )
        Campaign(folder, method, tasks, tools).run()


def report(folder: RunFolder, as_json: bool) -> None:
    """One row an operator of what the run has established."""
    rows = [_row(folder, operator) for operator in folder.run.operators]
    if as_json:
        rendering.print_json({"run": str(folder.root), "operators": rows})
        return
    columns = {"operator": "operator", "status": "status", "attempts": "attempts"}
    if any(row["speedup"] is not None for row in rows):
        columns["speedup"] = "speedup"
    if folder.run.targets:
        columns["compiles"] = "compiles"
    solved = sum(row["status"] == "passed" for row in rows)
    caption = f"{solved} of {len(rows)} solved; kernelmark submit {folder.root}"
    rendering.print_rows(rows, {**columns, "message": ""}, caption=caption)


def infrastructure_errors(folder: RunFolder) -> list[str]:
    """Operators that our own infrastructure failed; --resume tries them again."""
    rows = (_row(folder, operator) for operator in folder.run.operators)
    return [str(row["operator"]) for row in rows if row["status"] == "infrastructure_error"]


def _row(folder: RunFolder, operator: str) -> dict[str, object]:
    attempts = folder.production(operator).attempts
    row: dict[str, object] = {
        "operator": operator,
        "status": "no_candidate",
        "attempts": len(attempts),
        "speedup": None,
        "compiles": None,
        "message": "",
    }
    if not attempts:
        return row
    last = attempts[-1]
    verdict = folder.verdict(operator, last.candidate) if last.candidate else None
    if verdict is None:
        return {**row, "status": last.failure or "not graded", "message": last.note}
    speedups = [timing.speedup for timing in verdict.timings]
    rows = folder.portability(operator, last.candidate)
    passed = sum(r.status == "passed" for r in rows or ())
    return {
        **row,
        "status": verdict.status,
        "speedup": _geometric_mean(speedups),
        "compiles": None if rows is None else f"{passed}/{len(rows)}",
        "message": "" if verdict.status == "passed" else verdict.message,
    }


def _geometric_mean(values: list[float]) -> float | None:
    product = 1.0
    for value in values:
        product *= value
    return product ** (1 / len(values)) if values else None


def _chosen(suite: Suite, names: tuple[str, ...]) -> list[Operator]:
    for name in names:
        if name not in suite.ids:
            raise UnknownName(f"operator of suite {suite.name}", name, list(suite.ids))
    return [op for op in suite.operators if not names or op.id in names]


def _check_model(name: str, method: Method, model: str) -> None:
    if method.uses_model and not model:
        raise UserError(f"method {name} calls a model: --model names it")
    if model and not method.uses_model:
        raise UserError(f"method {name} calls no model; leave --model out")


@contextmanager
def _model(folder: RunFolder, access: Access, method: Method) -> Iterator[ModelAccess | None]:
    if not method.uses_model:
        yield None
        return
    from kernelmark.evaluators.metering.model import metered_model

    run = folder.run
    with metered_model(
        run=run.id,
        model=run.model,
        ledger_path=folder.ledger_path,
        base_url=access.base_url,
        key=access.key,
        key_name=access.key_name,
        budget_tokens=run.budget_tokens,
    ) as model:
        yield model


def _grader(chip: Chip, tier: Tier) -> Callable[[Candidate], Verdict]:
    settings = Settings(tier=tier)
    return lambda candidate: grade(candidate, get_operator(candidate.operator), chip, settings)


@contextmanager
def _compiler(
    targets: tuple[str, ...], language: Language
) -> Iterator[Callable[[Candidate], tuple[Portability, ...]] | None]:
    if not targets or not language.own_kernels:
        yield None
        return
    with Compiler(processes=1) as compiler:

        def compile_all(candidate: Candidate) -> tuple[Portability, ...]:
            operator = get_operator(candidate.operator)
            return tuple(compiler.portability(candidate, operator, targets))

        yield compile_all


class _Show:
    """Progress on standard error: a line a verdict, and a bar of operators that are done."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress = progress
        self._bar = progress.add_task("operators", total=total, solved=0)
        self._solved: set[str] = set()
        self._finished: set[str] = set()
        self._ungraded: Counter[str] = Counter()
        self._lock = threading.Lock()

    def __call__(self, event: Event) -> None:
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
        self._progress.update(self._bar, completed=done, solved=len(self._solved))

    def _line(self, operator: str, status: str, message: str, good: bool = False) -> None:
        good = good or status == "passed"
        line = rendering.plain(f"{status:<14} ", rendering.GOOD if good else rendering.BAD)
        told = "" if status == "passed" else message
        self._progress.console.print(line + rendering.plain(f"{operator}  {told}".rstrip()))


@contextmanager
def _shown_progress(folder: RunFolder, total: int) -> Iterator[_Show]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[solved]} solved"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=rendering.err()) as progress:
        progress.console.print(rendering.plain(f"run folder {folder.root}"))
        yield _Show(progress, total)
