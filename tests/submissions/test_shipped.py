"""The submissions that ship are whole, and of today's operators: a newcomer's board shows them."""

from __future__ import annotations

from pathlib import Path

from kernelmark.submissions.board import build, open_board
from kernelmark.submissions.catalogue import current_catalogue
from kernelmark.submissions.home import Home
from kernelmark.submissions.ingest import ingest
from kernelmark.submissions.shipped import FOLDER, deliver_shipped


def test_what_ships_is_accepted_and_stands_on_the_board(tmp_path: Path) -> None:
    home = Home(tmp_path)
    count = deliver_shipped(home)
    assert count == len(list(FOLDER.glob("*.zip"))) > 0
    results = ingest(home, current_catalogue())
    assert [result.problems for result in results if not result.accepted] == []
    assert deliver_shipped(home) == 0
    build(home)
    with open_board(home) as connection:
        rows = connection.execute(
            "SELECT count(*) FROM verdicts WHERE chip = 'nvidia' AND status = 'passed'"
        ).fetchone()
    assert rows is not None
    assert rows[0] >= 24
