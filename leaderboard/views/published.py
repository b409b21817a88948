"""What others report for their own protocols; never in one table with ours."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import streamlit as st

from kernelmark.leaderboard import state, tables
from kernelmark.leaderboard.tables import Column, count

FILE = Path(__file__).parent.parent / "published.json"

st.text(
    "Figures that others published, as they printed them, under their own protocols: other "
    "operators' cases, other tolerances, other baselines, other clocks. They cannot be compared "
    "with the results measured here, so they never stand in one table with them."
)
publications = {p["title"]: p for p in json.loads(FILE.read_text())["publications"]}
title = state.one("Publication", list(publications), "publication")
found = publications[title]
for label in ("source", "hardware", "protocol", "baseline"):
    st.markdown(f"**{label.capitalize()}:** {found[label]}")

results = pd.DataFrame(found["results"])
view = state.section("Table", [*results["table"].unique(), "cost"], "table")
if view == "cost":
    tables.table(
        pd.DataFrame(found["costs"]),
        {
            "method": Column("method"),
            "model": Column("model"),
            "scope": Column("operators"),
            "hardware": Column("hardware"),
            "tokens_million": count("million tokens in all"),
            "tokens_million_per_success": Column("million tokens per success", "number"),
            "hours": count("hours"),
        },
        "published-costs",
        f"Costs that {title} reports",
    )
else:
    shown = results[results["table"] == view]
    methods = state.many("Method", sorted(shown["method"].unique()), "method")
    if methods:
        shown = shown[shown["method"].isin(methods)]
    tables.table(
        shown,
        {
            "method": Column("method"),
            "model": Column("model"),
            "scope": Column("operators"),
            "hardware": Column("hardware"),
            "accuracy_percent": count("accuracy, %"),
            "speedup": Column("speedup over those passed", "number"),
        },
        "published",
        f"Results that {title} reports",
        height=520,
    )
st.subheader("Contradictions found")
st.markdown("\n".join(f"- {line}" for line in found["contradictions"]))
st.subheader("Remarks")
st.markdown("\n".join(f"- {line}" for line in found["remarks"]))
