"""Operators by entries: what is solved, how fast, and where everybody fails."""

from __future__ import annotations

import streamlit as st

from kernelmark.leaderboard import charts, data, parts

chosen = parts.choose_board()
cells = parts.board().frame(data.CELLS, **chosen)
sources = st.pills(
    "Source", sorted(cells["source"].unique()), selection_mode="multi", key="source",
    bind="query-params",
)  # fmt: skip
families = st.multiselect(
    "Family", sorted(cells["family"].unique()), key="family", bind="query-params"
)
if sources:
    cells = cells[cells["source"].isin(sources)]
if families:
    cells = cells[cells["family"].isin(families)]
if cells.empty:
    st.info("No operator passes these filters.")
    st.stop()
st.plotly_chart(
    charts.operator_map(cells),
    alt="Operators by entries; the table below holds the same values",
)
st.caption(
    "A number is the speedup over the baseline, ✓ solved without a time; letters are failures: "
    + ", ".join(f"{letter} {status}" for status, letter in charts.LETTERS.items())
)
summary = (
    cells.groupby(["operator", "source", "family", "kind"], as_index=False)
    .agg(
        entries=("submission", "nunique"),
        solved=("solved", "sum"),
        best_speedup=("speedup", "max"),
        best_roofline=("roofline", "max"),
    )
    .assign(open=lambda f: [parts.link("operator", operator=o) for o in f["operator"]])
)
number = st.column_config.NumberColumn
parts.table(
    summary,
    {
        "operator": "operator",
        "family": "family",
        "kind": "kind",
        "solved": number("solved by"),
        "entries": number("entries"),
        "best_speedup": number("best speedup", format="%.2f"),
        "best_roofline": number("best roofline", format="percent"),
        "open": st.column_config.LinkColumn("details", display_text="open"),
    },
    "operators",
    "Operators with how many entries solve them",
)
