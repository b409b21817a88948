"""What clients and providers do wrong, and what the gateway must not."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import benches
import pytest
from benches import CHARGED, OPERATOR, PROVIDERS, REQUESTS, STREAMS, Bench
from fakes.scripted_upstream import KEY, Asked, Reply, serving

from kernelmark.benchmark.errors import UserError
from kernelmark.evaluators.metering import gateway as gateway_module
from kernelmark.evaluators.metering.budget import Limits, Scope
from kernelmark.evaluators.metering.gateway import Upstream as Endpoint
from kernelmark.evaluators.metering.gateway import open_gateway
from kernelmark.evaluators.metering.ledger import Usage, read_ledger


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with benches.bench(tmp_path) as bench:
        yield bench


def charge(asked: Asked) -> Reply:
    return Reply(usage=CHARGED[asked.api])


def shape(api: str, error: Any) -> bool:
    """Whether an error is in the dialect's words."""
    if api == "messages":
        return error["type"] == "error" and bool(error["error"]["type"])
    if api == "gemini":
        return error["error"]["code"] >= 400 and bool(error["error"]["status"])
    return bool(error["error"]["type"]) and "code" in error["error"]


# who may ask


@pytest.mark.parametrize("api", REQUESTS)
def test_only_the_token_of_the_attempt_opens(bench: Bench, api: str) -> None:
    path, body = REQUESTS[api]
    other = bench.gateway.grant(OPERATOR, 2).token
    for token in (other, "", "x", "é", KEY):
        answer = bench.ask(path, body, headers={"x-api-key": token})
        assert (answer.status, shape(api, answer.json)) == (401, True)
    assert bench.ask(path, body, headers={}).status == 401
    assert bench.upstream.requests == []
    assert read_ledger(bench.path) == []


@pytest.mark.parametrize(
    "prefix", ["r/run2/aten.softmax/1", "r/run1/aten.other/1", "r/run1/aten.softmax/7", ""]
)
def test_another_place_opens_nothing(bench: Bench, prefix: str) -> None:
    path, body = REQUESTS["messages"]
    answer = bench.ask(path, body, root=f"http://127.0.0.1:{bench.gateway.port}/{prefix}")
    assert (answer.status, answer.json["type"]) == (401, "error")
    assert bench.upstream.requests == []


@pytest.mark.parametrize("place", ["Authorization", "x-api-key", "x-goog-api-key", "key="])
@pytest.mark.parametrize("api", ["chat", "messages", "gemini"])
def test_the_token_goes_wherever_a_key_goes_and_the_key_takes_its_place(
    bench: Bench, api: str, place: str
) -> None:
    bench.upstream.script = charge
    token = bench.gateway.grant(OPERATOR, 1).token
    path, body = REQUESTS[api]
    headers = {place: f"Bearer {token}" if place == "Authorization" else token}
    if place == "key=":
        path, headers = f"{path}?beta=true&key={token}", {}
    headers |= {"anthropic-version": "1", "anthropic-beta": "b"} if api == "messages" else {}
    assert bench.ask(path, body, headers=headers).status == 200
    (asked,) = bench.upstream.requests
    sent = f"{dict(asked.headers)} {dict(asked.query)}"
    assert token not in sent
    assert sent.count(KEY) == 1
    assert dict(asked.query) == ({"beta": "true"} if place == "key=" else {})
    if api == "messages":
        assert (asked.headers["anthropic-beta"], asked.headers["anthropic-version"]) == ("b", "1")


# what is asked


@pytest.mark.parametrize(
    ("method", "path", "provider"),
    [
        ("POST", "v1/messages/batches", "messages"),
        ("POST", "v1beta/models/m:batchGenerateContent", "gemini"),
        ("POST", "v1beta/cachedContents", "gemini"),
        ("POST", "v1/images/generations", "chat"),
        ("GET", "v1/responses/resp_1", "chat"),
        ("GET", "v1/chat/completions", "chat"),
        ("GET", "v1/models/../files", "chat"),
        ("GET", "v1/models/%2e%2e/files", "chat"),
        ("HEAD", "", "chat"),
    ],
)
def test_what_is_not_served(bench: Bench, method: str, path: str, provider: str) -> None:
    answer = bench.ask(path, {} if method == "POST" else None, method=method)
    assert answer.status == 404
    if method != "HEAD":
        assert shape(provider, answer.json)
        assert "v1/messages" in answer.message  # says what is
    assert bench.upstream.requests == []


