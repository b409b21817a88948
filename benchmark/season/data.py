"""What a season's page is told from: one board, its entries, and their operators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import duckdb

from kernelmark.benchmark.errors import UserError

Row = dict[str, Any]

#: the entry that hands in the baseline itself: what all others are read against
ANCHOR = "torch-eager"

#: two times of the same kernel may differ by so much: nobody is called faster for less
MARGIN = 1.02

_BOARD = """
SELECT suite, suite_digest, chip, sku FROM v_standing
WHERE declared AND latest AND measure = 'score'
GROUP BY ALL ORDER BY max(operators) DESC, count(*) DESC, max(created_at) DESC, suite LIMIT 1
"""

_ENTRIES = """
CREATE TEMP TABLE season_entry AS
SELECT
    row_number() OVER (ORDER BY rank NULLS LAST, score DESC NULLS LAST, method, model, submission)
        AS place,
    concat_ws(' ', method, nullif(model, ''),
        CASE WHEN count(*) OVER (PARTITION BY method, model) > 1
            THEN '(' || coalesce(nullif(submitter, ''), left(submission, 8)) || ')' END) AS entry,
    method = $anchor AS anchor,
    e.*
FROM v_rank AS e
WHERE suite = $suite AND suite_digest = $suite_digest AND chip = $chip AND sku = $sku AND latest
"""

_CELLS = """
CREATE TEMP TABLE season_cell AS
WITH intervals AS (
    SELECT
        submission, operator, candidate,
        exp(avg(ln(speedup_low))) AS low,
        exp(avg(ln(speedup_high))) AS high,
        exp(avg(ln(floor_us / baseline_us))) AS baseline_roofline
    FROM v_timing GROUP BY ALL
)
SELECT e.place, e.entry, e.method, e.anchor, c.*, i.low, i.high, i.baseline_roofline
FROM season_entry AS e
JOIN v_cell AS c USING (submission, suite, suite_digest)
LEFT JOIN intervals AS i
    ON c.solved AND i.submission = c.submission AND i.operator = c.operator
    AND i.candidate = c.candidate
"""

#: Who is fastest at each operator: an entry, if its interval lies above the baseline and above all
#: others' by the margin; else `several` of them, `level` with the baseline, the `baseline`,
#: `unsolved`, `untimed`.
_OUTCOMES = """
CREATE TEMP TABLE season_outcome AS
WITH rival AS (
    SELECT * FROM season_cell
    WHERE solved AND speedup IS NOT NULL AND kind <> 'metadata' AND NOT anchor
), best AS (
    SELECT * FROM rival
    QUALIFY row_number() OVER (PARTITION BY operator ORDER BY speedup DESC, place) = 1
), others AS (
    SELECT r.operator, max(r.high) AS high
    FROM rival AS r ANTI JOIN best AS b USING (operator, submission) GROUP BY r.operator
), all_operators AS (
    SELECT operator, source, family, any_value(kind) AS kind, bool_or(solved) AS solved
    FROM season_cell GROUP BY ALL
)
SELECT
    o.operator, o.source, o.family, o.kind, o.solved,
    b.entry AS best, b.speedup, b.low, b.high, b.roofline, b.device_us, b.baseline_us, b.baseline,
    CASE
        WHEN b.operator IS NULL AND o.kind = 'metadata' THEN 'untimed'
        WHEN b.operator IS NULL THEN 'unsolved'
        WHEN b.high * {margin} < 1 THEN 'baseline'
        WHEN b.low <= {margin} THEN 'level'
        WHEN x.high * {margin} >= b.low THEN 'several'
        ELSE b.entry
    END AS outcome
FROM all_operators AS o LEFT JOIN best AS b USING (operator) LEFT JOIN others AS x USING (operator)
"""


@dataclass(frozen=True)
class Season:
    """One board of a database, with the tables `season_entry`, `season_cell`, `season_outcome`."""

    connection: duckdb.DuckDBPyConnection
    name: str  #: of the page; its figures' names begin with it
    suite: str
    suite_digest: str
    chip: str
    sku: str
    entries: tuple[Row, ...]  #: best first

    @property
    def operators(self) -> int:
        """How many the suite has."""
        return int(self.entries[0]["operators"])

    @property
    def names(self) -> list[str]:
        """Of the entries."""
        return [entry["entry"] for entry in self.entries]

    def entry(self, method: str) -> Row | None:
        """The best entry of a method, if it has one."""
        return next((entry for entry in self.entries if entry["method"] == method), None)

    def rows(self, query: str, **parameters: Any) -> list[Row]:
        """The rows of a query."""
        return rows(self.connection, query, parameters)

    def row(self, query: str, **parameters: Any) -> Row:
        """The only row of a query."""
        (found,) = self.rows(query, **parameters)
        return found


def open_season(connection: duckdb.DuckDBPyConnection, name: str) -> Season:
    """The board of the largest suite whose times count, with the most entries.

    `UserError` where there is none.
    """
    boards = rows(connection, _BOARD)
    if not boards:
        raise UserError("no entry whose times count is on the board")
    connection.execute(_ENTRIES, {**boards[0], "anchor": ANCHOR})
    connection.execute(_CELLS)
    connection.execute(_OUTCOMES.format(margin=MARGIN))
    entries = rows(connection, "SELECT * FROM season_entry ORDER BY place")
    return Season(connection, name, **boards[0], entries=tuple(entries))


def rows(
    connection: duckdb.DuckDBPyConnection, query: str, parameters: dict[str, Any] | None = None
) -> list[Row]:
    """The rows of a query, by column."""
    result = connection.execute(query, parameters or {})
    names = [column[0] for column in result.description]
    return [dict(zip(names, row, strict=True)) for row in result.fetchall()]


def by_key(found: Sequence[Row], *keys: str) -> dict[tuple[Any, ...], list[Row]]:
    """Rows in groups of equal keys, in the order of their first row."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in found:
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    return groups
