"""Charts without Streamlit: the figures hold the numbers, tell things apart without colour."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import plotly.graph_objects as go
import pytest

from kernelmark.evaluators.grading.records import STATUSES
from kernelmark.leaderboard import charts

HOSTILE = "<b>x</b><a href='javascript:alert(1)'>y</a>"


def entries() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "submission": ["a", "b"],
            "score": [1.2, 0.4],
            "solved_share": [0.9, 0.5],
            "value_low": [1.0, 0.3],
            "value_high": [1.3, 0.6],
            "measure": ["score", "score"],
            "kind": ["agent", "human"],
        }
    )


def texts(figure: go.Figure) -> str:
    return figure.to_json()


def test_every_status_has_a_letter_of_its_own() -> None:
    assert set(charts.LETTERS) == set(STATUSES) - {"passed"}
    assert len(set(charts.LETTERS.values())) == len(charts.LETTERS)


def test_bars_show_the_score_with_its_interval_best_on_top() -> None:
    (bar,) = charts.score_bars(entries(), ["first", HOSTILE]).data
    assert list(bar.y) == [charts.for_figure(HOSTILE), "first"]
    assert list(bar.x) == [0.4, 1.2]
    assert list(bar.error_x.array) == pytest.approx([0.2, 0.1])
    assert list(bar.error_x.arrayminus) == pytest.approx([0.1, 0.2])
    assert bar.marker.pattern.shape == ("/", "")  # what a person made is hatched


def test_bars_of_a_chip_without_time_show_what_is_solved() -> None:
    rows = entries().assign(measure="solved")
    assert list(charts.score_bars(rows, ["a", "b"]).data[0].x) == [0.5, 0.9]


def test_the_map_says_speedups_and_failures_in_text() -> None:
    cells = pd.DataFrame(
        {
            "operator": ["o1", "o1", "o2", "o2"],
            "submission": ["a", "b", "a", "b"],
            "speedup": [1.5, None, None, None],
            "status": ["passed", "wrong_values", "passed", "no_candidate"],
        }
    )
    (heat,) = charts.operator_map(cells, {"b": "second", "a": HOSTILE, "c": "absent"}).data
    assert list(heat.x) == ["second", charts.for_figure(HOSTILE, 30)]
    assert [list(row) for row in heat.text] == [["V", "1.50"], ["–", "✓"]]


def test_the_front_is_a_line_and_lower_bounds_are_hollow() -> None:
    points = pd.DataFrame(
        {
            "cost": [100.0, 1000.0, 2000.0, 0.0],
            "quality": [0.5, 0.9, 0.4, 0.7],
            "kind": ["model", "agent", "agent", "human"],
            "complete": [True, True, False, True],
            "front": [True, True, False, False],
        }
    )
    figure = charts.cost_quality(points, ["m", "a", "part", "person"], "tokens", "score")
    agent, model, front = figure.data
    assert list(agent.marker.symbol) == ["circle", "circle-open"]
    assert list(agent.text) == ["a", "part →"]
    assert set(model.marker.symbol) == {"square"}
    assert (list(front.x), front.line.shape) == ([100.0, 1000.0], "hv")
    assert "person (no model)" in texts(figure)


def test_curves_differ_in_dash_and_marker() -> None:
    curves = pd.DataFrame(
        {"submission": ["a", "a", "b", "b"], "p": [0.0, 1.0] * 2, "share": [0.9, 0.5, 0.4, 0.1]}
    )
    lines = charts.speed_curves(curves, {"a": "first", "b": "second"}).data
    assert [list(line.y) for line in lines] == [[0.9, 0.5], [0.4, 0.1]]
    assert len({(line.line.dash, line.marker.symbol) for line in lines}) == 2


def test_failures_carry_their_letter() -> None:
    counts = pd.DataFrame({"wrong_values": [3, 0], "timed_out": [1, 2]}, index=["a", HOSTILE])
    bars = charts.failure_bars(counts).data
    assert [bar.name for bar in bars] == ["V wrong_values", "T timed_out"]
    assert [list(bar.x) for bar in bars] == [[3, 0], [1, 2]]
    assert bars[0].text == ("V", "")


def test_a_map_of_targets_says_its_shares() -> None:
    shares = pd.DataFrame({"sm_90": [1.0], "gfx942": [0.5]}, index=[HOSTILE])
    (heat,) = charts.portability_map(shares).data
    assert heat.z.tolist() == [[1.0, 0.5]]
    assert heat.texttemplate == "%{z:.0%}"


def test_pairs_case_speedups_strips_chips_and_samples() -> None:
    pair = pd.DataFrame(
        {"operator": ["o"], "source": ["aten"], "first_speedup": [2.0], "second_speedup": [1.0]}
    )
    assert charts.pair_speedups(pair, HOSTILE, "b").data[0].y[0] == 2.0
    timings = pd.DataFrame(
        {"submission": ["a"], "case": ["c"], "speedup": [1.5], "speedup_low": [1.4],
         "speedup_high": [1.7]}
    )  # fmt: skip
    dots = charts.case_speedups(timings, {"a": HOSTILE}).data[0]
    assert dots.error_x.array[0] == pytest.approx(0.2)
    results = pd.DataFrame({"kind": ["human"], "speedup": [1.2]})
    assert charts.speed_strip(results, [HOSTILE]).data[0].x[0] == 1.2
    chips = pd.DataFrame({"chip_name": ["n", "a"], "solved_share": [0.5, 0.25]})
    assert [bar.x[0] for bar in charts.shares_by_chip(chips, ["m", "m"]).data] == [0.25, 0.5]
    samples = pd.DataFrame(
        {"side": ["baseline", "candidate"], "number": [1, 1], "device_us": [2.0, 1.0]}
    )
    assert len(charts.samples(samples).data) == 2


@pytest.mark.parametrize(
    "figure",
    [
        charts.score_bars(entries(), [HOSTILE, HOSTILE]),
        charts.speed_curves(pd.DataFrame({"submission": ["a"], "p": [0.0], "share": [1.0]}),
                            {"a": HOSTILE}),
        charts.failure_bars(pd.DataFrame({"rejected": [1]}, index=[HOSTILE])),
        charts.portability_map(pd.DataFrame({"t": [1.0]}, index=[HOSTILE])),
    ],
)  # fmt: skip
def test_no_figure_has_tags_of_a_submitter(figure: go.Figure) -> None:
    assert not re.search(r"<(b|a|script|img)\W", texts(figure))


def test_charts_know_no_streamlit() -> None:
    assert "import streamlit" not in Path(charts.__file__).read_text()
