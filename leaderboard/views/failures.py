"""Failures: what kind, by method, source, family or chip."""

from __future__ import annotations

import streamlit as st

from kernelmark.leaderboard import charts, parts, queries, state, tables
from kernelmark.leaderboard.tables import Column, count

GROUPS = {"method": "entry", "source": "source", "family": "family", "chip": "chip_name"}

suite = parts.choose_suite()
rows = parts.frame(queries.FAILURES, **suite)
if rows.empty:
    st.info("Nothing has failed on this suite.")
    parts.stop()
rows = rows.assign(chip_name=[parts.chip_name(row) for row in rows.to_dict("records")])
left, right = st.columns(2)
with left:
    chips = state.many("Chips", sorted(rows["chip_name"].unique()), "chips")
with right:
    statuses = state.many("Statuses", sorted(rows["status"].unique()), "status")
by = state.section("By", list(GROUPS), "by")
if chips:
    rows = rows[rows["chip_name"].isin(chips)]
if statuses:
    rows = rows[rows["status"].isin(statuses)]
if rows.empty:
    st.info("Nothing of this kind has failed.")
    parts.stop()
firsts = rows.drop_duplicates("submission")
names = dict(zip(firsts["submission"], parts.entry_names(firsts, 30), strict=True))
rows = rows.assign(entry=[names[s] for s in rows["submission"]])
counts = rows.pivot_table(
    index=GROUPS[by], columns="status", values="operators", aggfunc="sum", fill_value=0
)
counts = counts.loc[counts.sum(axis=1).sort_values(ascending=False).index]
counts = counts[counts.sum().sort_values(ascending=False).index]
st.plotly_chart(
    charts.failure_bars(counts.head(30)),
    alt="Failures by status; the table below holds the counts",
)
statuses_text = {status: count(status) for status in counts.columns}
tables.table(
    counts.reset_index(),
    {GROUPS[by]: Column(by if by != "method" else "entry"), **statuses_text},
    "failures",
    f"Failures by {by} and status",
)
st.subheader("By kind of error")
classes = (
    rows.groupby(["status", "error_class"], as_index=False)["operators"]
    .sum()
    .sort_values("operators", ascending=False)
)
tables.table(
    classes,
    {"status": Column("status"), "error_class": Column("error"), "operators": count("operators")},
    "error-classes",
    "Failures by kind of error",
    height=420,
)
