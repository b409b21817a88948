"""One entry: where it comes from, every operator's result, the source and the evidence."""

from __future__ import annotations

import streamlit as st

from kernelmark.leaderboard import (
    evidence,
    parts,
    provenance,
    queries,
    readings,
    state,
    tables,
    text,
)
from kernelmark.leaderboard.tables import Column, count

entries = parts.frame(queries.ENTRIES)
if entries.empty:
    parts.nothing_yet()
labels = parts.labels_of(entries)
submission = state.one("Entry", list(labels), "submission", shown=lambda s: labels[s])
facts = parts.frame(queries.SUBMISSION, submission=submission).iloc[0]
standings = parts.frame(queries.ENTRY, submission=submission)
suite = state.one("Suite", list(dict.fromkeys(standings["suite"])), "suite", str(facts["suite"]))
standing = standings[standings["suite"] == suite].iloc[0]

st.text(readings.entry(standing))
provenance.headline(standing)
if standing["trust_reason"] and standing["trust"] != "self_reported":
    st.text(f"{standing['trust']}: {text.short(standing['trust_reason'], 300)}")
view = state.section(
    "Show",
    ["Operators", "One operator", "Tokens", "Portability", "Provenance"],
    "part",
    label_visibility="collapsed",
)

cells = parts.frame(
    queries.ENTRY_CELLS, submission=submission, suite=suite, suite_digest=standing["suite_digest"]
)
if view == "Operators":
    statuses = state.many("Status", sorted(cells["status"].unique()), "status")
    if statuses:
        cells = cells[cells["status"].isin(statuses)]
    links = [
        parts.link("entry", submission=submission, suite=suite, part="One operator", operator=o)
        for o in cells["operator"]
    ]
    tables.table(
        cells.assign(open=links),
        {
            "operator": Column("operator", width="medium"),
            "open": Column("details", "link", width=60),
            "family": Column("family"),
            "status": Column("status"),
            "speedup": Column("speedup", "number"),
            "roofline": Column("roofline", "percent", 0),
            "device_us": Column("device µs", "number"),
            "baseline_us": Column("baseline µs", "number"),
            "attempts": count("attempts"),
            "tokens": Column("tokens", "compact"),
            "said": Column("what the judge said", width="large"),
        },
        "cells",
        "Results of this entry by operator",
        height=640,
    )
elif view == "One operator":
    operator = state.one("Operator", list(cells["operator"]), "operator")
    evidence.show(facts, cells[cells["operator"] == operator].iloc[0])
elif view == "Tokens":
    provenance.tokens(submission, standing)
elif view == "Portability":
    evidence.portability_of_entry(submission, standing)
else:
    provenance.show(facts, standing)
