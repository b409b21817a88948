"""The rows of the data set, from the registry and the measured baselines; and back to cases."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pyarrow.parquet as pq

from kernelmark.benchmark import baseline_times
from kernelmark.benchmark.dataset.identity import CANARY, LICENCE
from kernelmark.benchmark.dataset.oracle_source import oracle_source
from kernelmark.benchmark.dataset.schema import BASELINES, CASES, OPERATORS, Row
from kernelmark.benchmark.prompts import Setting, build_prompt, describe_case, dtype_names
from kernelmark.benchmark.suites import get_suite, operator_digest, suite_names
from kernelmark.operators.case_json import case_from_json, case_to_json, dtype_named
from kernelmark.operators.records import Case, Operator, Tolerance


def operator_rows(operators: Iterable[Operator], setting: Setting) -> list[Row]:
    """Rows of `operators`; prompts are for `setting`."""
    members = {name: set(get_suite(name).ids) for name in suite_names()}
    rows = [
        {
            "id": operator.id,
            "source": operator.source,
            "family": operator.family,
            "kind": operator.kind,
            "signatures": list(operator.signatures),
            "description": operator.description,
            "note": operator.note,
            "sources": list(operator.sources),
            "prompt": build_prompt(operator, setting),
            "oracle": oracle_source(operator.oracle),
            "baseline": operator.baseline_name,
            "dtypes": dtype_names(operator.cases()),
            "chips": list(operator.chips),
            "suites": [name for name, ids in members.items() if operator.id in ids],
            "small_cases": len(operator.tier("small")),
            "full_cases": len(operator.tier("full")),
            **_tolerance(operator),
            "weight": 1.0,
            "digest": operator_digest(operator),
            "licence": LICENCE,
            "canary": CANARY,
        }
        for operator in operators
    ]
    return OPERATORS.sorted(rows)


def case_rows(operators: Iterable[Operator]) -> list[Row]:
    """Rows of all cases of `operators`."""
    rows = [
        _case_row(operator, case, position)
        for operator in operators
        for position, case in enumerate(operator.cases())
    ]
    return CASES.sorted(rows)


def baseline_rows(files: Iterable[Path], cases: Sequence[Row]) -> tuple[list[Row], int]:
    """Rows of the measured baselines in `files`, and how many were left out.

    Left out are those of cases that there are no more. A file's name begins with the chip's.
    """
    known = {(row["operator"], row["case"]) for row in cases}
    measured = [
        {**row, "chip": path.stem.split("-")[0], "canary": CANARY}
        for path in sorted(files)
        for row in pq.read_table(path, schema=baseline_times.SCHEMA).to_pylist()
    ]
    rows = [row for row in measured if (row["operator"], row["case"]) in known]
    return BASELINES.sorted(rows), len(measured) - len(rows)


def case_of(row: Row) -> Case:
    """The case that a row of `cases` describes. `ValueError` where it describes none."""
    return case_from_json(
        {
            "name": row["case"],
            "args": json.loads(row["args"]),
            "kwargs": json.loads(row["kwargs"]),
            "tier": row["tier"],
            "overload": row["overload"],
            "origin": row["origin"],
            "draws": row["draws"],
            "seedless": row["seedless"],
        }
    )


def tolerance_of(row: Row) -> Tolerance:
    """The tolerance that a row of `operators` describes. `ValueError` where it describes none."""
    kind, accumulator = row["tolerance"], row["tolerance_accumulator"]
    if kind not in get_args(get_type_hints(Tolerance)["kind"]):
        raise ValueError(f"unknown tolerance {kind!r}")
    return Tolerance(
        kind=kind,
        limit=row["tolerance_limit"],
        accumulator=dtype_named(accumulator) if accumulator else None,
        max_mismatch=row["tolerance_max_mismatch"],
        why=row["tolerance_why"],
    )


def _case_row(operator: Operator, case: Case, position: int) -> Row:
    data, cost = case_to_json(case), operator.cost(case)
    return {
        "operator": operator.id,
        "case": case.name,
        "position": position,
        "tier": case.tier,
        "overload": case.overload,
        "call": describe_case(operator, case),
        "args": _json(data["args"]),
        "kwargs": _json(data["kwargs"]),
        "dtypes": dtype_names([case]),
        "draws": data["draws"],
        "seedless": case.seedless,
        "origin": case.origin,
        "input_bytes": sum(spec.nbytes for spec in case.tensors),
        "flops": cost.flops,
        "nbytes": cost.nbytes,
        "canary": CANARY,
    }


def _tolerance(operator: Operator) -> Row:
    tolerance = operator.tolerance
    accumulator = tolerance.accumulator
    return {
        "tolerance": tolerance.kind,
        "tolerance_limit": float(tolerance.limit),
        "tolerance_accumulator": str(accumulator).removeprefix("torch.") if accumulator else None,
        "tolerance_max_mismatch": float(tolerance.max_mismatch),
        "tolerance_why": tolerance.why,
    }


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
