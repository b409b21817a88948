"""Recorded replies: read from every form, served like a provider, used from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from kernelmark.benchmark.cli import app
from kernelmark.benchmark.errors import UserError
from kernelmark.benchmark.suites import DEMO
from kernelmark.evaluators.campaigns.scripted import (
    ScriptedReply,
    load_script,
    serve_script,
    tag,
)
from kernelmark.operators.registry import UnknownName

ID = "aten::softmax"


def test_replies_ship_for_every_operator_of_demo() -> None:
    script = load_script("demo")
    assert set(script) == set(DEMO)
    assert all(script.values())


def test_a_folder_of_texts(tmp_path: Path) -> None:
    for number in range(1, 12):
        path = tmp_path / "aten.softmax" / f"{number}.md"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"reply {number}")
    texts = [reply.text for reply in load_script(str(tmp_path))[ID]]
    assert texts == [f"reply {number}" for number in range(1, 12)]
    (tmp_path / "aten.softmax" / "3.md").unlink()
    with pytest.raises(UserError, match=r"replies are 1\.md, 2\.md"):
        load_script(str(tmp_path))


def test_lines_with_recorded_usage(tmp_path: Path) -> None:
    path = tmp_path / "replies.jsonl"
    first = {"operator": ID, "text": "a", "prompt_tokens": 7, "completion_tokens": 2}
    second = {"operator": ID, "text": "b", "finish_reason": "length"}
    path.write_text("".join(json.dumps(line) + "\n" for line in (first, second)))
    assert load_script(str(path))[ID] == (
        ScriptedReply("a", "stop", 7, 2),
        ScriptedReply("b", "length"),
    )
    path.write_text('{"operator": "x"}\n')
    with pytest.raises(UserError, match=r"replies.jsonl:1: text: Field required"):
        load_script(str(path))


def test_names_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="there are demo"):
        load_script(str(tmp_path / "nothing"))
    with pytest.raises(UserError, match=r"holds no <operator>/1\.md"):
        load_script(str(tmp_path))


def test_the_provider_answers_by_the_request_alone() -> None:
    script = {ID: (ScriptedReply("one", "stop", 10, 3), ScriptedReply("two", "stop", 20, 4))}
    with serve_script(script) as provider:
        url = f"{provider.url}/chat/completions"

        def ask(user: str) -> httpx.Response:
            return httpx.post(url, json={"model": "m", "messages": [], "user": user})

        for _ in range(2):
            answer = ask(tag(ID, 2)).json()
            assert answer["choices"][0]["message"]["content"] == "two"
            assert answer["usage"]["total_tokens"] == 24
        assert ask(tag(ID, 1)).json()["usage"]["prompt_tokens"] == 10
        assert provider.billed_tokens == 61
        beyond = ask(tag(ID, 3))
        assert beyond.status_code == 400
        assert "2 replies are recorded" in beyond.json()["error"]["message"]
        assert ask("").status_code == 400
        assert httpx.post(f"{provider.url}/responses", json={}).status_code == 404


def test_from_the_command_line_and_again_from_the_run(tmp_path: Path) -> None:
    home = {"KERNELMARK_HOME": str(tmp_path / "home")}
    command = ["run", "--suite", "vllm::rms_norm", "--chip", "interpreter", "--json"]
    first, second = tmp_path / "first", tmp_path / "second"
    done = CliRunner().invoke(
        app, [*command, "--method", "refine", "--model", "scripted", "--out", str(first)], env=home
    )
    assert done.exit_code == 0, done.output
    done = CliRunner().invoke(
        app,
        [*command, "--method", "scripted", "-o", f"replies={first}", "--out", str(second)],
        env=home,
    )
    assert done.exit_code == 0, done.output
    reports = []
    for folder in (first, second):
        shown = CliRunner().invoke(app, ["usage", str(folder), "--json"], env=home)
        reports.append(json.loads(shown.stdout))
    assert [report["solved"] for report in reports] == [1, 1]
    assert reports[0]["total"] == reports[1]["total"]
    assert reports[0]["total"]["tokens"] > 0
