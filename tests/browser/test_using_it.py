"""What people do: filter, sort, follow links, go back, copy addresses, compare, download."""

from __future__ import annotations

import contextlib
import csv
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest
from conftest import open_page, settle
from playwright.sync_api import Locator, Page, TimeoutError, expect
from stores import submission_id

from kernelmark.submissions.home import Home


def rows(page: Page) -> Locator:
    """Rows of the first plain table."""
    return page.locator("table.km").first.locator("tbody tr")


def grid(page: Page, column: str) -> list[str]:
    """A column of the first grid, as its accessible table says it."""
    cells: list[str] = page.locator("canvas table").first.evaluate(
        """(table, name) => {
            const heads = [...table.querySelectorAll('th')].map(h => h.textContent)
            const at = heads.findIndex(head => head.includes(name))
            return [...table.querySelectorAll('tbody tr')].map(r => r.children[at]?.textContent)
        }""",
        column,
    )
    return cells


def choose(page: Page, label: str, option: str) -> None:
    """Takes an option of a select box."""
    box = page.get_by_role("combobox", name=label, exact=False).first
    wanted = page.get_by_role("option", name=option, exact=True)
    for _ in range(5):  # a run of the page that ends now closes the list
        box.click()
        box.fill(option)
        with contextlib.suppress(TimeoutError):
            wanted.click(timeout=5000)
            break
    else:
        pytest.fail(f"{label} offers no {option}")
    page.keyboard.press("Escape")
    settle(page)


def sql(home: Home, query: str, *parameters: object) -> list[tuple[Any, ...]]:
    """Rows of the served database."""
    with duckdb.connect(str(home.current.resolve()), read_only=True) as connection:
        return connection.execute(query, list(parameters)).fetchall()


def test_the_board_is_best_first_with_shared_ranks(page: Page, address: str, home: Home) -> None:
    open_page(page, f"{address}/?plain=1")
    expected = sql(
        home,
        "SELECT method, rank FROM v_rank WHERE suite = 'core' AND chip = 'nvidia' AND latest",
    )
    expect(rows(page)).to_have_count(len(expected))
    for row, (method, _) in zip(rows(page).all(), expected, strict=True):
        expect(row).to_contain_text(method)
    expect(page.get_by_text("cannot be told apart at the top")).to_be_visible()
    expect(rows(page).first).to_contain_text("1–5")
    expect(page.locator("table.km").first).to_contain_text("expert-made")


def test_filters_go_to_the_address_and_rank_anew(page: Page, address: str) -> None:
    open_page(page, f"{address}/?plain=1")
    page.get_by_text("Filters").click()
    choose(page, "Kind of method", "model")
    expect(rows(page)).to_have_count(3)
    assert "kind=model" in page.url
    expect(
        page.get_by_text("Ranked anew among the 3 entries shown, over 40 operators")
    ).to_be_visible()
    choose(page, "Source", "vllm")
    expect(page.get_by_text("over 10 operators")).to_be_visible()
    assert "source=vllm" in page.url


def test_a_limit_on_tokens_keeps_what_is_known_to_be_under_it(page: Page, address: str) -> None:
    open_page(page, f"{address}/?plain=1&source=vllm&tokens=100000&kind=agent&kind=model")
    expect(rows(page)).to_have_count(2)  # partial and missing metering prove nothing
    expect(rows(page).first).to_contain_text("one-shot")


def test_a_grid_sorts_by_its_heading(page: Page, address: str) -> None:
    open_page(page, address)
    canvas = page.get_by_test_id("stDataFrame").first.get_by_test_id("data-grid-canvas")
    best = grid(page, "method")
    box = canvas.bounding_box()
    assert box is not None
    at = page.locator("canvas table th").all_inner_texts().index("method")
    x = 120 + 55 * (at - 2) + 30  # details come before; widths are set in views/board.py
    page.mouse.click(box["x"] + x, box["y"] + 15)
    page.wait_for_function(
        "first => first !== "
        "document.querySelector('canvas table tbody tr').children[2].textContent",
        arg=best[0],
    )
    assert grid(page, "method") == sorted(best)


def test_links_lead_to_the_entry_and_open_where_they_were_copied(
    page: Page, address: str, new_page: Callable[..., Page]
) -> None:
    open_page(page, f"{address}/?plain=1")
    link = rows(page).first.get_by_role("link", name="open")
    target = link.evaluate("a => a.href")
    open_page(page, target)
    expect(page.get_by_role("heading", level=1)).to_have_text("Entry")
    expect(page.get_by_text("solves 34 of 40 operators of core")).to_be_visible()
    page.get_by_role("radio", name="One operator").click()
    settle(page)
    choose(page, "Operator", "aten::softmax")
    expect(page.locator("code").first).to_be_visible()
    copied = page.url
    other = new_page()
    open_page(other, copied)
    expect(other.get_by_role("combobox", name="Operator").first).to_have_value("aten::softmax")
    assert other.url == copied


def test_back_undoes_a_choice_and_a_change_of_page(page: Page, address: str) -> None:
    open_page(page, f"{address}/?suite=core&chip=nvidia+%28NVIDIA+H200%29&plain=1")
    choose(page, "Chip", "amd (AMD Instinct MI300X)")
    expect(rows(page)).to_have_count(3)
    page.get_by_role("link", name="Chips").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Chips")
    settle(page)
    page.go_back()
    expect(page.get_by_role("heading", level=1)).to_have_text("Board")
    expect(rows(page)).to_have_count(3)
    page.go_back()
    expect(rows(page)).to_have_count(10)
    page.go_forward()
    expect(rows(page)).to_have_count(3)


