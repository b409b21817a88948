"""The survey of definitions, on the CPU: what it writes, and that it goes on where it stopped."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from stepping import Stepping

from kernelmark.evaluators.grading import survey
from kernelmark.operators.records import Operator
from kernelmark.operators.registry import get_operator

NAME = "aten::zero_"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Surveys `NAME` over small cases into a file; returns the file."""
    monkeypatch.setattr(survey, "get_chip", lambda name: Stepping())
    monkeypatch.setattr(survey, "_process", lambda chip: ThreadPoolExecutor(1))
    out = tmp_path / "rows.jsonl"

    def run() -> Path:
        survey.main([str(out), NAME, "--tier", "small", "--workers", "2"])
        return out

    return run


def _small() -> list[str]:
    operator: Operator = get_operator(NAME)
    return [case.name for case in operator.tier("small")]


def test_every_case_is_one_timed_line(run: Any) -> None:
    rows = [json.loads(line) for line in run().read_text().splitlines()]
    assert [row["case"] for row in rows if row["device_us"] is not None] != []
    assert sorted(row["case"] for row in rows) == sorted(_small())
    assert not any(row["fault"] for row in rows)


def test_interrupted_survey_goes_on(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    out = run()
    whole = survey.read_rows(out)
    lines = out.read_text().splitlines()
    untimed = {**json.loads(lines[0]), "device_us": None, "prepare_s": 123.0}
    kept = [json.dumps(untimed), *lines[1:-1], lines[-1][:20]]  # the last line is cut short
    out.write_text("\n".join(kept))
    checked: list[Any] = []
    check = survey.check
    monkeypatch.setattr(survey, "check", lambda *key: checked.append(key[:2]) or check(*key))
    again = survey.read_rows(run())
    last = json.loads(lines[-1])
    assert checked == [(NAME, last["case"])]
    assert again.keys() == whole.keys()
    first = again[NAME, untimed["case"]]
    assert first.prepare_s == 123.0  # not checked again
    assert first.device_us is not None


def test_one_broken_case_does_not_take_others_along(run: Any) -> None:
    rows = []
    for name in _small()[:2]:
        rows.append(survey.Row(NAME, name, "aten", "", 0.0, 0.0, 1, 1))
    rows.insert(1, survey.Row("aten::sin", "no such case", "aten", "", 0.0, 0.0, 1, 1))
    timed = survey.clock_all(rows, "stepping", "")
    assert [row.key for row in timed] == [row.key for row in rows]
    assert [bool(row.fault) for row in timed] == [False, True, False]
