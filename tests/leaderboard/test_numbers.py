"""Numbers behind the pages: parts of a board, pairs, fronts, gaps, against answers by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from stores import Entry, make_store, submission_id

from kernelmark.benchmark.ranks import Difference
from kernelmark.benchmark.suites import DEMO
from kernelmark.leaderboard import data, filters, pairing, queries, readings
from kernelmark.submissions.home import Home


def database(home: Home) -> data.Board:
    return data.Board(home.current.resolve())


def test_the_front_is_what_nothing_beats() -> None:
    assert data.pareto([1, 2, 3, 2], [1, 3, 3, 1]) == [True, True, False, False]
    assert data.pareto([1, 1], [2, 2]) == [True, True]
    assert data.pareto([], []) == []


def test_a_part_of_the_suite_has_its_own_score(full: Home) -> None:
    board = database(full)
    chosen = {"suite": "core", "chip": "nvidia", "sku": "NVIDIA H200"}
    names = board.frame(queries.SCORE_COLUMNS)["column_name"]
    query = queries.BOARD_PART.format(columns=", ".join(f"p.{n} AS {n}" for n in names))
    rows = board.frame(query, **chosen, sources=["vllm"], families=[])
    cells = board.frame(queries.CELLS, **chosen, sources=["vllm"], families=[])
    assert set(rows["operators"]) == {10}
    for row in rows.to_dict("records"):
        mine = cells[cells["submission"] == row["submission"]]
        assert row["solved"] == mine["solved"].sum()
        assert row["score"] == pytest.approx(mine["speedup"].clip(upper=2).fillna(0).mean())


def test_a_part_that_is_everything_is_ranked_as_the_board(full: Home) -> None:
    board = database(full)
    chosen = {"suite": "core", "chip": "nvidia", "sku": "NVIDIA H200"}
    rows = board.frame(queries.BOARD, **chosen)
    values = board.frame(queries.BOARD_VALUES, **chosen, sources=[], families=[])
    again = data.rank_part(rows.sample(frac=1, random_state=0), values)
    kept = ["submission", "rank", "rank_high", "value_low", "value_high"]
    left, right = (f.sort_values("submission").reset_index(drop=True)[kept] for f in (rows, again))
    pd.testing.assert_frame_equal(left, right, check_dtype=False)


def test_nothing_to_rank_leaves_rows_unranked(full: Home) -> None:
    chosen = {"suite": "core", "chip": "nvidia", "sku": "NVIDIA H200"}
    rows = database(full).frame(queries.BOARD, **chosen)
    empty = pd.DataFrame({"submission": [], "operator": [], "value": []})
    assert data.rank_part(rows, empty)["rank"].isna().all()


def test_ranks_are_stored_with_seed_and_code(full: Home) -> None:
    stored = database(full).frame("SELECT DISTINCT seed, n_boot, code_sha256 FROM ranks")
    assert len(stored) == 1
    assert stored["n_boot"][0] == 2000
    assert len(stored["code_sha256"][0]) == 64


def test_the_gap_over_chips_by_hand(tmp_path: Any) -> None:
    home = make_store(
        tmp_path,
        [Entry("m", skill=2, suite="demo"), Entry("m", chip="amd", skill=0.5, suite="demo")],
    )
    board = database(home)
    cells = board.frame(
        "SELECT chip, operator, solved FROM v_method_cell WHERE suite = 'demo'"
    ).pivot(index="operator", columns="chip", values="solved")
    anywhere, everywhere = cells.any(axis=1).sum(), cells.all(axis=1).sum()
    (gap,) = board.frame("SELECT * FROM v_gap").to_dict("records")
    assert anywhere == len(DEMO) > everywhere
    assert gap["gap"] == pytest.approx((anywhere - everywhere) / len(DEMO))
    assert (gap["chips"], gap["solved_everywhere"]) == (2, everywhere)


@pytest.mark.parametrize(
    ("status", "message", "expected"),
    [
        ("build_error", "CompilationError: at 3:4", "build_error: CompilationError"),
        ("build_error", "triton.OutOfResources: shared", "build_error: OutOfResources"),
        ("wrong_values", "case a: got 1", "wrong_values"),
        ("runtime_error", "Errors of all kinds", "runtime_error"),
        ("rejected", None, "rejected"),
    ],
)
def test_classes_of_errors(full: Home, status: str, message: str | None, expected: str) -> None:
    rows = database(full).rows("SELECT error_class($s, $m)", s=status, m=message)
    assert rows == [(expected,)]


def test_the_curve_begins_with_what_is_solved_and_falls(full: Home) -> None:
    id = submission_id(0)
    curve = database(full).frame(queries.FAST_P, suite="core", entries=[id])
    (solved,) = database(full).rows(
        "SELECT solved_share FROM v_score WHERE submission = $id AND suite = 'core'", id=id
    )
    assert curve["share"].iloc[0] == pytest.approx(solved[0])
    assert (np.diff(curve["share"]) <= 0).all()


def rows_of_pair() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "operator": ["a", "b", "c", "d", "e"],
            "family": ["f", "f", "g", "g", "g"],
            "first_solved": [True, True, True, False, False],
            "second_solved": [True, True, False, True, False],
            "first_speedup": [2.0, 1.0, 1.0, None, None],
            "second_speedup": [1.0, 1.01, None, 3.0, None],
            "first_capped": [2.0, 1.0, 1.0, 0.0, 0.0],
            "second_capped": [1.0, 1.01, 0.0, 2.0, 0.0],
        }
    )


def test_who_wins_an_operator() -> None:
    rows = pairing.winners(rows_of_pair(), "A", "B")
    assert list(rows["winner"]) == ["A", "neither", "A", "B", "neither"]
    assert pairing.counts(rows) == {
        "Both solved": "2", "Only the first": "1", "Only the second": "1", "Neither": "1",
    }  # fmt: skip
    assert pairing.by_family(rows).to_dict("records")[0] == {
        "family": "f", "first": 1, "second": 0, "neither": 1,
    }  # fmt: skip


def test_filters_keep_what_is_known_to_pass() -> None:
    rows = pd.DataFrame(
        {
            "kind": ["agent", "model", "human"],
            "trust": ["self_reported"] * 3,
            "open_weights": ["yes", "no", "unknown"],
            "metering": ["partial", "complete", "not applicable"],
            "tokens_per_operator": [10.0, 90.0, None],
            "created_at": ["2026-01-01T00", "2026-01-02T23", "2026-02-01T00"],
        }
    )

    def kept(**wanted: Any) -> list[str]:
        return list(filters.apply(rows, filters.Wanted(**wanted))["kind"])

    assert kept() == ["agent", "model", "human"]
    assert kept(tokens=100) == ["model", "human"]  # partly metered: it may have used more
    assert kept(since="2026-01-02", until="2026-01-02") == ["model"]
    assert kept(weights=("yes",)) == ["agent"]
    assert kept(kinds=("human",), trusts=("verified",)) == []


def test_readings(full: Home) -> None:
    rows = database(full).frame(queries.BOARD, suite="core", chip="nvidia", sku="NVIDIA H200")
    assert "cannot be told apart at the top" in readings.board(rows)
    alone = rows.head(1).assign(rank=1, rank_high=1)
    assert readings.board(alone).startswith("One entry: ")
    ahead = rows.head(2).assign(rank=[1, 2], rank_high=[1, 2])
    assert "is ahead of every other entry" in readings.board(ahead)
    assert readings.board(rows.assign(rank=np.nan)) == "No entry here is ranked yet."
    assert readings.pair("A", "B", Difference(0.1, 0.05, 0.15, 1), "score").startswith(
        "A is better"
    )
    assert readings.pair("A", "B", Difference(-0.1, -0.2, -0.05, -1), "score").startswith("B is")
    assert "cannot be told apart" in readings.pair("A", "B", Difference(0, -1, 1, 0), "score")
