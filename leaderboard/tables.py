"""Tables: the grid, the plain table for keyboards, screen readers and printing, and downloads."""

from __future__ import annotations

import html
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd
import streamlit as st

from kernelmark.leaderboard import text

#: characters of a cell that a plain table shows; downloads have all
_CELL = 300
#: rows that a plain table shows at once
_PLAIN_ROWS = 500

_STYLE = """<style>
.km-wrap{overflow-x:auto;max-width:100%}
.km{border-collapse:collapse;font-size:.875rem;width:100%}
.km th,.km td{border-bottom:1px solid rgba(128,128,128,.4);padding:.3rem .6rem;text-align:left;
vertical-align:top;overflow-wrap:anywhere;min-width:3.2rem}
.km th{overflow-wrap:normal}
.km .km-t{min-width:6.5rem}
.km .km-n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.km a{text-decoration:underline}
.km caption{caption-side:top;text-align:left;padding:.2rem 0}
</style>"""


@dataclass(frozen=True)
class Column:
    """How a column is shown. Kinds: text, number, percent, compact, dollars, link."""

    label: str
    kind: str = "text"
    digits: int = 2
    help: str | None = None
    width: str | int | None = None

    def config(self) -> Any:
        """The same for the grid."""
        look: dict[str, Any] = {"label": self.label, "help": self.help, "width": self.width}
        if self.kind == "link":
            return st.column_config.LinkColumn(display_text="open", **look)
        if self.kind == "text":
            return st.column_config.TextColumn(**look)
        formats = {"compact": "compact", "percent": f"%.{self.digits}f%%"}
        return st.column_config.NumberColumn(
            format=formats.get(self.kind, f"%.{self.digits}f"), **look
        )


Columns = Mapping[str, Column]


def count(label: str) -> Column:
    """A column of whole numbers."""
    return Column(label, "number", 0)


def table(frame: pd.DataFrame, columns: Columns, key: str, name: str, height: int = 0) -> None:
    """A table of the named columns (those with any value), and its rows for download.

    `name` says to screen readers what it holds; `key` names the files. With ``?plain=1`` a plain
    HTML table stands for the grid.
    """
    present = {c: column for c, column in columns.items() if c in frame and _any(frame[c])}
    if st.session_state.get("plain"):
        st.html(_STYLE + plain_table(frame, present, name))
    else:
        shown = grid_values(frame, present)
        look: dict[str, Any] = {"height": height} if height and len(frame) > 12 else {}
        st.dataframe(
            shown,
            column_config={c: column.config() for c, column in present.items()},
            hide_index=True,
            alt=name,
            placeholder="",
            **look,
        )
    downloads(frame, key)


def downloads(frame: pd.DataFrame, key: str) -> None:
    """The rows as files."""
    with st.container(horizontal=True, gap="small"):
        download("CSV", lambda: frame.to_csv(index=False).encode(), f"{key}.csv", "text/csv")
        download("Parquet", lambda: parquet(frame), f"{key}.parquet", PARQUET)


PARQUET = "application/vnd.apache.parquet"


def download(
    label: str, data: bytes | Callable[[], bytes], file: str, mime: str, help: str | None = None
) -> None:
    """A button whose file is made when it is pressed."""
    st.download_button(
        label, data, file, mime, key=f"file-{file}", on_click="ignore", type="tertiary",
        icon=":material/download:", help=help or f"{file}: the rows of the table above, complete",
    )  # fmt: skip


def parquet(frame: pd.DataFrame) -> bytes:
    """The rows as a Parquet file."""
    buffer = io.BytesIO()
    frame.to_parquet(buffer, index=False)
    return buffer.getvalue()


def grid_values(frame: pd.DataFrame, columns: Columns) -> pd.DataFrame:
    """What the grid shows: hidden characters visible, shares as percents."""
    shown = {}
    for name, column in columns.items():
        values = frame[name]
        if column.kind == "text":
            shown[name] = values.map(lambda v: "" if text.missing(v) else text.short(v, 2000))
        elif column.kind == "percent":
            shown[name] = values * 100
        else:
            shown[name] = values
    return pd.DataFrame(shown)


def plain_table(frame: pd.DataFrame, columns: Columns, name: str) -> str:
    """A table in HTML, every cell escaped."""
    head = "".join(
        f'<th scope="col"{_class(column)}>{html.escape(column.label)}</th>'
        for column in columns.values()
    )
    body = "".join(
        f"<tr>{''.join(_cell(row[c], column) for c, column in columns.items())}</tr>"
        for row in frame.head(_PLAIN_ROWS)[list(columns)].to_dict("records")
    )
    rest = len(frame) - _PLAIN_ROWS
    more = f" (the first {_PLAIN_ROWS} of {len(frame)}; the files have all)" if rest > 0 else ""
    caption = f"<caption>{html.escape(name)}{more}</caption>"
    return (
        f'<div class="km-wrap" tabindex="0" role="region" aria-label="{html.escape(name)}">'
        f'<table class="km">{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
        "</div>"
    )


def _cell(value: object, column: Column) -> str:
    if text.missing(value):
        return f"<td{_class(column)}></td>"
    if column.kind == "link":
        return f'<td><a href="{html.escape(str(value))}">open</a></td>'
    shown = (
        text.short(value, _CELL)
        if column.kind == "text"
        else text.number(value, column.kind, column.digits)
    )
    return f"<td{_class(column)}>{html.escape(shown)}</td>"


def _class(column: Column) -> str:
    narrow = isinstance(column.width, int) and column.width < 80
    if column.kind == "link" or (column.kind == "text" and narrow):
        return ""
    return ' class="km-t"' if column.kind == "text" else ' class="km-n"'


def _any(column: pd.Series) -> bool:
    return bool((column.notna() & (column.astype(str) != "")).any())
