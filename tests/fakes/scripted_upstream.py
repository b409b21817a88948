"""A provider on loopback that speaks every dialect and does what a script says.

Speaks OpenAI (``/v1/chat/completions``, ``/v1/responses``, ``/v1/embeddings``, ``/v1/models``),
Anthropic (``/v1/messages``, ``/v1/messages/count_tokens``) and Gemini (``generateContent``,
``streamGenerateContent``, ``countTokens``), whole and streamed, and keeps its own exact account of
the tokens of every request in `Upstream.bills`.

::

    from fakes.scripted_upstream import Reply, ToolCall, serving

    with serving(lambda asked: Reply(text=f"answer {asked.number}")) as upstream:
        client = openai.OpenAI(base_url=upstream.url("openai"), api_key=upstream.key)
        ...
        assert upstream.billed == total of the ledger

A script is a function from `Asked` (what came) to `Reply` (what to answer and how to misbehave),
or a sequence of replies, used in order; when it is over, requests are refused with status 400.
Free requests (models, counts of tokens) are answered without asking the script.

The same `Reply` is put into whatever dialect the request came in. Tool calls become
``tool_calls`` (chat), ``function_call`` items (responses; ``custom_tool_call`` where `custom`),
``tool_use`` blocks (Anthropic) or ``functionCall`` parts (Gemini). A script for an agent usually
looks at `asked.number`, `asked.text` (the whole request as text) and `asked.tools`.

Tokens are those of `Reply.usage`, or, where that is None, a count made from the sizes of request
and answer. `Bill.usage` is what was charged, `Bill.reported` whether the client could have seen
it. Not for code of the product: it imports nothing but the ledger's `Usage`.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from fakes import scripted_dialects
from kernelmark.evaluators.metering.ledger import Usage

KEY = "the-real-key"
TEXT = "Grüße, 世界! 😀 " * 3


@dataclass(frozen=True)
class ToolCall:
    """What the model wants done. `custom`: OpenAI's free-form tools, `arguments` a text."""

    name: str
    arguments: Any = field(default_factory=dict)
    custom: bool = False
    id: str = ""  #: empty: made up
    namespace: str = ""  #: of the tool, in responses


@dataclass(frozen=True)
class Reply:
    """One answer. The first group is its content, the second how it misbehaves."""

    text: str = TEXT
    tool_calls: Sequence[ToolCall] = ()
    reasoning: str = ""  #: shown thinking, where the dialect has it
    usage: Usage | None = None  #: None: counted from sizes
    model: str = ""  #: that served; empty: the one asked for, and "-served"
    cut_short: bool = False  #: ends at the output limit

    status: int = 200
    message: str = "scripted"  #: of the error, where `status` is not 200
    retry_after_s: int | None = None
    report_usage: bool = True
    usage_on_last: bool = False  #: chat streams: on the last chunk with choices, whatever was asked
    error_in_stream: bool = False  #: gives up in the middle, in the dialect's words
    cut_at: float | None = None  #: hangs up after this part of the body
    deltas: int = 2  #: pieces that the text is streamed in
    piece_bytes: int = 0  #: writes so many bytes at a time; splits characters and events
    pause_s: float = 0.0  #: between writes
    delay_s: float = 0.0  #: before the first byte
    linger_s: float = 0.0  #: between the last byte and the end of the answer
    gzip: bool = False
    raw: bytes | None = None  #: instead of any answer
    content_type: str = "text/html"  #: of `raw`
    encoding: str = ""  #: what `raw` claims to be compressed with


@dataclass(frozen=True)
class Asked:
    """One request. `number` counts those of the script from 0."""

    number: int
    api: str  #: chat, responses, embeddings, messages, gemini, models, count_tokens
    provider: str  #: openai, anthropic, gemini
    model: str
    stream: bool
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: Mapping[str, Any]
    text: str  #: the body as it came

    @property
    def tools(self) -> list[str]:
        """Names of the tools that the client offers."""
        return scripted_dialects.tool_names(self.body)


