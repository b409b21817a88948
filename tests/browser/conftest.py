"""A served store, a browser, pages that fail a test where the console shows an error."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

sys.path.insert(0, str(Path(__file__).parent.parent / "leaderboard"))

from stores import default_entries, make_store

from kernelmark.submissions.home import Home

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
QUIET = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"]
QUIET += ["--disable-background-networking", "--disable-component-update"]
#: Streamlit looks for its own address under each folder of a deep link first
EXPECTED = ("/_stcore/health", "/_stcore/host-config")
expect.set_options(timeout=60_000)
SIZES = {"desktop": (1280, 1000), "phone": (390, 844)}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Without a browser these tests are skipped, and say what to install."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.timeout(600))
            if CHROMIUM is None:
                item.add_marker(pytest.mark.skip("Chromium is not installed (tests/system.sh)"))


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """15 entries on 3 chips, one of them flagged."""
    return make_store(tmp_path_factory.mktemp("served"), default_entries())


@pytest.fixture(scope="session")
def serve() -> Iterator[Callable[[Path], str]]:
    """Serves a home through the command line; the address."""
    servers: list[subprocess.Popen[bytes]] = []

    def start(root: Path) -> str:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        environment = {
            **os.environ, "KERNELMARK_HOME": str(root), "STREAMLIT_SERVER_HEADLESS": "true",
            "OMP_NUM_THREADS": "1",
        }  # fmt: skip
        command = [sys.executable, "-m", "kernelmark.benchmark.cli", "leaderboard"]
        servers.append(subprocess.Popen([*command, "--port", str(port)], env=environment))
        return _when_up(f"http://127.0.0.1:{port}")

    yield start
    for server in servers:
        server.terminate()
    for server in servers:
        server.wait(20)


def _when_up(url: str) -> str:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"{url}/_stcore/health", timeout=2) as answer:
                if answer.status == 200:
                    return url
        except OSError:
            time.sleep(0.3)
    raise TimeoutError("the app did not come up")


@pytest.fixture(scope="session")
def address(home: Home, serve: Callable[[Path], str]) -> str:
    """Of the served store."""
    return serve(home.root)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One for a module: while Playwright is open, its event loop is taken to run in this thread,
    and other modules' tests could not run theirs."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        yield browser
        browser.close()


@pytest.fixture
def new_page(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Makes pages; at the end none may have shown an error in its console or failed a request."""
    contexts: list[BrowserContext] = []
    troubles: list[str] = []

    def make(size: str = "desktop", dark: bool = False) -> Page:
        width, height = SIZES[size]
        context = browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if dark else "light",
            reduced_motion="reduce",
        )
        context.set_default_timeout(60_000)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: troubles.append(f"page error: {error}"))
        page.on("console", lambda message: _hear(message, troubles))
        page.on("requestfailed", lambda r: _failed(r, troubles))
        page.on("dialog", lambda d: (troubles.append(f"dialog: {d.message}"), d.dismiss()))
        return page

    yield make
    for context in contexts:
        context.close()
    assert not troubles, troubles


def _hear(message: Any, troubles: list[str]) -> None:
    if message.type == "error" and not message.location["url"].endswith(EXPECTED):
        troubles.append(f"console: {message.text} ({message.location['url']})")


def _failed(request: Any, troubles: list[str]) -> None:
    # What the page itself breaks off (a download, a page that is left) is no failure.
    if request.failure != "net::ERR_ABORTED":
        troubles.append(f"request: {request.url} {request.failure}")


@pytest.fixture
def page(new_page: Callable[..., Page]) -> Page:
    """A page on a desktop, light."""
    return new_page()


def open_page(page: Page, url: str) -> None:
    """Opens a page and waits until Streamlit has run it; no exception may show."""
    page.goto(url)
    settle(page)


def settle(page: Page) -> None:
    """Waits until the app has answered and drawn; no exception may show."""
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    page.wait_for_timeout(150)
    running = page.locator('[data-testid="stApp"][data-test-script-state="running"]')
    expect(running).to_have_count(0)
    expect(page.get_by_test_id("stSkeleton")).to_have_count(0)
    expect(page.get_by_test_id("stException")).to_have_count(0)
