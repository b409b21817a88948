"""Submissions, wherever they stand: on the board, waiting in the inbox, refused."""

from __future__ import annotations

from typing import Any

from kernelmark.evaluators.campaigns.files import read_json
from kernelmark.submissions.board import open_board
from kernelmark.submissions.bundle import MANIFEST
from kernelmark.submissions.home import Home
from kernelmark.submissions.inbox import waiting

_QUERY = """
SELECT s.submission, 'accepted' AS state, s.method, s.model, s.suite, s.chip, t.trust,
    s.complete, s.submitter, s.created_at
FROM submissions AS s JOIN v_trust AS t USING (submission)
ORDER BY s.created_at, s.submission
"""


def list_submissions(home: Home) -> list[dict[str, Any]]:
    """One row a submission; those not yet on the board tell what their manifest says."""
    rows: list[dict[str, Any]] = []
    if home.current.exists():
        with open_board(home) as connection:
            result = connection.execute(_QUERY)
            names = [column[0] for column in result.description]
            rows = [dict(zip(names, row, strict=True)) for row in result.fetchall()]
    rows += [_waiting_row(path.name, path / MANIFEST) for path in waiting(home)]
    refused = home.rejected.glob("*.problems.json") if home.rejected.exists() else ()
    for path in sorted(refused):
        name = path.name.removesuffix(".problems.json")
        rows.append({**_empty(name), "state": "refused", "problems": read_json(path)})
    return rows


def _waiting_row(name: str, manifest: Any) -> dict[str, Any]:
    row = {**_empty(name), "state": "waiting"}
    if not manifest.is_file():
        return row
    data = read_json(manifest)
    run = data.get("run", {}) if isinstance(data, dict) else {}
    told = {
        key: run[key] for key in ("method", "model", "suite", "chip", "created_at") if key in run
    }
    return {**row, **told}


def _empty(name: str) -> dict[str, Any]:
    keys = ("method", "model", "suite", "chip", "trust", "complete", "submitter", "created_at")
    return {"submission": name, **dict.fromkeys(keys)}
