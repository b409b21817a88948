"""Every real client and every fault: the ledger is what the provider charged, or says that it
isn't known."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import aiohttp
import clients
import pytest
from benches import CHARGED, OPERATOR, PROVIDERS, STREAMS, endpoints
from clients import CLIENTS, ERRORS, Client
from fakes.scripted_upstream import TEXT, Asked, Reply, Upstream, serving

from kernelmark.evaluators.metering.budget import Limits
from kernelmark.evaluators.metering.gateway import Gateway, open_gateway
from kernelmark.evaluators.metering.gateway import Upstream as Endpoint
from kernelmark.evaluators.metering.ledger import LedgerRow, Usage, read_ledger


@dataclass
class Bench:
    """A gateway before a scripted provider."""

    upstream: Upstream
    gateway: Gateway
    path: Path
    seen_rows: int = 0
    seen_bills: int = 0

    @property
    def rows(self) -> list[LedgerRow]:
        """Those since this was made; waits for one, as a client may act before the answer ends."""
        deadline = time.monotonic() + 10
        while not (rows := read_ledger(self.path)[self.seen_rows :]):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        return rows

    def fresh(self) -> Bench:
        """The same, with nothing seen yet."""
        return replace(
            self, seen_rows=len(read_ledger(self.path)), seen_bills=len(self.upstream.bills)
        )


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    path = tmp_path_factory.mktemp("clients") / "ledger.jsonl"
    with (
        serving() as upstream,
        open_gateway("run1", endpoints(upstream), path) as gateway,
    ):
        yield Bench(upstream, gateway, path)


@pytest.fixture
def bench(shared: Bench) -> Bench:
    return shared.fresh()


def ask(bench: Bench, client: Client, reply: Reply, retries: int | None = 0) -> str | Exception:
    """The text that a client gets, or what it raises."""

    def script(asked: Asked) -> Reply:
        return replace(reply, usage=CHARGED[asked.api])

    bench.upstream.script = script
    try:
        return client.ask(bench.gateway.grant(OPERATOR, 1), retries)
    except Exception as error:  # some SDKs trip over what they did not expect
        return error


def text_of(client: Client) -> str:
    return "" if client.api == "embeddings" else TEXT


each_client = pytest.mark.parametrize("client", CLIENTS, ids=str)
each_stream = pytest.mark.parametrize("client", [c for c in CLIENTS if c.stream], ids=str)


@each_client
@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(Reply(), id="plain"),
        pytest.param(Reply(reasoning="hm", cut_short=True), id="reasoning"),
        pytest.param(Reply(piece_bytes=7), id="split"),
        pytest.param(Reply(piece_bytes=200, pause_s=0.01, delay_s=0.05), id="slow"),
        pytest.param(Reply(gzip=True, piece_bytes=50), id="gzip"),
        pytest.param(Reply(usage_on_last=True), id="late"),
    ],
)
def test_what_is_charged_is_counted(bench: Bench, client: Client, reply: Reply) -> None:
    assert ask(bench, client, reply) == text_of(client)
    (row,) = bench.rows
    assert (row.api, row.stream) == (client.api, client.stream)
    assert (row.outcome, row.usage_source, row.http_status) == ("ok", "provider", 200)
    assert row.usage == CHARGED[client.api] == bench.upstream.bills[-1].usage
    assert (row.model_requested, row.model_served) == ("some-model", "some-model-served")
    assert row.upstream_id in (bench.upstream.bills[-1].id, "")
    assert row.raw_usage


@each_client
def test_usage_that_is_not_told_is_labelled(bench: Bench, client: Client) -> None:
    ask(bench, client, Reply(report_usage=False))
    (row,) = bench.rows
    assert (row.outcome, row.usage_source, row.raw_usage) == ("ok", "estimated", "")
    assert row.usage.out_total >= len(text_of(client).encode()) / 3.5
    assert row.usage.in_uncached > 0


@each_client
@pytest.mark.parametrize("status", [400, 404, 429, 500, 529])
def test_errors_of_the_provider(bench: Bench, client: Client, status: int) -> None:
    error = ask(bench, client, Reply(status=status, retry_after_s=0))
    assert isinstance(error, ERRORS), error
    (row,) = bench.rows
    assert (row.outcome, row.http_status, row.usage) == ("error", status, Usage())
    assert row.usage_source == ("provider" if status < 500 else "missing")
    assert "scripted" in row.detail


@each_stream
@pytest.mark.parametrize("part", [0.0, 0.5, 0.9])
def test_a_stream_that_is_cut(bench: Bench, client: Client, part: float) -> None:
    got = ask(bench, client, Reply(cut_at=part, text=TEXT * 20, deltas=40))
    assert got != TEXT * 20
    (row,) = bench.rows
    assert (row.outcome, row.usage_source) == ("upstream_abort", "estimated")
    if client.api == "messages" and part:  # input is told first
        told = replace(CHARGED["messages"], out_total=0, out_reasoning=0)
        assert replace(row.usage, out_total=0) == told
    if part:
        assert row.usage.out_total >= len((TEXT * 20).encode()) * part / 2 / 3.5


@pytest.mark.parametrize("client", [c for c in CLIENTS if not c.stream], ids=str)
def test_an_answer_that_is_cut(bench: Bench, client: Client) -> None:
    assert isinstance(ask(bench, client, Reply(cut_at=0.5)), Exception)
    (row,) = bench.rows
    assert (row.outcome, row.usage_source, row.usage) == ("upstream_abort", "missing", Usage())


@each_stream
def test_a_provider_that_gives_up_in_mid_stream(bench: Bench, client: Client) -> None:
    ask(bench, client, Reply(error_in_stream=True))
    (row,) = bench.rows
    assert row.outcome == "error"
    assert row.usage_source in ("estimated", "missing")
    assert "scripted" in row.detail


@each_client
def test_an_answer_that_makes_no_sense(bench: Bench, client: Client) -> None:
    ask(bench, client, Reply(raw=b"<html>busy</html>"))
    (row,) = bench.rows
    assert (row.outcome, row.http_status, row.usage_source) == ("error", 200, "missing")


@each_client
def test_a_refusal_by_the_provider_is_passed_in_its_words(bench: Bench, client: Client) -> None:
    bench.upstream.models = ("another",)
    try:
        error = ask(bench, client, Reply())
    finally:
        bench.upstream.models = ()
    assert isinstance(error, ERRORS)
    assert "no model some-model" in str(error)
    (row,) = bench.rows
    assert (row.outcome, row.http_status, row.usage) == ("error", 404, Usage())


@each_client
def test_retries_are_counted_one_by_one(bench: Bench, client: Client) -> None:
    """An overloaded provider, then a good answer: SDKs that retry have two rows and one bill."""
    replies = iter([Reply(status=429, retry_after_s=0)])

    def script(asked: Asked) -> Reply:
        return next(replies, Reply(usage=CHARGED[asked.api]))

    bench.upstream.script = script
    try:
        client.ask(bench.gateway.grant(OPERATOR, 2), None)
    except ERRORS:
        assert [row.http_status for row in bench.rows] == [429]  # it doesn't retry
        return
    first, second = bench.rows
    assert (first.outcome, first.usage) == ("error", Usage())
    assert second.usage == CHARGED[client.api]
    assert first.retry_index + 1 == second.retry_index


@each_client
def test_over_budget_clients_stop(tmp_path: Path, client: Client) -> None:
    with (
        serving() as upstream,
        open_gateway(
            "run1", endpoints(upstream), tmp_path / "l.jsonl", {"run": Limits(requests=1)}
        ) as gateway,
    ):
        grant = gateway.grant(OPERATOR, 1)
        client.ask(grant, None)
        with pytest.raises(ERRORS, match="budget of 1 requests for the run"):
            client.ask(grant, None)
        assert grant.denied
        assert [row.outcome for row in read_ledger(tmp_path / "l.jsonl")] == ["ok", "budget_denied"]
        assert len(upstream.bills) == 1


@each_client
def test_an_unreachable_provider_brings_no_storm(tmp_path: Path, client: Client) -> None:
    nowhere = {name: Endpoint("http://127.0.0.1:9", "k") for name in PROVIDERS}
    with open_gateway("run1", nowhere, tmp_path / "l.jsonl") as gateway, pytest.raises(ERRORS):
        client.ask(gateway.grant(OPERATOR, 1), None)
    rows = read_ledger(tmp_path / "l.jsonl")
    assert len(rows) <= 5
    assert {(row.outcome, row.usage_source) for row in rows} == {("error", "missing")}


@each_client
def test_a_key_that_the_provider_refuses(tmp_path: Path, client: Client) -> None:
    with serving() as upstream:
        wrong = {name: Endpoint(upstream.url(name), "old-key") for name in PROVIDERS}
        with (
            open_gateway("run1", wrong, tmp_path / "l.jsonl") as gateway,
            pytest.raises(ERRORS, match="bad key"),
        ):
            client.ask(gateway.grant(OPERATOR, 1), None)
    (row,) = read_ledger(tmp_path / "l.jsonl")
    assert (row.outcome, row.http_status, row.usage) == ("error", 401, Usage())


def test_free_requests_are_recorded_and_not_charged(bench: Bench) -> None:
    grant = bench.gateway.grant(OPERATOR, 3)
    openai_sdk = clients.openai_client(grant, 0)
    anthropic_sdk = clients.anthropic_client(grant, 0)
    genai_sdk = clients.genai_client(grant, 0)
    assert [m.id for m in openai_sdk.models.list()] == ["some-model"]
    assert [m.id for m in anthropic_sdk.models.list()] == ["some-model"]
    assert [m.name for m in genai_sdk.models.list()] == ["models/some-model"]
    counted = anthropic_sdk.messages.count_tokens(model="m", messages=clients.MESSAGES)
    assert counted.input_tokens > 0
    assert genai_sdk.models.count_tokens(model="m", contents="hi").total_tokens
    assert openai_sdk.responses.input_tokens.count(model="m", input="hi").input_tokens
    rows = bench.rows
    assert [row.api for row in rows] == ["models"] * 3 + ["count_tokens"] * 3
    assert all(row.usage == Usage() and row.cost_usd == 0 for row in rows)
    assert len(bench.upstream.bills) == bench.seen_bills


@pytest.mark.parametrize("api", STREAMS)
@pytest.mark.parametrize("piece", [1, 7, 0])
def test_streams_are_the_same_bytes(bench: Bench, api: str, piece: int) -> None:
    """But for the usage chunk of chat, which the client did not ask for."""
    path, body = STREAMS[api]
    usage = CHARGED[api.split()[0]]
    reply = Reply(piece_bytes=piece, usage=usage, text='esc "\\" [}{] é' + TEXT)
    bench.upstream.script = lambda asked: reply
    got = asyncio.run(_post(bench.gateway, path, body))
    asked = bench.upstream.requests[-1]
    if api == "chat":
        asked = replace(asked, body={**asked.body, "stream_options": None})
    assert got == bench.upstream.body(asked, reply, bench.upstream.bills[-1].id, usage)
    (row,) = bench.rows
    assert (row.outcome, row.usage_source, row.usage) == ("ok", "provider", usage)


def test_two_hundred_mixed_streams_at_once_lose_nothing(bench: Bench) -> None:
    bench.upstream.script = lambda asked: Reply(
        text=f"{asked.number} " * 50,
        deltas=20,
        pause_s=0.01,
        usage=replace(CHARGED[asked.api], in_uncached=asked.number),
    )

    async def many() -> None:
        kinds = list(STREAMS.values())
        asks = [_post(bench.gateway, *kinds[n % len(kinds)], attempt=n) for n in range(200)]
        await asyncio.gather(*asks)

    asyncio.run(many())
    bills = {bill.id: bill.usage for bill in bench.upstream.bills[bench.seen_bills :]}
    rows = {row.upstream_id: row.usage for row in bench.rows}
    assert len(bench.rows) == len(bills) == 200
    assert rows == bills
    assert {row.usage_source for row in bench.rows} == {"provider"}
    assert sorted(row.attempt for row in bench.rows) == list(range(200))


async def _post(gateway: Gateway, path: str, body: object, attempt: int = 9) -> bytes:
    grant = gateway.grant(OPERATOR, attempt)
    headers = {"Authorization": f"Bearer {grant.token}", "Content-Type": "application/json"}
    data = json.dumps(body)
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{grant.root_url}/{path}", data=data, headers=headers) as answer,
    ):
        assert answer.status == 200, await answer.text()
        return await answer.read()
