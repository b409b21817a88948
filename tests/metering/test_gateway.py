"""The gateway counts what the provider bills, passes bytes through, and keeps keys and budgets."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import chat_upstream
import pytest

from kernelmark.evaluators.metering.budget import Budget, Limits
from kernelmark.evaluators.metering.gateway import Gateway, Grant
from kernelmark.evaluators.metering.gateway import Upstream as Endpoint
from kernelmark.evaluators.metering.ledger import Ledger, LedgerRow, read_ledger, total_tokens

OPERATOR = "aten::softmax"


@dataclass
class Bench:
    """A gateway before a scripted provider."""

    upstream: chat_upstream.Upstream
    gateway: Gateway
    budget: Budget
    path: Path

    @property
    def rows(self) -> list[LedgerRow]:
        return read_ledger(self.path)

    def ask(self, model: str = "plain", attempt: int = 1, **more: Any) -> tuple[int, bytes]:
        """Status and body of one request."""
        return asyncio.run(self.ask_async(self.gateway.grant(OPERATOR, attempt), model, **more))

    async def ask_async(
        self, grant: Grant, model: str, token: str | None = None, **more: Any
    ) -> tuple[int, bytes]:
        body = {"model": model, "messages": [{"role": "user", "content": "hi"}], **more}
        headers = {"Authorization": f"Bearer {grant.token if token is None else token}"}
        url = f"{grant.base_url}/chat/completions"
        async with (
            aiohttp.ClientSession() as session,
            session.post(url, json=body, headers=headers) as answer,
        ):
            return answer.status, await answer.read()


@contextmanager
def serving(tmp_path: Path, limit: int | None = None) -> Iterator[Bench]:
    with chat_upstream.serving() as upstream:
        ledger, budget = Ledger(tmp_path / "ledger.jsonl"), Budget({"run": Limits(tokens=limit)})
        endpoint = Endpoint(upstream.url, chat_upstream.KEY)
        with Gateway("run1", {"openai": endpoint}, ledger, budget).serve() as gateway:
            yield Bench(upstream, gateway, budget, ledger.path)
        ledger.close()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with serving(tmp_path) as bench:
        yield bench


def test_an_answer_is_passed_and_counted(bench: Bench) -> None:
    status, body = bench.ask(attempt=3)
    assert status == 200
    assert json.loads(body)["choices"][0]["message"]["content"] == chat_upstream.TEXT
    (row,) = bench.rows
    assert (row.run, row.operator, row.attempt) == ("run1", OPERATOR, 3)
    assert (row.outcome, row.usage_source, row.http_status) == ("ok", "provider", 200)
    assert (row.usage.in_uncached, row.usage.out_total) == (120, 30)
    assert (row.model_requested, row.model_served) == ("plain", "plain-served")
    assert json.loads(row.raw_usage)["prompt_tokens"] == 120
    assert row.cost_usd is None  # nobody knows what this model costs
    assert bench.upstream.keys == [f"Bearer {chat_upstream.KEY}"]


def test_classes_are_disjoint(bench: Bench) -> None:
    bench.ask("cached")
    (row,) = bench.rows
    usage = row.usage
    assert (usage.in_uncached, usage.in_cache_read, usage.out_total) == (20, 100, 30)
    assert usage.out_reasoning == 25
    assert usage.total == bench.upstream.billed_tokens == 150


@pytest.mark.parametrize("model", ["plain", "late-usage", "cached"])
def test_a_stream_is_the_same_bytes_without_the_chunk_not_asked_for(
    bench: Bench, model: str
) -> None:
    status, body = bench.ask(model, stream=True)
    assert status == 200
    sent = bench.upstream.requests[-1]
    assert sent["stream_options"] == {"include_usage": True}
    unasked = {**sent, "stream_options": None}
    billed = bench.upstream.billed_tokens
    assert body == b"".join(bench.upstream.frames(unasked))
    (row,) = bench.rows
    assert (row.outcome, row.usage_source) == ("ok", "provider")
    assert row.usage.total == billed


def test_a_stream_that_asks_for_usage_gets_it(bench: Bench) -> None:
    options = {"include_usage": True}
    _, body = bench.ask(stream=True, stream_options=options)
    assert body == b"".join(bench.upstream.frames(bench.upstream.requests[-1]))
    assert b'"usage"' in body
    assert bench.rows[0].usage.total == 150


@pytest.mark.parametrize("stream", [False, True])
def test_usage_that_is_not_told_is_estimated_and_labelled(bench: Bench, stream: bool) -> None:
    bench.ask("no-usage", stream=stream)
    (row,) = bench.rows
    assert (row.outcome, row.usage_source) == ("ok", "estimated")
    assert row.usage.out_total >= len(chat_upstream.TEXT.encode()) / 3.5
    assert row.raw_usage == ""


def test_a_stream_cut_upstream_is_cut_for_the_client(bench: Bench) -> None:
    with pytest.raises(aiohttp.ClientPayloadError):
        bench.ask("cut", stream=True)
    (row,) = bench.rows
    assert (row.outcome, row.usage_source) == ("upstream_abort", "estimated")


def test_a_client_that_hangs_up_is_billed_all_the_same(bench: Bench) -> None:
    grant = bench.gateway.grant(OPERATOR, 1)

    async def hang_up() -> None:
        body = {"model": "slow", "messages": [], "stream": True}
        headers = {"Authorization": f"Bearer {grant.token}"}
        async with aiohttp.ClientSession() as session:
            answer = await session.post(
                f"{grant.base_url}/chat/completions", json=body, headers=headers
            )
            await answer.content.readany()
            answer.close()

    bench.upstream.reply = "word " * 200
    asyncio.run(hang_up())
    deadline = time.monotonic() + 10
    while not bench.rows and time.monotonic() < deadline:
        time.sleep(0.05)
    (row,) = bench.rows
    assert (row.outcome, row.usage_source) == ("client_abort", "provider")
    assert row.usage.total == bench.upstream.billed_tokens


@pytest.mark.parametrize(
    ("status", "source"), [(400, "provider"), (429, "provider"), (500, "missing"), (529, "missing")]
)
def test_errors_are_passed_and_recorded(bench: Bench, status: int, source: str) -> None:
    answered, body = bench.ask(f"status-{status}")
    assert answered == status
    assert json.loads(body)["error"]["message"] == "scripted"
    (row,) = bench.rows
    assert (row.outcome, row.http_status, row.usage_source) == ("error", status, source)
    assert row.usage.total == 0


def test_an_answer_that_makes_no_sense(bench: Bench) -> None:
    status, body = bench.ask("garbage")
    assert (status, body) == (200, b"<html>busy</html>")
    assert bench.rows[0].usage_source == "estimated"


def test_an_unreachable_upstream(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    endpoint = Endpoint("http://127.0.0.1:9/v1", "k")
    with Gateway("run1", {"openai": endpoint}, ledger, Budget()).serve() as gateway:
        bench = Bench(chat_upstream.Upstream(), gateway, Budget(), ledger.path)
        status, body = bench.ask()
    assert status == 502
    assert json.loads(body)["error"]["code"] == "upstream_unreachable"
    assert (bench.rows[0].outcome, bench.rows[0].usage_source) == ("error", "missing")


def test_the_token_of_another_attempt_opens_nothing(bench: Bench) -> None:
    one, two = bench.gateway.grant(OPERATOR, 1), bench.gateway.grant(OPERATOR, 2)
    for token in (two.token, "", "x", chat_upstream.KEY):
        status, _ = asyncio.run(bench.ask_async(one, "plain", token=token))
        assert status == 401
    assert bench.rows == []
    assert bench.upstream.requests == []


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{", b'{"model": 3}', b'{"model":"m","max_tokens":"x"}']
)
def test_a_request_that_is_none(bench: Bench, body: bytes) -> None:
    grant = bench.gateway.grant(OPERATOR, 1)

    async def ask() -> int:
        headers = {"Authorization": f"Bearer {grant.token}"}
        url = f"{grant.base_url}/chat/completions"
        async with (
            aiohttp.ClientSession() as session,
            session.post(url, data=body, headers=headers) as answer,
        ):
            return answer.status

    assert asyncio.run(ask()) == 400
    assert bench.upstream.requests == []


def test_a_budget_is_reserved_before_and_settled_after(tmp_path: Path) -> None:
    with serving(tmp_path, limit=420) as bench:
        statuses = [bench.ask(max_tokens=100)[0] for _ in range(4)]
        assert statuses == [200, 200, 400, 400]
        body = json.loads(bench.ask(max_tokens=100)[1])
        assert body["error"]["code"] == "budget_exhausted"
        assert body["error"]["type"] == "invalid_request_error"  # SDKs do not retry it
        assert bench.gateway.grant(OPERATOR, 1).denied
        assert bench.budget.spent_tokens == 300 == bench.upstream.billed_tokens
        outcomes = [row.outcome for row in bench.rows]
        assert outcomes == ["ok", "ok", *["budget_denied"] * 3]
        assert bench.ask(max_tokens=10)[0] == 200  # a smaller one still fits


def test_concurrent_requests_stay_within_the_budget(tmp_path: Path) -> None:
    with serving(tmp_path, limit=1000) as bench:
        grant = bench.gateway.grant(OPERATOR, 1)
        bench.upstream.prompt_tokens, bench.upstream.completion_tokens = 20, 100

        async def many() -> list[tuple[int, bytes]]:
            asks = (bench.ask_async(grant, "plain", max_tokens=100) for _ in range(20))
            return await asyncio.gather(*asks)

        statuses = [status for status, _ in asyncio.run(many())]
        assert 0 < statuses.count(200) < 20
        assert bench.upstream.billed_tokens <= 1000


def test_retries_of_the_same_request_are_numbered(bench: Bench) -> None:
    for _ in range(3):
        bench.ask("status-429")
    bench.ask("plain")
    assert [row.retry_index for row in bench.rows] == [0, 1, 2, 0]


def test_two_hundred_streams_at_once_lose_nothing(bench: Bench) -> None:
    async def many() -> list[tuple[int, bytes]]:
        grants = [bench.gateway.grant(OPERATOR, n) for n in range(1, 201)]
        return await asyncio.gather(*(bench.ask_async(g, "plain", stream=True) for g in grants))

    answers = asyncio.run(many())
    assert {status for status, _ in answers} == {200}
    assert len({body for _, body in answers}) == 1
    rows = bench.rows
    assert sorted(row.attempt for row in rows) == list(range(1, 201))
    assert total_tokens(rows) == bench.upstream.billed_tokens == 200 * 150
