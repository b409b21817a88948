"""One operator: what it is, who solved it, how fast, and why others failed."""

from __future__ import annotations

import json

import streamlit as st

from kernelmark.leaderboard import charts, data, parts

names = list(parts.board().frame(data.OPERATORS)["operator"])
if not names:
    st.info("No operator has been catalogued yet: ingest a submission first.")
    st.stop()
operator = st.selectbox("Operator", names, key="operator", bind="query-params")
facts = parts.board().frame(data.OPERATOR, operator=operator).iloc[0]
for signature in json.loads(facts["signatures"]):
    st.code(signature, language=None)
st.text(facts["description"])
if facts["note"]:
    st.text(f"Note: {facts['note']}")
st.caption(
    f"family {facts['family']}, kind {facts['kind']}, baseline {facts['baseline']}, "
    f"{facts['small_cases']} small and {facts['full_cases']} full cases"
)
results = parts.board().frame(data.OPERATOR_RESULTS, operator=operator)
if results.empty:
    st.info("Nobody has handed in a candidate for this operator yet.")
    st.stop()
results = results.assign(
    details=[parts.link("entry", submission=s, operator=operator) for s in results["submission"]]
)
number = st.column_config.NumberColumn
st.subheader("Who solved it")
parts.table(
    results,
    {
        "method": "method",
        "model": "model",
        "chip": "chip",
        "sku": "SKU",
        "status": "status",
        "speedup": number("speedup", format="%.2f"),
        "roofline": number("roofline", format="percent"),
        "device_us": number("device µs", format="%.2f"),
        "baseline_us": number("baseline µs", format="%.2f"),
        "baseline": "baseline",
        "message": "what the judge said",
        "trust": "trust",
        "details": st.column_config.LinkColumn("details", display_text="open"),
    },
    "results",
    "Results of this operator",
)
timings = parts.board().frame(data.OPERATOR_TIMINGS, operator=operator)
if not timings.empty:
    st.subheader("Speed by case")
    st.plotly_chart(
        charts.case_speedups(timings), alt="Speedup by case; the table below holds the values"
    )
    parts.table(
        timings,
        {
            "case": "case",
            "method": "method",
            "model": "model",
            "device_us": number("device µs", format="%.2f"),
            "baseline_us": number("baseline µs", format="%.2f"),
            "speedup": number("speedup", format="%.3f"),
            "speedup_low": number("low", format="%.3f"),
            "speedup_high": number("high", format="%.3f"),
            "roofline": number("roofline", format="percent"),
            "latency_us": number("latency µs", format="%.1f"),
            "clock": "clock",
        },
        "timings",
        "Times of this operator by case",
    )