@dataclass
class Bill:
    """What one request was charged. `id`: in the answer, and so in the ledger."""

    id: str
    asked: Asked
    usage: Usage
    status: int
    reported: bool


Script = Callable[[Asked], Reply] | Sequence[Reply]

_APIS = (
    ("openai", "chat", re.compile(r"/v1/chat/completions")),
    ("openai", "responses", re.compile(r"/v1/responses")),
    ("openai", "embeddings", re.compile(r"/v1/embeddings")),
    ("openai", "count_tokens", re.compile(r"/v1/responses/input_tokens")),
    ("anthropic", "messages", re.compile(r"/v1/messages")),
    ("anthropic", "count_tokens", re.compile(r"/v1/messages/count_tokens")),
    ("gemini", "gemini", re.compile(r"/v1\w*/models/([^:]+):(?:g|streamG)enerateContent")),
    ("gemini", "count_tokens", re.compile(r"/v1\w*/models/([^:]+):countTokens")),
    ("", "models", re.compile(r"/v1\w*/models")),  # by headers
)


class Upstream:
    """The running provider. `models`: those it knows; empty: all. Safe to read from any thread."""

    def __init__(self, script: Script, key: str = KEY, models: Sequence[str] = ()) -> None:
        self.script = script
        self.key = key
        self.models = tuple(models)
        self.port = 0
        self.requests: list[Asked] = []  #: all that came, refused ones and free ones too
        self.bills: list[Bill] = []
        self._scripted = 0

    def url(self, provider: str) -> str:
        """Base URL as the SDK of ``openai``, ``anthropic`` or ``gemini`` takes it."""
        root = f"http://127.0.0.1:{self.port}"
        return f"{root}/v1" if provider == "openai" else root

    @property
    def billed(self) -> Usage:
        """Tokens of all requests, class by class."""
        return sum((bill.usage for bill in self.bills), Usage())

    def body(self, asked: Asked, reply: Reply, id: str, usage: Usage) -> bytes:
        """The whole answer as it goes over the wire, before compression."""
        if reply.raw is not None:
            return reply.raw
        return scripted_dialects.render(asked, reply, id, usage)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        asked = _asked(request, await request.text(), self._scripted)
        if asked is None:
            return web.Response(status=404, text="no such path")
        self.requests.append(asked)
        if not self._has_key(asked):
            return _error(asked, 401, "bad key")
        if asked.api in ("models", "count_tokens"):
            return web.json_response(scripted_dialects.free(asked, self.models))
        if self.models and asked.model not in self.models:
            return _error(asked, 404, f"no model {asked.model}")
        self._scripted += 1
        try:
            reply = self.script(asked) if callable(self.script) else self.script[asked.number]
        except IndexError:
            return _error(asked, 400, "the script is over")
        return await self._answer(request, asked, reply)

    def _has_key(self, asked: Asked) -> bool:
        headers = asked.headers
        sent = {
            "openai": headers.get("Authorization", "").removeprefix("Bearer "),
            "anthropic": headers.get("x-api-key", ""),
            "gemini": headers.get("x-goog-api-key", ""),
        }
        return sent[asked.provider] == self.key

    async def _answer(self, request: web.Request, asked: Asked, reply: Reply) -> web.StreamResponse:
        await asyncio.sleep(reply.delay_s)
        id = f"answer-{asked.number:06d}"
        if reply.status != 200:
            self.bills.append(Bill(id, asked, Usage(), reply.status, reported=True))
            return _error(asked, reply.status, reply.message, reply.retry_after_s, reply.gzip)
        usage = reply.usage or _counted(asked, reply)
        if asked.api == "embeddings":
            usage = Usage(in_uncached=usage.in_uncached)
        body = self.body(asked, reply, id, usage)
        cut = reply.cut_at is not None or reply.error_in_stream
        told = reply.report_usage and not cut and reply.raw is None
        self.bills.append(Bill(id, asked, usage, 200, told))
        return await _send(request, asked, reply, body)


