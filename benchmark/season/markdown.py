"""Numbers and tables of a page, in Markdown. Text that others wrote is escaped."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>|#~$])")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]+")

NOTHING = "–"


def escaped(text: object, most: int = 160) -> str:
    """Foreign text on one line, cut after `most` characters, read as text and not as markup."""
    plain = " ".join(_CONTROL.sub(" ", str(text)).split())
    if len(plain) > most:
        plain = plain[: most - 1].rstrip() + "…"
    return _SPECIAL.sub(r"\\\1", plain)


def code(text: object) -> str:
    """A name in a code span."""
    plain = _CONTROL.sub(" ", str(text)).replace("`", "'").replace("|", "¦")
    return f"`{plain}`" if plain.strip() else NOTHING


def number(value: float | None, digits: int = 2) -> str:
    """A number with so many decimals; a dash where there is none."""
    return NOTHING if _missing(value) else f"{value:,.{digits}f}"


def share(value: float | None) -> str:
    """A share in per cent."""
    if value is None or math.isnan(value):
        return NOTHING
    return f"{value:.1%}" if 0 < value < 0.1 else f"{value:.0%}"


def between(low: float | None, high: float | None, digits: int = 2) -> str:
    """An interval."""
    return NOTHING if _missing(low) else f"{number(low, digits)} to {number(high, digits)}"


def counted(count: int, one: str, many: str = "") -> str:
    """``1 operator``, ``2 operators``, ``no operators``."""
    return f"{count or 'no':{',' if count else ''}} {one if count == 1 else many or one + 's'}"


def listed(words: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def filled(text: str, width: int = 100) -> str:
    """Paragraphs and lists in lines of at most `width`; tables, code and the rest as they are."""
    return "\n\n".join(_filled_block(block, width) for block in text.split("\n\n"))


def _filled_block(block: str, width: int) -> str:
    if block.startswith(("|", "#", "```", "![")):
        return block
    items = re.split(r"\n(?=- )", block)
    indent = "  " if block.startswith("- ") else ""
    fill = textwrap.TextWrapper(
        width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(fill.fill(" ".join(item.split())) for item in items)


def table(columns: Mapping[str, str], rows: Iterable[Mapping[str, Any]]) -> str:
    """A table of `columns` (heading by key); a heading that ends with ``:`` is of numbers."""
    heads = [heading.removesuffix(":") for heading in columns.values()]
    rules = ["---:" if heading.endswith(":") else "---" for heading in columns.values()]
    lines = [_line(heads), f"|{'|'.join(rules)}|"]
    lines += [_line([_cell(row.get(key)) for key in columns]) for row in rows]
    return "\n".join(lines)


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(value: Any) -> str:
    return NOTHING if value in (None, "") else f"{value:,}" if isinstance(value, int) else value


def _missing(value: float | None) -> bool:
    return value is None or math.isnan(value)
