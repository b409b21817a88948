"""The page of a season: what is committed is what the bundles give, and it tells what they hold."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from run_making import Entry, Result, make_run
from typer.testing import CliRunner

from kernelmark.benchmark.cli import app
from kernelmark.benchmark.errors import UserError
from kernelmark.benchmark.season.markdown import escaped, filled, listed, share, table
from kernelmark.benchmark.season.page import Page, render
from kernelmark.benchmark.suites import DEMO
from kernelmark.evaluators.campaigns.folder import RunFolder
from kernelmark.evaluators.campaigns.records import Attempt, Production
from kernelmark.submissions.board import build, open_board
from kernelmark.submissions.bundle import Disclosure
from kernelmark.submissions.catalogue import current_catalogue
from kernelmark.submissions.home import Home
from kernelmark.submissions.inbox import deliver
from kernelmark.submissions.ingest import ingest

DOCS = Path(__file__).parents[2] / "docs"
NAME = "season-1"


def test_the_committed_page_is_what_the_shipped_bundles_give(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["season", str(tmp_path / f"{NAME}.md")])
    assert done.exit_code == 0, done.output
    made = {path.name: path.read_text() for path in tmp_path.iterdir()}
    committed = {path.name: path.read_text() for path in DOCS.glob(f"{NAME}*")}
    assert committed == made, f"make it again: kernelmark season docs/{NAME}.md"
    linked = set(re.findall(rf"\(({NAME}[^)]*\.svg)\)", made[f"{NAME}.md"]))
    assert linked == set(made) - {f"{NAME}.md"}


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["page.txt"], "name it .md"),
        (["missing/page.md"], "is no folder"),
        (["page.md", "--bundles", "."], "holds no bundle"),
    ],
)
def test_what_cannot_be_written_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], why: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["season", *words])
    assert isinstance(done.exception, UserError)
    assert why in str(done.exception)
    assert not list(tmp_path.iterdir())


def test_a_bundle_that_is_refused_is_named(tmp_path: Path) -> None:
    (tmp_path / f"{'0' * 64}.zip").write_bytes(b"PK")
    done = CliRunner().invoke(app, ["season", str(tmp_path / "p.md"), "--bundles", str(tmp_path)])
    assert isinstance(done.exception, UserError)
    assert "is refused" in str(done.exception)


def speeds(*values: float | None) -> dict[str, tuple[Result, ...]]:
    """A result for each operator of the suite demo: a speedup; None: nothing handed in."""
    return {
        operator: (Result("no_candidate") if s is None else Result(speedups=(s, s)),)
        for operator, s in zip(DEMO, values, strict=True)
    }


def page_of(tmp_path: Path, *runs: RunFolder) -> Page:
    home = Home(tmp_path / "home")
    for run in runs:
        deliver(home, run, Disclosure(submitter="tester", notes="one | two"))
    assert all(result.accepted for result in ingest(home, current_catalogue(), processes=1))
    build(home)
    with open_board(home) as connection:
        return render(connection, "page")


def cells(text: str, first: str) -> list[str]:
    """The cells of the one line of a table that begins with `first`."""
    (line,) = [line for line in text.splitlines() if line.startswith(f"| {first} |")]
    return [cell.strip() for cell in line.strip("|").split("|")]


def section(text: str, title: str) -> str:
    return text.split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Page:
    """Three entries, over the 8 operators of the suite demo."""
    tmp_path = tmp_path_factory.mktemp("season")
    hand = speeds(2.0, 1.0, 1.5, 1.01, 0.5, None, 1.2, None)
    hand[DEMO[7]] = (Result("wrong_values"),)
    compiled = speeds(1.5, 1.3, 1.51, 1.0, 0.4, 3.0, 1.5, None)
    eager = speeds(1.0, 1.01, 0.99, 1.0, 1.03, 0.9, 1.0, 1.0)
    run = make_run(tmp_path / "compiled", Entry(compiled, "torch-compile", kind="compiler"))
    why = Attempt(
        DEMO[7], 1, failure="no_candidate", note=f"cannot trace {DEMO[7]} <b>|", seconds=1
    )
    run.record(Production(DEMO[7], (why,), complete=True))
    return page_of(
        tmp_path,
        make_run(tmp_path / "hand", Entry(hand, "reference")),
        run,
        make_run(tmp_path / "eager", Entry(eager, "torch-eager", kind="library")),
    )


def test_each_operator_has_one_winner(page: Page) -> None:
    found = section(page.text, "Who wins where")
    head = cells(found, "family | operators")
    row = dict(zip(head, cells(found, "all"), strict=True))
    # 2.0 to 1.5; 1.3, 3.0 and 1.5 to less; 1.51 to 1.5 is too close; 1.01 is level; 0.5 is lost.
    assert row == {
        "family": "all",
        "operators": "8",
        "`reference`": "1",
        "`torch-compile`": "3",
        "several entries": "1",
        "level": "1",
        "the baseline": "1",
        "unsolved": "1",
    }
    assert "Of 8 operators: 5 where an entry is faster than the baseline, 1 where the best is" in (
        " ".join(page.text.split())
    )


def test_speedups_are_geometric_means_over_what_is_solved(page: Page) -> None:
    found = section(page.text, "Who wins where")
    assert "| cublas: blas1 | – | 1.00 (1) | – |" in found
    by_source = dict(zip(cells(found, "source"), cells(found, "aten"), strict=True))
    assert by_source["`reference`"] == f"5 at {(2.0 * 1.5 * 1.01 * 0.5) ** (1 / 5):.2f}x"


def test_compiled_and_written_by_hand_are_paired(page: Page) -> None:
    found = section(page.text, "Compiled or written by hand")
    # Both solve 6; ratios 0.75, 1.3, 1.007, 0.99, 0.8, 1.25.
    ratio = (0.75 * 1.3 * (1.51 / 1.5) * (1 / 1.01) * 0.8 * 1.25) ** (1 / 6)
    assert cells(found, "all") == ["all", "6", "2", "2", "2", f"{ratio:.2f}"]
    assert "solved by `torch-compile` alone: 1; by `reference` alone: 0; by neither: 1." in (
        " ".join(found.split())
    )


def test_what_is_missing_and_what_fails_are_told_apart(page: Page) -> None:
    covered = section(page.text, "Coverage")
    assert "| `torch-compile` | 7 | 88% |" in covered
    assert f"cannot trace it \\<b\\>\\| | `{DEMO[7]}`" in covered
    failed = section(page.text, "What fails, and why")
    assert cells(failed, "`reference`") == [
        "`reference`",
        f"`{DEMO[7]}`",
        "`wrong_values`",
        "made by hand",
    ]


def test_the_anchor_says_how_far_the_clock_strays(page: Page) -> None:
    found = " ".join(section(page.text, "How far can the clock be trusted").split())
    assert "Over 8 operators it is" in found
    assert "within 2% of 1 for 6 of them and within 5% for 7" in found
    assert f"from 0.900 (`{DEMO[5]}`) to 1.030 (`{DEMO[4]}`)" in found


def test_places_are_shares_of_the_draws(page: Page) -> None:
    found = section(page.text, "How stable are the ranks").split("Two entries get")[0]
    shares = [float(c.rstrip("%")) for c in cells(found, "`torch-compile`")[2:5]]
    assert sum(shares) == pytest.approx(100, abs=1.5)


def test_commands_and_notes_are_told(page: Page) -> None:
    found = section(page.text, "Where each entry comes from")
    assert "kernelmark run --method torch-compile --suite demo --chip nvidia,sm_90" in found
    assert "notes: one \\| two" in found


def test_one_entry_alone_leaves_out_what_compares(tmp_path: Path) -> None:
    hand = Entry(speeds(2.0, 1.0, 1.5, 1.01, 0.5, 1.0, 1.2, 1.0), "reference")
    text = page_of(tmp_path, make_run(tmp_path / "hand", hand)).text
    assert "stands alone on this board yet" in text
    assert "## Compiled or written by hand" not in text
    assert "## How stable are the ranks" not in text
    assert "Every candidate that was handed in is solved." in text


def test_without_times_there_is_no_page(tmp_path: Path) -> None:
    entry = Entry(speeds(*[1.0] * 8), chip="interpreter", attests="interpreted")
    with pytest.raises(UserError, match="no entry whose times count"):
        page_of(tmp_path, make_run(tmp_path / "run", entry))


def test_the_same_bundles_give_the_same_bytes(tmp_path: Path) -> None:
    hand = Entry(speeds(2.0, 1.0, 1.5, 1.01, 0.5, 1.0, 1.2, 1.0), "reference")
    runs = [make_run(tmp_path / "r1", hand), make_run(tmp_path / "r2", replace(hand, method="b"))]
    assert page_of(tmp_path / "a", *runs) == page_of(tmp_path / "b", *reversed(runs))


def test_words() -> None:
    assert listed(["a"]) == "a"
    assert listed(["a", "b", "c"]) == "a, b and c"
    assert escaped("a\n*b* |\x1b[0m") == "a \\*b\\* \\| \\[0m"
    assert share(0.034) == "3.4%"
    assert share(0.34) == "34%"
    assert table({"a": "x", "b": "y:"}, [{"a": "1", "b": 2000}]) == (
        "| x | y |\n|---|---:|\n| 1 | 2,000 |"
    )
    assert filled("- a b\n  c\n- d", 5) == "- a b\n  c\n- d"
    assert filled("| a |  b |", 5) == "| a |  b |"
