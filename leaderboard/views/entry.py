"""One entry: where it comes from, every operator's result, the source and the evidence."""

from __future__ import annotations

import json

import pandas as pd
import streamlit as st

from kernelmark.leaderboard import charts, data, parts

entries = parts.board().frame(data.ENTRIES)
if entries.empty:
    st.info(parts.HOW_TO_START)
    st.stop()
labels = {
    row["submission"]: f"{charts.entry_name(row)} on {row['chip']} {row['sku']}, "
    f"{row['created_at'][:10]} ({row['submission'][:8]})"
    for _, row in entries.iterrows()
}
submission = st.selectbox(
    "Entry", list(labels), format_func=lambda s: labels[s], key="submission", bind="query-params"
)
standings = parts.board().frame(data.ENTRY, submission=submission)
facts = parts.board().frame(data.SUBMISSION, submission=submission).iloc[0]
suite = st.selectbox("Suite", list(standings["suite"]), key="entry_suite", bind="query-params")
standing = standings[standings["suite"] == suite].iloc[0]

columns = st.columns(4)
columns[0].metric("Solved", f"{standing['solved']}/{standing['operators']}")
if pd.notna(standing["score"]):
    columns[1].metric("Score", f"{standing['score']:.3f}")
if pd.notna(standing["speedup"]):
    columns[2].metric("Speedup", f"{standing['speedup']:.2f}")
columns[3].metric("Trust", str(standing["trust"]).replace("_", " "))
if standing["trust_reason"]:
    st.text(f"Trust: {standing['trust_reason']}")
with st.expander("Provenance and environment"):
    wanted = [
        "submission", "run", "method", "kind", "model", "language", "selection", "suite", "chip",
        "tier", "options", "benchmark_version", "submitter", "organisation", "url", "notes",
        "licence", "trained_on_benchmark", "attempts_declared", "created_at", "ingested_at",
    ]  # fmt: skip
    shown = [(name, str(facts[name])) for name in wanted if pd.notna(facts[name])]
    st.dataframe(pd.DataFrame(shown, columns=["what", "value"]), hide_index=True)
    st.json(json.loads(facts["environment"] or "{}"))
    st.text("Reproduce it with")
    model = f" --model {facts['model']}" if facts["model"] else ""
    st.code(
        f"kernelmark run --method {facts['method']}{model} --suite {facts['suite']} "
        f"--chip {facts['chip']}",
        language="bash",
    )

cells = parts.board().frame(data.ENTRY_CELLS, submission=submission, suite=suite)
cells["message"] = cells["message"].fillna(cells["note"]).fillna("")
number = st.column_config.NumberColumn
st.subheader("Operators")
parts.table(
    cells,
    {
        "operator": "operator",
        "family": "family",
        "status": "status",
        "speedup": number("speedup", format="%.2f"),
        "roofline": number("roofline", format="percent"),
        "device_us": number("device µs", format="%.2f"),
        "baseline_us": number("baseline µs", format="%.2f"),
        "attempts": number("attempts"),
        "tokens": number("tokens", format="compact"),
        "message": "what the judge said",
    },
    "cells",
    "Results of this entry by operator",
)
tried = cells[cells["candidate"].notna()]
if tried.empty:
    st.stop()
st.subheader("One operator, down to the source")
operator = st.selectbox("Operator", list(tried["operator"]), key="operator", bind="query-params")
cell = tried[tried["operator"] == operator].iloc[0]
key = {"submission": submission, "operator": operator, "candidate": cell["candidate"]}
verdicts = parts.board().frame(data.VERDICT, **key)
st.text(f"{cell['status']}: {cell['message'] or ''}")
tabs = st.tabs(["Source", "Verdict", "Correctness", "Timing", "Portability"])
with tabs[0]:
    for _, row in parts.board().frame(data.SOURCE, **key).iterrows():
        st.code(row["source"], language="python", line_numbers=True)
with tabs[1]:
    for _, row in verdicts.iterrows():
        st.dataframe(pd.DataFrame(json.loads(row["gates"])), hide_index=True)
        findings = json.loads(row["findings"])
        if findings:
            st.dataframe(pd.DataFrame(findings), hide_index=True)
        st.json({"evidence": json.loads(row["evidence"])}, expanded=False)
        st.json({"environment": json.loads(row["environment"])}, expanded=False)
with tabs[2]:
    st.dataframe(parts.board().frame(data.COMPARISONS, **key), hide_index=True)
with tabs[3]:
    timings = parts.board().frame(data.TIMINGS, **key)
    if timings.empty:
        st.text("Not timed on this chip.")
    else:
        st.dataframe(timings, hide_index=True)
with tabs[4]:
    portability = parts.board().frame(data.PORTABILITY, **key)
    if portability.empty:
        st.text("Not compiled for other targets in this run.")
    else:
        st.dataframe(portability, hide_index=True)
