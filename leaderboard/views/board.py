"""The board: entries of one suite on one chip, best first, with what is certain about it."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from kernelmark.leaderboard import charts, data, parts


def reading(rows: pd.DataFrame) -> str:
    """The result in one sentence."""
    ranked = rows[rows["rank"].notna()]
    if ranked.empty:
        return "No entry here is ranked yet."
    first = ranked[ranked["rank"] == ranked["rank"].min()]
    names = [charts.entry_name(row) for _, row in first.iterrows()]
    if len(ranked) == 1:
        return f"One entry: {names[0]}. With a second one this page says which is better."
    if len(names) == 1:
        return f"{names[0]} is ahead of every other entry on this suite."
    return f"{', '.join(names[:-1])} and {names[-1]} cannot be told apart on this suite."


chosen = parts.choose_board()
rows = parts.board().frame(data.BOARD, **chosen)
with st.expander("Filters"):
    kinds = st.multiselect(
        "Kind of method", sorted(rows["kind"].unique()), key="kind", bind="query-params"
    )
    trusts = st.multiselect(
        "Trust", sorted(rows["trust"].unique()), key="trust", bind="query-params"
    )
if kinds:
    rows = rows[rows["kind"].isin(kinds)]
if trusts:
    rows = rows[rows["trust"].isin(trusts)]
if rows.empty:
    st.info("No entry passes these filters.")
    st.stop()

st.text(reading(rows))
measured = (rows["measure"] == "score").all()
if measured:
    st.caption(
        "Score: mean over the whole suite of min(speedup, 2); an operator that is not solved "
        "counts 0. Ranks are intervals from a paired bootstrap over operators; entries that "
        "cannot be told apart share a rank."
    )
else:
    st.caption(
        "This chip interprets kernels: it shows whether they are right, not how fast they are. "
        "Entries are ranked by the share of operators solved."
    )
rows = rows.assign(
    entry=[parts.link("entry", submission=s) for s in rows["submission"]],
    rank_interval=[
        "" if pd.isna(a) else f"{int(a)}" if a == b else f"{int(a)} to {int(b)}"
        for a, b in zip(rows["rank"], rows["rank_high"], strict=True)
    ],
    solved_of=[f"{a}/{b}" for a, b in zip(rows["solved"], rows["operators"], strict=True)],
    interval=[
        "" if pd.isna(a) else f"{a:.2f} to {b:.2f}"
        for a, b in zip(rows["value_low"], rows["value_high"], strict=True)
    ],
    partial=[
        "" if complete else f"partial: {tried} of {all_}"
        for complete, tried, all_ in zip(
            rows["complete"], rows["attempted"], rows["operators"], strict=True
        )
    ],
    seconds=rows["seconds"].where(rows["seconds"] > 0),
    date=[created[:10] for created in rows["created_at"]],
)
number = st.column_config.NumberColumn
parts.table(
    rows,
    {
        "rank_interval": "rank",
        "method": "method",
        "model": "model",
        "kind": "kind",
        "score": number("score", format="%.3f"),
        "interval": "95% interval",
        "solved_of": "solved",
        "partial": "coverage",
        "speedup": number("speedup", format="%.2f", help="Geometric mean over solved operators."),
        "fast_1": number("fast_1", format="percent", help="Share solved at least at baseline."),
        "roofline": number("roofline", format="percent"),
        "tokens_per_solved": number("tokens per solved", format="compact"),
        "cost_per_solved_usd": number("$ per solved", format="%.4f"),
        "seconds": number("seconds", format="%.1f"),
        "metering": "metering",
        "trust": "trust",
        "date": "date",
        "entry": st.column_config.LinkColumn("details", display_text="open"),
    },
    "board",
    "Entries of this suite on this chip, best first",
)
if rows["rank"].notna().any():
    st.plotly_chart(
        charts.score_bars(rows[rows["rank"].notna()]),
        alt="Bars with intervals of the scores in the table above; hatched bars are expert-made",
    )
