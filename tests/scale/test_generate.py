"""The generator of homes: what it makes is accepted, the same each time, and as much as it says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from generate import LARGE, SMALL, Amount, entries, fill, generate, suite_facts

from kernelmark.submissions.board import open_board
from kernelmark.submissions.home import Home

TINY = replace(SMALL, entries=6, chips=("nvidia", "interpreter"), samples=5)


def test_a_small_home_is_ready_to_be_shown(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    ids = fill(home, "demo", replace(SMALL, entries=14, samples=5))
    with open_board(home) as connection:
        (entries_there,) = connection.execute("SELECT count(*) FROM submissions").fetchone() or (0,)
        trust = connection.execute("SELECT DISTINCT trust FROM v_trust ORDER BY ALL").fetchall()
        kinds = connection.execute("SELECT DISTINCT kind FROM submissions").fetchall()
        chips = connection.execute("SELECT DISTINCT chip FROM v_rank WHERE declared").fetchall()
        metering = connection.execute("SELECT DISTINCT metering FROM v_standing").fetchall()
    assert entries_there == len(ids) == 14 * 3 + 1
    assert [level for (level,) in trust] == ["flagged", "self_reported", "verified", "withdrawn"]
    assert len(kinds) == 5
    assert len(chips) == 3
    assert {level for (level,) in metering} == {"complete", "partial", "none", "not applicable"}


def test_the_same_arguments_give_the_same_bundles(tmp_path: Path) -> None:
    suite = suite_facts("demo")
    first = generate(Home(tmp_path / "a"), suite, TINY, 7, processes=1)
    again = generate(Home(tmp_path / "b"), suite, TINY, 7, processes=1)
    other = generate(Home(tmp_path / "c"), suite, TINY, 8, processes=1)
    assert first == again
    assert not set(first) & set(other)


def test_the_large_scale_is_a_million_verdicts() -> None:
    operators = suite_facts("all").operators
    assert len(entries(LARGE)) * len(operators) * LARGE.attempts >= 1_000_000
    assert len(entries(Amount())) == 14 * 3 + 1
