"""An operator with the cases of a published data set in place of the installed ones.

The cases come with the settings of a grade, as JSON, so that they reach a judge wherever it is and
nothing there needs to read a data set. All else (oracle, baseline, preparation) is the installed
operator's; whoever makes the settings has seen that it is the one the cases were published with.
Device layer.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace

from kernelmark.evaluators.grading.settings import Settings
from kernelmark.operators.case_json import case_from_json, case_to_json
from kernelmark.operators.records import Case, Operator


def with_cases(operator: Operator, cases: Iterable[Case]) -> Operator:
    """`operator` with other cases."""
    fixed = tuple(cases)
    return replace(operator, cases=lambda: fixed)


def publishing(settings: Settings, dataset: str, cases: Iterable[Case]) -> Settings:
    """`settings` of a grade over `cases` of the data set whose content hash is `dataset`."""
    text = json.dumps([case_to_json(case) for case in cases], separators=(",", ":"))
    return replace(settings, dataset=dataset, published_cases=text)


def as_published(operator: Operator, settings: Settings) -> Operator:
    """`operator` with the cases that `settings` carry; itself where they name no data set.

    `ValueError` where what they carry are no cases.
    """
    if not settings.dataset:
        return operator
    return with_cases(operator, map(case_from_json, json.loads(settings.published_cases)))