@pytest.mark.parametrize("api", REQUESTS)
@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"{", b"\xff", b"[" * 100_000, b'{"model": 3, "max_tokens": "x"}'],
    ids=["empty", "array", "cut", "bytes", "deep", "types"],
)
def test_a_body_that_is_no_request(bench: Bench, api: str, body: bytes) -> None:
    if api == "gemini" and body in (b"", b'{"model": 3, "max_tokens": "x"}'):
        body = b'{"generationConfig": {"maxOutputTokens": "x"}}'  # the model is in the path
    answer = bench.ask(REQUESTS[api][0], body)
    assert (answer.status, shape(api, answer.json)) == (400, True)
    assert answer.headers["x-should-retry"] == "false"
    assert bench.upstream.requests == []


@pytest.mark.parametrize("api", REQUESTS)
def test_a_huge_body(tmp_path: Path, api: str) -> None:
    with benches.bench(tmp_path, max_body_bytes=10_000) as bench:
        path, body = REQUESTS[api]
        answer = bench.ask(path, {**body, "more": "x" * 20_000})
        assert (answer.status, shape(api, answer.json)) == (413, True)
        assert "10000 bytes" in answer.message
        assert bench.upstream.requests == []
        assert bench.ask(path, body).status == 200  # and it still serves


def test_a_compressed_body_is_sent_on_plain(bench: Bench) -> None:
    path, body = REQUESTS["chat"]
    data = gzip.compress(b'{"model": "m", "messages": []}')
    headers = {
        "Authorization": f"Bearer {bench.gateway.grant(OPERATOR, 1).token}",
        "Content-Encoding": "gzip",
        "Content-Type": "application/json",
    }
    assert bench.ask(path, data, headers=headers).status == 200
    (asked,) = bench.upstream.requests
    assert asked.body == body
    assert "Content-Encoding" not in asked.headers


def test_half_a_character_goes_on_as_it_came(bench: Bench) -> None:
    """Agents cut texts anywhere; the request is changed here, to ask for usage."""
    said = [{"role": "user", "content": "\ud83d"}]
    body = {"model": "m", "stream": True, "messages": said}
    assert bench.ask("v1/chat/completions", json.dumps(body).encode()).status == 200
    (asked,) = bench.upstream.requests
    assert asked.body["messages"] == said


SERVER_TOOLS = {
    "chat": [{"web_search_options": {}}, {"tools": [{"type": "browser"}]}],
    "responses": [
        {"tools": [{"type": kind}]}
        for kind in ("web_search", "code_interpreter", "mcp", "file_search", "shell", "new_one")
    ],
    "messages": [
        {"tools": [{"type": "web_search_20260318", "name": "web_search"}]},
        {"tools": [{"type": "code_execution_20260521", "name": "x"}]},
        {"mcp_servers": [{"type": "url", "url": "http://x"}]},
    ],
    "gemini": [
        {"tools": [{"googleSearch": {}}]},
        {"tools": [{"code_execution": {}}]},
        {"tools": [{"functionDeclarations": [], "urlContext": {}}]},
    ],
}
CLIENT_TOOLS = {
    "chat": [{"type": "function", "function": {"name": "x"}}],
    "responses": [{"type": "function", "name": "x"}, {"type": "custom", "name": "y"}],
    "messages": [{"name": "x", "input_schema": {}}, {"type": "bash_20250124", "name": "bash"}],
    "gemini": [{"functionDeclarations": [{"name": "x"}]}, {"function_declarations": []}],
}


@pytest.mark.parametrize("api", SERVER_TOOLS)
def test_tools_that_run_at_the_provider_are_refused(bench: Bench, api: str) -> None:
    path, body = REQUESTS[api]
    for more in SERVER_TOOLS[api]:
        answer = bench.ask(path, {**body, **more})
        assert (answer.status, shape(api, answer.json)) == (400, True)
        assert "tools that run at the provider" in answer.message
    assert bench.upstream.requests == []
    assert bench.ask(path, {**body, "tools": CLIENT_TOOLS[api]}).status == 200


