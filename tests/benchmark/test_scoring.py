"""The views over a lake whose answers are worked out by hand."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from run_making import Entry, Result, submit_run

from kernelmark.benchmark.boards import board_rows
from kernelmark.benchmark.suites import DEMO
from kernelmark.evaluators.campaigns.records import MethodKind
from kernelmark.submissions.board import build, open_board
from kernelmark.submissions.catalogue import current_catalogue
from kernelmark.submissions.home import Home
from kernelmark.submissions.ingest import ingest

N = len(DEMO)
FIVE = tuple(Result(speedups=(s,)) for s in (0.5, 1.0, 4.0, 2.0, 1.0))


def board_of(tmp_path: Path, *entries: Entry) -> list[dict[str, Any]]:
    """Rows of the suite demo, in the order of `entries`."""
    home = Home(tmp_path / "home")
    ids = [submit_run(home, tmp_path / f"run{i}", entry) for i, entry in enumerate(entries)]
    assert all(result.accepted for result in ingest(home, current_catalogue()))
    build(home)
    with open_board(home) as connection:
        rows = {row["submission"]: row for row in board_rows(connection, "demo")}
    return [rows[id] for id in ids if id in rows]


def first_five(*results: Result) -> dict[str, tuple[Result, ...]]:
    return {operator: (result,) for operator, result in zip(DEMO, results, strict=False)}


def test_score_counts_the_whole_suite(tmp_path: Path) -> None:
    (row,) = board_of(tmp_path, Entry(first_five(*FIVE)))
    assert row["operators"] == N
    assert (row["solved"], row["attempted"]) == (5, 5)
    assert row["solved_share"] == pytest.approx(5 / N)
    assert row["score"] == pytest.approx((0.5 + 1 + 2 + 2 + 1) / N)  # 4.0 is capped
    assert row["speedup"] == pytest.approx((0.5 * 1 * 4 * 2 * 1) ** (1 / 5))  # not capped
    assert row["fast_1"] == pytest.approx(4 / N)
    assert row["roofline"] == pytest.approx(0.5)
    assert (row["rank"], row["rank_high"]) == (1, 1)


def test_speedup_of_an_operator_is_the_geometric_mean_of_its_cases(tmp_path: Path) -> None:
    (row,) = board_of(tmp_path, Entry(first_five(Result(speedups=(0.5, 2.0, 8.0)))))
    assert row["speedup"] == pytest.approx(2.0)
    assert row["score"] == pytest.approx(2.0 / N)


def test_wrong_kernels_count_nothing(tmp_path: Path) -> None:
    (row,) = board_of(tmp_path, Entry(first_five(*FIVE[:2], Result("wrong_values"))))
    assert (row["solved"], row["attempted"]) == (2, 3)
    assert row["score"] == pytest.approx(1.5 / N)


def test_infrastructure_errors_leave_the_denominator_and_the_ranking(tmp_path: Path) -> None:
    broken = Entry(first_five(*FIVE, Result("infrastructure_error")))
    (row,) = board_of(tmp_path, broken)
    assert row["infrastructure_errors"] == 1
    assert row["solved_share"] == pytest.approx(5 / (N - 1))
    assert row["score"] == pytest.approx(6.5 / (N - 1))
    assert not row["eligible"]
    assert row["rank"] is None


@pytest.mark.parametrize(("selection", "score"), [("last", 0.5), ("best", 2.0)])
def test_the_declared_selection_decides(tmp_path: Path, selection: Any, score: float) -> None:
    attempts = (
        Result(speedups=(1.5,)),
        Result(speedups=(3.0,)),
        Result("wrong_values"),
        Result(speedups=(0.5,)),
    )
    (row,) = board_of(tmp_path, Entry({DEMO[0]: attempts}, selection=selection))
    assert row["score"] == pytest.approx(score / N)
    assert row["attempts"] == 4


def test_interpreted_runs_have_no_speed(tmp_path: Path) -> None:
    fast = Result(speedups=(2.0,))
    (row,) = board_of(tmp_path, Entry(first_five(fast), chip="interpreter", attests="interpreted"))
    assert row["measure"] == "solved"
    assert (row["score"], row["fast_1"]) == (None, None)
    assert row["rank"] == 1


def test_tokens(tmp_path: Path) -> None:
    solved = Result(speedups=(1.0,), tokens=100)
    failed = Result("wrong_values", tokens=50)
    results = {DEMO[0]: (failed, solved), DEMO[1]: (failed,), DEMO[2]: (solved,)}
    (row,) = board_of(tmp_path, Entry(results, method="one-shot", model="m", kind="model"))
    assert row["tokens"] == 300
    assert row["tokens_per_solved"] == pytest.approx(150)
    assert row["cost_per_solved_usd"] == pytest.approx(1.0)
    assert row["metering"] == "complete"


@pytest.mark.parametrize(
    ("kind", "tokens", "metering"),
    [
        ("human", (0, 0), "not applicable"),
        ("model", (0, 0), "none"),
        ("agent", (100, 0), "partial"),
        ("agent", (100, 100), "complete"),
    ],
)
def test_metering_is_said(
    tmp_path: Path, kind: MethodKind, tokens: tuple[int, int], metering: str
) -> None:
    results = first_five(*(Result(speedups=(1.0,), tokens=n) for n in tokens))
    (row,) = board_of(tmp_path, Entry(results, kind=kind))
    assert row["metering"] == metering


def test_the_latest_run_of_a_method_is_ranked(tmp_path: Path) -> None:
    old = Entry(first_five(*FIVE), created_at="2026-01-01T00:00:00+00:00")
    new = Entry(first_five(*FIVE[:1]), created_at="2026-02-01T00:00:00+00:00")
    rows = board_of(tmp_path, old, new)
    assert [row["solved"] for row in rows] == [1]


def test_a_board_compares_one_chip_only(tmp_path: Path) -> None:
    good = Entry(first_five(*FIVE), method="a")
    rows = board_of(tmp_path, good, Entry(good.results, method="b", chip="amd"))
    assert [row["rank"] for row in rows] == [1, 1]
    assert all(math.isclose(row["first_share"], 1.0) for row in rows)
