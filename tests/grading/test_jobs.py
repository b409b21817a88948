"""A job folder goes in, verdicts come out: whole, once each, in a process of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from judging import KERNEL

from kernelmark.evaluators.grading.records import Candidate, Verdict, from_json

ROOT = Path(__file__).resolve().parents[2]
RIGHT = (
    KERNEL.replace("v * 2", "-v")
    + """
def neg(self):
    x = self.contiguous()
    return launch(x, torch.empty_like(x))
"""
)
WRONG = RIGHT.replace("-v", "v")
HANGS = RIGHT.replace("tl.store(", "while True: pass\n    tl.store(")


def job_folder(path: Path, **more) -> list[Candidate]:
    candidates = [Candidate("aten::neg", source) for source in (RIGHT, WRONG)]
    items = []
    (path / "candidates").mkdir(parents=True)
    for candidate in candidates:
        file = f"candidates/{candidate.id}.py"
        (path / file).write_text(candidate.source)
        items.append({"operator": candidate.operator, "candidate": candidate.id, "file": file})
    job = {
        "chip": "interpreter",
        "tier": "small",
        "candidates": items,
        "settings": {"cases": ["int64", "rows-float32"], "timeout_s": 20},
    }
    (path / "job.json").write_text(json.dumps(job | more))
    return candidates


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "kernelmark.evaluators.grading", *map(str, words)]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT / ".typing")}


def run(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*words), capture_output=True, text=True, env=environment(), check=False
    )


def test_every_candidate_gets_a_verdict_once(tmp_path):
    right, wrong = job_folder(tmp_path / "job")
    done = run(tmp_path / "job", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    verdicts = {
        v.candidate: v.status
        for path in (tmp_path / "out/verdicts").iterdir()
        for v in [from_json(Verdict, json.loads(path.read_text()))]
    }
    assert verdicts == {right.id: "passed", wrong.id: "wrong_values"}
    *lines, summary = done.stdout.splitlines()
    assert (len(lines), json.loads(summary)["grades"]) == (2, 2)
    (tmp_path / f"out/verdicts/aten.neg.{wrong.id[:16]}.json").unlink()
    again = run(tmp_path / "job", tmp_path / "out")
    *lines, summary = again.stdout.splitlines()
    assert sorted(line.endswith("has a verdict") for line in lines) == [False, True]
    assert json.loads(summary)["grades"] == 1


def test_interrupted_it_stops_and_leaves_nothing_behind(tmp_path):
    job_folder(tmp_path / "job", settings={"cases": ["int64"], "timeout_s": 60})
    candidate = Candidate("aten::neg", HANGS)
    (tmp_path / "job/hangs.py").write_text(HANGS)
    job = json.loads((tmp_path / "job/job.json").read_text())
    job["candidates"] = [{"operator": candidate.operator, "file": "hangs.py"}]
    (tmp_path / "job/job.json").write_text(json.dumps(job))
    process = subprocess.Popen(
        command(tmp_path / "job", tmp_path / "out"),
        env=environment() | {"CUDA_JOB_MARK": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    steady = 0
    while steady < 10 and process.poll() is None:  # itself, judge, server and runner, for a while
        works = (tmp_path / "out/verdicts").exists() and len(marked(str(tmp_path))) >= 4
        steady = steady + 1 if works else 0
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 130, errors
    assert "interrupted" in errors
    assert "Traceback" not in errors
    assert not list((tmp_path / "out/verdicts").iterdir())
    assert not marked(str(tmp_path))


def marked(mark: str) -> list[str]:
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and mark.encode() in (folder / "environ").read_bytes():
                found.append(folder.name)
        except OSError:
            continue
    return found


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"chip": "interpretr"}, "interpreter"),
        ({"surprise": 1}, "may hold"),
        ({"settings": {"timeout": 3}}, "timeout"),
        ({"candidates": [{"operator": "aten::neg", "file": "../outside.py"}]}, "outside"),
        ({"candidates": [{"operator": "aten::neg", "file": "missing.py"}]}, "missing.py"),
        ({"candidates": [{"file": "x.py"}]}, "operator"),
    ],
)
def test_a_job_that_cannot_be_read_is_one_line_and_status_2(tmp_path, change, words):
    job_folder(tmp_path / "job", **change)
    (tmp_path / "outside.py").write_text(RIGHT)
    (tmp_path / "job/x.py").write_text(RIGHT)
    done = run(tmp_path / "job", tmp_path / "out")
    assert done.returncode == 2
    assert words in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
