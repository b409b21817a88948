"""Agents that go wrong: each has a status and a clear line, and the run goes on."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import CancelledError
from pathlib import Path

import pytest
from agent_runs import GOOD, OPERATOR, AgentRun, agent_run, attempt_of, instant, shell
from fakes.scripted_upstream import Reply, serving

from kernelmark.benchmark.errors import UserError
from kernelmark.evaluators.campaigns.campaign import Campaign
from kernelmark.evaluators.campaigns.folder import RunFolder
from kernelmark.evaluators.grading.records import Candidate, Verdict
from kernelmark.evaluators.metering.budget import Limits
from kernelmark.evaluators.methods import command
from kernelmark.evaluators.methods.registry import make_method
from kernelmark.evaluators.sandbox import bubblewrap, transcript
from kernelmark.evaluators.sandbox.processes import remove_folder
from kernelmark.operators.registry import UnknownName

pytestmark = pytest.mark.skipif(bool(bubblewrap.missing()), reason=bubblewrap.missing())

COPY = "cp example.py candidate.py"


def test_the_candidate_is_what_lies_in_the_file_at_the_end(tmp_path: Path) -> None:
    run = shell(tmp_path, "echo 1 > candidate.py; verify; echo '# two' > candidate.py")
    assert run.source == "# two\n"
    assert (run.attempt.failure, run.session["checks"]) == (None, 1)
    assert "1 checks, ended after" in run.attempt.note
    assert run.session["candidate_file"] == "candidate.py"


def test_the_workspace_holds_the_task_and_an_example(tmp_path: Path) -> None:
    run = shell(tmp_path, "ls; cat TASK.md example.py; pwd")
    names, text = run.printed.split("#", 1)
    assert names.split() == ["TASK.md", "example.py"]
    assert OPERATOR in text
    assert "You have 50 checks and 30 minutes" in " ".join(text.split())
    assert "fenced code block" not in text
    assert "A candidate for aten::softmax" in text
    assert GOOD not in text


def test_an_absent_program(tmp_path: Path) -> None:
    _, (attempt, other) = attempt_of(
        tmp_path / "run", {"command": "no-such-agent"}, operators=(OPERATOR, "aten::add")
    )
    assert attempt.failure == other.failure == "method_error"
    assert attempt.note == "no-such-agent: no such program here"


def test_an_absent_preset_says_how_to_install_it(tmp_path: Path) -> None:
    options = {"preset": "aider", "program": "/no/such/aider"}
    with serving() as upstream:
        _, (attempt,) = attempt_of(tmp_path / "run", options, upstream=upstream)
    assert attempt.failure == "method_error"
    assert attempt.note == "/no/such/aider: no such program here (pip install aider-chat)"


@pytest.mark.parametrize(
    ("script", "failure", "told"),
    [
        ("true", "no_candidate", "no candidate.py was written"),
        ("echo x > softmax.py", "no_candidate", "it wrote softmax.py"),
        ("mkdir d; echo x > d/candidate.py", "no_candidate", "it wrote d/candidate.py"),
        (r"touch $(printf 'a\377\033[2J[b]z')", "no_candidate", "it wrote a??[2J[b]z"),
        ("echo x > /tmp/candidate.py", "no_candidate", "no candidate.py was written"),
        (": > candidate.py", "no_candidate", "candidate.py is empty"),
        ("ln -s TASK.md candidate.py", "no_candidate", "candidate.py is a link"),
        ("ln -s /etc/shadow candidate.py", "no_candidate", "candidate.py is a link"),
        ("mkdir candidate.py", "no_candidate", "candidate.py is not a file"),
        ("mkfifo candidate.py", "no_candidate", "candidate.py is not a file"),
        ("head -c 2000000 /dev/zero > candidate.py", "no_candidate", "longer than 1048576 bytes"),
        ("printf '\\377\\376' > candidate.py", "no_candidate", "candidate.py is not UTF-8"),
        ("echo I give up; exit 3", "method_error", "with 3: no candidate.py was written; it said"),
        ("echo bye; kill -9 $$", "method_error", "it said last: bye"),
    ],
)
def test_no_candidate(tmp_path: Path, script: str, failure: str, told: str) -> None:
    run = shell(tmp_path, script)
    assert run.attempt.failure == failure
    assert told in run.attempt.note


def test_a_failing_agent_may_have_left_a_candidate(tmp_path: Path) -> None:
    run = shell(tmp_path, f"{COPY}; exit 3")
    assert run.attempt.candidate
    assert "with 3" in run.attempt.note


@pytest.mark.parametrize(
    ("script", "failure"), [("sleep 1000", "timed_out"), (f"{COPY}; sleep 1000", None)]
)
def test_one_that_never_ends(tmp_path: Path, script: str, failure: str | None) -> None:
    began = time.monotonic()
    run = shell(tmp_path, script, {"wall_s": "2"})
    assert time.monotonic() - began < 60
    assert run.attempt.failure == failure
    assert "over wall_s" in run.attempt.note
    assert run.session["stopped"] == "wall_s"


def test_what_it_started_dies_with_it(tmp_path: Path) -> None:
    script = "setsid sh -c 'while :; do date > alive; sleep 0.2; done' & sleep 1000"
    run = shell(tmp_path, script, {"wall_s": "2"})
    alive = run.place / "workspace" / "alive"
    assert alive.exists()
    before = alive.stat().st_mtime_ns
    time.sleep(1)
    assert alive.stat().st_mtime_ns == before


def test_a_gigabyte_of_output(tmp_path: Path) -> None:
    script = f"echo first; head -c 1000000000 /dev/zero | tr '\\0' x; echo; echo last; {COPY}"
    run = shell(tmp_path, script)
    assert run.attempt.candidate
    assert run.session["output_bytes"] > 10**9
    kept = (run.place / "transcript.log").read_bytes()
    assert len(kept) < transcript.HEAD_BYTES + transcript.TAIL_BYTES + 100
    assert kept.startswith(b"first\nxxx")
    assert kept.endswith(b"x\nlast\n")
    assert b"bytes left out]" in kept


@pytest.mark.parametrize(
    ("script", "options", "failure", "limit"),
    [
        (
            'python3 -c "import time; a = bytearray(1 << 30); time.sleep(1000)"',
            {"memory_gib": "0.25"},
            "out_of_memory",
            "memory_bytes",
        ),
        (
            "for i in $(seq 40); do sleep 1000 & done; wait",
            {"processes": "20"},
            "method_error",
            "processes",
        ),
        (
            "for i in 1 2 3; do head -c 60000000 /dev/zero > f$i; done; sleep 1000",
            {"disk_gib": "0.1"},
            "method_error",
            "disk_bytes",
        ),
    ],
)
def test_limits(
    tmp_path: Path, script: str, options: dict[str, str], failure: str, limit: str
) -> None:
    run = shell(tmp_path, script, {**options, "wall_s": "60"})
    assert run.session["stopped"] == limit
    assert run.attempt.failure == failure
    assert f"over {limit}" in run.attempt.note


def test_a_file_has_a_limit_of_its_own(tmp_path: Path) -> None:
    run = shell(tmp_path, "head -c 3000000 /dev/zero > f; wc -c f", {"file_gib": "0.001"})
    assert "1073741 f" in run.printed


def test_memory_of_the_home_is_limited(tmp_path: Path) -> None:
    script = "for f in /home/agent/x /tmp/x /dev/shm/x; do head -c 200000000 /dev/zero > $f; done"
    run = shell(tmp_path, script, {"memory_gib": "0.125"})
    assert run.printed.count("No space left on device") == 3


def test_checks_are_counted(tmp_path: Path) -> None:
    script = f"{COPY}; for i in 1 2 3; do verify; echo status $?; done"
    run = shell(tmp_path, script, {"checks": "2"})
    assert "1 checks left" in run.printed
    assert "verify: all 2 checks have been made\nstatus 3" in run.printed
    assert len((run.place / "checks.jsonl").read_text().splitlines()) == 2


def test_a_run_without_a_judge_gives_no_feedback(tmp_path: Path) -> None:
    run = shell(tmp_path, f"{COPY}; verify", check=None)
    assert "this run gives no feedback" in run.printed
    assert run.attempt.candidate


def test_an_agent_that_ends_during_a_check(tmp_path: Path) -> None:
    def slow(candidate: Candidate) -> Verdict:
        time.sleep(2)
        return instant(candidate)

    run = shell(tmp_path, f"{COPY}; verify & sleep 0.5; exit 0", check=slow)
    assert run.attempt.candidate


def test_a_stopped_run_ends_its_agent_and_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    working = Campaign._working

    def interrupted(self: Campaign) -> bool:
        if list((tmp_path / "run").glob("workspaces/*/attempt-1/workspace/begun")):
            raise KeyboardInterrupt
        return working(self)

    with monkeypatch.context() as patch:
        patch.setattr(Campaign, "_working", interrupted)
        with pytest.raises((KeyboardInterrupt, CancelledError)):
            shell(tmp_path, f"echo > begun; {COPY}; sleep 1000")
    assert not [t for t in threading.enumerate() if t.name in ("transcript", "judge socket")]
    run = shell(tmp_path, "echo '# again' > candidate.py")
    assert run.source == "# again\n"
    assert not (run.place / "workspace" / "begun").exists()


def test_an_attempt_that_was_made_is_remembered(tmp_path: Path) -> None:
    first = shell(tmp_path, "date +%N > candidate.py")
    (record,) = (tmp_path / "run/attempts").glob("*.json")
    record.unlink()  # the run was killed before it was recorded
    again = shell(tmp_path, "date +%N > candidate.py")
    assert again.source == first.source


@pytest.mark.parametrize(
    ("reply", "failure", "told"),
    [
        (Reply(status=404), "method_error", "the provider refused (404)"),
        (Reply(status=401), "method_error", "the provider refused (401)"),
        (Reply(status=503), "infrastructure_error", "overloaded or broken (503)"),
        (Reply(cut_at=0.5), "infrastructure_error", "upstream_abort"),
        (Reply(), "no_candidate", "no candidate.py was written"),
    ],
)
def test_what_a_provider_does(tmp_path: Path, reply: Reply, failure: str, told: str) -> None:
    body = '{"model": "m", "messages": []}'
    call = f"curl -sS $OPENAI_BASE_URL/chat/completions -H \"$KEY\" -d '{body}'"
    script = f'KEY="Authorization: Bearer $OPENAI_API_KEY"; {call}; exit 0'
    with serving(lambda asked: reply) as upstream:
        run = shell(tmp_path, script, {"provider": "openai"}, upstream=upstream)
    assert run.attempt.failure == failure
    assert told in run.attempt.note


def test_a_budget_that_is_used_up(tmp_path: Path) -> None:
    call = 'curl -sS $OPENAI_BASE_URL/chat/completions -H "Authorization: Bearer $OPENAI_API_KEY"'
    script = f'{call} -d \'{{"model": "m", "messages": []}}\'; exit 1'
    with serving() as upstream:
        limits = {"run": Limits(tokens=10)}
        run = shell(tmp_path, script, {"provider": "openai"}, upstream=upstream, limits=limits)
    assert run.attempt.failure == "budget_exhausted"
    assert "budget of 10 tokens for the run" in run.attempt.note
    assert "budget_exhausted" in run.printed
    assert not upstream.requests


def test_an_agent_that_goes_on_without_a_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "AFTER_BUDGET_S", 1.0)
    call = 'curl -sS $OPENAI_BASE_URL/chat/completions -H "Authorization: Bearer $OPENAI_API_KEY"'
    script = f'{call} -d \'{{"model": "m", "messages": []}}\'; sleep 1000'
    with serving() as upstream:
        limits = {"run": Limits(tokens=10)}
        run = shell(tmp_path, script, {"provider": "openai"}, upstream=upstream, limits=limits)
    assert run.attempt.failure == "budget_exhausted"
    assert run.session["stopped"] == "budget"


def test_a_large_workspace_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "KEPT_BYTES", 1 << 20)
    run = shell(tmp_path, f"{COPY}; mkdir d; head -c 2000000 /dev/urandom > d/x; chmod 0 d/x d")
    assert run.attempt.candidate
    assert not (run.place / "workspace").exists()


def test_folders_deeper_than_paths_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither hidden from the limit of the disk, nor in the way of what is to be removed."""
    nest = "import os\nfor _ in range(3000): os.mkdir('d'); os.chdir('d')\n"
    nest += "open('x', 'wb').write(bytes(60_000_000))"
    script = f'python3 -c "{nest}"'
    for name in ("kept", "over"):
        (tmp_path / name).mkdir()
    run = shell(tmp_path / "kept", script, {"wall_s": "60"})
    assert run.attempt.failure == "no_candidate"
    assert "it wrote d/d/d" in run.attempt.note
    monkeypatch.setattr(command, "KEPT_BYTES", 1 << 20)
    run = shell(tmp_path / "over", f"{script}; sleep 1000", {"disk_gib": "0.05", "wall_s": "60"})
    assert run.session["stopped"] == "disk_bytes"
    assert not (run.place / "workspace").exists()
    remove_folder(tmp_path / "kept")  # pytest cannot


