"""The board in the terminal: the rows of `v_rank`, a table for each suite and chip."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import duckdb

from kernelmark.benchmark.errors import UserError
from kernelmark.benchmark.rendering import print_json, print_rows

_QUERY = """
SELECT
    b.*,
    (SELECT sum(compiled) FROM v_portability AS p
        WHERE (p.submission, p.suite, p.suite_digest) = (b.submission, b.suite, b.suite_digest)
    ) AS compiled,
    (SELECT sum(tried) FROM v_portability AS p
        WHERE (p.submission, p.suite, p.suite_digest) = (b.submission, b.suite, b.suite_digest)
    ) AS compilations
FROM v_rank AS b
WHERE latest AND (suite = $suite OR ($suite = '' AND suite IN (
    SELECT suite FROM v_rank WHERE declared))) AND (chip = $chip OR $chip = '')
"""

_ALWAYS = {
    "rank": "rank",
    "method": "method",
    "model": "model",
    "kind": "kind",
    "solved": "solved",
    "state": "",
}
_SPEED = {
    "score": "score",
    "interval": "95%",
    "speedup": "speedup",
    "fast_1": "fast_1",
    "roofline": "roofline",
}
_REST = {
    "tokens_per_solved": "tokens/solved",
    "cost_per_solved_usd": "$/solved",
    "compiles": "compiles",
    "trust": "trust",
    "submission": "submission",
}


def board_rows(
    connection: duckdb.DuckDBPyConnection, suite: str = "", chip: str = ""
) -> list[dict[str, Any]]:
    """Rows of `v_rank`, best first: the latest entry of each method, model and submitter.

    Without `suite`, of the suites that something was run on. `UserError` where there is none.
    """
    result = connection.execute(_QUERY, {"suite": suite, "chip": chip})
    names = [column[0] for column in result.description]
    rows = [dict(zip(names, row, strict=True)) for row in result.fetchall()]
    if not rows:
        asked = " ".join(text for text in (suite, chip) if text)
        raise UserError(f"nothing on the board{f' for {asked}' if asked else ''} yet")
    return rows


def print_boards(
    connection: duckdb.DuckDBPyConnection, suite: str, chip: str, as_json: bool
) -> None:
    """Every board, or those of one suite or chip."""
    rows = board_rows(connection, suite, chip)
    if as_json:
        print_json(rows)
        return
    for board, entries in groupby(rows, lambda r: (r["suite"], r["chip"], r["sku"], r["measure"])):
        _print_board(board, [shown_row(entry) for entry in entries])


def _print_board(board: tuple[str, ...], entries: list[dict[str, Any]]) -> None:
    if board[-1] == "score":
        caption = "score: mean over the whole suite of min(speedup, 2), 0 where not solved"
    else:
        caption = f"{board[1]} runs kernels but their times mean nothing: ranked by what is solved"
    columns = columns_of(board[-1], entries)
    print_rows(entries, columns, title=board_title(board), caption=caption)


def board_title(board: tuple[str, ...]) -> str:
    """Suite and chip of ``(suite, chip, sku, measure)``."""
    suite, chip, sku, _ = board
    return f"{suite} on {chip}" + (f" ({sku})" if sku else "")


def columns_of(measure: str, entries: list[dict[str, Any]]) -> dict[str, str]:
    """Columns, with their titles, that some of the rows of `shown_row` fill."""
    columns = {**_ALWAYS, **(_SPEED if measure == "score" else {}), **_REST}
    return {k: v for k, v in columns.items() if any(e.get(k) not in (None, "") for e in entries)}


def shown_row(entry: dict[str, Any]) -> dict[str, Any]:
    """A row of `board_rows` as it is read: intervals as text, remarks, a short id."""
    low, high = entry["rank"], entry["rank_high"]
    interval = entry["value_low"], entry["value_high"]
    operators = entry["operators"]
    state = [] if entry["eligible"] else ["not ranked"]
    if not entry["complete"] and entry["declared"]:
        state.append(f"partial: {entry['attempted']} of {operators}")
    if not entry["current_suite"]:
        state.append("older suite")
    if entry["attempts_understated"]:
        state.append(f"says {entry['attempts_declared']} runs, {entry['runs_seen']} seen")
    return {
        **entry,
        "rank": None if low is None else str(low) if low == high else f"{low}-{high}",
        "solved": f"{entry['solved']}/{operators}",
        "interval": None if interval[0] is None else "{:.2f} to {:.2f}".format(*interval),
        "compiles": None
        if entry["compiled"] is None
        else f"{entry['compiled']}/{entry['compilations']}",
        "state": ", ".join(state),
        "submission": entry["submission"][:12],
    }
