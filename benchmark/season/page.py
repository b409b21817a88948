"""The page: its opening, its sections in order, and the figures that they show."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import duckdb

from kernelmark.benchmark.season import failures, provenance, ranking, speed
from kernelmark.benchmark.season.data import MARGIN, Season, open_season
from kernelmark.benchmark.season.markdown import code, counted, filled, listed, number


@dataclass(frozen=True)
class Page:
    """Markdown, and the figures that lie beside it, SVG by file name."""

    text: str
    figures: dict[str, str]


Section = Callable[[Season], str]

#: a section that has nothing to say is an empty text, and left out
SECTIONS: tuple[Section, ...] = (
    ranking.board,
    speed.winners,
    speed.extremes,
    speed.rooflines,
    speed.baselines,
    speed.compiler_or_hand,
    failures.coverage,
    failures.what_fails,
    ranking.stability,
    ranking.clock,
    failures.portability,
    provenance.entries,
    provenance.every_operator,
)


def render(connection: duckdb.DuckDBPyConnection, name: str) -> Page:
    """The page that is called `name` (``season-1``), of the board that `open_season` finds.

    `UserError` where the database has none.
    """
    season = open_season(connection, name)
    figures = {
        f"{name}-speedups.svg": ranking.speedup_figure(season),
        f"{name}-rooflines.svg": speed.roofline_figure(season),
    }
    sections = [_opening(season), *(section(season) for section in SECTIONS)]
    text = "\n\n".join(filled(section.strip()) for section in sections if section) + "\n"
    return Page(text, figures)


def _opening(season: Season) -> str:
    title = season.name.replace("-", " ").capitalize()
    sources = [f"{n} of {source}" for source, n in _by_source(season)]
    return f"""# {title}

{counted(len(season.entries), "entry", "entries")} over the {season.operators} operators of the
suite {code(season.suite)} ({listed(sources)}), measured on {season.sku}:
{listed([code(name) for name in season.names])}.

Nobody typed a number on this page. All of them are queries over the submissions that ship with the
project, sealed as they were graded; this makes the page again, and a test holds it to the bytes:

```bash
kernelmark season docs/{season.name}.md
```

How to read it:

- **Speedup** is the device time of the baseline over that of the candidate, with a cold cache, the
  two measured in turns. The baseline is what a user would call instead; tables name it where it
  matters. Of an operator it is the geometric mean over its full-size cases, and its 95% interval is
  that of the ends of theirs.
- **Faster** and **slower** are said where the interval lies more than {MARGIN - 1:.0%} to one side;
  **level** is the rest.
- **Solved** is right on every case, drawn anew from a secret seed, and caught at nothing. An
  operator that is not solved counts 0 in every mean over the suite.
- **Roofline** is the time that the memory traffic or the arithmetic of a call needs at least, at
  the chip's peaks, over the time that it took.

In short:

{_in_short(season)}
"""


def _in_short(season: Season) -> str:
    found = season.row(_SHORT)
    lines = [
        f"Of {found['operators']} operators: {found['won']} where an entry is faster than the "
        f"baseline, {found['level']} where the best is level with it, {found['lost']} where the "
        f"baseline is faster than every entry, {found['unsolved']} that no entry solves, "
        f"{found['untimed']} that compute nothing to be timed.",
        f"The best entry of each operator, taken together, has a speedup of "
        f"{number(found['speedup'])} in the geometric mean of {found['timed']} operators.",
    ]
    most = season.rows(_FASTEST)
    if most:
        won = [f"{code(row['outcome'])} at {row['n']}" for row in most]
        lines.append(f"Alone in front: {listed(won)}.")
    given = season.row(_GIVEN)
    lines.append(
        f"Candidates handed in: {given['given']}; solved: {given['solved']}; not: "
        f"{given['failed']}."
    )
    return "\n".join(f"- {line}" for line in lines)


_SHORT = """
SELECT count(*) AS operators,
    count(*) FILTER (WHERE outcome NOT IN ('level', 'baseline', 'unsolved', 'untimed')) AS won,
    count(*) FILTER (WHERE outcome = 'level') AS level,
    count(*) FILTER (WHERE outcome = 'baseline') AS lost,
    count(*) FILTER (WHERE outcome = 'unsolved') AS unsolved,
    count(*) FILTER (WHERE outcome = 'untimed') AS untimed,
    count(speedup) AS timed, exp(avg(ln(speedup))) AS speedup
FROM season_outcome
"""
_FASTEST = """
SELECT o.outcome, count(*) AS n FROM season_outcome AS o JOIN season_entry AS e
ON o.outcome = e.entry GROUP BY o.outcome ORDER BY n DESC, o.outcome
"""
_GIVEN = """
SELECT count(*) AS given, count(*) FILTER (WHERE solved) AS solved,
    count(*) FILTER (WHERE NOT solved) AS failed
FROM season_cell WHERE candidate IS NOT NULL
"""


def _by_source(season: Season) -> list[tuple[str, int]]:
    query = "SELECT source, count(*) AS n FROM season_outcome GROUP BY source ORDER BY source"
    return [(row["source"], row["n"]) for row in season.rows(query)]
