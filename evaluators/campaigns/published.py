"""A run over a published revision: its operators with the cases of that revision.

What was published is compared with what is installed: cases that differ are taken from the
revision, and that is said; where anything else of a definition differs, the published cases belong
to another operator and the run is refused. The cases are kept in the run folder (``cases.json``),
so that a run goes on, and is graded elsewhere or again, without the Hub.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kernelmark.benchmark.dataset.load import Published, load
from kernelmark.benchmark.dataset.rows import tolerance_of
from kernelmark.benchmark.errors import UserError
from kernelmark.benchmark.suites import Suite, get_suite, operator_digest
from kernelmark.evaluators.campaigns.files import read_json, write_json
from kernelmark.evaluators.grading.published import publishing, with_cases
from kernelmark.evaluators.grading.settings import Settings
from kernelmark.operators.case_json import case_from_json, case_to_json
from kernelmark.operators.records import Case, Operator
from kernelmark.operators.registry import get_operator

FILE = "cases.json"


@dataclass(frozen=True)
class CaseSource:
    """Where a run's cases are from: the installed definitions (`dataset` empty), or a data set.

    `source`: ``REPO@COMMIT`` or a folder. `cases`: by operator.
    """

    dataset: str = ""
    source: str = ""
    cases: Mapping[str, tuple[Case, ...]] | None = None

    def operator(self, id: str) -> Operator:
        """The operator `id` with the cases that it has here."""
        operator = get_operator(id)
        return operator if self.cases is None else with_cases(operator, self.cases[id])

    def settings(self, settings: Settings, operator: str) -> Settings:
        """`settings` of a grade of a candidate for `operator`."""
        if self.cases is None:
            return settings
        return publishing(settings, self.dataset, self.cases[operator])

    def write(self, root: Path) -> None:
        """Keeps the cases in the run folder `root`; nothing where they are those installed."""
        if self.cases is not None:
            cases = {id: [case_to_json(c) for c in found] for id, found in self.cases.items()}
            content = {"dataset": self.dataset, "source": self.source, "cases": cases}
            write_json(root / FILE, content)


def read_source(root: Path, dataset: str) -> CaseSource:
    """Cases of the run at `root`, whose record names `dataset`. `UserError` where they are lost."""
    if not dataset:
        return CaseSource()
    path = root / FILE
    try:
        content = read_json(path)
        cases = {id: tuple(map(case_from_json, found)) for id, found in content["cases"].items()}
        source = CaseSource(content["dataset"], content["source"], cases)
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserError(f"{path}: the run's cases cannot be read ({error})") from None
    if source.dataset != dataset:
        raise UserError(
            f"{path} holds cases of {source.dataset[:12]}, the run is over {dataset[:12]}"
        )
    return source


def take_suite(name: str, cases_from: str, cache: Path) -> tuple[Suite, CaseSource, str]:
    """The suite `name` with the cases of the data set `cases_from` (``REPO@REVISION`` or folder).

    The third is a line about operators whose cases differ from those installed; empty if none.
    `UserError` for operators that are not in it, or are otherwise defined differently here.
    """
    published = load(cases_from, "", cache)
    suite = get_suite(name)
    if missing := [id for id in suite.ids if id not in published.cases]:
        raise UserError(f"{published.source} has no {', '.join(missing)}")
    cases = {id: published.cases[id] for id in suite.ids}
    source = CaseSource(published.content_hash, published.source, cases)
    operators = tuple(source.operator(id) for id in suite.ids)
    _same_definitions(published, operators)
    differing = [op.id for op in operators if operator_digest(op) != _installed_digest(op.id)]
    note = (
        f"cases of {', '.join(differing)} differ from those installed; "
        f"those of {published.source} are used"
        if differing
        else ""
    )
    return replace(suite, operators=operators), source, note


def _installed_digest(id: str) -> str:
    return operator_digest(get_operator(id))


def _same_definitions(published: Published, operators: Iterable[Operator]) -> None:
    """Everything but the cases is what the cases were published with."""
    rows = {row["id"]: row for row in published.tables["operators"]}
    changed = [
        f"{op.id} ({', '.join(_differences(op, rows[op.id]))})"
        for op in operators
        if operator_digest(op) != published.digests[op.id]
    ]
    if changed:
        raise UserError(
            f"defined differently here than in {published.source}: {'; '.join(changed)}; "
            "install the kernelmark that it was published with"
        )


def _differences(operator: Operator, row: Mapping[str, Any]) -> list[str]:
    pairs = {
        "signatures": (list(operator.signatures), row["signatures"]),
        "kind": (operator.kind, row["kind"]),
        "baseline": (operator.baseline_name, row["baseline"]),
        "tolerance": (operator.tolerance, tolerance_of(dict(row))),
    }
    return [what for what, (here, there) in pairs.items() if here != there] or ["its digest"]
