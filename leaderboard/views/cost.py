"""Cost against quality: what a result costs in tokens, dollars or time, and what is dominated."""

from __future__ import annotations

import streamlit as st

from kernelmark.leaderboard import charts, data, parts, state, tables, text
from kernelmark.leaderboard.tables import Column, count

SHOWN = {"tokens": ("compact", 0), "dollars": ("dollars", 3), "time": ("number", 0)}

chosen = parts.choose_board()
rows = parts.board_rows(chosen)
left, right = st.columns(2)
with left:
    cost = state.section("Cost", list(charts.COSTS), "cost")
with right:
    measured = rows["score"].notna().any()
    quality = state.section("Quality", ["score", "solved"] if measured else ["solved"], "quality")

column = charts.COSTS[cost][0]
metered = cost == "time"
points = rows.assign(
    cost=rows[column].where((rows["metering"] != "not applicable") | metered, 0.0),
    quality=rows["score" if quality == "score" else "solved_share"],
    complete=(rows["metering"] != "partial") | metered,
    entry=parts.entry_links(rows),
    name=parts.entry_names(rows),
)
points = points[points["quality"].notna() & ~points["trust"].isin(["flagged", "withdrawn"])]
unknown = points[points["cost"].isna()]
points = points[points["cost"].notna()]
# A lower bound proves nothing about its entry, so it is never on the front.
sure = points[points["complete"] & (points["cost"] > 0)]
front = dict(zip(sure["submission"], data.pareto(sure["cost"], sure["quality"]), strict=True))
points = points.assign(front=[bool(front.get(s)) for s in points["submission"]])

if points["cost"].gt(0).any():
    st.plotly_chart(
        charts.cost_quality(points, list(points["name"]), cost, quality),
        alt="Quality over cost of each entry; the table below holds the values",
    )
else:
    st.info(f"No entry here has a known cost in {cost}.")
st.caption(
    "On the dotted front: nothing here is both cheaper and at least as good. Cost is per operator "
    "tried, solved or not. Hollow, with an arrow: metering is partial, so the true cost is higher."
)
if not unknown.empty:
    names = ", ".join(text.short(name) for name in unknown["name"])
    st.text(f"Cost unknown, not placed: {names}.")
points = points.assign(
    where=[
        "on the front" if f else "no model" if c == 0 else "" if known else "at least this cost"
        for f, c, known in zip(points["front"], points["cost"], points["complete"], strict=True)
    ]
)
tables.table(
    points.sort_values("quality", ascending=False),
    {
        "method": Column("method"),
        "model": Column("model"),
        "kind": Column("kind"),
        "quality": Column(charts.QUALITIES[quality], "number", 3),
        "cost": Column(charts.COSTS[cost][1], *SHOWN[cost]),
        "where": Column("where", width=110),
        "solved": count("solved"),
        "tokens": Column("tokens in all", "compact"),
        "cost_usd": Column("$ in all", "dollars"),
        "metering": Column("metering"),
        "entry": Column("details", "link"),
    },
    "cost",
    "Cost and quality of each entry",
)
