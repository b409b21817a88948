"""Every page over every kind of store: it says something useful, and never breaks."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest
from stores import default_entries, make_store, submission_id
from streamlit.testing.v1 import AppTest

from kernelmark.submissions.home import Home

APP = Path(__file__).parents[2] / "leaderboard" / "app.py"
VIEWS = sorted(p.stem for p in (APP.parent / "views").glob("*.py") if p.stem != "__init__")
#: what does not depend on results
FIXED = {"published", "submit"}
SECTIONS = {
    "entry": ("part", ["Operators", "One operator", "Tokens", "Portability", "Provenance"]),
    "operators": ("view", ["Map", "Table"]),
    "operator": ("view", ["Who solved it", "Speed by case", "Failures", "Cases"]),
    "chips": ("view", ["Methods", "Operators", "Failures", "Compile targets"]),
    "failures": ("by", ["method", "source", "family", "chip"]),
    "published": ("table", ["by source", "ATen by chip", "cost"]),
    "about": ("part", ["How it is computed", "Download", "Changelog"]),
    "cost": ("cost", ["tokens", "dollars", "time"]),
}
ADDRESSES = [(view, {}) for view in VIEWS] + [
    (view, {name: value}) for view, (name, values) in SECTIONS.items() for value in values
]
EVIDENCE = ["Source", "Verdict", "Correctness", "Timing", "Portability", "Ledger", "Attempts"]


@pytest.fixture(autouse=True)
def own_main(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streamlit leaves the app as `__main__`, which processes that later tests spawn would run."""
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])


def open_page(page: str, plain: bool = False, **parameters: Any) -> AppTest:
    """Runs the app on a page; an exception in it fails the test."""
    app = AppTest.from_file(str(APP), default_timeout=120)
    if page != "board":
        app.switch_page(f"views/{page}.py")
    for name, value in parameters.items():
        app.query_params[name] = value
    if plain:
        app.query_params["plain"] = "1"
    app.run()
    assert not app.exception, app.exception
    return app


def words(app: AppTest) -> str:
    """All text on the page."""
    kinds = ("title", "subheader", "text", "markdown", "caption", "info", "warning", "error")
    found = [element.value for kind in kinds for element in app.get(kind)]
    found += [block.value for block in app.get("code")]
    return "\n".join([*found, *(html.proto.body for html in app.get("html"))])


@pytest.mark.parametrize(("view", "parameters"), ADDRESSES, ids=str)
@pytest.mark.parametrize("plain", [False, True], ids=["grid", "plain"])
def test_every_page_over_a_full_store(
    use: Any, full: Home, view: str, parameters: dict[str, str], plain: bool
) -> None:
    use(full)
    app = open_page(view, plain, **parameters)
    shown = len(app.dataframe) + len(app.get("html"))
    assert shown or view in ("submit", "about", "entry", "operators"), "no table"
    assert len(words(app)) > 20


@pytest.mark.parametrize(("view", "parameters"), ADDRESSES, ids=str)
@pytest.mark.slow
def test_every_page_over_one_entry_that_nobody_metered(
    use: Any, single: Home, view: str, parameters: dict[str, str]
) -> None:
    use(single)
    assert len(words(open_page(view, **parameters))) > 20


@pytest.mark.parametrize(("view", "parameters"), ADDRESSES, ids=str)
def test_every_page_over_a_store_without_entries(
    use: Any, nothing: Home, view: str, parameters: dict[str, str]
) -> None:
    use(nothing)
    said = words(open_page(view, **parameters))
    if view not in FIXED | {"about", "operator"}:
        assert "kernelmark submit" in said


@pytest.mark.parametrize("view", VIEWS)
def test_every_page_without_a_database_says_how_to_begin(
    use: Any, tmp_path: Path, view: str
) -> None:
    use(tmp_path)
    said = words(open_page(view))
    if view not in FIXED:
        assert "kernelmark ingest" in said


