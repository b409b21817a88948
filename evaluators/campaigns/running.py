"""What `kernelmark run` does: begins or reopens a run folder, and carries the run out."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

from kernelmark.benchmark.errors import UserError
from kernelmark.benchmark.prompts import Track, told_cases
from kernelmark.benchmark.suites import Suite, get_suite, operator_digest
from kernelmark.evaluators.campaigns.access import Access, model_for, open_model
from kernelmark.evaluators.campaigns.campaign import Campaign, Tools
from kernelmark.evaluators.campaigns.companions import accompany, bring, companions
from kernelmark.evaluators.campaigns.executors.base import Executor
from kernelmark.evaluators.campaigns.executors.local import LocalExecutor
from kernelmark.evaluators.campaigns.folder import RunFolder
from kernelmark.evaluators.campaigns.placing import split_chips, tier_for, usable_chip
from kernelmark.evaluators.campaigns.plan import make_tasks, plan_run
from kernelmark.evaluators.campaigns.progress import shown_progress
from kernelmark.evaluators.campaigns.published import CaseSource, take_suite
from kernelmark.evaluators.chips.base import Chip
from kernelmark.evaluators.chips.registry import get_chip
from kernelmark.evaluators.grading.records import Candidate
from kernelmark.evaluators.grading.settings import Settings
from kernelmark.evaluators.languages.registry import get_language
from kernelmark.evaluators.methods.registry import make_method
from kernelmark.operators.records import Operator, Tier
from kernelmark.operators.registry import UnknownName


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
    budgets: dict[str, float] = field(default_factory=dict)  #: `budgets.parse_budgets`
    grade: bool = True  #: False: candidates are graded elsewhere
    here: bool = True  #: whether the chip must work on this machine
    cases_from: str = ""  #: published data set to take the cases from, ``REPO@REVISION`` or folder


@dataclass(frozen=True)
class Place:
    """Where grades and compilations are made. `devices`: accelerators of this machine, `all` or
    numbers; `address`, `resource` and `most`: of a Ray cluster (`executors.ray`); `cache`: folder
    that keeps portability rows."""

    executor: str = "local"
    devices: str = "all"
    address: str = ""
    resource: str = ""
    most: int = 0
    cache: Path | None = None


@dataclass(frozen=True)
class Rules:
    """How a run's candidates are graded: `settings`, over the cases of `cases`."""

    settings: Settings
    cases: CaseSource

    def of(self, candidate: Candidate) -> Settings:
        """The settings of a grade."""
        return self.cases.settings(self.settings, candidate.operator)

    def of_check(self, candidate: Candidate) -> Settings:
        """The settings of a check: only the calls that a method is told."""
        settings, operator = self.of(candidate), self.cases.operator(candidate.operator)
        tiers = ("small",) if settings.tier == "small" else ("small", "full")
        told = [case.name for case in told_cases(operator) if case.tier in tiers]
        return replace(settings, cases=tuple(told))


def begin(
    request: Request, out: Path | None, runs: Path, say: Callable[[str], None] | None = None
) -> RunFolder:
    """Makes the run folder of a new run, `out` or one under `runs`, after checking everything.

    `say` is told what is worth knowing of published cases.
    """
    method = make_method(request.method, request.options)
    model = model_for(request.method, method, request.model)
    suite, cases = get_suite(request.suite), CaseSource()
    if request.cases_from:
        suite, cases, note = take_suite(request.suite, request.cases_from, runs.parent / "hub")
        if note and say is not None:
            say(note)
    chips, targets = split_chips(request.chips, here=request.grade and request.here)
    chip = chips[0]
    run = plan_run(
        request.method,
        method,
        model,
        suite,
        _chosen(suite, request.operators),
        chip,
        tier=tier_for(request.tier, chip),
        targets=targets,
        options=request.options,
        budgets=request.budgets,
        cases=cases,
    )
    folder = RunFolder.create(out or runs / run.id, run, cases)
    accompany(folder, [(other, tier_for(request.tier, other)) for other in chips[1:]])
    return folder


