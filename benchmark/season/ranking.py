"""The board, how stable its ranks are, and how far its clock can be trusted."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from kernelmark.benchmark.ranks import Difference, compare, places
from kernelmark.benchmark.season.data import ANCHOR, Row, Season, by_key
from kernelmark.benchmark.season.figures import Axis, line_chart
from kernelmark.benchmark.season.markdown import (
    NOTHING,
    between,
    code,
    counted,
    listed,
    number,
    share,
    table,
)


def board(season: Season) -> str:
    """Entries as they are ranked."""
    columns = {
        "rank": "rank",
        "entry": "entry",
        "kind": "kind",
        "solved": "solved:",
        "score": "score:",
        "interval": "95%",
        "speedup": "speedup:",
        "fast_1": "at least 1x:",
        "roofline": "roofline:",
    }
    rows = [
        {
            "rank": _rank(entry),
            "entry": code(entry["entry"]),
            "kind": entry["kind"],
            "solved": f"{entry['solved']}/{entry['operators']}",
            "score": number(entry["score"], 3),
            "interval": between(entry["value_low"], entry["value_high"], 3),
            "speedup": number(entry["speedup"]),
            "fast_1": share(entry["fast_1"]),
            "roofline": share(entry["roofline"]),
        }
        for entry in season.entries
    ]
    return f"""## The board

{_leaders(season)}

{table(columns, rows)}

Score is the mean over the whole suite of min(speedup, 2), 0 where not solved: it pays for covering
the suite as much as for speed. Speedup and roofline look at solved operators alone (geometric
means), so an entry of a few excellent kernels stands low in the one and may stand high in the
other. "At least 1x" is the share of the suite solved no slower than the baseline.

![For each entry, the share of the suite that it solves with at least a given
speedup]({season.name}-speedups.svg)
"""


def speedup_figure(season: Season) -> str:
    """The share of the suite solved with at least a speedup p, a line an entry."""
    query = """
    SELECT e.entry, f.p, f.share FROM season_entry AS e
    JOIN v_fast_p AS f USING (submission, suite, suite_digest) ORDER BY e.place, f.p
    """
    groups = by_key(season.rows(query), "entry")
    series = {
        entry: [(float(row["p"]), float(row["share"])) for row in found]
        for (entry,), found in groups.items()
    }
    x = Axis("speedup of at least", 0, 4, 0.5)
    y = Axis(f"share of what is timed in {season.suite}", 0, 1, 0.2, "%")
    return line_chart("Share of the suite solved with at least a given speedup", x, y, series)


def stability(season: Season) -> str:
    """Ranks under resampling of the operators, and which pairs are told apart."""
    ranked = [entry for entry in season.entries if entry["rank"] is not None]
    if len(ranked) < 2:
        return ""
    values = _values(season, ranked)
    draws = season.row("SELECT any_value(n_boot) AS n FROM ranks")["n"]
    return f"""## How stable are the ranks

A suite is a sample of what one may want to compute; with other operators the order might be
another. So the operators are drawn again, with replacement, {draws:,} times,
the same for all entries, and the entries are put in order each time. How often each takes each
place:

{_places(ranked, values)}

Two entries get different ranks only where their difference lies outside an interval that holds for
all pairs of the board at once. {_apart_sentence(ranked, values)}

{_pairs(ranked, values)}

{_by_source(season)}"""


def clock(season: Season) -> str:
    """What the anchor's row and the intervals say of the measurement itself."""
    width = season.row(
        """
        SELECT count(*) AS cases, median(sqrt(t.speedup_high / t.speedup_low) - 1) AS half,
            quantile_cont(sqrt(t.speedup_high / t.speedup_low) - 1, 0.95) AS wide
        FROM season_cell AS c JOIN v_timing AS t USING (submission, operator, candidate)
        WHERE c.solved
        """
    )
    if not width["cases"]:
        return ""
    return f"""## How far can the clock be trusted

{counted(width["cases"], "case")} of solved operators were timed. Half of the intervals of their
speedups reach no further than {_within(width["half"])}, 95% no further than
{_within(width["wide"])}. That is what one sitting says of itself; another day or another card adds
to it.

{_anchor(season)}"""


