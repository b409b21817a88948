"""The measured baselines that ship: they belong to cases that exist, and say how they came."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from kernelmark.benchmark.baseline_times import FOLDER, SCHEMA, baseline_times, write
from kernelmark.operators.registry import all_operators

FILES = sorted(FOLDER.glob("*.parquet"))


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_rows_belong_to_cases_that_exist(path: Path) -> None:
    rows = pq.read_table(path).to_pylist()
    assert rows
    cases = {(o.id, c.name) for o in all_operators().values() for c in o.tier("full")}
    assert {(row["operator"], row["case"]) for row in rows} <= cases


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_rows_are_plausible_and_say_where_they_come_from(path: Path) -> None:
    table = pq.read_table(path)
    assert table.schema.equals(SCHEMA)
    for row in table.to_pylist():
        assert row["device_us"] > 0, row
        assert row["roofline"] is None or row["roofline"] < 1.05, row
        assert all(row[name] for name in ("baseline", "clock", "sku", "torch", "date")), row


def test_an_operator_that_was_not_measured_has_no_rows() -> None:
    assert baseline_times("aten::item") == []
    assert {row["case"] for row in baseline_times("aten::add")} == {
        case.name for case in all_operators()["aten::add"].tier("full")
    }


def test_later_surveys_override_and_faults_are_left_out(tmp_path: Path) -> None:
    base = dict.fromkeys(SCHEMA.names) | {"operator": "o", "case": "c", "fault": ""}
    rows = [
        {**base, "device_us": 2.0},
        {**base, "case": "wrong", "fault": "it does not pass", "device_us": 1.0},
        {**base, "case": "untimed"},
    ]
    first, second = tmp_path / "1.jsonl", tmp_path / "2.jsonl"
    first.write_text("\n".join(map(json.dumps, rows)))
    second.write_text(json.dumps({**base, "device_us": 3.0}))
    assert write([first, second], tmp_path / "t.parquet") == 1
    assert baseline_times("o", tmp_path / "t.parquet")[0]["device_us"] == 3.0


def test_verdicts_complete_what_was_checked_and_not_timed(tmp_path: Path) -> None:
    """No case that the survey has not checked, and no time that it has taken itself."""
    base = dict.fromkeys(SCHEMA.names) | {"operator": "o", "baseline": "cuBLAS", "fault": ""}
    survey, verdict = tmp_path / "1.jsonl", tmp_path / "v.json"
    rows = [{**base, "case": "a"}, {**base, "case": "b", "device_us": 2.0}]
    survey.write_text("\n".join(map(json.dumps, rows)))
    samples = {"block_us": [3.9, 4.0, 4.1], "kernels": 2}
    timing = {"baseline_us": 4.0, "floor_us": 1.0, "baseline": samples, "clock": "cupti/judge"}
    about = {"operator": "o", "baseline": "cuBLAS", "sku": "H200", "created_at": "2026-11-30T12"}
    timings = [timing | {"case": case} for case in ("a", "b", "never checked")]
    about |= {"environment": {"torch": "2.11"}, "timings": timings}
    verdict.write_text(json.dumps(about))
    assert write([survey, verdict], tmp_path / "t.parquet") == 2
    first, second = baseline_times("o", tmp_path / "t.parquet")
    assert (first["device_us"], first["roofline"], first["activities"]) == (4.0, 0.25, 2)
    assert (first["noise"], first["clock"]) == (pytest.approx(0.05), "judge")
    assert second["device_us"] == 2.0
