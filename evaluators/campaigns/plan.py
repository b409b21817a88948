"""From what was asked for (method, suite, chip) to a run and its tasks."""

from __future__ import annotations

import importlib.metadata
import platform
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime

from kernelmark.benchmark.prompts import Setting, Track, build_prompt
from kernelmark.benchmark.suites import Suite, operator_digest
from kernelmark.evaluators.campaigns.campaign import now
from kernelmark.evaluators.campaigns.published import CaseSource
from kernelmark.evaluators.campaigns.records import Run, tokens_of
from kernelmark.evaluators.chips.base import Chip
from kernelmark.evaluators.languages.base import Language
from kernelmark.evaluators.methods.base import Method, Task
from kernelmark.operators.records import Operator

_PACKAGES = ("kernelmark", "torch", "triton", "numpy")


def plan_run(
    name: str,
    method: Method,
    model: str,
    suite: Suite,
    operators: Sequence[Operator],
    chip: Chip,
    *,
    tier: str,
    targets: Sequence[str] = (),
    options: dict[str, str] | None = None,
    budgets: dict[str, float] | None = None,
    cases: CaseSource | None = None,
) -> Run:
    """A new run of `method` (called `name`) over `operators`, which are `suite` or a part of it.

    `cases`: where theirs are from; else they are those installed.
    """
    cases = cases or CaseSource()
    return Run(
        id=new_run_id(name, suite.name, chip.name),
        method=name,
        kind=method.kind,
        model=model,
        language=method.language,
        selection=method.selection,
        suite=suite.name,
        suite_digest=suite.digest,
        suite_size=len(suite.operators),
        operators={operator.id: operator_digest(operator) for operator in operators},
        chip=chip.name,
        tier=tier,
        targets=tuple(targets),
        options=dict(options or {}),
        budget_tokens=tokens_of(budgets or {}),
        budgets=dict(budgets or {}),
        cases_from=cases.source,
        dataset=cases.dataset,
        benchmark_version=importlib.metadata.version("kernelmark"),
        environment=host_environment(),
        created_at=now(),
    )


def make_tasks(
    operators: Sequence[Operator], chip: Chip, language: Language, track: Track = "model"
) -> list[Task]:
    """One task an operator."""
    setting = Setting(chip.name, chip.notes, language.name, language.template, track)
    return [Task(op, chip.name, language.name, build_prompt(op, setting)) for op in operators]


def new_run_id(method: str, suite: str, chip: str) -> str:
    """A run's name: sorts by time, tells what it is, is unique."""
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    parts = (stamp, method, suite.replace("::", "."), chip, secrets.token_hex(3))
    return "-".join(parts)


def host_environment() -> dict[str, str]:
    """Versions of what a run depends on, on this machine."""
    found = {"python": platform.python_version(), "system": platform.platform()}
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue  # triton is not packaged for every system
    return found
