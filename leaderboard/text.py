"""Text that others wrote, made fit to be shown: never interpreted, never hiding anything.

Names, notes, messages and sources come from submitters. Here invisible and direction-changing
characters become visible escapes, and long texts are cut for the places that cannot hold them.
"""

from __future__ import annotations

import html
import math
import re
import shlex
import unicodedata
from typing import Any

#: characters that draw nothing, or make what follows look like something else
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})
_SAFE_WORD = re.compile(r"[\w./:=,@+\-]+", re.ASCII)


def visible(text: str, keep: str = "") -> str:
    r"""`text` with each hidden character as ``\u{hex}``; those of `keep` (newlines, tabs) stay."""
    if text.isprintable():
        return text
    return "".join(
        f"\\u{{{ord(c):x}}}" if unicodedata.category(c) in _HIDDEN and c not in keep else c
        for c in text
    )


def short(text: object, length: int = 60) -> str:
    """`visible` text on one line, cut in the middle to at most `length` characters."""
    line = visible(" ".join(str(text)[: 4 * length].split()) if text is not None else "")
    if len(line) <= length and len(str(text)) <= 4 * length:
        return line
    head = length * 2 // 3
    return f"{line[:head]}… ({len(str(text)):,} characters)"


def for_figure(text: object, length: int = 40) -> str:
    """A label for a figure, whose texts know a few HTML tags: those are shown as written."""
    return html.escape(short(text, length), quote=False)


def command(words: list[str]) -> str | None:
    """A line for a shell; None where a word holds what a terminal may misread."""
    if any(visible(word) != word or not word.isascii() for word in words):
        return None
    return " ".join(w if _SAFE_WORD.fullmatch(w) else shlex.quote(w) for w in words)


def missing(value: object) -> bool:
    """Whether a cell is empty: None, NaN, pandas' NA and NaT, or no text."""
    if value is None or isinstance(value, str):
        return not value
    return str(value) in ("nan", "<NA>", "NaT")


def compact(value: float) -> str:
    """A count in three digits: 950, 9.2k, 310k, 1.2M."""
    for limit, unit in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            scaled = value / limit
            return f"{scaled:.1f}{unit}" if abs(scaled) < 10 else f"{scaled:.0f}{unit}"
    return f"{value:.0f}"


def number(value: Any, kind: str, digits: int) -> str:
    """A number as a table shows it. Kinds: number, percent, compact, dollars."""
    if missing(value) or not math.isfinite(value):
        return ""
    if kind == "percent":
        return f"{value:.{digits}%}"
    if kind == "compact":
        return compact(value)
    return f"{value:,.{digits}f}"
