"""Answers that are paid for outlive a kill, and no question is paid for twice."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from fakes.scripted_upstream import Asked, Reply, Upstream, serving

from kernelmark.evaluators.metering.answers import ASK_HEADER, Answers
from kernelmark.evaluators.metering.gateway import Gateway, open_gateway
from kernelmark.evaluators.metering.gateway import Upstream as Endpoint
from kernelmark.evaluators.metering.ledger import read_ledger

OPERATOR = "aten::softmax"


@contextmanager
def sitting(root: Path, upstream: Upstream) -> Iterator[Gateway]:
    """One process's gateway over the run at `root`."""
    upstreams = {"openai": Endpoint(upstream.url("openai"), upstream.key)}
    answers = Answers(root / "workspaces")
    with open_gateway("run1", upstreams, root / "ledger.jsonl", answers=answers) as gateway:
        yield gateway


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    def script(asked: Asked) -> Reply:
        return Reply(status=500 if asked.model == "broken" else 200)

    with serving(script) as upstream:
        yield upstream


def ask(gateway: Gateway, number: str, text: str = "hi", model: str = "plain") -> httpx.Response:
    grant = gateway.grant(OPERATOR, 1)
    headers = {"Authorization": f"Bearer {grant.token}", ASK_HEADER: number}
    body = {"model": model, "messages": [{"role": "user", "content": text}]}
    return httpx.post(f"{grant.base_url}/chat/completions", json=body, headers=headers, timeout=30)


def test_the_same_question_is_answered_from_what_was_paid_for(
    tmp_path: Path, upstream: Upstream
) -> None:
    with sitting(tmp_path, upstream) as gateway:
        first = ask(gateway, "1")
    with sitting(tmp_path, upstream) as gateway:
        again = ask(gateway, "1")
    assert again.status_code == first.status_code == 200
    assert again.json() == first.json()
    assert len(upstream.requests) == len(read_ledger(tmp_path / "ledger.jsonl")) == 1


@pytest.mark.parametrize(("number", "text"), [("2", "hi"), ("1", "hello"), ("", "hi"), ("x", "hi")])
def test_another_question_is_asked(
    tmp_path: Path, upstream: Upstream, number: str, text: str
) -> None:
    with sitting(tmp_path, upstream) as gateway:
        ask(gateway, "1")
        ask(gateway, number, text)
    assert len(upstream.requests) == len(read_ledger(tmp_path / "ledger.jsonl")) == 2


def test_what_went_wrong_is_asked_again(tmp_path: Path, upstream: Upstream) -> None:
    with sitting(tmp_path, upstream) as gateway:
        assert ask(gateway, "1", model="broken").status_code == 500
        assert ask(gateway, "1", model="broken").status_code == 500
    assert len(upstream.requests) == 2


@pytest.mark.parametrize(
    "body", [b"<html>busy</html>", b'{"error": {"message": "overloaded"}}', b"{}", b"[]", b""]
)
def test_an_answer_that_is_none_is_asked_again(tmp_path: Path, body: bytes) -> None:
    """Some servers, and what stands before them, answer with errors in the dress of success."""
    replies = iter([Reply(raw=body, content_type="application/json"), Reply()])
    with serving(lambda asked: next(replies)) as upstream, sitting(tmp_path, upstream) as gateway:
        assert ask(gateway, "1").content == body
        assert ask(gateway, "1").json()["choices"]
    rows = read_ledger(tmp_path / "ledger.jsonl")
    assert [row.outcome for row in rows] == ["error", "ok"]
    assert [row.usage_source for row in rows] == ["missing", "provider"]


def test_the_header_does_not_reach_the_provider(tmp_path: Path, upstream: Upstream) -> None:
    with sitting(tmp_path, upstream) as gateway:
        ask(gateway, "7")
    (asked,) = upstream.requests
    assert ASK_HEADER not in {name.lower() for name in asked.headers}


@pytest.mark.parametrize("kept", [True, False])
def test_a_kill_between_answer_and_ledger(tmp_path: Path, upstream: Upstream, kept: bool) -> None:
    """The row comes with the kept answer; without one the request is lost, and labelled."""
    ledger, begun = tmp_path / "ledger.jsonl", tmp_path / "ledger.jsonl.begun"
    with sitting(tmp_path, upstream) as gateway:
        ask(gateway, "1")
        noted = begun.read_bytes()
    ledger.write_bytes(b"")
    begun.write_bytes(noted)
    if not kept:
        (tmp_path / "workspaces" / "aten.softmax" / "answers" / "0001.json").unlink()
    with sitting(tmp_path, upstream) as gateway:
        assert gateway.budget.spent_tokens == (upstream.billed.total if kept else 0)
        assert ask(gateway, "1").status_code == 200
    rows = read_ledger(ledger)
    assert len(upstream.requests) == (1 if kept else 2)
    assert [row.outcome for row in rows] == (["ok"] if kept else ["gateway_abort", "ok"])
    assert sum(row.usage.total for row in rows) == upstream.billed.total / len(upstream.requests)
