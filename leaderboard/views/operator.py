"""One operator: what it is, who solved it, how fast, and why others failed."""

from __future__ import annotations

import json

import streamlit as st

from kernelmark.leaderboard import charts, parts, queries, state, tables
from kernelmark.leaderboard.tables import Column, count

known = parts.frame(queries.OPERATORS)
if known.empty:
    st.info("No operator has been catalogued yet: ingest a submission first.")
    parts.stop()
left, right = st.columns(2)
with left:
    tried = known.loc[known["entries"].idxmax(), "operator"]
    operator = state.one("Operator", list(known["operator"]), "operator", tried)
chips = parts.frame(queries.OPERATOR_CHIPS, operator=operator)
facts = parts.frame(queries.OPERATOR, operator=operator).iloc[0]
for signature in json.loads(facts["signatures"]):
    st.code(signature, language=None, wrap_lines=True)
st.text(facts["description"])
if facts["note"]:
    st.text(f"Note: {facts['note']}")
st.text(
    f"Family {facts['family']}, kind {facts['kind']}; baseline: {facts['baseline']}; "
    f"{facts['small_cases']} small and {facts['full_cases']} full cases in "
    f"{', '.join(json.loads(facts['dtypes']))}."
)
chip = {"chip": "", "sku": ""}
if not chips.empty:
    labels = {parts.chip_name(row): row for row in chips.to_dict("records")}
    with right:
        row = labels[state.one("Chip", list(labels), "on")]
    chip = {"chip": row["chip"], "sku": row["sku"]}
results = parts.frame(queries.OPERATOR_RESULTS, operator=operator, **chip)
timings = parts.frame(queries.OPERATOR_TIMINGS, operator=operator, **chip)
view = state.section(
    "Show", ["Who solved it", "Speed by case", "Failures", "Cases"], "view",
    label_visibility="collapsed",
)  # fmt: skip

if view == "Cases":
    tables.table(
        parts.frame(queries.CASES, operator=operator, **chip),
        {
            "case": Column("case"),
            "tier": Column("tier"),
            "call": Column("call", width="large"),
            "flops": Column("flops", "compact"),
            "nbytes": Column("bytes", "compact"),
            "floor_us": Column("floor µs", "number", help="Of the chip: bytes or flops at peak."),
            "best_us": Column("best µs", "number"),
            "baseline_us": Column("baseline µs", "number"),
        },
        "cases",
        "Cases of this operator: full ones first; only those are timed",
        height=560,
    )
    parts.stop()
if results.empty:
    st.info("Nobody has handed in a candidate for this operator yet.")
    parts.stop()
if view == "Who solved it":
    solved = results[results["status"] == "passed"]
    st.text(f"{len(solved)} of {len(results)} entries solved it on this chip.")
    results = results.assign(
        details=[
            parts.link("entry", submission=s, operator=operator, part="One operator")
            for s in results["submission"]
        ]
    )
    timed = results[results["speedup"].notna() & (results["status"] == "passed")]
    if not timed.empty:
        st.plotly_chart(
            charts.speed_strip(timed, parts.entry_names(timed)),
            alt="Speedups of the entries that solved it, by kind; the table holds the values",
        )
    tables.table(
        results,
        {
            "method": Column("method"),
            "model": Column("model"),
            "details": Column("details", "link", width=60),
            "kind": Column("kind"),
            "status": Column("status"),
            "speedup": Column("speedup", "number"),
            "roofline": Column("roofline", "percent", 0),
            "device_us": Column("device µs", "number"),
            "baseline_us": Column("baseline µs", "number"),
            "baseline": Column("baseline"),
            "attempts": count("attempts"),
            "message": Column("what the judge said", width="large"),
            "trust": Column("trust"),
        },
        "results",
        "Results of this operator on this chip",
    )
elif view == "Speed by case":
    if timings.empty:
        st.info("No times: nobody solved it on this chip, or the chip does not measure times.")
        parts.stop()
    few = timings.drop_duplicates("submission").head(8)
    st.plotly_chart(
        charts.case_speedups(
            timings, dict(zip(few["submission"], parts.entry_names(few), strict=True))
        ),
        alt="Speedup by case; the table below holds the values",
    )
    tables.table(
        timings,
        {
            "case": Column("case"),
            "method": Column("method"),
            "model": Column("model"),
            "device_us": Column("device µs", "number"),
            "baseline_us": Column("baseline µs", "number"),
            "speedup": Column("speedup", "number", 3),
            "speedup_low": Column("low", "number", 3),
            "speedup_high": Column("high", "number", 3),
            "floor_us": Column("floor µs", "number"),
            "roofline": Column("roofline", "percent", 0),
            "latency_us": Column("latency µs", "number", 1),
            "clock": Column("clock"),
        },
        "timings",
        "Times of this operator by case",
    )
else:
    failures = parts.frame(queries.OPERATOR_FAILURES, operator=operator, **chip)
    if failures.empty:
        st.info("Every entry solved it on this chip.")
        parts.stop()
    failures = failures.assign(
        details=[
            parts.link("entry", submission=s, operator=operator, part="One operator")
            for s in failures["submission"]
        ]
    )
    tables.table(
        failures,
        {
            "error_class": Column("failure"),
            "entries": count("entries"),
            "details": Column("example", "link", width=70),
            "example": Column("its message", width="large"),
        },
        "failures",
        "Why entries failed at this operator on this chip",
    )
