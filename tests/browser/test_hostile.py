"""Text in every field that a submitter controls: shown, never interpreted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import open_page
from playwright.sync_api import Page, expect
from stores import Entry, make_store, submission_id

pytestmark = pytest.mark.slow  # `test_using_it` drives the pages in `make test`

HTML = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
MARKDOWN = (
    "[click](https://evil.example/a) **bold** :material/home: :red[red] $x^2$ www.evil.example"
)
CONTROL = "a\x1b[31m\x07b\u202ecod.exe\u2066\u200b"
LONG = "L" * 10_000
ATTACKS = {"html": HTML, "markdown": MARKDOWN, "control": CONTROL, "long": LONG}
#: columns of the table `submissions` whose text is free
FIELDS = ("method", "model", "submitter", "organisation", "contact", "url", "notes", "licence")
PATHS = (
    "", "?plain=1", "cost", "cost?plain=1", "speed?plain=1", "compare?plain=1", "entry?plain=1",
    "entry?part=Provenance", "entry?part=Provenance&plain=1", "entry?part=One+operator&plain=1",
    "entry?part=One+operator&evidence=Verdict&plain=1",
    "entry?part=One+operator&evidence=Attempts&plain=1", "operators", "operator?plain=1",
    "operator?view=Failures&plain=1", "chips?plain=1", "chips?view=Compile+targets&plain=1",
    "failures?plain=1",
)  # fmt: skip


def hostile(text: str) -> list[Entry]:
    """Two entries whose every text is an attack, and one that is not."""
    fields = dict.fromkeys(FIELDS, text) | {"environment": '{"torch": "2.13"}'}
    first = Entry(
        text, text, fields=fields, message=f"{text} failed", note=text, skill=0.5, suite="demo",
        source=f"# {text}\nx = '''{text}'''\n",
    )  # fmt: skip
    second = Entry(text, text, fields=fields, chip="amd", suite="demo", skill=0.6, seed=1)
    return [first, second, Entry("plain", kind="human", suite="demo")]


@pytest.fixture(scope="session", params=sorted(ATTACKS))
def attacked(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    serve: Callable[[Path], str],
) -> tuple[str, str]:
    """The attack and the address of a store that is full of it."""
    root = tmp_path_factory.mktemp(request.param)
    make_store(root, hostile(ATTACKS[request.param]))
    return request.param, serve(root)


@pytest.mark.parametrize("path", PATHS)
def test_nothing_is_interpreted(page: Page, attacked: tuple[str, str], path: str) -> None:
    _, address = attacked
    open_page(page, f"{address}/{path}")
    assert "owned" not in page.title()
    main = page.get_by_test_id("stMain")
    assert main.locator("img[src='x'], script").count() == 0
    assert main.locator("a[href*='evil.example']").count() == 0
    bold = main.locator("strong, b, .katex, [data-testid=stIconMaterial]").all_inner_texts()
    assert not {"bold", "home", "red", "x^2"} & set(bold)
    hidden = page.evaluate("/[\\u0007\\u001b\\u202e\\u2066\\u200b]/.test(document.body.innerText)")
    assert not hidden
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280


@pytest.mark.parametrize("field", FIELDS)
def test_every_field_is_shown_as_written(page: Page, attacked: tuple[str, str], field: str) -> None:
    attack, address = attacked
    id = submission_id(0)
    open_page(page, f"{address}/entry?submission={id}&part=Provenance&plain=1")
    table = page.locator("table.km").first
    row = table.locator("tr").filter(has=page.locator("td").nth(0).get_by_text(field, exact=True))
    shown = {
        "html": HTML,
        "markdown": MARKDOWN,
        "control": "a\\u{1b}[31m\\u{7}b\\u{202e}cod.exe\\u{2066}\\u{200b}",
        "long": "L" * 200 + "… (10,000 characters)",
    }[attack]
    expect(row.locator("td").nth(1)).to_have_text(shown)


def test_the_source_is_shown_as_text(page: Page, attacked: tuple[str, str]) -> None:
    attack, address = attacked
    id = submission_id(0)
    open_page(page, f"{address}/entry?submission={id}&part=One+operator&operator=aten%3A%3Aadd")
    shown = {
        "html": HTML,
        "markdown": MARKDOWN,
        "control": "\\u{1b}[31m\\u{7}b\\u{202e}cod.exe",
        "long": LONG,
    }[attack]
    expect(page.locator("pre").first).to_contain_text(shown)
    if attack == "control":
        expect(page.get_by_text("direction-changing characters are shown")).to_be_visible()


def test_messages_of_the_judge_and_notes_are_shown(page: Page, attacked: tuple[str, str]) -> None:
    attack, address = attacked
    id = submission_id(0)
    open_page(
        page, f"{address}/entry?submission={id}&part=One+operator&operator=aten%3A%3Aadd"
        "&evidence=Attempts&plain=1",
    )  # fmt: skip
    start = {"html": "<img src=x", "markdown": "[click](", "control": "a\\u{1b}", "long": "LLLL"}
    cells = page.locator("table.km td").filter(has_text=start[attack])
    assert cells.count() >= 2


def test_no_command_is_offered_that_a_terminal_would_misread(
    page: Page, attacked: tuple[str, str]
) -> None:
    attack, address = attacked
    open_page(page, f"{address}/entry?submission={submission_id(0)}&part=Provenance")
    if attack == "control":
        expect(page.get_by_text("no command")).to_be_visible()
    else:
        code = page.locator("code").first
        expect(code).to_contain_text("'" if attack != "long" else "LLL")
