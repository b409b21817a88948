"""One operator of one entry, down to the source, the verdict and the raw samples."""

from __future__ import annotations

import json
from typing import Any

import pandas as pd
import streamlit as st

from kernelmark.leaderboard import charts, parts, queries, state, tables, text
from kernelmark.leaderboard.tables import Column, count

#: characters of a source that are shown; the file has all
_SHOWN = 100_000
_NUMBERS = {"max_error": 3, "p999_error": 3, "error_limit": 1}


def show(facts: pd.Series, cell: pd.Series) -> None:
    """What became of the operator, and every piece of evidence."""
    submission, operator = facts["submission"], cell["operator"]
    attempts = parts.frame(queries.ATTEMPTS, submission=submission, operator=operator)
    st.text(f"{cell['status']}: {text.short(cell['said'] or 'nothing was handed in', 500)}")
    judged = attempts[attempts["candidate"].notna()]
    if judged.empty:
        _attempts(attempts)
        return
    labels = {
        str(row["attempt"]): f"{row['attempt']}: {row['status']}"
        + (" (counts)" if row["attempt"] == cell["attempt"] else "")
        for row in judged.to_dict("records")
    }
    left, right = st.columns([1, 3])
    with left:
        counted = str(int(cell["attempt"])) if not text.missing(cell["attempt"]) else None
        number = state.one("Attempt", list(labels), "attempt", counted, shown=lambda a: labels[a])
    candidate = judged[judged["attempt"] == int(number)].iloc[0]["candidate"]
    key = {"submission": submission, "operator": operator, "candidate": candidate}
    with right:
        what = state.section(
            "Evidence",
            ["Source", "Verdict", "Correctness", "Timing", "Portability", "Ledger", "Attempts"],
            "evidence",
        )
    views = {
        "Source": lambda: _source(key),
        "Verdict": lambda: _verdict(key),
        "Correctness": lambda: _correctness(key),
        "Timing": lambda: _timing(key),
        "Portability": lambda: _portability(key),
        "Ledger": lambda: _ledger(submission, operator),
        "Attempts": lambda: _attempts(attempts),
    }
    views[what]()


def _source(key: dict[str, Any]) -> None:
    found = parts.frame(queries.SOURCE, **key)
    if found.empty:
        st.info("The source of this candidate is not in the store.")
        return
    row = found.iloc[0]
    source = row["source"]
    shown = text.visible(source[:_SHOWN], keep="\n\t")
    name = f"{key['operator'].split('::')[-1]}.py"
    if shown != source[:_SHOWN]:
        st.warning(
            "Hidden or direction-changing characters are shown as \\u{…}; the file has them."
        )
    if len(source) > _SHOWN:
        st.warning(f"The first {_SHOWN:,} of {len(source):,} characters; the file has all.")
    st.code(shown, language="python", line_numbers=True, wrap_lines=True)
    tables.download("Source", source.encode(), name, "text/x-python", help=f"{name}, as handed in")
    line = text.command(["kernelmark", "check", name, "--op", key["operator"]])
    if line:
        st.text("Grade it on your chip:")
        st.code(line, language=None, wrap_lines=True)


def _verdict(key: dict[str, Any]) -> None:
    found = parts.frame(queries.VERDICT, **key)
    if found.empty:
        st.info("This candidate has not been graded.")
        return
    row = found.iloc[0]
    st.text(
        f"{row['status']} on {parts.chip_name(row)} ({row['attests']}), tier {row['tier']}, "
        f"{row['seconds']:.1f} s; baseline {row['baseline']}"
    )
    gates = pd.DataFrame(json.loads(row["gates"]), columns=["name", "passed", "seconds", "detail"])
    gates["passed"] = ["✓ passed" if passed else "✗ stopped here" for passed in gates["passed"]]
    columns = {
        "name": Column("gate"),
        "passed": Column("result"),
        "seconds": Column("seconds", "number"),
        "detail": Column("detail", width="large"),
    }
    tables.table(gates, columns, "gates", "The verdict, gate by gate")
    for title, column in (("Findings of the scan", "findings"), ("Kernels as built", "builds")):
        rows = pd.DataFrame(json.loads(row[column]))
        if not rows.empty:
            st.subheader(title)
            tables.table(rows, {c: Column(c) for c in rows}, column, title)
    st.subheader("Evidence and environment")
    rest = {name: json.loads(row[name]) for name in ("evidence", "environment")}
    st.code(text.visible(json.dumps(rest, indent=2), keep="\n"), language="json", wrap_lines=True)


