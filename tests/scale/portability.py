"""Measures what portability of the core suite's reference kernels takes, on this machine.

    python tests/scale/portability.py

As a run does it: one helper for each CPU, one candidate each, nine targets; first cold, then again
from the cache. Prints seconds on the clock, imports included the first time.
"""

from __future__ import annotations

import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

STARTED = time.monotonic()

from kernelmark.benchmark.suites import get_suite  # noqa: E402
from kernelmark.evaluators.campaigns.executors.local import LocalExecutor  # noqa: E402
from kernelmark.evaluators.chips.registry import compile_targets  # noqa: E402
from kernelmark.evaluators.grading.records import Candidate, Portability  # noqa: E402
from kernelmark.evaluators.methods.reference import KERNELS  # noqa: E402


def rows(cache: Path) -> list[Portability]:
    """Of every kernel of the suite."""
    targets = tuple(compile_targets())
    files = {o.id: KERNELS / o.source / f"{o.name}.py" for o in get_suite("core").operators}
    candidates = [Candidate(id, path.read_text()) for id, path in files.items() if path.exists()]
    executor = LocalExecutor(None, cache=cache)
    try:
        with ThreadPoolExecutor(executor.compilers) as pool:
            found = pool.map(lambda candidate: executor.compile(candidate, targets), candidates)
            return [row for of_candidate in found for row in of_candidate]
    finally:
        executor.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        start = STARTED
        for name in ("cold", "again"):
            made = rows(Path(folder))
            passed = sum(row.status == "passed" for row in made)
            seconds = time.monotonic() - start
            sys.stdout.write(f"{name}: {len(made)} rows, {passed} passed, {seconds:.1f} s\n")
            start = time.monotonic()
