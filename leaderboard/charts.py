"""Charts as pure functions from data frames to figures; no Streamlit in here.

Colour never is the only sign: statuses carry a letter, entries a marker and a dash pattern, kinds a
hatch. Every text of a submitter passes `text.for_figure`: figures know some HTML.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from kernelmark.leaderboard.text import compact, for_figure

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
#: told apart by colour-blind readers too (Okabe and Ito 2008), each at least 3:1 on white and black
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#8C6D00", "#56879E", "#8F63B8", "#B8433F")
#: lines on white and on black
GREY = "#868c96"
MARKERS = ("circle", "square", "diamond", "cross", "x", "triangle-up", "star", "hexagon")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
HATCHES = {"human": "/", "compiler": "x", "library": "."}
PATTERNS = ("", "/", "x", ".", "\\", "-", "|", "+")


def score_bars(rows: pd.DataFrame, names: Sequence[str]) -> go.Figure:
    """Score of each entry with its 95% interval, best on top; what has no model is hatched."""
    rows = rows.assign(name=[for_figure(n) for n in names]).iloc[::-1]
    scored = (rows["measure"] == "score").all()
    value = rows["score" if scored else "solved_share"]
    figure = go.Figure(
        go.Bar(
            x=value,
            y=rows["name"],
            orientation="h",
            error_x={
                "type": "data",
                "array": (rows["value_high"] - value).clip(lower=0),
                "arrayminus": (value - rows["value_low"]).clip(lower=0),
                "symmetric": False,
                "thickness": 1.5,
                "color": GREY,
            },
            marker={
                "color": COLOURS[0],
                "pattern": {"shape": [HATCHES.get(k, "") for k in rows["kind"]], "size": 6},
            },
            hovertemplate="%{y}: %{x:.3f}<extra></extra>",
        )
    )
    title = "score, with 95% interval" if scored else "share of operators solved, with 95% interval"
    return _laid_out(figure, 90 + 30 * len(rows), xaxis={"title": title, "rangemode": "tozero"})


def operator_map(cells: pd.DataFrame, names: dict[str, str]) -> go.Figure:
    """Operators by entries (`names` by submission): speedup as colour and number, else a letter."""
    entries = [s for s in names if s in set(cells["submission"])]
    grid = cells.pivot(index="operator", columns="submission", values=["speedup", "status"])
    speed = grid["speedup"].reindex(columns=entries).astype(float)
    status = grid["status"].reindex(columns=entries).to_numpy()
    # A solved operator without a time (interpreter, metadata) stands at 1: neither fast nor slow.
    shade = np.where(status == "passed", np.log2(speed.fillna(1.0).clip(lower=1e-6)), np.nan)
    text = [
        [_cell(s, v) for s, v in zip(a, b, strict=True)]
        for a, b in zip(status, speed.to_numpy(), strict=True)
    ]
    figure = go.Figure(
        go.Heatmap(
            z=shade,
            x=[for_figure(names[s], 30) for s in entries],
            y=list(speed.index),
            text=text,
            texttemplate="%{text}",
            customdata=status,
            hovertemplate="%{y}<br>%{x}<br>%{customdata}: %{text}<extra></extra>",
            zmid=0,
            zmin=-2,
            zmax=2,
            colorscale="PuOr",
            xgap=1,
            ygap=1,
            showscale=False,  # each cell says its number
            textfont={"size": 10},
        )
    )
    top = 40 + 5 * max((len(names[s][:30]) for s in entries), default=0)
    return _laid_out(
        figure,
        top + 40 + 22 * len(speed),
        xaxis={"side": "top", "tickangle": -50, "showgrid": False},
        yaxis={"autorange": "reversed", "dtick": 1, "showgrid": False},
        margin={"l": 10, "r": 10, "t": top, "b": 10},
    )


def _cell(status: object, speedup: float) -> str:
    if status == "passed":
        return "✓" if pd.isna(speedup) else f"{speedup:.2f}"
    return LETTERS.get(str(status), "")


def case_speedups(timings: pd.DataFrame, names: dict[str, str]) -> go.Figure:
    """Speedup of each full case by entry (`names` by submission), with intervals."""
    figure = go.Figure()
    for i, (submission, name) in enumerate(names.items()):
        rows = timings[timings["submission"] == submission]
        figure.add_trace(
            go.Scatter(
                x=rows["speedup"],
                y=[for_figure(c) for c in rows["case"]],
                mode="markers",
                name=for_figure(name),
                marker=_marker(i),
                error_x={
                    "type": "data",
                    "array": rows["speedup_high"] - rows["speedup"],
                    "arrayminus": rows["speedup"] - rows["speedup_low"],
                    "symmetric": False,
                },
                hovertemplate="%{y}: %{x:.3f}<extra>%{fullData.name}</extra>",
            )
        )
    _baseline(figure, vertical=True)
    return _laid_out(
        figure,
        170 + 32 * timings["case"].nunique() + 12 * len(names),
        xaxis={"title": "speedup, caches cold", **_log(timings["speedup"])},
    )


def speed_strip(results: pd.DataFrame, names: Sequence[str]) -> go.Figure:
    """Distribution of one operator's speedups over entries, by kind of method."""
    results = results.assign(name=[for_figure(n) for n in names])
    figure = go.Figure()
    for i, (kind, rows) in enumerate(results.groupby("kind", sort=True)):
        figure.add_trace(
            go.Scatter(
                x=rows["speedup"],
                y=[str(kind)] * len(rows),
                mode="markers",
                marker={**_marker(i), "opacity": 0.8},
                text=rows["name"],
                hovertemplate="%{text}: %{x:.2f}<extra></extra>",
                showlegend=False,
            )
        )
    _baseline(figure, vertical=True)
    kinds = results["kind"].nunique()
    return _laid_out(
        figure, 140 + 36 * kinds, xaxis={"title": "speedup", **_log(results["speedup"])}
    )


