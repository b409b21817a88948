"""Measured baselines that ship with the project: one Parquet file a SKU in `baselines/`.

Made on the device by `python -m kernelmark.evaluators.grading.survey OUT.jsonl`, turned into the
file by `python -m kernelmark.benchmark.baseline_times OUT.jsonl FILE`. Where the survey has checked
a case and not timed it, verdicts can give the time: a judge measures the same baseline beside every
candidate, by the same clock (`... OUT.jsonl VERDICT.json ... FILE`). Times in microseconds, cold
cache; `noise` is the largest difference between medians of blocks over their median.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

FOLDER = Path(__file__).parent / "baselines"

SCHEMA = pa.schema(
    {
        "operator": pa.string(),
        "case": pa.string(),
        "baseline": pa.string(),
        "device_us": pa.float64(),
        "noise": pa.float64(),
        "roofline": pa.float64(),
        "activities": pa.int64(),
        "flops": pa.int64(),
        "nbytes": pa.int64(),
        "prepare_s": pa.float64(),
        "oracle_s": pa.float64(),
        "clock": pa.string(),
        "sku": pa.string(),
        "torch": pa.string(),
        "date": pa.string(),
    }
)


def baseline_times(operator: str, sku_file: Path = FOLDER / "nvidia-h200.parquet") -> list[Any]:
    """Rows of one operator, by case; empty where none were measured."""
    if not sku_file.exists():
        return []
    return pq.read_table(sku_file, filters=[("operator", "=", operator)]).to_pylist()


def write(survey: Sequence[Path], target: Path) -> int:
    """Writes the timed, faultless rows of surveys, a later one first, completed by verdicts (those
    that end in ``.json``); returns how many."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for path in survey:
        if path.suffix == ".json":
            continue
        for line in path.read_text().splitlines():
            row = json.loads(line)
            known = rows.get((row["operator"], row["case"]))
            if not row["fault"] and (known is None or row["device_us"] is not None):
                rows[row["operator"], row["case"]] = {n: row[n] for n in SCHEMA.names}
    for path in survey:
        if path.suffix == ".json":
            _complete(rows, json.loads(path.read_text()))
    rows = {key: row for key, row in rows.items() if row["device_us"] is not None}
    target.parent.mkdir(parents=True, exist_ok=True)
    ordered = [rows[key] for key in sorted(rows)]
    pq.write_table(pa.Table.from_pylist(ordered, SCHEMA), target, compression="zstd")
    return len(ordered)


def _complete(rows: dict[tuple[str, str], dict[str, Any]], verdict: dict[str, Any]) -> None:
    """Fills in the times of checked cases that the survey has not timed. `verdict`: its JSON."""
    for timing in verdict["timings"]:
        row = rows.get((verdict["operator"], timing["case"]))
        if row is None or row["device_us"] is not None or row["baseline"] != verdict["baseline"]:
            continue
        device_us, floor_us, samples = (
            timing[name] for name in ("baseline_us", "floor_us", "baseline")
        )
        medians = samples["block_us"]
        row |= {
            "device_us": device_us,
            "noise": (max(medians) - min(medians)) / device_us,
            "roofline": floor_us / device_us if floor_us else None,
            "activities": samples["kernels"],
            "clock": timing["clock"].split("/")[-1],
            "sku": verdict["sku"],
            "torch": verdict["environment"]["torch"],
            "date": verdict["created_at"][:10],
        }


def main() -> None:
    """Turns surveys (the later overrides the earlier) into a file that ships."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("survey", type=Path, nargs="+")
    parser.add_argument("target", type=Path)
    options = parser.parse_args()
    print(f"{write(options.survey, options.target)} rows in {options.target}")


if __name__ == "__main__":
    main()
