"""The board: entries of one suite on one chip, best first, with what is certain about it."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from kernelmark.leaderboard import charts, filters, parts, queries, readings, tables
from kernelmark.leaderboard.tables import Column, count

SCORE = (
    "Score: mean over the operators of min(speedup, 2); an operator that is not solved counts 0. "
    "Ranks are intervals from a paired bootstrap over operators: an entry is put above another "
    "only where the difference is certain, so entries share ranks."
)
SOLVED = (
    "This chip interprets kernels: it shows whether they are right, not how fast they are. "
    "Entries are ranked by the share of operators solved."
)


def columns(operators: int) -> dict[str, Column]:
    """How the board shows an entry."""
    return {
        "rank_interval": Column("rank", width=60),
        "entry": Column("details", "link", width=60),
        "method": Column("method"),
        "model": Column("model"),
        "mark": Column("made by", help="What has no model behind it is marked.", width=115),
        "score": Column("score", "number", 3),
        "interval": Column("95% interval"),
        "solved": count(f"solved of {operators}"),
        "tokens_per_operator": Column("tokens / op.", "compact", help="Tokens an operator tried."),
        "cost_per_solved_usd": Column("$ / solved", "dollars", 3),
        "state": Column("remarks"),
        "speedup": Column("speedup", "number", help="Geometric mean over solved operators."),
        "tokens_per_solved": Column("tokens / solved", "compact"),
        "fast_1": Column("fast_1", "percent", 0, help="Solved, and at least at the baseline."),
        "roofline": Column("roofline", "percent", 0, help="Floor of the hardware over the time."),
        "seconds": Column("hours", "number", help="Time the method took, all operators together."),
        "metering": Column("metering", help="Partial: tokens and cost are lower bounds."),
        "trust": Column("trust"),
        "open_weights": Column("open weights"),
        "submitter": Column("submitter"),
        "date": Column("date"),
    }


chosen = parts.choose_board()
everything = parts.board_rows(chosen)
with st.expander("Filters", expanded=filters.any_given(), icon=":material/filter_list:"):
    part = parts.choose_part(chosen["suite"])
    wanted = filters.choose(everything)
rows = parts.part_rows(chosen, part) if any(part.values()) else everything
rows = filters.apply(rows, wanted)
if rows.empty:
    st.info("No entry passes these filters.")
    parts.stop()
filtered = any(part.values()) or len(rows) < len(everything)
if filtered:
    values = parts.frame(queries.BOARD_VALUES, **chosen, **part)
    rows = parts.ranked(rows, values)

st.text(readings.board(rows))
st.caption(SCORE if (rows["measure"] == "score").all() else SOLVED)
if filtered:
    operators = rows["operators"].max()
    st.text(f"Ranked anew among the {len(rows)} entries shown, over {operators} operators.")


def remarks(row: dict[str, object]) -> str:
    """What a reader must know before believing a row."""
    said = []
    if pd.isna(row["rank"]):
        said.append("not ranked" + (f": {row['trust']}" if row["trust"] != "self_reported" else ""))
    if row["declared"] and not row["complete"]:
        said.append(f"partial: {row['attempted']} of {row['operators']} tried")
    if not row["current_suite"]:
        said.append("older suite")
    if row["trained_on_benchmark"] == "yes":
        said.append("trained on the benchmark")
    return ", ".join(said)


shown = rows.assign(
    entry=parts.entry_links(rows),
    rank_interval=[
        "" if pd.isna(a) else f"{int(a)}" if a == b else f"{int(a)}–{int(b)}"
        for a, b in zip(rows["rank"], rows["rank_high"], strict=True)
    ],
    interval=[
        "" if pd.isna(a) else f"{a:.2f} to {b:.2f}"
        for a, b in zip(rows["value_low"], rows["value_high"], strict=True)
    ],
    mark=[filters.MARKS.get(kind, kind) for kind in rows["kind"]],
    state=[remarks(row) for row in rows.to_dict("records")],
    seconds=rows["seconds"].where(rows["seconds"] > 0) / 3600,
    date=[created[:10] for created in rows["created_at"]],
)
tables.table(
    shown.rename(columns={"seconds": "hours"}),
    {("hours" if c == "seconds" else c): v for c, v in columns(rows["operators"].max()).items()},
    "board",
    "Entries of this suite on this chip, best first",
    height=560,
)
ranked = rows[rows["rank"].notna()].head(40)
if not ranked.empty:
    st.plotly_chart(
        charts.score_bars(ranked, parts.entry_names(ranked)),
        alt="Bars with intervals of the scores in the table above; hatched: no model",
    )
    st.caption("Hatched bars have no model behind them: / expert-made, x compiler, dots library.")