def test_tools_at_the_provider_may_be_allowed(tmp_path: Path) -> None:
    with benches.bench(tmp_path, server_tools=True) as bench:
        path, body = REQUESTS["messages"]
        more = SERVER_TOOLS["messages"][0]
        assert bench.ask(path, {**body, **more}).status == 200


def test_a_response_in_the_background_is_refused(bench: Bench) -> None:
    answer = bench.ask("v1/responses", {"model": "m", "input": "hi", "background": True})
    assert answer.status == 400
    assert "background" in answer.message


def test_one_connection_serves_many_requests_and_outlives_errors(bench: Bench) -> None:
    path, body = REQUESTS["chat"]
    grant = bench.gateway.grant(OPERATOR, 1)
    statuses: list[int] = []
    connections: list[object] = []

    async def many() -> None:
        async def made(*about: object) -> None:
            connections.append(about)

        trace = aiohttp.TraceConfig()
        trace.on_connection_create_end.append(made)
        headers = {"Authorization": f"Bearer {grant.token}"}
        async with aiohttp.ClientSession(headers=headers, trace_configs=[trace]) as session:
            for data in (body, {}, {**body, "stream": True}, body):
                async with session.post(f"{grant.root_url}/{path}", json=data) as answer:
                    await answer.read()
                    statuses.append(answer.status)

    asyncio.run(many())
    assert statuses == [200, 400, 200, 200]
    assert len(connections) == 1


@pytest.mark.parametrize(
    ("headers", "sender"),
    [
        ({"X-Claude-Code-Session-Id": "s"}, ("s", "", "")),
        ({"X-Claude-Code-Session-Id": "s", "x-claude-code-agent-id": "a"}, ("s", "a", "")),
        (
            {
                "X-Claude-Code-Session-Id": "s",
                "x-claude-code-agent-id": "b",
                "x-claude-code-parent-agent-id": "a",
            },
            ("s", "b", "a"),
        ),
        ({"session-id": "s", "thread-id": "s"}, ("s", "", "")),
        (
            {"session-id": "s", "thread-id": "t", "x-codex-parent-thread-id": "s"},
            ("s", "t", "s"),
        ),
        ({"x-session-id": "s"}, ("s", "", "")),
        ({"x-session-id": "t", "x-parent-session-id": "s"}, ("t", "t", "s")),
        ({"x-session-id": "s" * 5000}, ("s" * 200, "", "")),
        ({}, ("", "", "")),
    ],
)
def test_sub_agents_are_told_apart(
    bench: Bench, headers: dict[str, str], sender: tuple[str, str, str]
) -> None:
    """As Claude Code, Codex and OpenCode tell."""
    token = {"x-api-key": bench.gateway.grant(OPERATOR, 1).token}
    bench.ask(*REQUESTS["messages"], headers={**token, **headers})
    (row,) = bench.rows()
    assert (row.session, row.agent, row.parent_agent) == sender


def test_the_same_request_again_is_a_retry(bench: Bench) -> None:
    bench.upstream.script = lambda asked: Reply(status=429)
    path, body = REQUESTS["chat"]
    for _ in range(3):
        bench.ask(path, body)
    bench.ask(path, body, attempt=2)
    bench.ask(path, {**body, "n": 1})
    assert [row.retry_index for row in bench.rows(5)] == [0, 1, 2, 0, 0]


@pytest.mark.parametrize(("sent", "told"), [("3", 3), ("x", 0), ("", 0), ("-1", 0), ("9" * 99, 0)])
def test_retries_that_clients_tell(bench: Bench, sent: str, told: int) -> None:
    token = {"x-api-key": bench.gateway.grant(OPERATOR, 1).token}
    bench.ask(*REQUESTS["messages"], headers={**token, "X-Stainless-Retry-Count": sent})
    assert bench.rows()[0].retry_index == told


# what the provider does