#: points of a chart that carry their names
NAMED = 16
COSTS = {
    "tokens": ("tokens_per_operator", "tokens an operator"),
    "dollars": ("cost_per_operator_usd", "US dollars an operator"),
    "time": ("seconds_per_operator", "seconds an operator"),
}
QUALITIES = {"score": "score", "solved": "share of operators solved"}


def cost_quality(points: pd.DataFrame, names: Sequence[str], cost: str, quality: str) -> go.Figure:
    """Quality over cost. `points` has the columns cost, quality, kind, complete, front.

    The front and the best few are named; all stand in the table. Complete points are filled; lower
    bounds (metering is partial) are hollow with an arrow to the right. The front is a stepped line.
    What costs nothing (no model) is a line across.
    """
    points = points.assign(name=[for_figure(n) for n in names])
    placed, free = points[points["cost"] > 0], points[~(points["cost"] > 0)]
    placed = placed.sort_values("cost")
    named = set(placed[placed["front"]].index) | set(placed["quality"].nlargest(NAMED).index)
    figure = go.Figure()
    for i, (kind, rows) in enumerate(placed.groupby("kind", sort=True)):
        marker = _marker(i)
        symbols = [f"{marker['symbol']}{'' if c else '-open'}" for c in rows["complete"]]
        figure.add_trace(
            go.Scatter(
                x=rows["cost"],
                y=rows["quality"],
                mode="markers+text",
                text=[
                    (n if c else f"{n} →") if i in named else ""
                    for i, n, c in zip(rows.index, rows["name"], rows["complete"], strict=True)
                ],
                customdata=rows["name"],
                textposition=(["top center", "bottom center"] * len(rows))[: len(rows)],
                textfont={"size": 11},
                cliponaxis=False,
                name=str(kind),
                marker={**marker, "symbol": symbols, "size": 12},
                hovertemplate="%{customdata}: %{x:,.4g}, %{y:.3f}<extra></extra>",
            )
        )
    front = placed[placed["front"]].sort_values("cost")
    figure.add_trace(
        go.Scatter(
            x=front["cost"], y=front["quality"], mode="lines", name="front",
            line={"shape": "hv", "dash": "dot", "color": GREY}, hoverinfo="skip",
        )
    )  # fmt: skip
    corners = ("top left", "bottom right", "bottom left", "top right")
    for i, row in enumerate(free.nlargest(4, "quality").to_dict("records")):
        figure.add_hline(
            y=row["quality"], line_dash="dash", line_width=1, line_color=GREY,
            annotation_text=f"{row['name']} (no {'time' if cost == 'time' else 'model'})",
            annotation_position=corners[i % 4], annotation_font_size=11,
        )  # fmt: skip
    return _laid_out(
        figure,
        480,
        xaxis={"title": COSTS[cost][1], **_log(placed["cost"], 0.15)},
        yaxis={"title": QUALITIES[quality], "rangemode": "tozero"},
    )