def _correctness(key: dict[str, Any]) -> None:
    rows = parts.frame(queries.COMPARISONS, **key)
    if rows.empty:
        st.info("Nothing was compared: an earlier gate stopped this candidate.")
        return
    bad = int((rows["status"] != "passed").sum())
    st.text(f"{len(rows)} comparisons, {bad} failed; errors in units of the tolerance's formula.")
    columns: dict[str, Column] = {c: Column(c.replace("_", " ")) for c in rows}
    for name, digits in _NUMBERS.items():
        columns[name] = Column(name.replace("_", " "), "number", digits)
    columns |= {"bad": count("bad elements"), "total": count("elements"), "result": count("result")}
    tables.table(rows, columns, "comparisons", "Comparisons with the oracle", height=560)


def _timing(key: dict[str, Any]) -> None:
    rows = parts.frame(queries.TIMINGS, **key)
    if rows.empty:
        st.info("Not timed: it did not pass, or this chip does not measure times.")
        return
    names = {
        "device_us": "device µs", "baseline_us": "baseline µs", "speedup": "speedup",
        "speedup_low": "low", "speedup_high": "high", "roofline": "roofline",
        "latency_us": "latency µs", "baseline_latency_us": "baseline latency µs",
        "device_p05_us": "p05 µs", "device_p95_us": "p95 µs", "floor_us": "floor µs",
    }  # fmt: skip
    columns = {"case": Column("case"), **{c: Column(n, "number") for c, n in names.items()}}
    columns["roofline"] = Column("roofline", "percent", 0)
    columns |= {
        c: Column(c.replace("_", " ")) for c in ("clock", "sm_clock_mhz", "throttle_reasons")
    }
    tables.table(rows, columns, "timings", "Times by case, with 95% intervals of the speedup")
    case = state.one("Raw samples of case", list(rows["case"]), "case")
    samples = parts.frame(queries.SAMPLES, **key, case=case)
    if samples.empty:
        st.text("The raw samples of this case are not in the store.")
        return
    st.plotly_chart(charts.samples(samples), alt="Device time of each sample; the files hold them")
    tables.downloads(samples, "samples")


def _portability(key: dict[str, Any]) -> None:
    rows = parts.frame(queries.PORTABILITY, **key)
    if rows.empty:
        st.info("Not compiled for other targets in this run.")
        return
    columns = {
        "target": Column("target"),
        "status": Column("status"),
        "error": Column("first error", width="large"),
        "occupancy": Column("occupancy", "percent", 0),
        "matrix_instructions": count("matrix instructions"),
        "kernels": Column("kernels", width="large"),
    }
    tables.table(rows, columns, "portability", "Whether this candidate compiles for other targets")


def _ledger(submission: str, operator: str) -> None:
    rows = parts.frame(queries.OPERATOR_USAGE, submission=submission, operator=operator)
    if rows.empty:
        st.info("No request was metered for this operator.")
        return
    wide = ("in_uncached", "in_cache_read", "in_cache_write", "out_total", "out_reasoning", "total")
    columns = {c: Column(c.replace("_", " ")) for c in rows}
    columns |= {c: Column(c.replace("_", " "), "compact") for c in wide}
    columns |= {"attempt": count("attempt"), "http_status": count("HTTP status")}
    columns["cost_usd"] = Column("$", "dollars", 4)
    tables.table(rows, columns, "requests", "Requests to the model for this operator")


def _attempts(attempts: pd.DataFrame) -> None:
    columns = {
        "attempt": count("attempt"),
        "status": Column("status"),
        "speedup": Column("speedup", "number"),
        "seconds": Column("seconds", "number", 1),
        "note": Column("the method's note", width="large"),
        "message": Column("what the judge said", width="large"),
        "candidate": Column("candidate"),
    }
    if attempts.empty:
        st.info("The method never tried this operator.")
        return
    tables.table(attempts, columns, "attempts", "Attempts at this operator, in order")


def portability_of_entry(submission: str, standing: pd.Series) -> None:
    """How many of an entry's candidates compile for each target, and why others do not."""
    key = {"submission": submission, "suite": standing["suite"]}
    key["suite_digest"] = standing["suite_digest"]
    rows = parts.frame(queries.ENTRY_PORTABILITY, **key)
    if rows.empty:
        st.info("This run was not compiled for other targets.")
        return
    columns = {
        "target": Column("target"),
        "compiled": count("compile"),
        "tried": count("tried"),
        "share": Column("share", "percent", 0),
    }
    tables.table(rows, columns, "targets", "Candidates of this entry that compile, by target")
    errors = parts.frame(queries.ENTRY_PORTABILITY_ERRORS, **key)
    if not errors.empty:
        columns = {
            "target": Column("target"),
            "error_class": Column("failure"),
            "operators": count("operators"),
            "example": Column("for example"),
            "example_error": Column("its first error", width="large"),
        }
        tables.table(errors, columns, "target-errors", "Why candidates do not compile")