@pytest.mark.parametrize("api", REQUESTS)
def test_no_upstream_for_a_dialect(tmp_path: Path, api: str) -> None:
    with open_gateway("run1", {}, tmp_path / "l.jsonl") as gateway, serving() as upstream:
        bench = Bench(upstream, gateway, gateway.budget, tmp_path / "l.jsonl")
        answer = bench.ask(*REQUESTS[api])
    assert (answer.status, shape(api, answer.json)) == (404, True)
    assert "no upstream for the dialect of" in answer.message


@pytest.mark.parametrize("api", REQUESTS)
def test_nobody_there(tmp_path: Path, api: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, and not listening
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        nowhere = {name: Endpoint(url, "k") for name in PROVIDERS}
        with open_gateway("run1", nowhere, tmp_path / "l.jsonl") as gateway, serving() as upstream:
            bench = Bench(upstream, gateway, gateway.budget, tmp_path / "l.jsonl")
            answer = bench.ask(*REQUESTS[api])
    assert (answer.status, shape(api, answer.json)) == (502, True)
    assert answer.headers["x-should-retry"] == "false"
    (row,) = read_ledger(tmp_path / "l.jsonl")
    assert (row.outcome, row.usage_source, row.http_status) == ("error", "missing", None)
    assert "ClientConnectorError" in row.detail


@pytest.mark.parametrize("api", STREAMS)
def test_silence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, api: str) -> None:
    short = aiohttp.ClientTimeout(total=None, sock_read=0.3)
    monkeypatch.setattr(gateway_module, "_TIMEOUT", short)
    with benches.bench(tmp_path) as bench:
        bench.upstream.script = lambda asked: Reply(delay_s=1)
        answer = bench.ask(*STREAMS[api])
        assert (answer.status, shape(api.split()[0], answer.json)) == (504, True)
        bench.upstream.script = lambda asked: Reply(piece_bytes=80, pause_s=1)
        with pytest.raises(aiohttp.ClientPayloadError):
            bench.ask(*STREAMS[api])
        before, within = bench.rows(2)
    assert (before.outcome, before.usage_source) == ("timeout", "missing")
    assert (within.outcome, within.usage_source) == ("timeout", "estimated")


@pytest.mark.parametrize("packed", [False, True])
def test_a_provider_that_repeats_the_key(bench: Bench, packed: bool) -> None:
    bench.upstream.script = lambda asked: Reply(status=403, message=f"no {KEY}!", gzip=packed)
    answer = bench.ask(*REQUESTS["messages"])
    assert (answer.status, answer.message) == (403, "no (key)!")
    assert KEY not in bench.path.read_text()


@pytest.mark.parametrize(
    ("name", "url", "told"),
    [
        ("openai", "localhost:8000/v1", "https://"),
        ("openai", "http://me:secret@host/v1", "keys go elsewhere"),
        ("openai", "http://host/v1?key=secret", "keys go elsewhere"),
        ("anthropic", "http://host/v1/", "leave /v1 off"),
        ("mistral", "http://host/v1", "openai, anthropic, gemini"),
    ],
)
def test_upstreams_that_cannot_be_meant(tmp_path: Path, name: str, url: str, told: str) -> None:
    with (
        pytest.raises(UserError, match=told) as caught,
        open_gateway("run1", {name: Endpoint(url, "k")}, tmp_path / "l.jsonl"),
    ):
        pass
    assert "secret" not in str(caught.value)


def test_a_redirect_is_not_followed(bench: Bench) -> None:
    bench.upstream.script = lambda asked: Reply(status=307)
    answer = bench.ask(*REQUESTS["chat"])
    assert answer.status == 502
    assert "redirects" in answer.message


@pytest.mark.parametrize("api", STREAMS)
def test_compressed_streams_are_read_and_passed_unchanged(bench: Bench, api: str) -> None:
    path, body = STREAMS[api]
    if api == "chat":
        body = {**body, "stream_options": {"include_usage": True}}
    usage = CHARGED[api.split()[0]]
    reply = Reply(gzip=True, piece_bytes=11, usage=usage)
    bench.upstream.script = lambda asked: reply
    answer = bench.ask(path, body)
    assert answer.headers["Content-Encoding"] == "gzip"
    plain = bench.upstream.body(bench.upstream.requests[-1], reply, "answer-000000", usage)
    assert answer.body == gzip.compress(plain, mtime=0) or gzip.decompress(answer.body) == plain
    (row,) = bench.rows()
    assert (row.usage_source, row.usage) == ("provider", usage)


