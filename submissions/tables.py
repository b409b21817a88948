"""The lake's tables: one explicit, flat schema each, and the rows that a bundle gives.

Enforced when written; a column that is empty throughout has its type all the same. What is nested
and only ever shown whole (gates, findings, evidence) is one JSON text. Rows are tuples in the order
of the schema, as there are millions of them.

What a submitter claims and what we found ourselves never share a table: verdicts of a re-grade are
in `regrade_verdicts` and so on, of the same columns and the re-grade's id.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from operator import attrgetter
from typing import Any

import pyarrow as pa
from pydantic import TypeAdapter

from kernelmark.evaluators.campaigns.records import Attempt
from kernelmark.evaluators.grading.records import (
    Comparison,
    Finding,
    Gate,
    KernelBuild,
    Portability,
    Samples,
    Timing,
    Verdict,
    to_json,
)
from kernelmark.evaluators.metering.ledger import LedgerRow
from kernelmark.submissions.bundle import Submission
from kernelmark.submissions.validation import Contents

TEXT, INTEGER, NUMBER, FLAG = pa.string(), pa.int64(), pa.float64(), pa.bool_()
NUMBERS = pa.list_(pa.float64())

Row = dict[str, Any]
Values = tuple[Any, ...]


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
        cases_from=TEXT,
        dataset=TEXT,
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
        redactions=TEXT,
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
    #: `regrade`: the re-grade that a decision follows from; null: somebody's own
    "trust": _schema(
        submission=TEXT,
        trust=TEXT,
        reason=TEXT,
        decided_by=TEXT,
        decided_at=TEXT,
        regrade=TEXT,
    ),
}

#: a re-grade: one submission graded again here. `outcome` as in `submissions.regrading`; speeds are
#: ours over claimed, geometric mean over operators, with an interval (95%)
SCHEMAS["regrades"] = _schema(
    regrade=TEXT,
    submission=TEXT,
    chip=TEXT,
    sku=TEXT,
    same_hardware=FLAG,
    tier=TEXT,
    outcome=TEXT,
    reason=TEXT,
    candidates=INTEGER,
    agreeing=INTEGER,
    contradicting=INTEGER,
    speed_ratio=NUMBER,
    speed_ratio_low=NUMBER,
    speed_ratio_high=NUMBER,
    graded_by=TEXT,
    benchmark_version=TEXT,
    environment=TEXT,
    started_at=TEXT,
    ended_at=TEXT,
)

#: one candidate of a re-grade: what was claimed beside what we found
SCHEMAS["agreements"] = _schema(
    regrade=TEXT,
    **_JUDGED,
    claimed_status=TEXT,
    status=TEXT,
    claimed_speedup=NUMBER,
    speedup=NUMBER,
    ratio=NUMBER,
    ratio_low=NUMBER,
    ratio_high=NUMBER,
    agrees=FLAG,
    reason=TEXT,
)

#: tables of what the judge said, kept for re-grades too
_GRADED = ("verdicts", "comparisons", "timings", "samples")
for _name in _GRADED:
    SCHEMAS[f"regrade_{_name}"] = SCHEMAS[_name].insert(0, pa.field("regrade", TEXT))


def to_table(name: str, rows: Sequence[Row]) -> pa.Table:
    """Rows as a table of the schema `name`. Raises where a row has other columns or types."""
    schema = SCHEMAS[name]
    for row in rows:
        if row.keys() != set(schema.names):
            raise ValueError(f"{name}: columns {sorted(row.keys() ^ set(schema.names))}")
    return _table(name, [tuple(row[column] for column in schema.names) for row in rows])


def _table(name: str, rows: Sequence[Values]) -> pa.Table:
    schema = SCHEMAS[name]
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    if len(columns) != len(schema):
        raise ValueError(f"{name}: {len(columns)} columns, not {len(schema)}")
    arrays = []
    for field, values in zip(schema, columns, strict=True):
        try:
            arrays.append(pa.array(values, field.type))
        except (pa.ArrowInvalid, OverflowError, UnicodeError) as error:
            raise ValueError(f"{name}.{field.name}: {error}") from None
    return pa.Table.from_arrays(arrays, schema=schema)


def bundle_tables(contents: Contents, ingested_at: str) -> dict[str, pa.Table]:
    """Every table that a validated bundle has rows for.

    Raises `ValueError` where a number or text does not fit its column.
    """
    submission = contents.submission
    assert submission is not None
    id = submission.id
    decision = (id, "self_reported", "as submitted", "ingest", ingested_at, None)
    rows: dict[str, list[Values]] = {
        "run_operators": [(id, *pair) for pair in submission.run.operators.items()],
        "attempts": [
            _attempt_row(id, attempt)
            for production in contents.productions
            for attempt in production.attempts
        ],
        "candidates": [
            (id, *key, candidate.language, candidate.entry, candidate.source)
            for key, candidate in contents.candidates.items()
        ],
        "portability": [
            _portability_row(id, line.operator, line.candidate, row)
            for line in contents.portability
            for row in line.targets
        ],
        "usage": [_usage_row(id, row) for row in contents.ledger],
        "trust": [decision],
        **graded_rows((id,), contents.verdicts),
    }
    tables = {name: _table(name, table) for name, table in rows.items() if table}
    return {"submissions": to_table("submissions", [_submission(submission, ingested_at)])} | tables


def graded_rows(prefix: Values, verdicts: Iterable[Verdict]) -> dict[str, list[Values]]:
    """Rows of the tables of verdicts; each begins with `prefix`, the ids of what they belong to."""
    rows: dict[str, list[Values]] = {name: [] for name in _GRADED}
    for verdict in verdicts:
        judged = (*prefix, verdict.operator, verdict.candidate)
        rows["verdicts"].append(judged + _verdict_values(verdict))
        rows["comparisons"] += [judged + _comparison_values(c) for c in verdict.comparisons]
        for timing in verdict.timings:
            rows["timings"].append(judged + _timing_values(timing))
            for side, samples in (("candidate", timing.candidate), ("baseline", timing.baseline)):
                numbers = (samples.kernels, samples.device_us, samples.block_us)
                rows["samples"].append((*judged, timing.case, side, *numbers))
    return rows


def regrade_tables(
    regrade: Row, agreements: Sequence[Row], verdicts: Iterable[Verdict]
) -> dict[str, pa.Table]:
    """Every table of a re-grade."""
    graded = graded_rows((regrade["regrade"], regrade["submission"]), verdicts)
    tables = {f"regrade_{name}": _table(f"regrade_{name}", rows) for name, rows in graded.items()}
    return {
        "regrades": to_table("regrades", [regrade]),
        "agreements": to_table("agreements", agreements),
        **{name: table for name, table in tables.items() if table.num_rows},
    }


def _submission(submission: Submission, ingested_at: str) -> Row:
    run = to_json(submission.run)
    return {
        **{name: run[name] for name in SCHEMAS["submissions"].names if name in run},
        **to_json(submission.disclosure),
        "submission": submission.id,
        "run": submission.run.id,
        "targets": json.dumps(run["targets"]),
        "options": json.dumps(run["options"]),
        "environment": json.dumps(run["environment"]),
        "complete": submission.complete,
        "redactions": json.dumps(submission.redactions),
        "sealed_at": submission.sealed_at,
        "ingested_at": ingested_at,
    }


_ATTEMPT = attrgetter("language", "entry", "failure", "note", "seconds", "created_at")


def _attempt_row(id: str, attempt: Attempt) -> Values:
    start = (id, attempt.operator, attempt.number, attempt.candidate or None)
    return start + _ATTEMPT(attempt)


@cache
def _writer(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _json(kind: Any, value: Any) -> str:
    """`value` of the type `kind` as JSON; infinities and NaN are null."""
    return _writer(kind).dump_json(value).decode() if value else "{}" if value == {} else "[]"


@lru_cache(4096)
def _list(values: tuple[int | str, ...]) -> str:
    """A short list as JSON; the same few come again and again."""
    return json.dumps(values)


_VERDICT = attrgetter("chip", "sku", "attests", "status", "message", "baseline", "tier")


def _verdict_values(verdict: Verdict) -> Values:
    return (
        *_VERDICT(verdict),
        _json(tuple[Gate, ...], verdict.gates),
        _json(tuple[Finding, ...], verdict.findings),
        _json(tuple[KernelBuild, ...], verdict.builds),
        _json(dict[str, Any], verdict.evidence),
        _json(dict[str, str], verdict.environment),
        verdict.seconds,
        verdict.created_at,
    )


_COMPARISON = attrgetter(
    *("case", "draw", "result", "status", "max_error", "mean_error", "p999_error", "limit"),
    *("bad", "total"),
)


def _comparison_values(comparison: Comparison) -> Values:
    worst = _list(comparison.worst_index)
    shown = (comparison.got, comparison.expected, comparison.detail)
    return (*_COMPARISON(comparison), worst, *shown)


_TIMING = attrgetter(
    *("case", "device_us", "baseline_us", "speedup", "speedup_low", "speedup_high", "floor_us"),
    *("roofline", "clock", "latency_us", "baseline_latency_us", "warm_us", "baseline_warm_us"),
)


def _timing_values(timing: Timing) -> Values:
    return (
        *_TIMING(timing),
        *_percentiles(timing.candidate),
        *_percentiles(timing.baseline),
        _list(timing.sm_clock_mhz),
        _list(timing.throttle_reasons),
    )


def _percentiles(samples: Samples) -> tuple[float | None, float | None, float | None]:
    """5th, 50th and 95th percentile of the samples, interpolated."""
    if not samples.device_us:
        return None, None, None
    ordered = sorted(samples.device_us)
    return _quantile(ordered, 0.05), _quantile(ordered, 0.5), _quantile(ordered, 0.95)


def _quantile(ordered: Sequence[float], share: float) -> float:
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


_PORTABILITY = attrgetter("target", "status", "error")
_COMPILED = attrgetter("occupancy", "matrix_instructions", "seconds")


def _portability_row(id: str, operator: str, candidate: str, row: Portability) -> Values:
    kernels = _json(tuple[KernelBuild, ...], row.kernels)
    return (id, operator, candidate, *_PORTABILITY(row), kernels, *_COMPILED(row))


_USAGE = tuple(name for name in SCHEMAS["usage"].names if name != "submission")
_TOKENS = {name for name in _USAGE if name in ("total", "out_total", "out_reasoning")} | {
    name for name in _USAGE if name.startswith("in_")
}
_USAGE_VALUES = attrgetter(*(f"usage.{n}" if n in _TOKENS else n for n in _USAGE))


def _usage_row(id: str, row: LedgerRow) -> Values:
    return (id, *_USAGE_VALUES(row))
