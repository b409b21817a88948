"""One store for all tests of the app, made once in a process; the app is pointed at it."""

from __future__ import annotations

from pathlib import Path

import pytest
from stores import Entry, default_entries, make_store

from kernelmark.submissions.home import Home


@pytest.fixture(scope="session")
def full(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """15 entries on 3 chips, one of them flagged."""
    return make_store(tmp_path_factory.mktemp("full"), default_entries())


@pytest.fixture(scope="session")
def single(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """One entry of a model that nobody metered, over a small suite."""
    entry = Entry("one-shot", "atlas", "model", metering="none", suite="demo")
    return make_store(tmp_path_factory.mktemp("single"), [entry])


@pytest.fixture(scope="session")
def nothing(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A database without a single entry."""
    return make_store(tmp_path_factory.mktemp("nothing"), [])


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    """Points the app at a home."""

    def point(home: Home | Path) -> None:
        root = home.root if isinstance(home, Home) else home
        monkeypatch.setenv("KERNELMARK_HOME", str(root))

    return point
