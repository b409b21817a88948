"""The lake's tables: one explicit, flat schema each, and the rows that a bundle gives.

Enforced when written; a column that is empty throughout has its type all the same. What is nested
and only ever shown whole (gates, findings, evidence) is one JSON text.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from kernelmark.evaluators.grading.records import Samples, Timing, Verdict, to_json
from kernelmark.submissions.bundle import Submission
from kernelmark.submissions.validation import Contents

TEXT, INTEGER, NUMBER, FLAG = pa.string(), pa.int64(), pa.float64(), pa.bool_()
NUMBERS = pa.list_(pa.float64())

Row = dict[str, Any]


def _schema(**columns: pa.DataType) -> pa.Schema:
    return pa.schema(list(columns.items()))


#: one line a judged candidate; the first three columns of what follows from it
_JUDGED = {"submission": TEXT, "operator": TEXT, "candidate": TEXT}

SCHEMAS: dict[str, pa.Schema] = {
    "submissions": _schema(
        submission=TEXT,
        run=TEXT,
        method=TEXT,
        kind=TEXT,
        model=TEXT,
        language=TEXT,
        selection=TEXT,
        suite=TEXT,
        suite_digest=TEXT,
        suite_size=INTEGER,
        chip=TEXT,
        tier=TEXT,
        targets=TEXT,
        options=TEXT,
        budget_tokens=INTEGER,
        benchmark_version=TEXT,
        environment=TEXT,
        complete=FLAG,
        submitter=TEXT,
        organisation=TEXT,
        contact=TEXT,
        url=TEXT,
        notes=TEXT,
        licence=TEXT,
        trained_on_benchmark=TEXT,
        open_weights=TEXT,
        attempts_declared=INTEGER,
        created_at=TEXT,
        sealed_at=TEXT,
        ingested_at=TEXT,
    ),
    "run_operators": _schema(submission=TEXT, operator=TEXT, operator_digest=TEXT),
    "attempts": _schema(
        submission=TEXT,
        operator=TEXT,
        attempt=INTEGER,
        candidate=TEXT,
        language=TEXT,
        entry=TEXT,
        failure=TEXT,
        note=TEXT,
        seconds=NUMBER,
        created_at=TEXT,
    ),
    "candidates": _schema(**_JUDGED, language=TEXT, entry=TEXT, source=pa.large_string()),
    "verdicts": _schema(
        **_JUDGED,
        chip=TEXT,
        sku=TEXT,
        attests=TEXT,
        status=TEXT,
        message=TEXT,
        baseline=TEXT,
        tier=TEXT,
        gates=TEXT,
        findings=TEXT,
        builds=TEXT,
        evidence=TEXT,
        environment=TEXT,
        seconds=NUMBER,
        created_at=TEXT,
    ),
    "comparisons": _schema(
        **_JUDGED,
        case=TEXT,
        draw=TEXT,
        result=INTEGER,
        status=TEXT,
        max_error=NUMBER,
        mean_error=NUMBER,
        p999_error=NUMBER,
        error_limit=NUMBER,
        bad=INTEGER,
        total=INTEGER,
        worst_index=TEXT,
        got=TEXT,
        expected=TEXT,
        detail=TEXT,
    ),
    "timings": _schema(
        **_JUDGED,
        case=TEXT,
        device_us=NUMBER,
        baseline_us=NUMBER,
        speedup=NUMBER,
        speedup_low=NUMBER,
        speedup_high=NUMBER,
        floor_us=NUMBER,
        roofline=NUMBER,
        clock=TEXT,
        latency_us=NUMBER,
        baseline_latency_us=NUMBER,
        warm_us=NUMBER,
        baseline_warm_us=NUMBER,
        device_p05_us=NUMBER,
        device_p50_us=NUMBER,
        device_p95_us=NUMBER,
        baseline_p05_us=NUMBER,
        baseline_p50_us=NUMBER,
        baseline_p95_us=NUMBER,
        sm_clock_mhz=TEXT,
        throttle_reasons=TEXT,
    ),
    "samples": _schema(
        **_JUDGED,
        case=TEXT,
        side=TEXT,
        kernels=INTEGER,
        device_us=NUMBERS,
        block_us=NUMBERS,
    ),
    "portability": _schema(
        **_JUDGED,
        target=TEXT,
        status=TEXT,
        error=TEXT,
        kernels=TEXT,
        occupancy=NUMBER,
        matrix_instructions=INTEGER,
        seconds=NUMBER,
    ),
    "usage": _schema(
        submission=TEXT,
        operator=TEXT,
        attempt=INTEGER,
        request=TEXT,
        api=TEXT,
        model_requested=TEXT,
        model_served=TEXT,
        outcome=TEXT,
        usage_source=TEXT,
        in_uncached=INTEGER,
        in_cache_read=INTEGER,
        in_cache_write_5m=INTEGER,
        in_cache_write_1h=INTEGER,
        out_total=INTEGER,
        out_reasoning=INTEGER,
        total=INTEGER,
        retry_index=INTEGER,
        session=TEXT,
        agent=TEXT,
        parent_agent=TEXT,
        http_status=INTEGER,
        stream=FLAG,
        raw_usage=TEXT,
        started_at=TEXT,
        ended_at=TEXT,
        price_table=TEXT,
        cost_usd=NUMBER,
    ),
    "operators": _schema(
        operator=TEXT,
        operator_digest=TEXT,
        source=TEXT,
        family=TEXT,
        kind=TEXT,
        signatures=TEXT,
        description=TEXT,
        note=TEXT,
        baseline=TEXT,
        dtypes=TEXT,
        small_cases=INTEGER,
        full_cases=INTEGER,
        benchmark_version=TEXT,
        catalogued_at=TEXT,
    ),
    "cases": _schema(
        operator=TEXT,
        operator_digest=TEXT,
        case=TEXT,
        tier=TEXT,
        origin=TEXT,
        call=TEXT,
        flops=INTEGER,
        nbytes=INTEGER,
        catalogued_at=TEXT,
    ),
    "suites": _schema(
        suite=TEXT,
        suite_digest=TEXT,
        description=TEXT,
        operator=TEXT,
        operator_digest=TEXT,
        catalogued_at=TEXT,
    ),
    "trust": _schema(submission=TEXT, trust=TEXT, reason=TEXT, decided_by=TEXT, decided_at=TEXT),
}


def to_table(name: str, rows: Sequence[Row]) -> pa.Table:
    """Rows as a table of the schema `name`. Raises where a row has other columns or types."""
    schema = SCHEMAS[name]
    for row in rows:
        if row.keys() != set(schema.names):
            raise ValueError(f"{name}: columns {sorted(row.keys() ^ set(schema.names))}")
    return pa.Table.from_pylist(list(rows), schema=schema)


def bundle_tables(contents: Contents, ingested_at: str) -> dict[str, pa.Table]:
    """Every table that a validated bundle has rows for."""
    submission = contents.submission
    assert submission is not None
    id = submission.id
    rows: dict[str, list[Row]] = {
        "submissions": [_submission_row(submission, ingested_at)],
        "run_operators": [
            {"submission": id, "operator": operator, "operator_digest": digest}
            for operator, digest in submission.run.operators.items()
        ],
        "attempts": list(_attempt_rows(id, contents)),
        "candidates": [
            {
                "submission": id,
                "operator": operator,
                "candidate": candidate.id,
                "language": candidate.language,
                "entry": candidate.entry,
                "source": candidate.source,
            }
            for (operator, _), candidate in contents.candidates.items()
        ],
        "verdicts": [_verdict_row(id, verdict) for verdict in contents.verdicts],
        "comparisons": [row for v in contents.verdicts for row in _comparison_rows(id, v)],
        "timings": [_timing_row(id, v, t) for v in contents.verdicts for t in v.timings],
        "samples": [row for v in contents.verdicts for row in _sample_rows(id, v)],
        "portability": list(_portability_rows(id, contents)),
        "usage": list(_usage_rows(id, contents)),
        "trust": [
            {
                "submission": id,
                "trust": "self_reported",
                "reason": "as submitted",
                "decided_by": "ingest",
                "decided_at": ingested_at,
            }
        ],
    }
    return {name: to_table(name, table) for name, table in rows.items() if table}


def _submission_row(submission: Submission, ingested_at: str) -> Row:
    run = to_json(submission.run)
    disclosure = to_json(submission.disclosure)
    return {
        **{name: run[name] for name in SCHEMAS["submissions"].names if name in run},
        **disclosure,
        "submission": submission.id,
        "run": submission.run.id,
        "targets": json.dumps(run["targets"]),
        "options": json.dumps(run["options"]),
        "environment": json.dumps(run["environment"]),
        "complete": submission.complete,
        "created_at": submission.run.created_at,
        "sealed_at": submission.sealed_at,
        "ingested_at": ingested_at,
    }


def _attempt_rows(id: str, contents: Contents) -> Iterable[Row]:
    for production in contents.productions:
        for attempt in production.attempts:
            row = to_json(attempt)
            number = row.pop("number")
            candidate = row.pop("candidate") or None
            yield {**row, "submission": id, "attempt": number, "candidate": candidate}


def _judged(id: str, verdict: Verdict) -> Row:
    return {"submission": id, "operator": verdict.operator, "candidate": verdict.candidate}


def _verdict_row(id: str, verdict: Verdict) -> Row:
    data = to_json(verdict)
    nested = ("gates", "findings", "builds", "evidence", "environment")
    plain = set(SCHEMAS["verdicts"].names) - set(_JUDGED) - set(nested)
    return {
        **_judged(id, verdict),
        **{name: data[name] for name in plain},
        **{name: json.dumps(data[name]) for name in nested},
    }


def _comparison_rows(id: str, verdict: Verdict) -> Iterable[Row]:
    for comparison in verdict.comparisons:
        row = to_json(comparison)
        limit = row.pop("limit")
        worst = json.dumps(row.pop("worst_index"))
        yield {**_judged(id, verdict), **row, "error_limit": limit, "worst_index": worst}


def _timing_row(id: str, verdict: Verdict, timing: Timing) -> Row:
    row = to_json(timing)
    del row["candidate"], row["baseline"]
    row["sm_clock_mhz"] = json.dumps(row["sm_clock_mhz"])
    row["throttle_reasons"] = json.dumps(row["throttle_reasons"])
    return {
        **row,
        **_judged(id, verdict),
        **_percentiles("device", timing.candidate),
        **_percentiles("baseline", timing.baseline),
        "roofline": timing.roofline,
    }


def _percentiles(side: str, samples: Samples) -> Row:
    names = [f"{side}_p05_us", f"{side}_p50_us", f"{side}_p95_us"]
    if not samples.device_us:
        return dict.fromkeys(names)
    values = np.percentile(np.asarray(samples.device_us), [5, 50, 95])
    return dict(zip(names, (float(value) for value in values), strict=True))


def _sample_rows(id: str, verdict: Verdict) -> Iterable[Row]:
    for timing in verdict.timings:
        for side, samples in (("candidate", timing.candidate), ("baseline", timing.baseline)):
            yield {
                **_judged(id, verdict),
                "case": timing.case,
                "side": side,
                "kernels": samples.kernels,
                "device_us": list(samples.device_us),
                "block_us": list(samples.block_us),
            }


def _portability_rows(id: str, contents: Contents) -> Iterable[Row]:
    for operator, candidate, portability in contents.portability:
        row = to_json(portability)
        row["kernels"] = json.dumps(row["kernels"])
        yield {**row, "submission": id, "operator": operator, "candidate": candidate}


def _usage_rows(id: str, contents: Contents) -> Iterable[Row]:
    for entry in contents.ledger:
        row = {**to_json(entry), **to_json(entry.usage), "total": entry.usage.total}
        row = {name: row[name] for name in SCHEMAS["usage"].names if name in row}
        cost = row["cost_usd"]
        row["cost_usd"] = cost if cost is None or math.isfinite(cost) else None
        yield {**row, "submission": id}
