"""Measures the app over a large store: the first board of a warm server, and every interaction.

    python tests/scale/generate.py HOME --scale large
    python tests/scale/interactions.py HOME

An interaction is a choice, a filter or a link; what is measured is the time from the request to the
page run again, in the process that serves it, without the browser's drawing. Each is measured where
nothing of it has been asked before (cold) and again (warm). Prints medians and the slowest; and
processor time, which no clock on an idle machine exceeds.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import duckdb
from streamlit.testing.v1 import AppTest

APP = Path(__file__).parents[2] / "leaderboard" / "app.py"
LIMIT_FIRST_S, LIMIT_MEDIAN_S = 2.0, 0.5

#: page and parameters; ``{name}`` is filled from the store
STEPS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("board", {}),
    ("board", {"kind": "agent"}),
    ("board", {"source": "vllm"}),
    ("board", {"source": "aten", "tokens": "100000"}),
    ("board", {"chip": "{chip}"}),
    ("board", {"plain": "1"}),
    ("cost", {}),
    ("cost", {"cost": "dollars"}),
    ("speed", {}),
    ("compare", {}),
    ("compare", {"first": "{other}"}),
    ("operators", {}),
    ("operators", {"source": "cublas"}),
    ("operators", {"view": "Table"}),
    ("operator", {"operator": "{operator}"}),
    ("operator", {"operator": "{operator}", "view": "Speed by case"}),
    ("operator", {"operator": "{operator}", "view": "Failures"}),
    ("operator", {"operator": "{operator}", "view": "Cases"}),
    ("entry", {"submission": "{submission}"}),
    ("entry", {"submission": "{submission}", "part": "Tokens"}),
    ("entry", {"submission": "{submission}", "part": "Portability"}),
    ("entry", {"submission": "{submission}", "part": "Provenance"}),
    *(
        ("entry", {"submission": "{submission}", "part": "One operator", "operator": "{operator}",
                   "evidence": evidence})
        for evidence in ("Source", "Verdict", "Correctness", "Timing", "Portability", "Ledger",
                         "Attempts")
    ),
    ("chips", {}),
    ("chips", {"view": "Operators"}),
    ("chips", {"view": "Failures"}),
    ("chips", {"view": "Compile targets"}),
    ("failures", {}),
    ("failures", {"by": "family"}),
    ("about", {"part": "Download"}),
)  # fmt: skip


def measure(app: AppTest, page: str, parameters: dict[str, Any]) -> tuple[float, float, float]:
    """Seconds of the page's run, cold and again, and of processor time, cold.

    An exception on the page ends everything.
    """
    app.query_params.clear()
    app.switch_page(f"views/{page}.py")
    for name, value in parameters.items():
        app.query_params[name] = value
    seconds = []
    cpu = time.process_time()
    for _ in range(2):
        start = time.perf_counter()
        app.run()
        seconds.append(time.perf_counter() - start)
        if len(seconds) == 1:
            cpu = time.process_time() - cpu
        if app.exception:
            raise RuntimeError(f"{page} {parameters}: {app.exception[0].message}")
    return seconds[0], seconds[1], cpu


def names(home: Path) -> dict[str, str]:
    """What stands for the placeholders of `STEPS`."""
    with duckdb.connect(str((home / "current.duckdb").resolve()), read_only=True) as connection:
        chip = connection.execute(
            "SELECT chip, sku FROM v_standing ORDER BY ALL LIMIT 1"
        ).fetchone()
        found = connection.execute(
            "SELECT submission, operator FROM v_result WHERE status = 'passed' "
            "ORDER BY hash(submission || operator) LIMIT 2"
        ).fetchall()
        counts = connection.execute(
            "SELECT (SELECT count(*) FROM verdicts), (SELECT sum(len(device_us)) FROM samples)"
        ).fetchone()
    assert chip is not None
    assert counts is not None
    sys.stdout.write(f"{counts[0]:,} verdicts, {counts[1]:,} samples\n")
    (submission, operator), (other, _) = found
    return {
        "chip": f"{chip[0]} ({chip[1]})", "submission": submission, "operator": operator,
        "other": other,
    }  # fmt: skip


def main() -> None:
    """Reads the command line; exit status 1 where a limit is not kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("home", type=Path)
    options = parser.parse_args()
    home = options.home.absolute()
    os.environ["KERNELMARK_HOME"] = str(home)
    known = names(home)
    app = AppTest.from_file(str(APP), default_timeout=300)
    measure(app, "submit", {})  # the server is warm: its modules are loaded
    rows = []
    for page, parameters in STEPS:
        filled = {name: str(value).format(**known) for name, value in parameters.items()}
        rows.append((page, parameters, *measure(app, page, filled)))
        sys.stdout.write(
            f"{page:10} {parameters!s:100.100} {rows[-1][2]:6.2f} {rows[-1][3]:6.2f}\n"
        )
    first, first_cpu = rows[0][2], rows[0][4]
    cold, warm, cpu = (statistics.median(row[i] for row in rows) for i in (2, 3, 4))
    sys.stdout.write(
        f"first board {first:.2f} s; median of {len(rows)} interactions {cold:.2f} s cold, "
        f"{warm:.2f} s warm; slowest {max(row[2] for row in rows):.2f} s\n"
        f"processor time: first board {first_cpu:.2f} s; median {cpu:.2f} s\n"
    )
    sys.exit(first > LIMIT_FIRST_S or cold > LIMIT_MEDIAN_S)


if __name__ == "__main__":
    main()