def speed_curves(curves: pd.DataFrame, names: dict[str, str]) -> go.Figure:
    """Share of operators solved at a speedup of at least p, by entry (`names` by submission)."""
    figure = go.Figure()
    for i, (submission, name) in enumerate(names.items()):
        rows = curves[curves["submission"] == submission]
        figure.add_trace(
            go.Scatter(
                x=rows["p"],
                y=rows["share"],
                mode="lines+markers",
                name=for_figure(name),
                line={"shape": "hv", "dash": DASHES[i % len(DASHES)], "color": _marker(i)["color"]},
                marker={**_marker(i), "size": 8, "maxdisplayed": 9},
                hovertemplate="p = %{x:.1f}: %{y:.1%}<extra>%{fullData.name}</extra>",
            )
        )
    _baseline(figure, vertical=True)
    return _laid_out(
        figure,
        460 + 12 * len(names),
        xaxis={"title": "speedup of at least p"},
        yaxis={"title": "share of the suite's operators", "tickformat": ".0%", "range": [0, 1.02]},
    )


def pair_speedups(pair: pd.DataFrame, first: str, second: str) -> go.Figure:
    """Speedups of two entries on the operators that both solved, against each other."""
    both = pair.dropna(subset=["first_speedup", "second_speedup"])
    figure = go.Figure()
    for i, (source, rows) in enumerate(both.groupby("source", sort=True)):
        figure.add_trace(
            go.Scatter(
                x=rows["second_speedup"],
                y=rows["first_speedup"],
                mode="markers",
                name=str(source),
                text=rows["operator"],
                marker=_marker(i),
                hovertemplate="%{text}: %{y:.2f} against %{x:.2f}<extra></extra>",
            )
        )
    values = pd.concat([both["first_speedup"], both["second_speedup"]])
    low, high = values.min() * 0.8, values.max() * 1.25
    figure.add_trace(
        go.Scatter(
            x=[low, high], y=[low, high], mode="lines", name="equally fast",
            line={"dash": "dash", "color": GREY}, hoverinfo="skip",
        )
    )  # fmt: skip
    return _laid_out(
        figure,
        460,
        xaxis={"title": f"speedup of {for_figure(second)}", **_log(values)},
        yaxis={"title": f"speedup of {for_figure(first)}", **_log(values)},
    )


def shares_by_chip(rows: pd.DataFrame, names: Sequence[str]) -> go.Figure:
    """Share solved of each method (`names` by row) on each chip."""
    rows = rows.assign(name=[for_figure(n, 30) for n in names])
    figure = go.Figure()
    for i, (chip, part) in enumerate(rows.groupby("chip_name", sort=True)):
        figure.add_trace(
            go.Bar(
                y=part["name"],
                x=part["solved_share"],
                orientation="h",
                name=for_figure(chip),
                marker={
                    "color": COLOURS[i % len(COLOURS)],
                    "pattern": {"shape": PATTERNS[i % len(PATTERNS)], "size": 6},
                },
                hovertemplate="%{y}: %{x:.1%}<extra>%{fullData.name}</extra>",
            )
        )
    return _laid_out(
        figure,
        150 + 20 * len(rows) + 14 * rows["name"].nunique(),
        barmode="group",
        xaxis={"title": "share of operators solved", "tickformat": ".0%", "range": [0, 1]},
        yaxis={"autorange": "reversed"},
    )


def portability_map(shares: pd.DataFrame) -> go.Figure:
    """Share of candidates that compile; index: names of entries, columns: targets."""
    figure = go.Figure(
        go.Heatmap(
            z=shares.to_numpy(),
            x=[for_figure(c) for c in shares.columns],
            y=[for_figure(i, 60) for i in shares.index],
            texttemplate="%{z:.0%}",
            hovertemplate="%{y}<br>%{x}: %{z:.1%}<extra></extra>",
            colorscale="Blues",
            zmin=0,
            zmax=1,
            xgap=1,
            ygap=1,
            showscale=False,  # each cell says its number
            textfont={"size": 10},
        )
    )
    return _laid_out(
        figure,
        110 + 26 * len(shares),
        xaxis={"side": "top"},
        yaxis={"autorange": "reversed", "dtick": 1},
        margin={"l": 10, "r": 10, "t": 50, "b": 10},
    )