@pytest.mark.parametrize(("number", "status"), [(signal.SIGKILL, -9), (signal.SIGINT, 130)])
@pytest.mark.slow
def test_an_ended_run_takes_its_agent_along_and_resumes(
    tmp_path: Path, number: signal.Signals, status: int
) -> None:
    """SIGKILL for everything of ours, or Ctrl-C; then the run goes on and is complete."""
    agent, root = tmp_path / "agent.sh", tmp_path / "run"
    agent.write_text("#!/bin/sh\nwhile :; do date > alive; sleep 0.1; done\n")
    agent.chmod(0o755)
    cli = [sys.executable, "-m", "kernelmark.benchmark.cli", "run"]
    words = [*cli, "--method", "command", "-o", f"command={agent}", "--suite", OPERATOR]
    process = subprocess.Popen(
        [*words, "--chip", "interpreter", "--out", str(root)],
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    alive = root / "workspaces/cublas.cublasSaxpy_v2/attempt-1/workspace/alive"
    deadline = time.monotonic() + 120
    while not alive.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    process.send_signal(number)
    assert process.wait(60) == status
    time.sleep(2)
    before = alive.stat().st_mtime_ns
    time.sleep(1)
    assert alive.stat().st_mtime_ns == before
    agent.write_text(f"#!/bin/sh\ncat > candidate.py <<'END'\n{GOOD}\nEND\n")
    assert subprocess.run([*cli, "--resume", str(root)]).returncode == 0
    run = AgentRun(RunFolder.open(root))
    verdict = run.folder.verdict(OPERATOR, run.attempt.candidate)
    assert verdict is not None
    assert verdict.status == "passed"
    assert not run.folder.missing()


def test_secrets_are_not_in_the_transcript(tmp_path: Path) -> None:
    with serving() as upstream:
        run = shell(
            tmp_path, "echo key $OPENAI_API_KEY; env", {"provider": "openai"}, upstream=upstream
        )
    assert run.printed.startswith("key [redacted]\n")
    assert "KERNELMARK_TOKEN=[redacted]" in run.printed


@pytest.mark.parametrize(
    ("options", "error", "told"),
    [
        ({}, UserError, "needs -o preset=NAME"),
        ({"preset": "codex", "command": "x"}, UserError, "needs -o preset=NAME"),
        ({"preset": "claudecode"}, UnknownName, "did you mean claude-code"),
        ({"command": "'"}, UserError, "option command: No closing quotation"),
        ({"command": "x", "program": "y"}, UserError, "option program"),
        ({"command": "x", "file": "a/b.py"}, UserError, "option file"),
        ({"command": "x", "wall_s": "0"}, UserError, "greater than 0"),
        ({"command": "x", "expose": "/no/such"}, UserError, "no such file or folder"),
        ({"command": "x", "expose": "/"}, UserError, "would show"),
        ({"command": "x", "provider": "acme"}, UserError, "option provider"),
    ],
)
def test_options_that_cannot_work(
    options: dict[str, str], error: type[Exception], told: str
) -> None:
    with pytest.raises(error, match=told):
        make_method("command", options)


def test_without_bubblewrap_it_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bubblewrap, "missing", lambda: "bubblewrap is not installed")
    with pytest.raises(UserError, match=r"bubblewrap is not installed; .* -o sandbox=none"):
        make_method("command", {"command": "true"})
    assert make_method("command", {"command": "true", "sandbox": "none"})


def test_without_a_sandbox_the_attempt_says_so(tmp_path: Path) -> None:
    with serving() as upstream:
        script = f"{COPY}; verify; curl -s $OPENAI_BASE_URL/models; sleep 1000"
        run = shell(
            tmp_path,
            script,
            {"provider": "openai", "sandbox": "none", "wall_s": "3"},
            upstream=upstream,
        )
    assert run.attempt.note.endswith("over wall_s, no sandbox")
    assert run.session["sandbox"] == "none"
    assert run.session["checks"] == 1


def test_a_preset_is_no_command(tmp_path: Path) -> None:
    with pytest.raises(UnknownName):
        agent_run(tmp_path / "run", {"preset": "none"})
