"""What hosts read: Dockerfile, metadata of a Space, the exported page, the files shipped."""

from __future__ import annotations

import csv
import html.parser
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest
import yaml
from stores import Entry, make_store

from kernelmark.benchmark.boards import board_rows
from kernelmark.benchmark.errors import UserError
from kernelmark.benchmark.static_page import export
from kernelmark.submissions.home import Home

ROOT = Path(__file__).parents[2]
LINE = re.compile(r"^([A-Z]+) (.*)$")


def instructions() -> list[tuple[str, str]]:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    found = [LINE.match(line) for line in lines if line and not line.startswith("#")]
    return [(match[1], match[2]) for match in found if match]


def space() -> dict[str, Any]:
    _, front, _ = (ROOT / "leaderboard/space/README.md").read_text().split("---\n", 2)
    metadata: dict[str, Any] = yaml.safe_load(front)
    return metadata


def test_everything_that_is_copied_exists() -> None:
    copied = [word for name, text in instructions() if name == "COPY" for word in text.split()[:-1]]
    sources = [word for word in copied if not word.startswith("--")]
    assert {"benchmark", "leaderboard", ".typing"} <= set(sources)
    assert all((ROOT / source).exists() for source in sources if "*" not in source)


def test_it_serves_the_app_as_nobody_special_where_the_space_looks() -> None:
    found = dict(instructions())
    command = json.loads(found["CMD"])
    assert (ROOT / command[2]).is_file()
    assert f"--server.port={found['EXPOSE']}" in command
    assert found["EXPOSE"] in json.loads(found["HEALTHCHECK"].removeprefix("CMD "))[-1]
    assert space()["app_port"] == int(found["EXPOSE"])
    assert found["USER"] == "app"


def test_it_installs_what_the_project_asks_for() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    run = next(text for name, text in instructions() if name == "RUN" and "pip install" in text)
    installed = set(re.findall(r'"([^"]+)"', run))
    assert installed == {
        *extras["app"],
        "numpy>=1.26",
        *(e for e in extras["host"] if "duckdb" in e),
    }
    base = next(text for name, text in instructions() if name == "FROM")
    assert base == "python:3.12-slim"


def test_the_space_is_one_that_a_dockerfile_makes() -> None:
    found = space()
    assert found["sdk"] == "docker"
    assert found["license"] == "apache-2.0"
    assert len(found["short_description"]) <= 60  # the Hub refuses longer ones
    assert found["colorFrom"] in {
        "red",
        "yellow",
        "green",
        "blue",
        "indigo",
        "purple",
        "pink",
        "gray",
    }


def test_the_app_needs_no_torch_and_nothing_of_the_judge() -> None:
    program = """
import importlib, pkgutil, sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "triton", "typer", "rich", "pydantic", "litellm", "ray"):
            raise ImportError(name)
sys.meta_path.insert(0, Block())
import kernelmark.leaderboard as package
for module in pkgutil.iter_modules(package.__path__):
    if module.name not in ("app", "views"):
        importlib.import_module(f"kernelmark.leaderboard.{module.name}")
assert not [name for name in sys.modules if "kernelmark.evaluators" in name]
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


class Page(html.parser.HTMLParser):
    """Tags, links and rows of a page."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.feed(source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("href", "src")]


def test_the_exported_page_has_the_rows_of_the_board_and_every_table(
    full: Home, tmp_path: Path
) -> None:
    with duckdb.connect(str(full.current.resolve()), read_only=True) as connection:
        written = export(connection, tmp_path / "out")
        expected = board_rows(connection)
        names = {name for (name,) in connection.execute(
            "SELECT table_name FROM information_schema.tables").fetchall()}  # fmt: skip
        cells = connection.execute("SELECT count(*) FROM v_cell").fetchone()
    page = Page((tmp_path / "out/index.html").read_text())
    boards = len({(row["suite"], row["chip"], row["sku"]) for row in expected})
    assert page.tags.count("tr") == len(expected) + boards
    assert {Path(path).stem for path in written} >= names
    assert all((tmp_path / "out" / link).is_file() for link in page.links)
    assert cells is not None
    assert pq.read_metadata(tmp_path / "out/tables/v_cell.parquet").num_rows == cells[0]
    with (tmp_path / "out/tables/v_rank.csv").open(newline="") as file:
        assert {row["submission"] for row in csv.DictReader(file)} >= {
            row["submission"] for row in expected
        }


def test_the_exported_page_escapes_what_submitters_wrote(tmp_path: Path) -> None:
    attack = "<script>alert(1)</script><a href='javascript:alert(1)'>x</a>"
    home = make_store(tmp_path / "home", [Entry(attack, attack, suite="demo")])
    with duckdb.connect(str(home.current.resolve()), read_only=True) as connection:
        export(connection, tmp_path / "out")
    source = (tmp_path / "out/index.html").read_text()
    page = Page(source)
    assert "script" not in page.tags
    assert not [link for link in page.links if link.startswith("javascript")]
    assert "&lt;script&gt;" in source


def test_an_export_never_writes_over_anything(full: Home, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("keep")
    with (
        duckdb.connect(str(full.current.resolve()), read_only=True) as connection,
        pytest.raises(UserError, match="not an empty folder"),
    ):
        export(connection, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_figures_of_others_are_complete() -> None:
    found = json.loads((ROOT / "leaderboard/published.json").read_text())["publications"]
    for publication in found:
        texts = ("title", "source", "hardware", "protocol", "baseline")
        assert all(publication[name] for name in texts)
        assert publication["contradictions"]
        for row in publication["results"]:
            assert 0 <= row["accuracy_percent"] <= 100
            assert row["hardware"]
            assert row["speedup"] is None or row["speedup"] > 0
    (first,) = (p for p in found if p["title"] == "KernelGenBench")
    assert len(first["results"]) == 174
