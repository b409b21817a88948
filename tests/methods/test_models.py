"""A model run end to end: litellm, the gateway, a real server; counted to the token."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.scripted_upstream import KEY, Asked, Reply, Upstream, serving

from kernelmark.benchmark.errors import UserError
from kernelmark.benchmark.suites import get_suite
from kernelmark.evaluators.campaigns.budgets import limits, parse_budgets
from kernelmark.evaluators.campaigns.campaign import Campaign, Tools
from kernelmark.evaluators.campaigns.folder import RunFolder
from kernelmark.evaluators.campaigns.plan import make_tasks, plan_run
from kernelmark.evaluators.campaigns.records import Attempt
from kernelmark.evaluators.chips.registry import get_chip
from kernelmark.evaluators.languages.registry import get_language
from kernelmark.evaluators.metering.ledger import LedgerRow, Usage, read_ledger
from kernelmark.evaluators.metering.model import metered_model
from kernelmark.evaluators.methods.registry import make_method

SOURCE = "def softmax(self, dim, dtype=None):\n    return self\n"
USAGE = Usage(in_uncached=20, in_cache_read=100, out_total=30, out_reasoning=25)
ODD = {
    "odd-page": b"<html>busy</html>",
    "odd-error": b'{"error": {"message": "overloaded", "code": 503}}',
    "odd-nothing": b'{"id": "1", "model": "m", "choices": []}',
    "odd-text": rb'{"id": "1", "model": "m", "choices": [{"message": {"content": "\ud83d"}}]}',
    "odd-choice": b'{"id": "1", "model": "m", "choices": [{}]}',
    "odd-message": b'{"id": "1", "model": "m", "choices": [{"message": {"content": [1]}}]}',
}


def script(asked: Asked) -> Reply:
    """The model's name says what happens."""
    text = f"Here:\n```python\n{SOURCE}```\n"
    if asked.model.startswith("status-"):
        return Reply(status=int(asked.model[7:]))
    if asked.model in ODD:
        return Reply(raw=ODD[asked.model], content_type="application/json")
    return Reply(text, usage=USAGE, cut_short=asked.model == "cut-short")


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with serving(script) as upstream:
        yield upstream


def run_one_shot(
    root: Path, model: str, url: str, *, key: str = KEY, budget: str = "", name: str = "one-shot"
) -> tuple[RunFolder, Attempt, list[LedgerRow]]:
    """Produces (without grading) softmax with `model`; the last attempt and the ledger."""
    method, suite, chip = make_method(name, {}), get_suite("aten::softmax"), "interpreter"
    if (root / "run.json").exists():
        folder = RunFolder.open(root)
    else:
        run = plan_run(name, method, model, suite, suite.operators, get_chip(chip), tier="small")
        folder = RunFolder.create(root, run)
    tasks = make_tasks(suite.operators, get_chip(chip), get_language("triton"))
    with metered_model(
        run=folder.run.id,
        model=model,
        ledger_path=folder.ledger_path,
        base_url=url,
        key=key,
        key_name="SOME_KEY",
        limits=limits(parse_budgets([budget] if budget else [])),
        answers=folder.workspaces,
    ) as access:
        Campaign(folder, method, tasks, Tools(None, model=access)).run()
    *_, attempt = folder.attempts()
    return folder, attempt, read_ledger(folder.ledger_path)


def test_a_candidate_and_its_tokens(tmp_path: Path, upstream: Upstream) -> None:
    folder, attempt, (row,) = run_one_shot(tmp_path / "run", "plain", upstream.url("openai"))
    assert folder.candidate(attempt).source == SOURCE
    assert (row.operator, row.attempt, row.run) == ("aten::softmax", 1, folder.run.id)
    assert row.usage == upstream.billed == USAGE
    (asked,) = upstream.requests
    assert asked.body["model"] == "plain"
    assert asked.body["temperature"] == 0.0
    assert "aten::softmax" in asked.body["messages"][0]["content"]


@pytest.mark.parametrize(
    ("model", "failure"),
    [
        ("status-400", "method_error"),
        ("status-404", "method_error"),
        ("status-429", "infrastructure_error"),
        ("status-500", "infrastructure_error"),
        ("status-503", "infrastructure_error"),
        ("cut-short", None),
        ("odd-page", "infrastructure_error"),
        ("odd-error", "infrastructure_error"),
        ("odd-nothing", "no_candidate"),
        ("odd-choice", "infrastructure_error"),
        ("odd-message", "infrastructure_error"),
    ],
)
def test_what_goes_wrong_has_a_status(
    tmp_path: Path, upstream: Upstream, model: str, failure: str | None
) -> None:
    _, attempt, rows = run_one_shot(tmp_path / "run", model, upstream.url("openai"))
    assert attempt.failure == failure
    assert len(rows) == len(upstream.requests) == 1  # nothing was tried again behind our back


def test_half_a_character_can_be_fed_back(tmp_path: Path, upstream: Upstream) -> None:
    """JSON can say what no text file can hold."""
    _, attempt, rows = run_one_shot(
        tmp_path / "run", "odd-text", upstream.url("openai"), name="refine"
    )
    assert (attempt.number, attempt.failure) == (4, "no_candidate")
    assert len(rows) == len(upstream.requests) == 4


def test_a_refused_key(tmp_path: Path, upstream: Upstream) -> None:
    _, attempt, (row,) = run_one_shot(
        tmp_path / "run", "plain", upstream.url("openai"), key="wrong"
    )
    assert attempt.failure == "method_error"
    assert attempt.note.startswith("the provider refuses the key: ")
    assert "bad key" in attempt.note
    assert row.http_status == 401


def test_no_upstream(tmp_path: Path) -> None:
    _, attempt, (row,) = run_one_shot(tmp_path / "run", "plain", "http://127.0.0.1:9/v1")
    assert attempt.failure == "infrastructure_error"
    assert row.usage_source == "missing"


def test_resuming_asks_again_where_the_provider_failed(tmp_path: Path, upstream: Upstream) -> None:
    root = tmp_path / "run"
    run_one_shot(root, "plain", "http://127.0.0.1:9/v1")
    _, attempt, rows = run_one_shot(root, "plain", upstream.url("openai"))
    assert attempt.failure is None
    assert [row.outcome for row in rows] == ["error", "ok"]
    run_one_shot(root, "plain", upstream.url("openai"))
    assert len(upstream.requests) == 1


def test_a_budget_that_does_not_cover_the_request(tmp_path: Path, upstream: Upstream) -> None:
    _, attempt, (row,) = run_one_shot(
        tmp_path / "run", "plain", upstream.url("openai"), budget="run.tokens=100"
    )
    assert attempt.failure == "budget_exhausted"
    assert "budget of 100 tokens for the run: 100 left" in attempt.note
    assert row.outcome == "budget_denied"
    assert upstream.requests == []


def test_a_missing_key_is_told_before_anything_is_asked(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="SOME_KEY is not set"):
        run_one_shot(tmp_path / "run", "plain", "https://example.com/v1", key="")
