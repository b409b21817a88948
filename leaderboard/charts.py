"""Charts as pure functions from data frames to figures; no Streamlit in here.

Colour never is the only sign: statuses carry a letter, entries a marker shape or a label.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

#: a letter for each status that is not `passed`, for heat maps and legends
LETTERS = {
    "no_candidate": "–",
    "rejected": "R",
    "build_error": "B",
    "runtime_error": "E",
    "out_of_memory": "M",
    "timed_out": "T",
    "wrong_shape": "S",
    "wrong_dtype": "D",
    "wrong_layout": "L",
    "wrong_values": "V",
    "mutated_input": "I",
    "nondeterministic": "N",
    "tampered": "X",
    "implausible": "P",
    "unsupported": "U",
    "budget_exhausted": "$",
    "method_error": "?",
    "infrastructure_error": "!",
}


def entry_name(row: pd.Series) -> str:
    """``method · model``, or the method alone."""
    return f"{row['method']} · {row['model']}" if row["model"] else str(row["method"])


def score_bars(board: pd.DataFrame) -> go.Figure:
    """Score of each entry with its 95% interval, best on top."""
    rows = board.iloc[::-1]
    value = "score" if (rows["measure"] == "score").all() else "solved_share"
    low = (rows[value] - rows["value_low"]).clip(lower=0)
    high = (rows["value_high"] - rows[value]).clip(lower=0)
    figure = go.Figure(
        go.Bar(
            x=rows[value],
            y=[entry_name(row) for _, row in rows.iterrows()],
            orientation="h",
            error_x={"type": "data", "array": high, "arrayminus": low, "symmetric": False},
            marker={"pattern": {"shape": ["/" if k == "human" else "" for k in rows["kind"]]}},
            hovertemplate="%{y}: %{x:.3f}<extra></extra>",
        )
    )
    title = "score" if value == "score" else "share of operators solved"
    figure.update_layout(
        xaxis={"title": title, "rangemode": "tozero"},
        height=90 + 34 * len(rows),
        margin={"l": 10, "r": 10, "t": 10, "b": 40},
    )
    return figure


def operator_map(cells: pd.DataFrame) -> go.Figure:
    """Operators by entries: speedup as colour and number, failures as a letter."""
    cells = cells.assign(entry=[entry_name(row) for _, row in cells.iterrows()])
    values = cells.pivot_table(
        index="operator", columns="entry", values="speedup", aggfunc="first", dropna=False
    )
    status = cells.pivot_table(index="operator", columns="entry", values="status", aggfunc="first")
    status = status.reindex(index=values.index, columns=values.columns)
    text = [
        [_cell(s, v) for s, v in zip(statuses, speeds, strict=True)]
        for statuses, speeds in zip(status.to_numpy(), values.to_numpy(), strict=True)
    ]
    # A solved operator without a time (interpreter, metadata) stands at 1: neither fast nor slow.
    solved = status.to_numpy() == "passed"
    shade = np.where(solved, np.log2(values.fillna(1.0).clip(lower=1e-6).to_numpy()), np.nan)
    figure = go.Figure(
        go.Heatmap(
            z=shade,
            x=list(values.columns),
            y=list(values.index),
            text=text,
            texttemplate="%{text}",
            customdata=status.to_numpy(),
            hovertemplate="%{y}<br>%{x}<br>%{customdata}: %{text}<extra></extra>",
            zmid=0,
            zmin=-2,
            zmax=2,
            colorscale="PuOr",
            colorbar={
                "title": "speedup",
                "tickvals": [-2, -1, 0, 1, 2],
                "ticktext": ["¼", "½", "1", "2", "4"],
            },
        )
    )
    figure.update_layout(
        height=120 + 20 * len(values),
        xaxis={"side": "top"},
        yaxis={"autorange": "reversed"},
        margin={"l": 10, "r": 10, "t": 60, "b": 10},
    )
    return figure


def _cell(status: object, speedup: float) -> str:
    if status == "passed":
        return "✓" if pd.isna(speedup) else f"{speedup:.2f}"
    return LETTERS.get(str(status), "")


def case_speedups(timings: pd.DataFrame) -> go.Figure:
    """Speedup of each full case by entry, with intervals."""
    figure = go.Figure()
    markers = ["circle", "square", "diamond", "cross", "x", "triangle-up", "star", "hexagon"]
    named = timings.assign(entry=[entry_name(row) for _, row in timings.iterrows()])
    for i, (entry, rows) in enumerate(named.groupby("entry", sort=True)):
        figure.add_trace(
            go.Scatter(
                x=rows["speedup"],
                y=rows["case"],
                mode="markers",
                name=str(entry),
                marker={"symbol": markers[i % len(markers)], "size": 10},
                error_x={
                    "type": "data",
                    "array": rows["speedup_high"] - rows["speedup"],
                    "arrayminus": rows["speedup"] - rows["speedup_low"],
                    "symmetric": False,
                },
            )
        )
    figure.add_vline(x=1.0, line_dash="dash", annotation_text="baseline")
    figure.update_layout(
        xaxis={"title": "speedup over the baseline (cold cache)", "type": "log"},
        height=140 + 32 * timings["case"].nunique(),
        margin={"l": 10, "r": 10, "t": 30, "b": 40},
    )
    return figure
