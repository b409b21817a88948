"""A copy of the board that needs no server: every table as files, and one page to read.

The page is plain HTML with no script; every text of a submitter is escaped. Numbers are those of
`boards.board_rows`, which the app and the terminal show too.
"""

from __future__ import annotations

import html
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import Any

import duckdb

from kernelmark.benchmark.boards import board_rows, board_title, columns_of, shown_row
from kernelmark.benchmark.errors import UserError

TABLES = "tables"

_STYLE = """
:root { color-scheme: light dark; --ink: #1d2330; --paper: #fff; --line: #c9ced8; --link: #1a5490 }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8ebf0; --paper: #12161d; --line: #3a4250; --link: #9cc7f5 }
}
body { color: var(--ink); background: var(--paper); font: 16px/1.5 system-ui, sans-serif;
  margin: 1rem auto; max-width: 84rem; padding: 0 1rem }
a { color: var(--link) }
.wide { overflow-x: auto }
table { border-collapse: collapse; width: 100%; font-size: .875rem }
th, td { border-bottom: 1px solid var(--line); padding: .3rem .6rem; text-align: left;
  vertical-align: top; overflow-wrap: anywhere; min-width: 3rem }
th { overflow-wrap: normal }
td:not(.number, :empty, :first-child) { min-width: 5.5rem }
td.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap }
"""


def export(connection: duckdb.DuckDBPyConnection, folder: Path) -> list[Path]:
    """Writes ``index.html`` and ``tables/*`` into a new or empty folder; the paths written.

    Every table and view as Parquet; what is computed (``v_*`` and ``ranks``) as CSV too.
    `UserError` where the folder holds something, or nothing is on the board.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder}: is not an empty folder")
    rows = board_rows(connection)
    (folder / TABLES).mkdir(parents=True)
    files = [path for name in _tables(connection) for path in _copy(connection, name, folder)]
    page = folder / "index.html"
    built = connection.execute("SELECT built_at, code_sha256 FROM build").fetchone()
    page.write_text(render(rows, [path.name for path in files], built or ("", "")))
    return [page, *files]


def render(rows: list[dict[str, Any]], files: Iterable[str], built: tuple[Any, ...]) -> str:
    """The page."""
    boards = groupby(rows, lambda r: (r["suite"], r["chip"], r["sku"], r["measure"]))
    sections = "\n".join(_board(key, [shown_row(row) for row in found]) for key, found in boards)
    links = "\n".join(
        f'<li><a href="{TABLES}/{html.escape(name)}">{html.escape(name)}</a></li>' for name in files
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Kernelmark</title>
<style>{_STYLE}</style>
</head>
<body>
<main>
<h1>Kernelmark</h1>
<p>A copy of the leaderboard, built {html.escape(str(built[0]))} by scoring code
{html.escape(str(built[1])[:12])}. Ranks are intervals: entries that cannot be told apart share
them. Score: mean over the whole suite of min(speedup, 2), 0 where not solved.</p>
{sections}
<h2>Files</h2>
<ul>
{links}
</ul>
</main>
</body>
</html>
"""


def _board(board: tuple[str, ...], entries: list[dict[str, Any]]) -> str:
    columns = columns_of(board[-1], entries)
    title = html.escape(board_title(board))
    head = "".join(f'<th scope="col">{html.escape(n or "remarks")}</th>' for n in columns.values())
    body = "\n".join(
        f"<tr>{''.join(_cell(entry.get(name)) for name in columns)}</tr>" for entry in entries
    )
    return (
        f'<h2>{title}</h2>\n<div class="wide" tabindex="0" role="region" aria-label="{title}">'
        f"<table><thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>"
    )


def _cell(value: Any) -> str:
    if value is None:
        return "<td></td>"
    if isinstance(value, float):
        return f'<td class="number">{value:,.{0 if abs(value) >= 1000 else 3}f}</td>'
    return f"<td>{html.escape(str(value))}</td>"


def _tables(connection: duckdb.DuckDBPyConnection) -> list[str]:
    query = "SELECT table_name FROM information_schema.tables ORDER BY table_name"
    return [name for (name,) in connection.execute(query).fetchall()]


def _copy(connection: duckdb.DuckDBPyConnection, name: str, folder: Path) -> list[Path]:
    computed = name.startswith("v_") or name == "ranks"
    written = []
    for suffix in ("parquet", "csv") if computed else ("parquet",):
        path = folder / TABLES / f"{name}.{suffix}"
        target = str(path).replace("'", "''")
        connection.execute(f"COPY (SELECT * FROM {name}) TO '{target}' (FORMAT {suffix})")
        written.append(path)
    return written