@pytest.mark.parametrize("what", EVIDENCE)
@pytest.mark.parametrize("number", [0, 6, 13], ids=["metered", "unmetered", "interpreted"])
def test_every_piece_of_evidence(use: Any, full: Home, what: str, number: int) -> None:
    use(full)
    app = open_page(
        "entry", submission=submission_id(number), part="One operator", operator="aten::sort",
        evidence=what,
    )  # fmt: skip
    assert "aten::sort" in [box.value for box in app.selectbox]
    assert app.dataframe or app.code or app.info


def test_what_the_url_says_is_what_is_shown(use: Any, full: Home) -> None:
    use(full)
    app = open_page("board", suite="demo", chip="amd (AMD Instinct MI300X)", kind="human")
    assert [box.value for box in app.selectbox] == ["demo", "amd (AMD Instinct MI300X)"]
    assert list(app.dataframe[0].value["method"]) == ["reference"]


@pytest.mark.parametrize("view", VIEWS)
def test_nonsense_in_the_url_is_ignored(use: Any, full: Home, view: str) -> None:
    use(full)
    bad = "<script>alert(1)</script>"
    names = ("suite", "chip", "submission", "operator", "part", "view", "by", "kind", "entries")
    open_page(view, **dict.fromkeys([*names, "tokens", "since", "first", "second", "case"], bad))


def test_the_url_says_what_was_shown_by_default(use: Any, full: Home) -> None:
    use(full)
    app = open_page("cost")
    assert dict(app.query_params) == {
        "suite": "core",
        "chip": "nvidia (NVIDIA H200)",
    }


def test_a_choice_goes_to_the_url_and_nothing_chosen_leaves_it(use: Any, full: Home) -> None:
    use(full)
    app = open_page("board")
    app.multiselect(key="url-kind").set_value(["human"]).run()
    assert app.query_params["kind"] == "human"
    app.multiselect(key="url-kind").set_value([]).run()
    assert "kind" not in app.query_params


def test_suite_and_chip_go_along_to_the_next_page(use: Any, full: Home) -> None:
    use(full)
    app = open_page("board", suite="demo", chip="amd (AMD Instinct MI300X)")
    app.query_params.clear()
    app.switch_page("views/cost.py").run()
    assert [box.value for box in app.selectbox] == ["demo", "amd (AMD Instinct MI300X)"]


@pytest.mark.parametrize("view", ["board", "entry", "chips"])
def test_a_database_that_is_replaced_is_shown_without_a_restart(
    use: Any, tmp_path: Path, view: str
) -> None:
    entries = default_entries()
    use(make_store(tmp_path, entries[:2]))
    app = open_page(view)
    before = words(app), app.dataframe[0].value.to_csv()
    old = (tmp_path / "current.duckdb").resolve()
    make_store(tmp_path, entries[3:9])
    old.unlink()
    app.run()
    assert not app.exception
    assert (words(app), app.dataframe[0].value.to_csv()) != before


def test_a_database_of_another_version_says_so(use: Any, tmp_path: Path) -> None:
    use(make_store(tmp_path, default_entries()[:2]))
    path = (tmp_path / "current.duckdb").resolve()
    with duckdb.connect(str(path)) as connection:
        connection.execute("DROP VIEW v_rank; UPDATE build SET code_sha256 = 'older'")
    assert "kernelmark ingest" in words(open_page("board"))


def test_a_database_that_is_broken_by_us_is_not_called_old(use: Any, tmp_path: Path) -> None:
    use(make_store(tmp_path, default_entries()[:2]))
    path = (tmp_path / "current.duckdb").resolve()
    with duckdb.connect(str(path)) as connection:
        connection.execute("DROP VIEW v_rank")
    app = AppTest.from_file(str(APP), default_timeout=60).run()
    assert app.exception


def test_a_file_that_is_no_database_is_waited_for(use: Any, tmp_path: Path) -> None:
    (tmp_path / "current.duckdb").write_bytes(b"half a database")
    use(tmp_path)
    assert "Reload" in words(open_page("board"))
