"""Who is fastest where, how far from the roofline, and compiled against written by hand."""

from __future__ import annotations

from pathlib import Path

from kernelmark.benchmark.baseline_times import FOLDER
from kernelmark.benchmark.season.data import MARGIN, Row, Season, by_key
from kernelmark.benchmark.season.figures import Axis, line_chart
from kernelmark.benchmark.season.markdown import (
    NOTHING,
    code,
    counted,
    escaped,
    number,
    share,
    table,
)

COMPILER, HAND = "torch-compile", "reference"
_SHOWN = 12

#: outcomes of `season_outcome` that are no entry's, in the order of their columns
_OTHERS = {
    "several": "several entries",
    "level": "level",
    "baseline": "the baseline",
    "unsolved": "unsolved",
    "untimed": "not timed",
}


def winners(season: Season) -> str:
    """Solved and speedup by source; who is fastest by family."""
    return f"""## Who wins where

Solved, and the geometric mean of the speedup over what is solved:

{_by_source(season)}

Each operator has one winner: an entry that is faster than the baseline and than every other entry;
"several entries" where the fastest cannot be told apart; "level" where the best is level with the
baseline; "the baseline" where it is faster than all of them. The baseline's own entry does not take
part. "Not timed" are operators that compute nothing (views and allocations).

{_by_family(season)}

The speedup of each entry, geometric mean over what it solves of a family, with how many that are:

{_speedup_by_family(season)}
"""


def _by_source(season: Season) -> str:
    query = """
    SELECT source, entry, count(*) AS operators, count(*) FILTER (WHERE solved) AS solved,
        exp(avg(ln(speedup)) FILTER (WHERE solved AND kind <> 'metadata')) AS speedup
    FROM season_cell GROUP BY source, entry ORDER BY source
    """
    columns = {"source": "source", "operators": "operators:"}
    columns |= {name: f"{code(name)}:" for name in season.names}
    rows = []
    for (source,), found in by_key(season.rows(query), "source").items():
        row: Row = {"source": source, "operators": found[0]["operators"]}
        for cell in found:
            speedup = f" at {number(cell['speedup'])}x" if cell["speedup"] is not None else ""
            row[cell["entry"]] = f"{cell['solved']}{speedup}"
        rows.append(row)
    return table(columns, rows)


def _by_family(season: Season) -> str:
    query = """
    SELECT source, family, outcome, count(*) AS n FROM season_outcome
    GROUP BY ALL ORDER BY source, family
    """
    found = season.rows(query)
    named = {row["outcome"] for row in found}
    columns = {"family": "family", "operators": "operators:"}
    columns |= {name: f"{code(name)}:" for name in season.names if name in named}
    columns |= {name: f"{title}:" for name, title in _OTHERS.items() if name in named}
    rows = []
    for (source, family), group in by_key(found, "source", "family").items():
        counts = {row["outcome"]: row["n"] for row in group}
        total = sum(counts.values())
        rows.append({"family": f"{source}: {escaped(family)}", "operators": total, **counts})
    sums: Row = {"family": "all", "operators": len(season.rows("FROM season_outcome"))}
    for name in named:
        sums[name] = sum(row["n"] for row in found if row["outcome"] == name)
    return table(columns, [*rows, sums])


def _speedup_by_family(season: Season) -> str:
    query = """
    SELECT source, family, entry, count(speedup) AS n, exp(avg(ln(speedup))) AS speedup
    FROM season_cell WHERE solved AND kind <> 'metadata' AND speedup IS NOT NULL
    GROUP BY source, family, entry ORDER BY source, family
    """
    columns = {"family": "family"} | {name: f"{code(name)}:" for name in season.names}
    rows = [
        {"family": f"{source}: {escaped(family)}"}
        | {cell["entry"]: f"{number(cell['speedup'])} ({cell['n']})" for cell in found}
        for (source, family), found in by_key(season.rows(query), "source", "family").items()
    ]
    return table(columns, rows)


