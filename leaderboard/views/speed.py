"""Speed curve: the share of operators that an entry solves at a speedup of at least p."""

from __future__ import annotations

import streamlit as st

from kernelmark.leaderboard import charts, parts, queries, state, tables
from kernelmark.leaderboard.tables import Column

SHOWN = 6

chosen = parts.choose_board()
rows = parts.board_rows(chosen)
labels = parts.labels_of(rows)
default = list(rows["submission"].head(SHOWN))
entries = state.many(
    "Entries", list(labels), "entries", default, shown=lambda s: labels[s], max_selections=12
)
curves = parts.frame(queries.FAST_P, suite=chosen["suite"], entries=entries)
if curves.empty:
    st.info("There is no speed to show: this chip does not measure times. Choose another chip.")
    parts.stop()
picked = rows[rows["submission"].isin(entries)]
names = dict(zip(picked["submission"], parts.entry_names(picked), strict=True))
st.plotly_chart(
    charts.speed_curves(curves, names),
    alt="Curves of the share solved over the speedup; the table below holds points of them",
)
st.caption(
    "At p = 0 a curve shows the share solved at all, at p = 1 the share at least as fast as the "
    "baseline. The share is of the whole suite."
)
points = curves[curves["p"].isin([0.0, 0.5, 0.8, 1.0, 1.2, 1.5, 2.0, 3.0])]
wide = points.pivot(index="submission", columns="p", values="share")
wide.columns = [f"{p:.1f}" for p in wide.columns]
wide = picked[["submission", "method", "model"]].merge(wide, left_on="submission", right_index=True)
wide = wide.assign(entry=parts.entry_links(wide))
tables.table(
    wide,
    {
        "method": Column("method"),
        "model": Column("model"),
        **{p: Column(f"≥ {p}", "percent", 0) for p in wide.columns if p[0].isdigit()},
        "entry": Column("details", "link"),
    },
    "speed",
    "Share of operators solved at a speedup of at least the number above",
)
