"""Two entries, paired by operator: whether one is really better, and where each wins."""

from __future__ import annotations

import numpy as np
import streamlit as st

from kernelmark.benchmark import ranks
from kernelmark.leaderboard import charts, pairing, parts, queries, readings, state, tables
from kernelmark.leaderboard.tables import Column, count

suite = parts.choose_suite()
entries = parts.frame(queries.SUITE_ENTRIES, **suite)
if len(entries) < 2:
    st.info("Two entries on one suite are needed. The board shows which there are.")
    parts.stop()
# The pair that a page without a choice opens on: the best two of the board that this visit looked
# at, else of the largest.
size = entries.groupby(["chip", "sku"])["latest"].transform("sum")
looked_at = state.kept(["chip"]).get("chip")
entries = entries.assign(
    size=size, here=[parts.chip_name(row) == looked_at for row in entries.to_dict("records")]
).sort_values(
    ["latest", "here", "size", "chip", "sku", "rank", "score"],
    ascending=[False, False, False, True, True, True, False],
    kind="stable",
)
labels = parts.labels_of(entries)
left, right = st.columns(2)
with left:
    first = state.one("First entry", list(labels), "first", shown=lambda s: labels[s])
others = [s for s in labels if s != first]
with right:
    second = state.one("Second entry", others, "second", shown=lambda s: labels[s])

chosen = entries[entries["submission"].isin([first, second])].set_index("submission")
a, b = chosen.loc[first], chosen.loc[second]
one, other = pairing.names(a, b)
rows = parts.frame(queries.PAIR, first=first, second=second, **suite)
scored = a["measure"] == b["measure"] == "score"
same_chip = (a["chip"], a["sku"]) == (b["chip"], b["sku"])
if rows.empty:
    st.info("These entries have no operator in common.")
    parts.stop()
difference = pairing.compare(rows, a, b, scored=scored, ranked=same_chip)
st.text(readings.pair(one, other, difference, "score" if scored else "share solved"))
st.caption(
    "Paired by operator: both are resampled over the same operators, so what is hard for both "
    "does not blur the difference. "
    + (
        "Better or not is decided as on the board, for all its pairs at once."
        if same_chip and chosen["rank"].notna().all()
        else "These two do not share a board, so the pair is judged by itself."
    )
)
if not same_chip:
    st.warning("They ran on different chips: a difference may be the chip's, not the method's.")
with st.container(horizontal=True, gap="medium"):
    for label, value in pairing.counts(rows).items():
        st.metric(label, value, width="content")
both = rows.dropna(subset=["first_speedup", "second_speedup"])
if len(both) > 1:
    ratio = ranks.compare(np.log(both["first_speedup"]), np.log(both["second_speedup"]))
    st.text(
        f"On the {len(both)} operators that both solved and timed, {one} has "
        f"{np.exp(ratio.value):.2f} times the speedup of {other} "
        f"(95% interval {np.exp(ratio.low):.2f} to {np.exp(ratio.high):.2f})."
    )
    st.plotly_chart(
        charts.pair_speedups(both, one, other),
        alt="Speedups of both entries against each other; the table below holds the values",
    )
rows = pairing.winners(rows, one, other)
wins = state.many("Show operators where", ["first", "second", "neither"], "wins",
                  shown={"first": "the first wins", "second": "the second wins",
                         "neither": "neither wins"}.__getitem__)  # fmt: skip
shown = rows[rows["side"].isin(wins)] if wins else rows
tables.table(
    shown.assign(open=[parts.link("operator", operator=o) for o in shown["operator"]]),
    {
        "operator": Column("operator", width="medium"),
        "open": Column("details", "link", width=60),
        "family": Column("family"),
        "winner": Column("who wins"),
        "first_status": Column("first: status"),
        "second_status": Column("second: status"),
        "first_speedup": Column("first: speedup", "number"),
        "second_speedup": Column("second: speedup", "number"),
        "ratio": Column("first / second", "number"),
    },
    "compare",
    "Both entries by operator",
    height=560,
)
families = pairing.by_family(rows)
st.subheader("Where each wins, by family")
tables.table(
    families,
    {
        "family": Column("family"),
        "first": count("first wins"),
        "second": count("second wins"),
        "neither": count("neither"),
    },
    "compare-families",
    "Wins of both entries by family",
)