_EXTREMES = """
SELECT operator, best, speedup, low, high, baseline, baseline_us, device_us
FROM season_outcome WHERE {where} ORDER BY speedup {order}, operator LIMIT $most
"""


def extremes(season: Season) -> str:
    """The largest speedups, and the operators that the baseline holds by the widest margin."""
    fast = season.rows(_EXTREMES.format(where=f"low > {MARGIN}", order="DESC"), most=_SHOWN)
    slow = season.rows(_EXTREMES.format(where=f"high * {MARGIN} < 1", order="ASC"), most=_SHOWN)
    parts = []
    if fast:
        parts.append(f"The largest speedups:\n\n{_speedups(fast)}")
    if slow:
        parts.append(
            "What the baseline holds by the widest margin, with the entry that comes closest:\n\n"
            f"{_speedups(slow)}"
        )
    return "\n\n".join(parts)


def _speedups(found: list[Row]) -> str:
    columns = {
        "operator": "operator",
        "best": "best entry",
        "speedup": "speedup:",
        "baseline": "baseline",
        "baseline_us": "baseline, µs:",
        "device_us": "entry, µs:",
    }
    rows = [
        {
            "operator": code(row["operator"]),
            "best": code(row["best"]),
            "speedup": number(row["speedup"]),
            "baseline": escaped(row["baseline"]),
            "baseline_us": number(row["baseline_us"], 1),
            "device_us": number(row["device_us"], 1),
        }
        for row in found
    ]
    return table(columns, rows)


_ROOFLINES = """
SELECT source, family, count(DISTINCT operator) AS operators,
    median(baseline_roofline) FILTER (WHERE first) AS baseline,
    {entries}
FROM (SELECT *, row_number() OVER (PARTITION BY operator ORDER BY place) = 1 AS first
    FROM season_cell WHERE solved AND roofline IS NOT NULL AND kind <> 'metadata')
GROUP BY source, family ORDER BY source, family
"""


def rooflines(season: Season) -> str:
    """Median roofline by family, of each entry and of the baseline."""
    columns = {f"e{e['place']}": e for e in season.entries}
    medians = ", ".join(
        f"median(roofline) FILTER (WHERE place = {int(e['place'])}) AS {name}"
        for name, e in columns.items()
    )
    found = season.rows(_ROOFLINES.format(entries=medians))
    if not found:
        return ""
    headings = {"family": "family", "operators": "operators:", "baseline": "baseline:"}
    headings |= {name: f"{code(entry['entry'])}:" for name, entry in columns.items()}
    rows = [
        {
            "family": f"{row['source']}: {escaped(row['family'])}",
            "operators": row["operators"],
            "baseline": share(row["baseline"]),
            **{name: share(row[name]) for name in columns},
        }
        for row in found
    ]
    near = season.row(
        """
        SELECT count(*) AS operators, count(*) FILTER (WHERE roofline >= 0.8) AS near,
            count(*) FILTER (WHERE roofline < 0.2) AS far, median(roofline) AS median
        FROM season_outcome WHERE roofline IS NOT NULL
        """
    )
    timed = counted(near["operators"], "operator")
    return f"""## How far from the roofline

Of {timed} whose best entry has a roofline: {near["near"]} at 80% of it
or more, {near["far"]} under 20%; the median is {share(near["median"])}. Calls of a few
microseconds stay far below whatever the kernel does, as a launch takes that long.

![For each entry and the baseline, the share of the suite that reaches a fraction of the
roofline]({season.name}-rooflines.svg)

Medians over the operators that an entry solves, so the columns of a row may be over different
operators; the baseline's is over all that anybody solves:

{table(headings, rows)}
"""


