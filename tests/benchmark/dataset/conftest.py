"""One built data set for all tests of this folder; copies of it to break."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kernelmark.benchmark.dataset.build import build
from kernelmark.benchmark.prompts import Setting
from kernelmark.benchmark.suites import get_suite

SETTING = Setting("an accelerator", "Its notes.", "triton", "Its template.")


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set of the installed definitions. Not to be written to."""
    root = tmp_path_factory.mktemp("data set") / "built"
    build(root, SETTING)
    return root


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set of a few operators. Not to be written to."""
    root = tmp_path_factory.mktemp("data set") / "small"
    build(root, SETTING, operators=get_suite("demo").operators)
    return root


@pytest.fixture
def copy(small: Path, tmp_path: Path) -> Path:
    """A private copy of the small one."""
    return Path(shutil.copytree(small, tmp_path / "copy"))
