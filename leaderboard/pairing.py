"""Two entries by operator: pure functions over the rows of `queries.PAIR`."""

from __future__ import annotations

import numpy as np
import pandas as pd

from kernelmark.benchmark import ranks
from kernelmark.leaderboard.parts import entry_names

#: speedups nearer to each other than this are a draw
DRAW = 0.02


def names(first: pd.Series, second: pd.Series) -> tuple[str, str]:
    """Short names of two entries, told apart by chip where they would be alike."""
    rows = pd.DataFrame([first, second]).reset_index(names="submission")
    one, other = entry_names(rows, 40)
    if first["chip"] != second["chip"]:
        return f"{one} on {first['chip']}", f"{other} on {second['chip']}"
    return one, other


def compare(
    rows: pd.DataFrame, first: pd.Series, second: pd.Series, scored: bool, ranked: bool
) -> ranks.Difference:
    """The difference in score (or in share solved), as the board decides it if both are on one."""
    column = "capped" if scored else "solved"
    values = rows[[f"first_{column}", f"second_{column}"]].astype(float).dropna()
    on_board = ranked and not pd.isna(first["rank"]) and not pd.isna(second["rank"])
    return ranks.compare(
        values.iloc[:, 0].to_numpy(),
        values.iloc[:, 1].to_numpy(),
        critical=float(first["critical"]) if on_board else None,
        entries=int(first["ranked_entries"]) if on_board else 2,
    )


def winners(rows: pd.DataFrame, one: str, other: str) -> pd.DataFrame:
    """Rows with who wins each operator: who alone solved it, else who is faster by over 2%."""
    first, second = rows["first_solved"].astype(bool), rows["second_solved"].astype(bool)
    ratio = rows["first_speedup"] / rows["second_speedup"]
    faster = first & second & (ratio > 1 + DRAW)
    slower = first & second & (ratio < 1 / (1 + DRAW))
    side = np.where((first & ~second) | faster, "first", "neither")
    side = np.where((second & ~first) | slower, "second", side)
    shown = {"first": one, "second": other, "neither": "neither"}
    return rows.assign(ratio=ratio, side=side, winner=[shown[s] for s in side])


def counts(rows: pd.DataFrame) -> dict[str, str]:
    """How many operators both, one, or none solved."""
    first, second = rows["first_solved"].astype(bool), rows["second_solved"].astype(bool)
    return {
        "Both solved": str(int((first & second).sum())),
        "Only the first": str(int((first & ~second).sum())),
        "Only the second": str(int((second & ~first).sum())),
        "Neither": str(int((~first & ~second).sum())),
    }


def by_family(rows: pd.DataFrame) -> pd.DataFrame:
    """Wins by family; `rows` from `winners`."""
    table = pd.crosstab(rows["family"], rows["side"]).reindex(
        columns=["first", "second", "neither"], fill_value=0
    )
    return table.reset_index()
