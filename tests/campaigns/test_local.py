"""A run on a machine with several accelerators: each grades one candidate at a time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelmark.benchmark.errors import UserError
from kernelmark.evaluators.campaigns import running
from kernelmark.evaluators.campaigns.access import Access
from kernelmark.evaluators.campaigns.executors.local import LocalExecutor
from kernelmark.evaluators.chips.registry import all_chips, get_chip
from kernelmark.evaluators.grading import devices

GRADING = Path(__file__).resolve().parents[1] / "grading"
OPERATORS = ("aten::add", "aten::silu", "aten::softmax", "aten::sum")


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Four simulated accelerators, which no other test has; what stands on PYTHONPATH for them."""
    monkeypatch.syspath_prepend(str(GRADING))
    from simulated_chip import VARIABLE, install

    path = install(tmp_path / "site")
    for entry in path.split(os.pathsep):
        monkeypatch.syspath_prepend(entry)
    monkeypatch.setenv(VARIABLE, ",".join(f"{tmp_path.name}-{n}" for n in range(4)))
    all_chips.cache_clear()
    yield path
    devices.release_all()
    all_chips.cache_clear()


def test_a_run_uses_the_accelerators_that_are_named(tmp_path: Path) -> None:
    request = running.Request(
        method="reference", suite="demo", chips=("simulated",), operators=OPERATORS, tier="small"
    )
    folder = running.begin(request, tmp_path / "run", tmp_path)
    running.carry_out(folder, Access("", "", ""), 1, place=running.Place(devices="1,3"))
    verdicts = [folder.verdict(a.operator, a.candidate) for a in folder.attempts()]
    assert [v.status for v in verdicts if v] == ["passed"] * len(OPERATORS)
    chip = get_chip("simulated")
    named = {devices.label(devices.identity(chip, number)) for number in (1, 3)}
    assert {v.environment["accelerator"] for v in verdicts if v} == named


def test_an_accelerator_that_is_not_there_is_one_line() -> None:
    with pytest.raises(UserError, match="no number 4"):
        LocalExecutor(get_chip("simulated"), "4")


def test_ctrl_c_ends_every_judge(tmp_path: Path, machine: str) -> None:
    words = ["run", "--method", "reference", "--suite", "demo", "--chip", "simulated", "--tier"]
    command = [sys.executable, "-m", "kernelmark.benchmark.cli", *words, "small"]
    command += ["--out", str(tmp_path / "run"), "--devices", "0,1"]
    path = os.pathsep.join([machine, os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "CUDA_RUN_MARK": str(tmp_path)}
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 200
    while not list(tmp_path.glob("run/verdicts/*.json")) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(marked(str(tmp_path))) >= 5  # itself, two judges and their servers
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    assert "--resume" in errors
    assert not marked(str(tmp_path))


def marked(mark: str) -> list[str]:
    """Processes that have the mark in their environment."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and mark.encode() in (folder / "environ").read_bytes():
                found.append(folder.name)
        except OSError:
            continue
    return found
