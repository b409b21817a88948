"""The command line as a user meets it: real processes, exit statuses, one line for a mistake."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from kernelmark.benchmark.cli import main
from kernelmark.evaluators.methods.reference import KERNELS

Capture = pytest.CaptureFixture[str]

SOFTMAX = (KERNELS / "aten" / "softmax.py").read_text()
CALLS_TORCH = """import torch
import triton
import triton.language as tl


def softmax(self, dim, dtype=None):
    return torch.softmax(self, dim)
"""


def command(home: Path, *arguments: str | Path) -> tuple[list[str], dict[str, str]]:
    call = [sys.executable, "-m", "kernelmark.benchmark.cli", *map(str, arguments)]
    return call, {**os.environ, "KERNELMARK_HOME": str(home), "OMP_NUM_THREADS": "1"}


def kernelmark(home: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    call, environment = command(home, *arguments)
    return subprocess.run(call, env=environment, capture_output=True, text=True, check=False)


def here(capfd: Capture, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> tuple[int, str, str]:
    """Status, output and errors of a command in this process, which has torch already."""
    monkeypatch.setattr(sys, "argv", ["kernelmark", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    output, errors = capfd.readouterr()
    return int(ended.value.code or 0), output, errors


def check(tmp_path: Path, source: str, *more: str) -> subprocess.CompletedProcess[str]:
    file = tmp_path / "softmax.py"
    file.write_text(source)
    options = ("--op", "aten::softmax", "--chip", "interpreter", *more)
    return kernelmark(tmp_path / "home", "check", file, *options)


def test_help_answers_at_once_and_loads_nothing_heavy(tmp_path: Path) -> None:
    done = kernelmark(tmp_path, "--help")
    assert done.returncode == 0
    for name in ("check", "run", "submit", "ingest", "leaderboard", "jobs"):
        assert re.search(rf"\b{name}\b", done.stdout)
    code = "import kernelmark.benchmark.cli, sys; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    heavy = {"torch", "numpy", "pydantic", "duckdb", "pyarrow", "litellm", "aiohttp"}
    assert not heavy & set(loaded.stdout.split())


def test_a_right_kernel(tmp_path: Path) -> None:
    done = check(tmp_path, SOFTMAX)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("passed  aten::softmax on interpreter")
    for gate in ("scan", "build", "correctness", "integrity"):
        assert re.search(rf"^\s*{gate}\s+passed", done.stdout, re.MULTILINE)


def test_a_wrong_reduction(tmp_path: Path) -> None:
    wrong = SOFTMAX.replace("tl.sum(", "tl.max(")
    assert wrong != SOFTMAX
    done = check(tmp_path, wrong)
    assert done.returncode == 1
    assert done.stdout.startswith("wrong_values")
    for line in (r"case [\w-]+, draw \w+", r"worst element +\[", r"got +\S", r"expected +\S"):
        assert re.search(line, done.stdout), line
    # Which case fails first is the draws' to say; where NaN is expected the error is infinite.
    assert re.search(r"error +([\d.e+]+|inf) \(limit [\d.]+\)", done.stdout), done.stdout


def test_a_call_of_the_vendors_routine(tmp_path: Path) -> None:
    done = check(tmp_path, CALLS_TORCH)
    assert done.returncode == 1
    assert done.stdout.startswith("rejected")
    assert "line 7:" in done.stdout


def test_a_kernel_that_never_ends(tmp_path: Path) -> None:
    begin = time.monotonic()
    head = re.compile(r"(def softmax\(.*?\)[^:\n]*:\n)", re.DOTALL)
    endless = head.sub(r"\1    while True:\n        pass\n", SOFTMAX)
    assert endless != SOFTMAX
    done = check(tmp_path, endless, "--timeout-s", "3")
    assert done.returncode == 1
    assert done.stdout.startswith("timed_out")
    assert time.monotonic() - begin < 60


def test_while_true_pass(tmp_path: Path) -> None:
    begin = time.monotonic()
    done = check(tmp_path, "def softmax(*a, **k):\n    while True: pass", "--timeout-s", "3")
    assert done.returncode == 1
    assert done.stdout.startswith("timed_out")
    assert time.monotonic() - begin < 60


def test_a_grade_that_takes_too_long_in_all(tmp_path: Path) -> None:
    begin = time.monotonic()
    endless = "def softmax(*a, **k):\n    while True: pass"
    done = check(tmp_path, endless, "--timeout-s", "600", "--grade-timeout-s", "3")
    assert done.returncode == 1
    assert done.stdout.startswith("timed_out")
    assert "the grade took longer than 3 s in all" in done.stdout
    assert time.monotonic() - begin < 60


def test_a_class_as_entry_point(tmp_path: Path) -> None:
    source = SOFTMAX.replace("def softmax(", "def other(") + "\n\nclass softmax:\n    pass\n"
    done = check(tmp_path, source)
    assert done.returncode == 1
    assert done.stdout.startswith("rejected")
    assert "`softmax` is a class: the entry point is a function" in done.stdout


def test_json_is_the_verdict(tmp_path: Path) -> None:
    done = check(tmp_path, CALLS_TORCH, "--json")
    verdict = json.loads(done.stdout)
    assert verdict["status"] == "rejected"
    assert verdict["findings"][0]["line"] == 7


MISTAKES: dict[str, tuple[tuple[str, ...], str]] = {
    "missing file": (("check", "nope.py", "--op", "aten::softmax"), r"nope\.py: no such file"),
    "unknown operator": (
        ("check", "good.py", "--op", "aten::softmx"), "unknown operator.*did you mean aten::softmax"
    ),
    "unknown chip": (
        ("check", "good.py", "--op", "aten::softmax", "--chip", "nvida"), "did you mean nvidia"
    ),
    "chip that is not here": (
        ("check", "good.py", "--op", "aten::softmax", "--chip", "nvidia"), "cannot be used here"
    ),
    "compile target": (
        ("check", "good.py", "--op", "aten::softmax", "--chip", "sm_90"), "kernelmark portability"
    ),
    "unknown language": (
        ("check", "good.py", "--op", "aten::softmax", "--language", "tritn"), "did you mean triton"
    ),
    "no entry point": (
        ("check", "entry.py", "--op", "aten::softmax"), "it defines soft, other"
    ),
    "syntax error": (("check", "syntax.py", "--op", "aten::softmax"), "syntax.py:2: syntax error"),
    "not UTF-8": (("check", "latin.py", "--op", "aten::softmax"), "not UTF-8"),
    "a folder": (("check", ".", "--op", "aten::softmax"), "not a file of source text"),
    "unknown tier": (
        ("check", "good.py", "--op", "aten::softmax", "--tier", "ful"), "did you mean full"
    ),
    "no time for a grade": (
        ("check", "good.py", "--op", "aten::softmax", "--grade-timeout-s", "0"),
        "--grade-timeout-s 0: must be",
    ),
    "unknown target": (
        ("portability", "good.py", "--op", "aten::softmax", "--chip", "sm_91"), "did you mean sm_90"
    ),
    "unknown method": (("run", "--method", "referense"), "did you mean reference"),
    "no method": (("run",), "--method is missing"),
    "unknown suite": (("run", "--method", "reference", "--suite", "dem"), "did you mean demo"),
    "model missing": (("run", "--method", "one-shot"), "--model names it"),
    "model too many": (("run", "--method", "reference", "--model", "m"), "calls no model"),
    "targets alone": (
        ("run", "--method", "reference", "--chip", "sm_90"), "name a chip to grade on"
    ),
    "a chip that is not here": (
        ("run", "--method", "reference", "--chip", "interpreter,ascend"), "cannot be used here"
    ),
    "bad option": (("run", "--method", "folder", "-o", "path"), "write KEY=VALUE"),
    "foreign operator": (
        ("run", "--method", "reference", "--operators", "aten::ad"), "did you mean aten::add"
    ),
    "no run folder": (("run", "--resume", "."), "holds no run.json"),
    "submit nothing": (("submit", "."), "holds no run.json"),
    "empty board": (("leaderboard", "--print"), "kernelmark submit, then ingest"),
    "unknown source": (("operators", "--source", "atn"), "did you mean aten"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_line_and_exit_2(
    tmp_path: Path, name: str, capfd: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "good.py").write_text(SOFTMAX)
    (tmp_path / "entry.py").write_text("def soft(x): ...\ndef other(): ...\n")
    (tmp_path / "syntax.py").write_text("import triton\ndef softmax(:\n")
    (tmp_path / "latin.py").write_bytes(b"# caf\xe9\n")
    arguments, expected = MISTAKES[name]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KERNELMARK_HOME", str(tmp_path / "home"))
    status, _, errors = here(capfd, monkeypatch, *arguments)
    assert status == 2, errors
    assert re.search(expected, errors)
    assert errors.startswith("kernelmark: ")
    assert len(errors.strip().splitlines()) == 1
    assert not (tmp_path / "home").exists()


def test_another_entry_point(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("def mine(): ...\n")
    options = ("--op", "aten::softmax", "--chip", "interpreter", "--entry", "mine")
    done = kernelmark(tmp_path, "check", file, *options)
    assert done.returncode == 1
    assert done.stdout.startswith("rejected")


@pytest.mark.parametrize(
    "arguments",
    [
        ("operators", "--source", "cublas"),
        ("operators", "--suite", "demo"),
        ("operators", "show", "aten::softmax"),
        ("operators", "show", "aten::softmax", "--prompt", "--chip", "sm_90"),
        ("suites",),
        ("chips",),
        ("methods",),
        ("selftest", "--chip", "interpreter"),
        ("submissions",),
    ],
    ids=" ".join,
)
def test_what_is_printed_can_be_json(
    tmp_path: Path,
    arguments: tuple[str, ...],
    capfd: Capture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KERNELMARK_HOME", str(tmp_path))
    status, output, errors = here(capfd, monkeypatch, *arguments)
    assert status == 0, errors
    assert output.strip()
    status, output, _ = here(capfd, monkeypatch, *arguments, "--json")
    assert status == 0
    assert isinstance(json.loads(output), list | dict)


def run_to_board(home: Path, *arguments: str | Path) -> list[dict[str, Any]]:
    for step in (arguments, ("ingest",)):
        done = kernelmark(home, *step)
        assert done.returncode == 0, done.stderr
    rows: list[dict[str, Any]] = json.loads(kernelmark(home, "leaderboard", "--json").stdout)
    return rows


def test_from_a_method_to_a_rank(tmp_path: Path) -> None:
    home, root = tmp_path / "home", tmp_path / "run"
    kernels = tmp_path / "kernels"
    kernels.mkdir()
    (kernels / "softmax.py").write_text(SOFTMAX)
    (kernels / "sum.py").write_text(CALLS_TORCH.replace("softmax", "sum"))
    chosen = "aten::softmax,aten::sum,aten::mm"
    options = ("--method", "folder", "-o", f"path={kernels}", "--operators", chosen)
    where = ("--suite", "demo", "--chip", "interpreter,sm_90", "--out", root)
    done = kernelmark(home, "run", *options, *where, "--json")
    assert done.returncode == 0, done.stderr
    rows = {row["operator"]: row for row in json.loads(done.stdout)["operators"]}
    assert rows["aten::softmax"]["status"] == "passed"
    assert rows["aten::softmax"]["compiles"] == "1/1"
    assert rows["aten::sum"]["status"] == "rejected"
    assert rows["aten::mm"]["status"] == "no_candidate"

    again = kernelmark(home, "run", "--resume", root)
    assert again.returncode == 0, again.stderr
    (row,) = run_to_board(home, "submit", root, "--submitter", "me")
    assert (row["rank"], row["solved"], row["operators"]) == (1, 1, 8)
    assert (row["attempted"], row["complete"], row["measure"]) == (3, False, "solved")
    printed = kernelmark(home, "leaderboard", "--print").stdout
    assert "partial: 3 of 8" in printed
    assert "their times mean nothing" in printed


@pytest.mark.slow
def test_graded_elsewhere(tmp_path: Path) -> None:
    home, root, job, out = (tmp_path / name for name in ("home", "run", "job", "out"))
    options = ("--method", "reference", "--suite", "aten::softmax", "--chip", "interpreter")
    done = kernelmark(home, "run", *options, "--out", root, "--no-grade")
    assert done.returncode == 0, done.stderr
    assert "not graded" in done.stdout
    assert kernelmark(home, "submit", root).returncode == 2
    assert kernelmark(home, "jobs", "export", job, "--run", root).returncode == 0
    judge = [sys.executable, "-m", "kernelmark.evaluators.grading", str(job), str(out)]
    assert subprocess.run(judge, capture_output=True, check=False).returncode == 0
    done = kernelmark(home, "jobs", "import", out, "--run", root)
    assert done.returncode == 0, done.stderr
    (row,) = run_to_board(home, "submit", root)
    assert (row["suite"], row["solved"]) == ("aten::softmax", 1)
    foreign = kernelmark(home, "jobs", "import", job, "--run", root)
    assert foreign.returncode == 2


def test_ctrl_c_says_how_to_go_on(tmp_path: Path) -> None:
    root = tmp_path / "run"
    options = ("--method", "reference", "--suite", "first", "--chip", "interpreter")
    call, environment = command(tmp_path / "home", "run", *options, "--out", root)
    process = subprocess.Popen(
        call, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    deadline = time.monotonic() + 120
    while not list(root.glob("verdicts/*.json")) and time.monotonic() < deadline:
        time.sleep(0.2)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert f"kernelmark run --resume {root}" in errors
    assert "Traceback" not in errors
