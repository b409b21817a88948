"""One run on several chips: the same candidates, produced once, graded on each.

The run's own chip is the first that was named; it is the one that the method is told of, and gets
feedback from. For every other there is a run folder of the same form inside, ``on/<chip>/``, with
the same attempts and candidates and verdicts of its own: submitted, exported and resumed like any
run (``kernelmark submit DIR/on/amd``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from kernelmark.evaluators.campaigns.folder import RunFolder
from kernelmark.evaluators.campaigns.plan import new_run_id
from kernelmark.evaluators.chips.base import Chip
from kernelmark.evaluators.grading.records import to_json
from kernelmark.operators.records import Tier

ON = "on"


def accompany(folder: RunFolder, chips: Sequence[tuple[Chip, Tier]]) -> None:
    """Makes the folders of a new run's further chips, each with the tier that is graded there."""
    run = folder.run
    for chip, tier in chips:
        root = folder.root / ON / chip.name
        there = replace(
            run,
            id=new_run_id(run.method, run.suite, chip.name),
            chip=chip.name,
            tier=tier,
            targets=(),
            environment={**run.environment, "produced_for": run.chip, "produced_in": run.id},
        )
        RunFolder.create(root, there, folder.cases())


def companions(folder: RunFolder) -> list[RunFolder]:
    """The run's folders for further chips, by name."""
    return [RunFolder.open(path.parent) for path in sorted(_files(folder.root))]


def bring(folder: RunFolder, companion: RunFolder) -> list[str]:
    """Copies what the run has produced in full; the operators that it has done so for.

    Where our own infrastructure failed the production it is not full: it comes when the run has
    been resumed.
    """
    done = []
    for operator in folder.run.operators:
        production = folder.production(operator)
        failures = {attempt.failure for attempt in production.attempts}
        if not production.complete or "infrastructure_error" in failures:
            continue
        for attempt in production.attempts:
            if attempt.candidate:
                companion.add_candidate(folder.candidate(attempt))
        if to_json(companion.production(operator)) != to_json(production):
            companion.record(production)
        done.append(operator)
    return done


def _files(root: Path) -> list[Path]:
    return list((root / ON).glob("*/run.json"))