def roofline_figure(season: Season) -> str:
    """The share of the suite that reaches a fraction of the roofline, a line an entry."""
    query = """
    WITH lines AS (
        SELECT place, entry, roofline FROM season_cell WHERE solved AND kind <> 'metadata'
        UNION ALL
        SELECT NULL, 'baseline', max(baseline_roofline) FROM season_cell
        WHERE solved AND kind <> 'metadata' GROUP BY operator
    )
    SELECT entry, r, count(*) FILTER (WHERE roofline >= r)
        / (SELECT count(*) FROM season_outcome WHERE kind <> 'metadata') AS share
    FROM lines CROSS JOIN (SELECT unnest(range(0, 51)) / 50.0 AS r)
    GROUP BY place, entry, r ORDER BY place NULLS LAST, r
    """
    groups = by_key(season.rows(query), "entry")
    series = {
        entry: [(float(row["r"]), float(row["share"])) for row in found]
        for (entry,), found in groups.items()
    }
    x = Axis("at least this fraction of the roofline", 0, 1, 0.1, "%")
    y = Axis(f"share of what is timed in {season.suite}", 0, 1, 0.2, "%")
    return line_chart("Share of the suite that reaches a fraction of the roofline", x, y, series)


_SURVEY = """
WITH operators AS (
    SELECT s.operator, s.baseline, count(*) AS cases, exp(avg(ln(s.roofline))) AS roofline,
        exp(avg(ln(s.device_us))) AS device_us
    FROM read_parquet($files) AS s WHERE s.sku = $sku AND s.roofline > 0 GROUP BY ALL
)
SELECT o.source, o.family, s.baseline, count(*) AS operators, sum(s.cases)::BIGINT AS cases,
    min(s.roofline) AS low, median(s.roofline) AS median, max(s.roofline) AS high,
    arg_min(s.operator, s.roofline) AS lowest
FROM operators AS s JOIN v_operator AS o USING (operator)
GROUP BY ALL ORDER BY o.source, o.family, s.baseline
"""


def baselines(season: Season) -> str:
    """How near to the roofline the baselines are, from the survey that ships with the project."""
    files = sorted(str(path) for path in Path(FOLDER).glob("*.parquet"))
    found = season.rows(_SURVEY, files=files, sku=season.sku) if files else []
    if not found:
        return ""
    columns = {
        "family": "family",
        "baseline": "baseline",
        "operators": "operators:",
        "cases": "cases:",
        "low": "lowest:",
        "median": "median:",
        "high": "highest:",
        "lowest": "the lowest is",
    }
    rows = [
        {
            **row,
            "family": f"{row['source']}: {escaped(row['family'])}",
            "baseline": escaped(row["baseline"]),
            "low": share(row["low"]),
            "median": share(row["median"]),
            "high": share(row["high"]),
            "lowest": code(row["lowest"]),
        }
        for row in found
    ]
    return f"""### Where the baselines leave room

The baselines alone, on the same kind of chip, from the survey that ships with the project
(`benchmark/baselines/`): by operator the geometric mean of the roofline over its full-size cases. A
low number is room for whoever writes the next kernel.

{table(columns, rows)}
"""


_DUEL = """
CREATE OR REPLACE TEMP TABLE season_duel AS
SELECT c.operator, c.source, c.family, c.speedup AS compiled, h.speedup AS written,
    c.device_us AS compiled_us, h.device_us AS written_us, c.baseline,
    c.speedup / h.speedup AS ratio,
    CASE
        WHEN c.low > h.high * $margin THEN 'compiled'
        WHEN h.low > c.high * $margin THEN 'written'
        ELSE 'level'
    END AS faster
FROM season_cell AS c JOIN season_cell AS h USING (operator)
WHERE c.place = $compiler AND h.place = $hand AND c.solved AND h.solved
    AND c.speedup IS NOT NULL AND h.speedup IS NOT NULL AND c.kind <> 'metadata'
"""
_DUEL_FAMILIES = """
SELECT source, family, count(*) AS operators,
    count(*) FILTER (WHERE faster = 'compiled') AS compiled,
    count(*) FILTER (WHERE faster = 'level') AS level,
    count(*) FILTER (WHERE faster = 'written') AS written,
    exp(avg(ln(ratio))) AS ratio
FROM season_duel GROUP BY GROUPING SETS ((source, family), ())
ORDER BY source NULLS LAST, family
"""
_DUEL_LIST = """
SELECT * FROM season_duel WHERE faster = $faster ORDER BY abs(ln(ratio)) DESC, operator LIMIT $most
"""
_DUEL_ONE_SIDED = """
SELECT count(*) FILTER (WHERE c.solved AND NOT h.solved) AS compiled,
    count(*) FILTER (WHERE h.solved AND NOT c.solved) AS written,
    count(*) FILTER (WHERE NOT h.solved AND NOT c.solved) AS neither
FROM season_cell AS c JOIN season_cell AS h USING (operator)
WHERE c.place = $compiler AND h.place = $hand
"""