def test_a_compressed_stream_with_usage_to_hide_goes_on_plain(bench: Bench) -> None:
    bench.upstream.script = lambda asked: Reply(gzip=True, piece_bytes=11)
    answer = bench.ask(*STREAMS["chat"])
    assert "Content-Encoding" not in answer.headers
    assert answer.body.endswith(b"data: [DONE]\n\n")
    assert b'"usage"' not in answer.body
    assert bench.rows()[0].usage == bench.upstream.billed


@pytest.mark.parametrize("requests", [REQUESTS, STREAMS], ids=["whole", "stream"])
@pytest.mark.parametrize("api", ["chat", "messages", "gemini"])
def test_an_encoding_that_cannot_be_read_is_labelled(
    bench: Bench, api: str, requests: dict[str, Any]
) -> None:
    path, body = requests[api]
    kind = "text/event-stream" if requests is STREAMS else "application/json"
    reply = Reply(raw=b"\x8b\x01\x80abc", content_type=kind, encoding="br")
    bench.upstream.script = lambda asked: reply
    answer = bench.ask(path, body)
    assert (answer.status, answer.body) == (200, b"\x8b\x01\x80abc")
    assert answer.headers["Content-Encoding"] == "br"
    (row,) = bench.rows()
    assert (row.outcome, row.usage_source, row.usage) == ("ok", "missing", Usage())
    assert row.cost_usd is None
    assert "encoding" in row.detail


def test_a_stream_that_just_ends_is_passed_as_it_came(bench: Bench) -> None:
    """No last event, and no cut either: some servers do that. The client gets what there was."""
    half = b'data: {"choices": [{"index": 0, "delta": {"content": "hi"}}]}\n\n'
    bench.upstream.script = lambda asked: Reply(raw=half, content_type="text/event-stream")
    assert bench.ask(*STREAMS["chat"]).body == half
    (row,) = bench.rows()
    assert (row.outcome, row.usage_source) == ("upstream_abort", "estimated")


def test_damaged_compression_is_labelled(bench: Bench) -> None:
    reply = Reply(raw=b"not gzip at all", content_type="application/json", encoding="gzip")
    bench.upstream.script = lambda asked: reply
    assert bench.ask(*REQUESTS["chat"]).body == b"not gzip at all"
    assert bench.rows()[0].usage_source == "missing"


# clients that go away


@pytest.mark.parametrize("api", STREAMS)
def test_a_client_that_hangs_up_is_charged_all_the_same(bench: Bench, api: str) -> None:
    bench.upstream.script = lambda asked: replace(
        charge(asked), text="word " * 400, piece_bytes=100, pause_s=0.01
    )
    asyncio.run(bench.hang_up(*STREAMS[api]))
    (row,) = bench.rows()
    assert (row.outcome, row.usage_source) == ("client_abort", "provider")
    assert row.usage == bench.upstream.billed == CHARGED[api.split()[0]]


@pytest.mark.parametrize(
    ("api", "last"),
    [("chat", b"[DONE]"), ("responses", b"response.completed"), ("messages", b"message_delta")],
)
def test_the_row_is_there_before_the_event_that_clients_act_on(
    bench: Bench, api: str, last: bytes
) -> None:
    """They don't wait for the connection to end."""
    bench.upstream.script = lambda asked: replace(charge(asked), linger_s=2)
    path, body = STREAMS[api]
    grant = bench.gateway.grant(OPERATOR, 1)

    async def ask() -> None:
        async with (
            aiohttp.ClientSession(headers={"x-api-key": grant.token}) as session,
            session.post(f"{grant.root_url}/{path}", json=body) as answer,
        ):
            while last not in await answer.content.readline():
                assert not answer.content.at_eof()
            assert [row.usage for row in read_ledger(bench.path)] == [CHARGED[api]]

    asyncio.run(ask())