def failure_bars(counts: pd.DataFrame) -> go.Figure:
    """Failures stacked by status; index: groups, columns: statuses."""
    figure = go.Figure()
    for i, status in enumerate(counts.columns):
        figure.add_trace(
            go.Bar(
                y=[for_figure(name) for name in counts.index],
                x=counts[status],
                orientation="h",
                name=f"{LETTERS.get(status, '')} {status}",
                text=[LETTERS.get(status, "") if n else "" for n in counts[status]],
                textposition="inside",
                insidetextanchor="middle",
                textangle=0,
                marker={
                    "color": COLOURS[i % len(COLOURS)],
                    # Over the colour: letters on a hatch that shows the page could not be read.
                    "pattern": {
                        "shape": PATTERNS[i // len(COLOURS) % len(PATTERNS)],
                        "fillmode": "overlay",
                        "fgcolor": "rgba(255, 255, 255, 0.45)",
                    },
                },
                hovertemplate="%{y}: %{x} %{fullData.name}<extra></extra>",
            )
        )
    return _laid_out(
        figure,
        150 + 28 * len(counts) + 10 * len(counts.columns),
        barmode="stack",
        xaxis={"title": "operators not solved"},
        yaxis={"autorange": "reversed", "dtick": 1},
    )


def samples(rows: pd.DataFrame) -> go.Figure:
    """Raw samples of one case in the order taken: candidate and baseline."""
    figure = go.Figure()
    for i, (side, part) in enumerate(rows.groupby("side", sort=True)):
        figure.add_trace(
            go.Scatter(
                x=part["number"],
                y=part["device_us"],
                mode="markers",
                name=str(side),
                marker={**_marker(i), "size": 7},
                hovertemplate="%{x}: %{y:.3f} µs<extra>%{fullData.name}</extra>",
            )
        )
    return _laid_out(
        figure,
        320,
        xaxis={"title": "sample, in the order taken"},
        yaxis={"title": "device time, µs", "rangemode": "tozero"},
    )


def _marker(i: int) -> dict[str, str | int]:
    return {"symbol": MARKERS[i % len(MARKERS)], "color": COLOURS[i % len(COLOURS)], "size": 10}


def _baseline(figure: go.Figure, vertical: bool) -> None:
    add = figure.add_vline if vertical else figure.add_hline
    where = {"x": 1.0} if vertical else {"y": 1.0}
    add(line_dash="dash", line_color=GREY, annotation_text="baseline", **where)


def _log(values: pd.Series, margin: float = 0.08) -> dict[str, object]:
    """A logarithmic axis that names a few round values within those shown."""
    known = values[values > 0].dropna()
    if known.empty:
        return {"type": "log"}
    low, high = np.log10(known.min()), np.log10(known.max())
    pad = max(margin * (high - low), 0.08)
    wide = high - low
    steps = [1] if wide > 3 else [1, 2, 5] if wide > 0.7 else [1, 1.2, 1.5, 2, 3, 4, 6, 8]
    ticks = [m * 10.0**e for e in range(int(low) - 2, int(high) + 2) for m in steps]
    shown = [t for t in ticks if low - pad <= np.log10(t) <= high + pad]
    return {
        "type": "log",
        "range": [low - pad, high + pad],
        "tickvals": shown,
        "ticktext": [compact(t) if t >= 1000 else f"{t:.6g}" for t in shown],
    }


def _laid_out(figure: go.Figure, height: int, **layout: object) -> go.Figure:
    """Legends above, so that narrow screens keep their width."""
    figure.update_layout(
        **{
            "height": min(height, 6000),
            "margin": {"l": 10, "r": 10, "t": 30, "b": 40},
            "legend": {"orientation": "h", "yanchor": "bottom", "y": 1.02, "x": 0},
            "hoverlabel": {"namelength": -1},
            "dragmode": False,  # a finger that scrolls the page must not zoom a chart
            **layout,
        }
    )
    return figure
