"""How commands print: tables for people (rich), or JSON.

Results go to standard output, progress and errors to standard error. Text that others wrote (names,
messages, notes) is shown as it is, never read as markup, without control characters.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

#: and halves of surrogate pairs, which no terminal's encoding has
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
GOOD, BAD = "green", "red"


def out() -> Console:
    """Standard output. As wide as it takes where it is not a terminal."""
    return Console(width=None if sys.stdout.isatty() else 160, highlight=False)


def err() -> Console:
    """Standard error."""
    return Console(stderr=True, highlight=False)


def plain(value: object, style: str = "") -> Text:
    """Foreign text, safe to print."""
    return Text(_CONTROL.sub("\N{REPLACEMENT CHARACTER}", str(value)), style=style)


def print_json(value: Any) -> None:
    """JSON on standard output."""
    sys.stdout.write(json.dumps(value, indent=2) + "\n")


def print_rows(
    rows: Sequence[Mapping[str, Any]],
    columns: Mapping[str, str],
    *,
    title: str = "",
    caption: str = "",
) -> None:
    """A table of `columns` (heading by key). Numbers are right-aligned, None is a dash."""
    table = Table(title=title or None, caption=caption or None, box=box.SIMPLE_HEAD)
    table.title_justify = table.caption_justify = "left"
    for key, heading in columns.items():
        numeric = any(isinstance(row.get(key), int | float) for row in rows)
        table.add_column(heading, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(_cell(key, row.get(key)) for key in columns))
    out().print(table)


def _cell(key: str, value: Any) -> Text:
    if value is None:
        return Text("-", style="dim")
    if isinstance(value, bool):
        return Text("yes" if value else "no")
    if isinstance(value, float):
        return Text(f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}")
    if isinstance(value, int):
        return Text(f"{value:,}")
    if key in ("status", "state") and value:
        return plain(value, GOOD if value in ("passed", "accepted") else BAD)
    return plain(value)
