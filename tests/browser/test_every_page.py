"""Every page in a real browser: light, dark, on a phone, and checked for accessibility."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import open_page
from playwright.sync_api import Page, expect

pytestmark = pytest.mark.slow  # `test_using_it` drives the pages in `make test`

AXE = "axe-core@4.10.3"
PAGES = {
    "": "Board",
    "cost": "Cost and quality",
    "speed": "Speed curve",
    "compare": "Compare",
    "entry": "Entry",
    "operators": "Operators",
    "operator": "Operator",
    "chips": "Chips",
    "failures": "Failures",
    "published": "Published elsewhere",
    "submit": "Submit",
    "about": "About",
}
PARTS = [
    "?kind=human",
    "?plain=1",
    "entry?part=One+operator",
    "entry?part=One+operator&evidence=Verdict",
    "entry?part=One+operator&evidence=Correctness",
    "entry?part=One+operator&evidence=Timing",
    "entry?part=Provenance",
    "entry?part=Tokens",
    "operators?view=Table",
    "operator?view=Speed+by+case",
    "operator?view=Cases",
    "chips?view=Compile+targets",
    "chips?view=Operators",
    "about?part=Download",
    "compare?plain=1",
]


@pytest.fixture(scope="session")
def axe() -> str:
    """The source of axe-core, from the npm registry, kept between runs."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed (tests/system.sh)")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kernelmark-tests"
    source = cache / f"{AXE}.js"
    if not source.exists():
        cache.mkdir(parents=True, exist_ok=True)
        command = ["npm", "pack", AXE, "--silent", "--json", "--pack-destination", str(cache)]
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=240)
        packed = cache / json.loads(done.stdout)[0]["filename"]
        with tarfile.open(packed) as archive:
            file = archive.extractfile("package/axe.min.js")
            assert file is not None
            new = source.with_suffix(f".{os.getpid()}")
            new.write_bytes(file.read())
        new.replace(source)
    return source.read_text()


def violations(page: Page, axe: str) -> list[dict[str, Any]]:
    """Serious and critical violations that axe finds."""
    page.evaluate(axe)
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
    return [
        {"id": v["id"], "help": v["help"], "where": [n["html"][:200] for n in v["nodes"][:3]]}
        for v in found
        if v["impact"] in ("serious", "critical")
    ]


@pytest.mark.parametrize("path", [*PAGES, *PARTS])
def test_opens_and_is_accessible(page: Page, address: str, axe: str, path: str) -> None:
    open_page(page, f"{address}/{path}")
    expect(page.get_by_role("heading", level=1)).to_have_text(PAGES[path.split("?")[0]])
    assert violations(page, axe) == []


@pytest.mark.parametrize("path", PAGES)
def test_is_accessible_in_the_dark(
    new_page: Callable[..., Page], address: str, axe: str, path: str
) -> None:
    page = new_page(dark=True)
    open_page(page, f"{address}/{path}")
    background = page.get_by_test_id("stApp").evaluate("e => getComputedStyle(e).backgroundColor")
    assert background == "rgb(18, 22, 29)"
    assert violations(page, axe) == []


@pytest.mark.parametrize("path", [*PAGES, "?plain=1", "entry?part=One+operator"])
def test_fits_a_phone(new_page: Callable[..., Page], address: str, path: str) -> None:
    page = new_page("phone")
    open_page(page, f"{address}/{path}")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    wide = page.evaluate(
        """[...document.querySelectorAll('[data-testid=stMain] *')].filter(e =>
           e.getBoundingClientRect().right > 391 && !e.closest('.km-wrap, pre, canvas, svg') &&
           !e.closest('[class*=st-key-map], [data-testid=stDataFrame], [data-testid=stButtonGroup]')
        ).map(e => e.outerHTML.slice(0, 120))"""
    )
    assert wide == []


@pytest.mark.parametrize("path", [p for p in PAGES if p not in ("submit", "about")])
def test_charts_and_tables_have_text_for_screen_readers(
    page: Page, address: str, path: str
) -> None:
    open_page(page, f"{address}/{path}")
    for kind in ("stPlotlyChart", "stDataFrame"):
        for element in page.get_by_test_id(kind).all():
            named = element.evaluate(
                "e => !!(e.closest('[aria-label]') || e.querySelector('[aria-label], [alt]'))"
            )
            assert named, f"{kind} says nothing"


def test_every_page_is_reached_by_keyboard(page: Page, address: str) -> None:
    open_page(page, address)
    reached = set()
    for _ in range(40):
        page.keyboard.press("Tab")
        text = page.evaluate("document.activeElement?.innerText ?? ''")
        reached.add(text.split("\n")[-1].strip())
        if set(PAGES.values()) <= reached:
            break
    assert set(PAGES.values()) <= reached
    page.get_by_role("link", name="Chips").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Chips")


def test_the_theme_follows_the_system(new_page: Callable[..., Page], address: str) -> None:
    page = new_page(dark=False)
    open_page(page, address)
    background = page.get_by_test_id("stApp").evaluate("e => getComputedStyle(e).backgroundColor")
    assert background == "rgb(255, 255, 255)"
