"""Operators by entries: what is solved, how fast, and where everybody fails."""

from __future__ import annotations

import streamlit as st

from kernelmark.leaderboard import charts, parts, queries, state, tables
from kernelmark.leaderboard.tables import Column, count

SHOWN = 12

chosen = parts.choose_board()
part = parts.choose_part(chosen["suite"])
rows = parts.board_rows(chosen)
labels = parts.labels_of(rows)
default = list(rows["submission"].head(SHOWN))
with st.expander("Entries shown", icon=":material/filter_list:"):
    entries = state.many(
        "Entries", list(labels), "entries", default, shown=lambda s: labels[s], max_selections=24
    )
cells = parts.frame(queries.CELLS_OF, **chosen, **part, entries=entries)
if cells.empty:
    st.info("No operator passes these filters.")
    parts.stop()
picked = rows[rows["submission"].isin(entries)]
names = dict(zip(picked["submission"], parts.entry_names(picked, 30), strict=True))
summary = parts.frame(queries.OPERATOR_SUMMARY, **chosen, **part)
summary = summary.assign(
    open=[
        parts.link("operator", operator=o, on=parts.chip_name(chosen)) for o in summary["operator"]
    ],
    unsolved=["nobody yet" if n == 0 else "" for n in summary["solved"]],
)
never = int((summary["solved"] == 0).sum())
unsolved = f"{never} solved by nobody yet" if never else "each solved by somebody"
st.text(f"Operators: {len(summary)}; entries: {len(rows)}; {unsolved}.")
view = state.section("Show", ["Map", "Table"], "view")
if view == "Map":
    with st.container(key="map-operators"):
        st.plotly_chart(
            charts.operator_map(cells, names),
            alt="Operators by entries; the same values are under Table and in the files",
        )
    occurring = set(cells["status"])
    legend = [
        f"{letter} {status}" for status, letter in charts.LETTERS.items() if status in occurring
    ]
    st.text(
        "A number is the speedup over the baseline (purple: faster, orange: slower), ✓ solved "
        "without a time; letters are failures: " + ", ".join(legend)
    )
    tables.downloads(cells, "cells")
else:
    tables.table(
        summary,
        {
            "operator": Column("operator", width="medium"),
            "open": Column("details", "link", width=60),
            "family": Column("family"),
            "kind": Column("kind"),
            "solved": count("solved by"),
            "entries": count("entries"),
            "unsolved": Column("remark"),
            "best_speedup": Column("best speedup", "number"),
            "median_speedup": Column("median speedup", "number"),
            "best_roofline": Column("best roofline", "percent", 0),
            "usual_failure": Column("most usual failure"),
        },
        "operators",
        "Operators with how many entries solve them",
        height=700,
    )