def _anchor(season: Season) -> str:
    found = season.row(
        """
        SELECT count(*) AS operators, exp(avg(ln(speedup))) AS mean, min(speedup) AS low,
            max(speedup) AS high, arg_min(operator, speedup) AS lowest,
            arg_max(operator, speedup) AS highest,
            count(*) FILTER (WHERE abs(ln(speedup)) <= ln(1.02)) AS within_2,
            count(*) FILTER (WHERE abs(ln(speedup)) <= ln(1.05)) AS within_5
        FROM season_cell WHERE anchor AND solved AND speedup IS NOT NULL AND kind <> 'metadata'
        """
    )
    if not found["operators"]:
        return ""
    return f"""{code(ANCHOR)} hands in the baseline itself, so its speedup should be 1, and what it
strays is the measurement's, or that of the call which leads to the kernel. Over
{counted(found["operators"], "operator")} it is {number(found["mean"], 3)} in the geometric mean,
within 2% of 1 for {found["within_2"]} of them and within 5% for {found["within_5"]}; from
{number(found["low"], 3)} ({code(found["lowest"])}) to {number(found["high"], 3)}
({code(found["highest"])}).
"""


def _leaders(season: Season) -> str:
    first = [code(e["entry"]) for e in season.entries if e["rank"] == 1]
    if not first:
        return "No entry of this board is ranked."
    if len(season.entries) == 1:
        return f"{first[0]} stands alone on this board yet."
    if len(first) == 1:
        return f"{first[0]} is first; no other entry shares its rank."
    return f"{listed(first)} share the first rank: this suite cannot tell them apart."


def _rank(entry: Row) -> str:
    low, high = entry["rank"], entry["rank_high"]
    if low is None:
        return NOTHING
    return str(low) if low == high else f"{low} to {high}"


Values = np.ndarray[tuple[int, int], np.dtype[np.float64]]


def _values(season: Season, ranked: list[Row]) -> Values:
    """What ranks are made of, (entries, operators)."""
    query = """
    SELECT e.place, v.operator, v.value FROM season_entry AS e
    JOIN v_rank_value AS v USING (submission, suite, suite_digest)
    WHERE e.rank IS NOT NULL ORDER BY e.place, v.operator
    """
    groups = by_key(season.rows(query), "place")
    return np.array([[row["value"] for row in groups[entry["place"],]] for entry in ranked])


def _places(ranked: list[Row], values: Values) -> str:
    shares = places(values)
    columns = {"entry": "entry", "rank": "rank"}
    columns |= {str(place): f"place {place + 1}:" for place in range(len(ranked))}
    rows = [
        {
            "entry": code(entry["entry"]),
            "rank": _rank(entry),
            **{str(place): share(float(value)) for place, value in enumerate(shares[i])},
        }
        for i, entry in enumerate(ranked)
    ]
    return table(columns, rows)


def _apart_sentence(ranked: list[Row], values: Values) -> str:
    pairs = list(combinations(range(len(ranked)), 2))
    apart = sum(_compared(ranked, values, i, j).apart != 0 for i, j in pairs)
    return f"Told apart here: {apart} of {counted(len(pairs), 'pair')}."


def _pairs(ranked: list[Row], values: Values) -> str:
    columns = {
        "first": "first",
        "second": "second",
        "difference": "difference in score:",
        "interval": "95% of this pair",
        "apart": "told apart",
    }
    rows = []
    for i, j in combinations(range(len(ranked)), 2):
        found = _compared(ranked, values, i, j)
        rows.append(
            {
                "first": code(ranked[i]["entry"]),
                "second": code(ranked[j]["entry"]),
                "difference": number(found.value, 3),
                "interval": between(found.low, found.high, 3),
                "apart": "yes" if found.apart else "no",
            }
        )
    return table(columns, rows)


def _compared(ranked: list[Row], values: Values, i: int, j: int) -> Difference:
    critical = float(ranked[i]["critical"])
    return compare(values[i], values[j], critical, len(ranked))


def _by_source(season: Season) -> str:
    """Ranks on the suites of one source each."""
    query = """
    SELECT e.entry, r.suite, r.rank, r.rank_high, r.score
    FROM season_entry AS e JOIN v_rank AS r USING (submission)
    WHERE r.suite IN (SELECT DISTINCT source FROM season_outcome) AND r.current_suite
        AND r.rank IS NOT NULL
    ORDER BY e.place, r.suite
    """
    found = season.rows(query)
    if not found:
        return ""
    suites = sorted({row["suite"] for row in found})
    cells = {(row["entry"], row["suite"]): row for row in found}
    columns = {"entry": "entry"} | {suite: f"{suite}: rank (score)" for suite in suites}
    rows = []
    for name in season.names:
        row = {"entry": code(name)}
        for suite in suites:
            cell = cells.get((name, suite))
            row[suite] = f"{_rank(cell)} ({number(cell['score'], 3)})" if cell else NOTHING
        rows.append(row)
    return f"""Over the operators of one source alone, the ranks are these:

{table(columns, rows)}
"""


def _within(half: float) -> str:
    return f"{100 * half:.1f}% to either side"
