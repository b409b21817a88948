"""Results in plain sentences."""

from __future__ import annotations

import pandas as pd

from kernelmark.benchmark.ranks import Difference
from kernelmark.leaderboard.parts import chip_name, entry_name, entry_names
from kernelmark.leaderboard.text import short


def board(rows: pd.DataFrame) -> str:
    """What a ranked board says. `rows` are all entries that the ranks are among."""
    standing = rows[rows["rank"].notna()]
    if standing.empty:
        return "No entry here is ranked yet."
    names = dict(zip(standing["submission"], entry_names(standing), strict=True))
    first = standing[standing["rank"] == 1]
    leaders = [names[s] for s in first["submission"]]
    if len(standing) == 1:
        return f"One entry: {leaders[0]}. With a second one this page says which is better."
    rest = len(standing) - len(leaders)
    if len(leaders) == 1:
        return f"{leaders[0]} is ahead of every other entry shown; {_odds(first.iloc[0])}."
    behind = f" {rest} more {'is' if rest == 1 else 'are'} behind at least one of them." * (
        rest > 0
    )
    return f"{_listed(leaders)} cannot be told apart at the top.{behind}"


def entry(standing: pd.Series) -> str:
    """Where one entry stands."""
    name = short(entry_name(standing))
    where = f"{standing['suite']} on {short(chip_name(standing))}"
    solved = f"solves {standing['solved']} of {standing['operators']} operators of {where}"
    if pd.isna(standing["rank"]):
        return f"{name} {solved}. It is not ranked there."
    low, high = int(standing["rank"]), int(standing["rank_high"])
    rank = f"its rank is {low}" if low == high else f"its rank lies between {low} and {high}"
    return f"{name} {solved}; {rank}."


def pair(first: str, second: str, difference: Difference, what: str) -> str:
    """Whether one of two entries is really better. `what` is measured, say "score"."""
    interval = (
        f"{difference.value:+.3f}, 95% interval {difference.low:+.3f} to {difference.high:+.3f}"
    )
    if difference.apart > 0:
        return f"{first} is better than {second}: {what} {interval}."
    if difference.apart < 0:
        return f"{second} is better than {first}: {what} {interval}."
    return f"{first} and {second} cannot be told apart: {what} {interval}."


def _odds(row: pd.Series) -> str:
    return f"it comes out first in {row['first_share']:.0%} of resamples of the operators"


def _listed(names: list[str], most: int = 6) -> str:
    if len(names) > most:
        names = [*names[: most - 1], f"{len(names) - most + 1} more entries"]
    return f"{', '.join(names[:-1])} and {names[-1]}"
