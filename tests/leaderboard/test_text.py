"""Text of submitters: shown as it is, interpreted nowhere."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from kernelmark.leaderboard import tables, text
from kernelmark.leaderboard.tables import Column

HOSTILE = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "[click](javascript:alert(1))",
    "**bold** :red[red] $x^2$ :material/home:",
    "a\x1b[31mred\x00\x07",
    "user\u202efdp.exe\u2066",
    "zero\u200bwidth",
    "'; DROP TABLE submissions; --",
    "x" * 10_000,
]


@pytest.mark.parametrize("given", HOSTILE)
def test_nothing_hidden_stays_hidden(given: str) -> None:
    shown = text.visible(given)
    assert shown.isprintable()
    assert text.visible(shown) == shown


def test_hidden_characters_are_named() -> None:
    assert text.visible("a\x1b\u202eb\n") == "a\\u{1b}\\u{202e}b\\u{a}"
    assert text.visible("a\tb\n", keep="\t\n") == "a\tb\n"
    assert text.visible("日本語 é ✓") == "日本語 é ✓"


@pytest.mark.parametrize("given", HOSTILE)
def test_labels_are_short_and_on_one_line(given: str) -> None:
    label = text.short(given, 60)
    assert len(label) <= 60 + len("… (10,000 characters)")
    assert "\n" not in label


def test_long_text_says_how_long_it_is() -> None:
    assert text.short("x" * 10_000, 30) == "x" * 20 + "… (10,000 characters)"


def test_figures_get_no_tags() -> None:
    assert text.for_figure("<b>a</b> & c") == "&lt;b&gt;a&lt;/b&gt; &amp; c"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["kernelmark", "run", "--method", "one-shot"], "kernelmark run --method one-shot"),
        (["run", "a b", "$(rm -rf ~)"], "run 'a b' '$(rm -rf ~)'"),
        (["run", "it's"], "run 'it'\"'\"'s'"),
        (["run", "a\nrm -rf ~"], None),
        (["run", "a\u202eb"], None),
        (["run", "\x1b[2J"], None),
        (["run", "пример"], None),  # letters that look like others
    ],
)
def test_commands_are_quoted_or_not_offered(words: list[str], line: str | None) -> None:
    assert text.command(words) == line


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0"), (950, "950"), (9_240, "9.2k"), (310_000, "310k"), (2.5e6, "2.5M")],
)
def test_counts_in_three_digits(value: float, shown: str) -> None:
    assert text.compact(value) == shown


@pytest.mark.parametrize("value", [None, math.nan, pd.NA, pd.NaT, ""])
def test_empty_cells(value: object) -> None:
    assert text.missing(value)
    assert not text.missing(0)
    assert not text.missing("nan")


@pytest.mark.parametrize("given", HOSTILE)
def test_plain_tables_escape_every_cell_and_heading(given: str) -> None:
    frame = pd.DataFrame({"a": [given], "link": ["entry?submission=1&x=<b>"], "n": [1.5]})
    columns = {"a": Column(given), "link": Column("l", "link"), "n": Column("n", "number")}
    table = tables.plain_table(frame, columns, given)
    tags = {part.split(">")[0].split()[0].strip("/") for part in table.split("<")[1:]}
    assert tags <= {"div", "table", "caption", "thead", "tbody", "tr", "th", "td", "a"}
    assert 'href="entry?submission=1&amp;x=&lt;b&gt;"' in table
    assert 'class="km-n">1.50</td>' in table


def test_grids_show_shares_as_percents_and_gaps_as_nothing() -> None:
    frame = pd.DataFrame({"share": [0.25, None], "name": ["a\x00", None]})
    shown = tables.grid_values(frame, {"share": Column("s", "percent"), "name": Column("n")})
    assert shown["share"][0] == 25
    assert list(shown["name"]) == ["a\\u{0}", ""]


def test_long_plain_tables_say_what_is_left_out() -> None:
    frame = pd.DataFrame({"a": range(700)})
    table = tables.plain_table(frame, {"a": tables.count("a")}, "numbers")
    assert table.count("<tr>") == 501
    assert "the first 500 of 700" in table