def reopen(root: Path, budgets: dict[str, float] | None = None) -> RunFolder:
    """The run folder of a run to go on with. `UserError` where its operators have changed.

    `budgets` replace those of the same names; what they stopped is then gone on with.
    """
    folder = RunFolder.open(root)
    cases = folder.cases()
    for id, digest in folder.run.operators.items():
        if operator_digest(cases.operator(id)) != digest:
            raise UserError(f"{root}: {id} is defined differently now; start a new run")
    return folder.raise_budgets({**folder.run.budgets, **budgets}) if budgets else folder


def carry_out(
    folder: RunFolder,
    access: Access,
    workers: int,
    *,
    grading: bool = True,
    place: Place | None = None,
) -> None:
    """Does what is missing of a run, on its chip and then on others that were named with it,
    showing progress on standard error.

    Without `grading`, candidates are only produced (and compiled).
    """
    _carry_out(folder, access, workers, grading, place, list(folder.run.operators))
    for companion in companions(folder):
        produced = bring(folder, companion)
        _carry_out(companion, access, workers, grading, place, produced)


def _carry_out(
    folder: RunFolder,
    access: Access,
    workers: int,
    grading: bool,
    place: Place | None,
    chosen: list[str],
) -> None:
    """Does what is missing of `chosen` operators of one run folder."""
    run, place = folder.run, place or Place()
    method = make_method(run.method, run.options)
    cases = folder.cases()
    operators = [cases.operator(id) for id in chosen]
    here = grading and place.executor == "local"
    chip = usable_chip(run.chip) if here else get_chip(run.chip)
    language = get_language(method.language)
    if language.kinds is not None and method.kind not in language.kinds:
        raise UserError(f"a method of kind {method.kind} may not hand in language {language.name}")
    track: Track = "agent" if method.kind == "agent" else "model"
    tasks = make_tasks(operators, chip, language, track)
    with (
        shown_progress(folder, len(tasks)) as show,
        open_model(folder, access, method) as model,
        closing(_executor(place, chip, grading)) as executor,
    ):
        show.meter = model
        rules = Rules(Settings(tier=cast(Tier, run.tier)), cases)
        compiles = bool(run.targets) and language.own_kernels
        tools = Tools(
            grade=(lambda c: executor.grade(c, rules.of(c))) if grading else None,
            compile=(lambda c: executor.compile(c, run.targets)) if compiles else None,
            model=model,
            workers=max(workers, 1) if method.uses_model or method.kind == "agent" else 1,
            notify=show,
            slots=executor.slots,
            compilers=executor.compilers,
            stop=executor.close,
            check=(lambda c: executor.grade(c, rules.of_check(c))) if grading else None,
        )
        Campaign(folder, method, tasks, tools).run()


def _chosen(suite: Suite, names: tuple[str, ...]) -> list[Operator]:
    for name in names:
        if name not in suite.ids:
            raise UnknownName(f"operator of suite {suite.name}", name, list(suite.ids))
    return [op for op in suite.operators if not names or op.id in names]


def check_place(place: Place) -> None:
    """Raises `UnknownName` for an executor that is none, `UserError` where Ray is not installed."""
    if place.executor not in ("local", "ray"):
        raise UnknownName("executor", place.executor, ["local", "ray"])
    if place.executor == "ray" and importlib.util.find_spec("ray") is None:
        raise UserError("--executor ray needs Ray: pip install 'kernelmark[ray]'")


def _executor(place: Place, chip: Chip, grading: bool) -> Executor:
    check_place(place)
    graded = chip if grading else None
    if place.executor == "ray":
        from kernelmark.evaluators.campaigns.executors.ray import RayExecutor

        return RayExecutor(graded, place.address, place.resource, place.most)
    return LocalExecutor(graded, place.devices, place.cache)