async def _send(
    request: web.Request, asked: Asked, reply: Reply, body: bytes
) -> web.StreamResponse:
    headers = {"Content-Type": _content_type(asked, reply)}
    pieces = _pieces(asked, reply, body)
    if reply.encoding:
        headers["Content-Encoding"] = reply.encoding
    if reply.gzip:
        headers["Content-Encoding"] = "gzip"
        pieces = [gzip.compress(b"".join(pieces))]
        if reply.piece_bytes:
            pieces = _cut(pieces[0], reply.piece_bytes)
    response = web.StreamResponse(headers=headers)
    size = sum(map(len, pieces))
    if not asked.stream:
        response.content_length = size
    await response.prepare(request)
    left = size if reply.cut_at is None else int(size * reply.cut_at)
    for piece in pieces:
        try:
            await response.write(piece[:left])
        except ConnectionError:
            return response
        left -= len(piece)
        if left <= 0 and reply.cut_at is not None:
            assert request.transport is not None
            await asyncio.sleep(0.05)  # what was written must be on its way
            request.transport.abort()
            return response
        await asyncio.sleep(reply.pause_s)
    await asyncio.sleep(reply.linger_s)
    await response.write_eof()
    return response


def _pieces(asked: Asked, reply: Reply, body: bytes) -> list[bytes]:
    if reply.piece_bytes:
        return _cut(body, reply.piece_bytes)
    if asked.stream and reply.raw is None and "event" in _content_type(asked, reply):
        return [event + b"\n\n" for event in body.split(b"\n\n") if event]
    return [body]


def _cut(body: bytes, size: int) -> list[bytes]:
    return [body[i : i + size] for i in range(0, len(body), size)]


def _content_type(asked: Asked, reply: Reply) -> str:
    if reply.raw is not None:
        return reply.content_type
    return scripted_dialects.content_type(asked)


def _counted(asked: Asked, reply: Reply) -> Usage:
    said = reply.text + reply.reasoning
    said += "".join(call.name + json.dumps(call.arguments) for call in reply.tool_calls)
    return Usage(in_uncached=len(asked.text) // 4 + 1, out_total=len(said) // 4 + 1)


def _error(
    asked: Asked,
    status: int,
    message: str,
    retry_after_s: int | None = None,
    packed: bool = False,
) -> web.Response:
    headers = {"Content-Type": "application/json"}
    if retry_after_s is not None:
        headers["Retry-After"] = str(retry_after_s)
    body = json.dumps(scripted_dialects.error(asked, status, message)).encode()
    if packed:
        headers["Content-Encoding"], body = "gzip", gzip.compress(body)
    return web.Response(body=body, status=status, headers=headers)


def _asked(request: web.Request, text: str, number: int) -> Asked | None:
    for provider, api, pattern in _APIS:
        match = pattern.fullmatch(request.path)
        if match is None:
            continue
        if api == "models":
            provider = _lister(request.headers)
        body = json.loads(text) if text else {}
        model = match[1] if match.groups() else body.get("model", "")
        stream = "streamGenerate" in request.path or bool(body.get("stream"))
        query = dict(request.query)
        headers = request.headers
        return Asked(number, api, provider, model, stream, request.path, query, headers, body, text)
    return None


def _lister(headers: Mapping[str, str]) -> str:
    if "anthropic-version" in headers:
        return "anthropic"
    return "gemini" if "x-goog-api-key" in headers else "openai"


@contextmanager
def serving(
    script: Script = lambda asked: Reply(), *, key: str = KEY, models: Sequence[str] = ()
) -> Iterator[Upstream]:
    """A running provider, in a thread of its own until the block ends."""
    upstream = Upstream(script, key, models)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="upstream", daemon=True)
    thread.start()

    async def start() -> web.AppRunner:
        app = web.Application(client_max_size=1 << 30)
        app.router.add_route("*", "/{path:.*}", upstream._handle)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, backlog=1024).start()
        upstream.port = runner.addresses[0][1]
        return runner

    async def end(runner: web.AppRunner) -> None:
        await runner.cleanup()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=2)

    runner = asyncio.run_coroutine_threadsafe(start(), loop).result()
    try:
        yield upstream
    finally:
        asyncio.run_coroutine_threadsafe(end(runner), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
