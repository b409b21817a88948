"""What the pages show, as data frames: the views of the built database, nothing computed here.

A connection is opened read-only and kept as long as the link `current.duckdb` points to the same
file; each query runs on a cursor of its own, since a connection must not be shared by threads.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd

BOARD = """
SELECT * FROM v_rank
WHERE latest AND suite = $suite AND chip = $chip AND sku = $sku
  AND suite_digest = (SELECT suite_digest FROM v_rank
      WHERE suite = $suite AND chip = $chip AND sku = $sku
      ORDER BY current_suite DESC, created_at DESC LIMIT 1)
"""
BOARDS = """
SELECT suite, chip, sku, count(*) AS entries,
       bool_or(declared) AS declared, max(operators) AS operators
FROM v_rank WHERE latest GROUP BY suite, chip, sku
ORDER BY bool_or(declared) DESC, min(measure), max(operators) DESC, count(*) DESC, suite, chip
"""
CELLS = """
SELECT c.*, r.method, r.model, r.kind AS method_kind, r.chip, r.sku
FROM v_cell AS c JOIN v_rank AS r USING (submission, suite, suite_digest)
WHERE r.latest AND c.suite = $suite AND r.chip = $chip AND r.sku = $sku
"""
OPERATOR = "SELECT * FROM v_operator WHERE operator = $operator"
OPERATORS = "SELECT operator FROM v_operator ORDER BY operator"
OPERATOR_RESULTS = """
SELECT s.method, s.model, s.kind, d.chip, d.sku, r.status, r.speedup, r.roofline, r.device_us,
       r.baseline_us, r.baseline, r.attempts, r.message, r.submission, t.trust
FROM v_result AS r JOIN submissions AS s USING (submission) JOIN v_device AS d USING (submission)
JOIN v_trust AS t USING (submission)
WHERE r.operator = $operator
ORDER BY d.chip, r.status = 'passed' DESC, r.speedup DESC NULLS LAST, s.method
"""
OPERATOR_TIMINGS = """
SELECT s.method, s.model, d.sku, t."case", t.device_us, t.baseline_us, t.speedup, t.speedup_low,
       t.speedup_high, t.roofline, t.latency_us, t.baseline_latency_us, t.clock
FROM timings AS t JOIN submissions AS s USING (submission) JOIN v_device AS d USING (submission)
JOIN v_result AS r USING (submission, operator, candidate)
WHERE t.operator = $operator AND r.status = 'passed'
ORDER BY t."case", t.speedup DESC
"""
ENTRIES = """
SELECT DISTINCT submission, method, model, chip, sku, run, created_at FROM v_standing
ORDER BY created_at DESC, submission
"""
ENTRY = "SELECT * FROM v_rank WHERE submission = $submission ORDER BY declared DESC, suite"
SUBMISSION = "SELECT * FROM submissions WHERE submission = $submission"
ENTRY_CELLS = """
SELECT * FROM v_cell WHERE submission = $submission AND suite = $suite ORDER BY operator
"""
VERDICT = """
SELECT * FROM verdicts WHERE submission = $submission AND operator = $operator
  AND candidate = $candidate
"""
SOURCE = """
SELECT source, language, entry FROM candidates WHERE submission = $submission
  AND operator = $operator AND candidate = $candidate
"""
COMPARISONS = """
SELECT "case", draw, result, status, max_error, p999_error, error_limit, bad, total, worst_index,
       got, expected, detail
FROM comparisons WHERE submission = $submission AND operator = $operator
  AND candidate = $candidate
ORDER BY status = 'passed', max_error DESC NULLS LAST
"""
TIMINGS = """
SELECT * EXCLUDE (submission, operator, candidate) FROM timings
WHERE submission = $submission AND operator = $operator AND candidate = $candidate
ORDER BY "case"
"""
PORTABILITY = """
SELECT target, status, error, occupancy, matrix_instructions, kernels FROM portability
WHERE submission = $submission AND operator = $operator AND candidate = $candidate
ORDER BY target
"""
USAGE = "SELECT * FROM v_usage WHERE submission = $submission ORDER BY operator"
BUILD = "SELECT * FROM build"


def database_path() -> Path:
    """The link to the current database."""
    root = os.environ.get("KERNELMARK_HOME") or "~/.kernelmark"
    return Path(root).expanduser() / "current.duckdb"


class Board:
    """One built database, read-only."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connection = duckdb.connect(str(path), read_only=True)

    def frame(self, query: str, **parameters: Any) -> pd.DataFrame:
        """Rows of a query of this module."""
        return self._connection.cursor().execute(query, parameters or None).df()