@pytest.mark.parametrize("api", ["chat", "messages", "gemini"])
def test_an_endless_answer_is_not_drained_for_ever(tmp_path: Path, api: str) -> None:
    with benches.bench(tmp_path, drain_s=0.3) as bench:
        bench.upstream.script = lambda asked: replace(
            charge(asked), text="word " * 4000, deltas=1000, pause_s=0.01
        )
        asyncio.run(bench.hang_up(*STREAMS[api]))
        (row,) = bench.rows()
    assert (row.outcome, row.usage_source) == ("client_abort", "estimated")
    assert 0 < row.usage.out_total < 5000


def test_a_client_that_does_not_wait_for_a_whole_answer(bench: Bench) -> None:
    bench.upstream.script = lambda asked: replace(charge(asked), delay_s=0.3)

    async def give_up() -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(bench.ask_async(*REQUESTS["messages"]), 0.1)

    asyncio.run(give_up())
    (row,) = bench.rows()
    assert (row.outcome, row.usage_source) == ("client_abort", "provider")
    assert row.usage == bench.upstream.billed


# budgets on the wire


@pytest.mark.parametrize("scope", ["attempt", "operator", "run"])
@pytest.mark.parametrize("api", ["chat", "messages", "gemini"])
def test_twenty_at_once_overspend_by_no_more_than_one_answer_each(
    tmp_path: Path, api: str, scope: Scope
) -> None:
    """Answers longer than anybody could expect."""
    limit, each = 60_000, Usage(in_uncached=1_000, out_total=9_000)
    with benches.bench(tmp_path, {scope: Limits(tokens=limit)}) as bench:
        bench.upstream.script = lambda asked: Reply(usage=each, delay_s=0.05)

        async def many() -> list[int]:
            kinds = [STREAMS[api], REQUESTS[api]] * 10
            answers = await asyncio.gather(*(bench.ask_async(*kind) for kind in kinds))
            return [answer.status for answer in answers]

        statuses = [status for _ in range(3) for status in asyncio.run(many())]
        assert set(statuses) == {200, 400}
        at_once = statuses[:20].count(200)
        assert limit - each.total < bench.upstream.billed.total
        assert bench.upstream.billed.total <= limit + at_once * each.total
        assert bench.budget.spent_tokens == bench.upstream.billed.total
        stop = bench.budget.exhausted(OPERATOR, 1)
        assert stop is not None
        assert (stop.scope, stop.limit) == (scope, "tokens")
        assert bench.gateway.grant(OPERATOR, 1).stop is not None
        rows = bench.rows(60)
        denied = [row for row in rows if row.outcome == "budget_denied"]
        assert len(denied) == statuses.count(400)
        assert all(f"budget of {limit} tokens for" in row.detail for row in denied)


def test_a_request_waits_for_what_others_hold(tmp_path: Path) -> None:
    """Eight at once expect more than the budget has; what they use fits, one after another."""
    with benches.bench(tmp_path, {"run": Limits(tokens=10_000)}) as bench:
        bench.upstream.script = lambda asked: Reply(usage=Usage(out_total=500), delay_s=0.02)

        async def many(count: int) -> list[int]:
            asks = (bench.ask_async(*REQUESTS["chat"]) for _ in range(count))
            return [answer.status for answer in await asyncio.gather(*asks)]

        assert asyncio.run(many(8)) == [200] * 8
        assert bench.budget.stops == []
        # 6000 are left and 4096 expected: four fit one by one, then no more
        assert sorted(asyncio.run(many(8))) == [200] * 4 + [400] * 4
        assert bench.budget.spent_tokens == bench.upstream.billed.total == 6_000


