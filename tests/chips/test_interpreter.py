"""Triton's interpreter as the chip `interpreter` sets it up, in a process of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kernelmark.evaluators.chips.registry import get_chip

PROGRAM = Path(__file__).with_name("interpreted.py")
CHECKS = re.findall(r"^def (check_\w+)", PROGRAM.read_text(), re.MULTILINE)


@pytest.fixture(scope="module")
def results() -> dict[str, str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    get_chip("interpreter").prepare(environment, 0)
    done = subprocess.run(
        [sys.executable, str(PROGRAM)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("check", CHECKS)
def test_check(check: str, results: dict[str, str]) -> None:
    assert results[check] == ""


def test_activating_an_unprepared_process_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(RuntimeError, match="TRITON_INTERPRET=1 must be set"):
        get_chip("interpreter").activate()


def test_it_is_never_timed() -> None:
    chip = get_chip("interpreter")
    assert chip.timer() is None
    assert chip.peaks("CPU") is None
    assert chip.flush_bytes("CPU") == 0
    memory = chip.memory()
    assert memory is not None
    assert 0 < memory.free_bytes <= memory.total_bytes
