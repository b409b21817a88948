"""The real command-line agents, each in its sandbox, solve an operator and are metered exactly.

``make test-agents`` installs them in the versions that the presets name.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import agent_scripts
import install
import pytest
from agent_runs import OPERATOR, AgentRun, agent_run, judge_told
from fakes.scripted_upstream import KEY, Upstream, serving

from kernelmark.evaluators.campaigns.folder import RunFolder
from kernelmark.evaluators.metering.ledger import LedgerRow, Usage, read_ledger
from kernelmark.evaluators.methods.agents.registry import get_preset, preset_names

pytestmark = [pytest.mark.agents, pytest.mark.timeout(400)]


@dataclass(frozen=True)
class Solved:
    """One agent's run, and what its provider saw."""

    run: AgentRun
    upstream: Upstream
    rows: list[LedgerRow]


@pytest.fixture(scope="module", params=preset_names())
def solved(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Solved:
    """Runs an agent as a user does."""
    preset: str = request.param
    if preset in install.missing():
        pytest.skip(f"{preset} is not installed: make test-agents")
    root = tmp_path_factory.mktemp(preset) / "run"
    with serving(agent_scripts.script_for(preset)) as upstream:
        url = upstream.url(get_preset(preset).provider)
        words = [sys.executable, "-m", "kernelmark.benchmark.cli", "run", "--method", "command"]
        words += ["-o", f"preset={preset}", "-o", "wall_s=300", "--model", "test-model"]
        words += ["--suite", OPERATOR, "--chip", "interpreter", "--out", str(root)]
        words += ["--base-url", url, "--api-key-env", "TEST_PROVIDER_KEY"]
        environment = {
            **os.environ,
            "PATH": f"{install.search_path()}{os.pathsep}{os.environ['PATH']}",
            "TEST_PROVIDER_KEY": KEY,
        }
        done = subprocess.run(words, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    folder = RunFolder.open(root)
    return Solved(AgentRun(folder), upstream, read_ledger(folder.ledger_path))


def test_it_solves_the_operator(solved: Solved) -> None:
    run = solved.run
    assert run.attempt.failure is None, run.attempt.note
    verdict = run.folder.verdict(OPERATOR, run.attempt.candidate)
    assert verdict is not None
    assert verdict.status == "passed", verdict.message
    assert run.source.rstrip() == agent_scripts.SECOND.rstrip()
    assert run.session["exit_status"] == 0, run.printed[-2000:]


def test_it_was_told_what_was_wrong(solved: Solved) -> None:
    checks = (solved.run.place / "checks.jsonl").read_text().splitlines()
    assert ['"wrong_values"' in check for check in checks] == [True, False]
    assert '"passed"' in checks[1]
    seen = solved.upstream.requests[-1].text
    assert "wrong_values (gate correctness)" in seen
    assert "elements wrong" in seen


def test_every_request_is_metered_exactly(solved: Solved) -> None:
    charged = [row for row in solved.rows if row.outcome == "ok"]
    assert sum((row.usage for row in charged), Usage()) == solved.upstream.billed
    billed = {bill.id: bill.usage for bill in solved.upstream.bills}
    assert {row.upstream_id: row.usage for row in charged if row.upstream_id} == billed
    assert len(charged) == len(solved.upstream.bills)
    assert {row.usage_source for row in charged} == {"provider"}
    assert {(row.operator, row.attempt) for row in charged} == {(OPERATOR, 1)}


def test_it_asks_for_the_runs_model_alone(solved: Solved) -> None:
    assert {bill.asked.model for bill in solved.upstream.bills} == {"test-model"}
    assert {row.model_served for row in solved.rows if row.outcome == "ok"} == {"test-model-served"}


def test_no_secret_is_in_the_run_folder(solved: Solved) -> None:
    for path in solved.run.folder.root.rglob("*"):
        assert not path.is_file() or KEY.encode() not in path.read_bytes(), path
    assert all(KEY not in asked.text for asked in solved.upstream.requests)


def test_it_is_the_version_that_the_preset_names(solved: Solved) -> None:
    session = solved.run.session
    assert session["version"] == get_preset(session["agent"]).tested
    assert "sandbox" in session
    assert session["sandbox"].startswith("bubblewrap")


def test_background_requests_of_claude_code_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the preset's variables it asks a small model for a title beside the conversation."""
    if "claude-code" in install.missing():
        pytest.skip("claude-code is not installed: make test-agents")
    monkeypatch.setenv("PATH", f"{install.search_path()}{os.pathsep}{os.environ['PATH']}")
    command = "claude -p {prompt} --model {model} --dangerously-skip-permissions"
    options = {"command": command, "provider": "anthropic", "wall_s": "300"}
    with serving(agent_scripts.script_for("claude-code")) as upstream:
        run = agent_run(tmp_path / "run", options, check=judge_told, upstream=upstream)
    beside = [a for a in upstream.requests if agent_scripts.is_background(a, "claude-code")]
    assert beside
    assert run.source.rstrip() == agent_scripts.SECOND.rstrip()
    rows = read_ledger(run.folder.ledger_path)
    assert sum((row.usage for row in rows), Usage()) == upstream.billed
    assert len([row for row in rows if row.outcome == "ok"]) == len(upstream.bills)


def test_background_requests_are_counted(solved: Solved) -> None:
    """OpenCode asks for a title beside the conversation: a request like any other."""
    preset = solved.run.session["agent"]
    beside = [a for a in solved.upstream.requests if agent_scripts.is_background(a, preset)]
    if preset == "opencode":
        assert beside
    metered = {row.upstream_id for row in solved.rows}
    of_them = [bill for bill in solved.upstream.bills if bill.asked in beside]
    assert {bill.id for bill in of_them} <= metered