def compiler_or_hand(season: Season) -> str:
    """`torch.compile` against the kernels written by hand, where both solve the operator."""
    compiler, hand = season.entry(COMPILER), season.entry(HAND)
    if compiler is None or hand is None:
        return ""
    pair = {"compiler": compiler["place"], "hand": hand["place"]}
    season.connection.execute(_DUEL, {**pair, "margin": MARGIN})
    one_sided = season.row(_DUEL_ONE_SIDED, **pair)
    *families, total = season.rows(_DUEL_FAMILIES)
    only = (
        f"solved by {code(COMPILER)} alone: {one_sided['compiled']}; by {code(HAND)} alone: "
        f"{one_sided['written']}; by neither: {one_sided['neither']}."
    )
    if not total["operators"]:
        none = f"No operator has times of both. Of all operators, {only}"
        return f"## Compiled or written by hand\n\n{none}"
    both = counted(total["operators"], "operator")
    parts = [
        f"""## Compiled or written by hand

{code(COMPILER)} is what Inductor makes of the operator stated in torch; {code(HAND)} are this
project's own Triton kernels. {both} have times of both: Inductor is faster at
{total["compiled"]}, the hand at {total["written"]}, the two are level at {total["level"]}.
Over all of them Inductor's speed is {number(total["ratio"])} times the hand's, in the geometric
mean. Of the others, {only}

Where the baseline is a "torch.compile formulation", as it is for vLLM's operators on a machine
without vLLM, Inductor is measured against itself, and the hand against Inductor.

{_duel_table([*families, {**total, "source": None}])}"""
    ]
    for faster, title in (
        ("compiled", "Where Inductor is ahead by most"),
        ("written", "Where the hand is ahead by most"),
    ):
        found = season.rows(_DUEL_LIST, faster=faster, most=_SHOWN)
        if found:
            parts.append(f"{title}:\n\n{_duel_list(found)}")
    return "\n\n".join(parts)


def _duel_table(found: list[Row]) -> str:
    columns = {
        "family": "family",
        "operators": "both:",
        "compiled": "Inductor faster:",
        "level": "level:",
        "written": "hand faster:",
        "ratio": "Inductor's speed over the hand's:",
    }
    rows = [
        {
            **row,
            "family": f"{row['source']}: {escaped(row['family'])}" if row["source"] else "all",
            "ratio": number(row["ratio"]),
        }
        for row in found
    ]
    return table(columns, rows)


def _duel_list(found: list[Row]) -> str:
    columns = {
        "operator": "operator",
        "compiled_us": "Inductor, µs:",
        "written_us": "hand, µs:",
        "ratio": "Inductor's speed over the hand's:",
        "compiled": "Inductor's speedup:",
        "written": "the hand's:",
        "baseline": "baseline",
    }
    rows = [
        {
            "operator": code(row["operator"]),
            "compiled_us": number(row["compiled_us"], 1),
            "written_us": number(row["written_us"], 1),
            "ratio": number(row["ratio"]),
            "compiled": number(row["compiled"]),
            "written": number(row["written"]),
            "baseline": escaped(row["baseline"]) or NOTHING,
        }
        for row in found
    ]
    return table(columns, rows)