def test_the_choice_of_suite_goes_along(page: Page, address: str) -> None:
    open_page(page, f"{address}/?suite=demo")
    page.get_by_role("link", name="Cost and quality").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Cost and quality")
    expect(page.get_by_role("combobox", name="Suite")).to_have_value("demo")
    page.wait_for_url("**suite=demo**")


def test_two_entries_are_compared(page: Page, address: str) -> None:
    first, second = submission_id(0), submission_id(4)
    open_page(page, f"{address}/compare?suite=core&first={first}&second={second}&plain=1")
    expect(
        page.get_by_text("refine · atlas-large is better than one-shot · birch-70b")
    ).to_be_visible()
    expect(page.get_by_text("95% interval").first).to_be_visible()
    expect(rows(page)).to_have_count(40)
    choose(page, "Show operators where", "the second wins")
    expect(page).to_have_url(f"{page.url}")
    assert "wins=second" in page.url
    expect(page.get_by_text("Where each wins, by family")).to_be_visible()


def test_why_an_operator_failed_is_found_from_the_board(page: Page, address: str) -> None:
    id = submission_id(4)
    open_page(page, f"{address}/entry?submission={id}&part=Operators&plain=1")
    row = rows(page).filter(has_text="aten::sort")
    expect(row).not_to_contain_text("passed")
    open_page(page, row.get_by_role("link", name="open").evaluate("a => a.href") + "&plain=1")
    page.get_by_role("radio", name="Verdict").click()
    expect(page.locator("table.km").first).to_contain_text("stopped here")


def test_the_source_has_line_numbers_and_is_the_file(
    page: Page, address: str, home: Home, tmp_path: Path
) -> None:
    id = submission_id(7)
    open_page(page, f"{address}/entry?submission={id}&part=One+operator&operator=aten%3A%3Asoftmax")
    code = page.locator("pre").first
    expect(code).to_contain_text("triton")
    expect(code.locator(".linenumber").first).to_have_text("1")
    assert code.locator("span[style*=color], span.token").count() > 10
    with page.expect_download() as download:
        page.get_by_role("button", name="Source").click()
    ((source,),) = sql(
        home,
        """SELECT source FROM candidates JOIN v_result USING (submission, operator, candidate)
        WHERE submission = ? AND operator = 'aten::softmax'""",
        id,
    )
    assert Path(download.value.path()).read_text() == source


def test_the_command_that_reproduces_an_entry_is_there(page: Page, address: str) -> None:
    open_page(page, f"{address}/entry?submission={submission_id(0)}&part=Provenance")
    line = (
        "kernelmark run --method refine --model atlas-large --suite core --chip nvidia --tier full"
    )
    expect(page.locator("code").first).to_have_text(line)


def test_a_downloaded_board_is_what_sql_says(page: Page, address: str, home: Home) -> None:
    open_page(page, address)
    with page.expect_download() as download:
        page.get_by_role("button", name="CSV", exact=True).first.click()
    got = list(csv.DictReader(io.StringIO(Path(download.value.path()).read_text())))
    expected = sql(
        home,
        """SELECT submission, score, solved, tokens_per_solved FROM v_rank
        WHERE suite = 'core' AND chip = 'nvidia' AND latest""",
    )
    assert [row["submission"] for row in got] == [row[0] for row in expected]
    assert [float(row["score"]) for row in got] == pytest.approx([row[1] for row in expected])
    assert [int(row["solved"]) for row in got] == [row[2] for row in expected]
    tokens = [float(row["tokens_per_solved"]) if row["tokens_per_solved"] else None for row in got]
    assert tokens == [row[3] if row[3] is None else pytest.approx(row[3]) for row in expected]


def test_every_table_can_be_downloaded_and_the_database(
    page: Page, address: str, home: Home
) -> None:
    open_page(page, f"{address}/about?part=Download&table=v_cell&file=Parquet")
    with page.expect_download() as download:
        page.get_by_role("button", name="v_cell.parquet").click()
    table = pq.read_table(download.value.path())
    ((count, solved),) = sql(home, "SELECT count(*), count(*) FILTER (WHERE solved) FROM v_cell")
    assert table.num_rows == count
    assert sum(table["solved"].to_pylist()) == solved
    with page.expect_download() as download:
        page.get_by_role("button", name="The database (").click()
    assert Path(download.value.path()).read_bytes() == home.current.resolve().read_bytes()


def test_the_speed_curve_says_what_sql_says(page: Page, address: str, home: Home) -> None:
    id = submission_id(0)
    open_page(page, f"{address}/speed?suite=core&entries={id}&plain=1")
    ((share,),) = sql(
        home, "SELECT share FROM v_fast_p WHERE submission = ? AND suite = 'core' AND p = 1.0", id
    )
    expect(rows(page)).to_have_count(1)
    expect(rows(page).first).to_contain_text(f"{share:.0%}")


def test_figures_of_others_stand_by_themselves(page: Page, address: str) -> None:
    open_page(page, f"{address}/published?plain=1")
    expect(page.get_by_text("cannot be compared")).to_be_visible()
    table = page.locator("table.km").first
    expect(table).to_contain_text("AKO4ALL")
    expect(table).not_to_contain_text("atlas")
    expect(page.get_by_text("72% at 0.88 in one table, 67% at 0.83")).to_be_visible()
