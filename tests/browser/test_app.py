"""The app in a real browser, over a store that was filled by the command line."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
QUIET = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"]
QUIET += ["--disable-background-networking", "--disable-component-update"]
OPERATORS = ("aten::softmax", "cublas::cublasSaxpy_v2")

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed (tests/system.sh)"),
    pytest.mark.timeout(600),
]


def kernelmark(home: Path, *arguments: str) -> str:
    environment = {**os.environ, "KERNELMARK_HOME": str(home)}
    command = [sys.executable, "-m", "kernelmark.benchmark.cli", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode in (0, 1), done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two entries over two operators: our kernels, and a folder in which one is wrong."""
    root = tmp_path_factory.mktemp("home")
    wrong = tmp_path_factory.mktemp("kernels") / "aten"
    wrong.mkdir()
    (wrong / "softmax.py").write_text("import torch\n\n\ndef softmax(self, dim, dtype=None):\n"
                                      "    return torch.softmax(self, dim)\n")  # fmt: skip
    methods = (("reference",), ("folder", "-o", f"path={wrong.parent}"))
    for i, method in enumerate(methods):
        run = root / f"run-{i}"
        kernelmark(
            root, "run", "--method", *method, "--suite", "demo", "--operators", ",".join(OPERATORS),
            "--chip", "interpreter", "--out", str(run),
        )  # fmt: skip
        kernelmark(root, "submit", str(run))
    kernelmark(root, "ingest")
    return root


@pytest.fixture(scope="module")
def address(home: Path) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "KERNELMARK_HOME": str(home), "STREAMLIT_SERVER_HEADLESS": "true"}
    command = [sys.executable, "-m", "kernelmark.benchmark.cli", "leaderboard"]
    server = subprocess.Popen([*command, "--port", str(port)], env=environment)
    try:
        yield _when_up(f"http://127.0.0.1:{port}")
    finally:
        server.terminate()
        server.wait(20)


def _when_up(url: str) -> str:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"{url}/_stcore/health", timeout=2) as answer:
                if answer.status == 200:
                    return url
        except OSError:
            time.sleep(0.3)
    raise TimeoutError("the app did not come up")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    page = browser.new_page(viewport={"width": 1280, "height": 1000})
    page.set_default_timeout(30_000)
    yield page
    page.close()


def open_page(page: Page, url: str, title: str) -> None:
    """Opens a page and waits until Streamlit has run it; no exception may show."""
    page.goto(url)
    expect(page.get_by_role("heading", name=title, exact=True)).to_be_visible(timeout=30_000)
    expect(page.get_by_test_id("stStatusWidget")).to_have_count(0, timeout=30_000)
    expect(page.get_by_test_id("stException")).to_have_count(0)


def plain_table(page: Page) -> Any:
    """Tables are drawn on a canvas; the plain-table mode is readable to tests and to people."""
    page.get_by_text("Plain table").first.click()
    table = page.get_by_test_id("stTable").first
    expect(table).to_be_visible()
    return table


def test_the_board_shows_both_entries_best_first(page: Page, address: str) -> None:
    open_page(page, address, "Board")
    rows = plain_table(page).locator("tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.nth(0)).to_contain_text("reference")
    expect(rows.nth(0)).to_contain_text("2/8")
    expect(rows.nth(1)).to_contain_text("folder")
    expect(rows.nth(1)).to_contain_text("0/8")
    expect(rows.nth(1)).to_contain_text("partial")


def test_a_filter_is_kept_in_the_address(page: Page, address: str) -> None:
    open_page(page, f"{address}/?kind=human", "Board")
    assert "kind=human" in page.url
    expect(plain_table(page).locator("tbody tr").first).to_contain_text("reference")


def test_the_operator_page_opens_from_its_address(page: Page, address: str) -> None:
    open_page(page, f"{address}/operator?operator=aten%3A%3Asoftmax", "Operator")
    expect(page.get_by_text("softmax(self: Tensor, dim: int")).to_be_visible()
    table = plain_table(page)
    expect(table).to_contain_text("passed")
    expect(table).to_contain_text("rejected")
    expect(table).to_contain_text("torch.softmax")


def test_an_entry_shows_its_source_with_the_reason_of_refusal(page: Page, address: str) -> None:
    open_page(page, f"{address}/entry", "Entry")
    expect(page.get_by_text("One operator, down to the source")).to_be_visible()
    expect(page.get_by_text("return torch.softmax(self, dim)")).to_be_visible()


@pytest.mark.parametrize("path", ["operators", "about"])
def test_the_other_pages_open(page: Page, address: str, path: str) -> None:
    open_page(page, f"{address}/{path}", path.capitalize())


def test_an_empty_home_says_how_to_begin(browser: Browser, tmp_path: Path, page: Page) -> None:
    message = subprocess.run(
        [sys.executable, "-m", "kernelmark.benchmark.cli", "leaderboard"],
        capture_output=True, text=True,
        env={**os.environ, "KERNELMARK_HOME": str(tmp_path)},
    )  # fmt: skip
    assert message.returncode == 2
    assert "kernelmark submit" in message.stderr