def test_a_client_that_goes_while_it_waits_is_not_forwarded(tmp_path: Path) -> None:
    with benches.bench(tmp_path, {"run": Limits(tokens=9_000)}) as bench:
        bench.upstream.script = lambda asked: Reply(delay_s=0.4, usage=Usage(out_total=10))

        async def ask() -> None:
            first = [asyncio.create_task(bench.ask_async(*REQUESTS["chat"])) for _ in range(2)]
            await asyncio.sleep(0.1)
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(bench.ask_async(*REQUESTS["chat"]), 0.1)
            await asyncio.gather(*first)

        asyncio.run(ask())
        rows = bench.rows(3)
        assert len(bench.upstream.bills) == 2
        assert sorted(row.outcome for row in rows) == ["client_abort", "ok", "ok"]
        assert bench.budget.spent_tokens == 20


def test_a_budget_is_reserved_before_and_settled_after(tmp_path: Path) -> None:
    with benches.bench(tmp_path, {"run": Limits(tokens=420)}) as bench:
        bench.upstream.script = lambda asked: Reply(usage=Usage(120, out_total=30))
        path, body = REQUESTS["chat"]
        asked = {**body, "max_tokens": 110}
        statuses = [bench.ask(path, asked).status for _ in range(4)]
        assert statuses == [200, 200, 400, 400]
        assert bench.ask(path, {**body, "max_tokens": 10}).status == 200  # it still fits
        assert bench.budget.spent_tokens == bench.upstream.billed.total == 450


def test_dollars(tmp_path: Path) -> None:
    with benches.bench(tmp_path, {"run": Limits(usd=0.02)}) as bench:
        bench.upstream.script = lambda asked: Reply(
            usage=Usage(1000, out_total=500), model=asked.model
        )
        path, body = REQUESTS["chat"]
        answer = bench.ask(path, body)
        assert (answer.status, answer.message.count("no known price")) == (400, 1)
        asked = {**body, "model": "gpt-5", "max_tokens": 600}
        statuses = [bench.ask(path, asked).status for _ in range(4)]
        assert statuses == [200, 200, 200, 400]
        costs = [row.cost_usd for row in bench.rows(5)]
        assert costs == [None, *[pytest.approx(0.00625)] * 3, None]
        assert bench.budget.stops[-1].limit == "usd"


def test_free_requests_need_no_budget(tmp_path: Path) -> None:
    with benches.bench(tmp_path, {"run": Limits(requests=0)}) as bench:
        assert bench.ask("v1/models", method="GET").status == 200
        assert bench.ask("v1/messages/count_tokens", {"model": "m"}).status == 200
        assert bench.ask(*REQUESTS["messages"]).status == 400


# the gateway itself


def test_a_socket_for_clients_without_a_network(tmp_path: Path) -> None:
    path = tmp_path / "gateway.sock"
    with (
        serving(charge) as upstream,
        open_gateway(
            "run1", benches.endpoints(upstream), tmp_path / "l.jsonl", socket=path
        ) as gateway,
    ):
        grant = gateway.grant(OPERATOR, 1)

        async def ask() -> int:
            connector = aiohttp.UnixConnector(str(path))
            async with (
                aiohttp.ClientSession(connector=connector) as session,
                session.post(
                    f"http://gateway{grant.path}/v1/messages",
                    json=REQUESTS["messages"][1],
                    headers={"x-api-key": grant.token},
                ) as answer,
            ):
                return answer.status

        assert asyncio.run(ask()) == 200
    assert read_ledger(tmp_path / "l.jsonl")[0].usage == CHARGED["messages"]


def test_what_is_under_way_at_the_end_has_its_row(tmp_path: Path) -> None:
    """The gateway is closed while an answer comes; the provider is not waited for."""
    with benches.bench(tmp_path, drain_s=0.2) as bench:
        bench.upstream.script = lambda asked: replace(
            charge(asked), text="word " * 4000, deltas=1000, pause_s=0.01
        )
        asyncio.run(bench.hang_up(*STREAMS["messages"]))
    (row,) = read_ledger(tmp_path / "ledger.jsonl")
    assert row.outcome in ("client_abort", "gateway_abort")
    assert row.usage_source in ("estimated", "missing")
    assert not (tmp_path / "ledger.jsonl.begun").exists()


def test_what_cannot_be_recorded_is_not_forwarded(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(row: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(bench.gateway._ledger, "begin", full)
    assert bench.ask(*REQUESTS["chat"]).status == 500
    assert bench.upstream.requests == []
