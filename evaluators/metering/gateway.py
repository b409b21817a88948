"""The loopback gateway that every model request of a run passes, and that counts its tokens.

It forwards each request in the provider's own dialect, byte for byte, and reads usage from the
answer as it passes. Which run, operator and attempt a request belongs to is in its path,
``/r/<run>/<operator>/<attempt>/...``; a random token of that attempt stands in for the provider's
key, which exists here alone. What a client asks the provider to run on its side (a web search, code
execution) is refused unless allowed: it would reach a network that the client may not.

It does not retry, translate, cache, or check who is on the other side of the loopback beyond the
token.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import secrets
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import aiohttp
from aiohttp import web

from kernelmark.benchmark.errors import UserError
from kernelmark.evaluators.campaigns.files import slug
from kernelmark.evaluators.metering.agents import retry_count, sender
from kernelmark.evaluators.metering.answers import ASK_HEADER, Answers, keep
from kernelmark.evaluators.metering.budget import (
    Budget,
    BudgetExhausted,
    Limits,
    Reservation,
    Scope,
    Stop,
    cost_of,
)
from kernelmark.evaluators.metering.dialects.base import Asked, Dialect, Provider
from kernelmark.evaluators.metering.dialects.providers import PROVIDERS, spoken, tokens_sent
from kernelmark.evaluators.metering.dialects.registry import all_dialects, find_dialect
from kernelmark.evaluators.metering.exchange import (
    Exchange,
    Forward,
    estimated_tokens,
    now,
    refuse,
)
from kernelmark.evaluators.metering.ledger import FREE_APIS, Ledger, LedgerRow, Usage, read_ledger
from kernelmark.evaluators.metering.prices import PriceTable, price_table

#: the most output that is set aside for a request, whatever limit it states: agents state far more
#: than they use
RESERVE_OUTPUT_TOKENS = 4_096
MAX_BODY_BYTES = 64 << 20
#: how long an answer is read on for its usage after the client has hung up
DRAIN_S = 30.0
_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=30, sock_read=600)
_SETTLE_S = 5.0  #: for rows of requests that were cancelled at the end
_TOO_DEEP = 5  #: parts of ``/r/run/operator/attempt/rest``


@dataclass(frozen=True)
class Upstream:
    """A provider's endpoint and key. `base_url` as the provider's SDK takes it: OpenAI's ends
    with ``/v1``, those of Anthropic and Gemini have no version."""

    base_url: str
    key: str = ""


@dataclass
class Grant:
    """Leave for one attempt to use the gateway. `stop`: where a budget refused it last."""

    operator: str
    attempt: int
    root_url: str  #: base URL for Anthropic and Gemini
    token: str  #: in place of the provider's key
    stop: Stop | None = None

    @property
    def base_url(self) -> str:
        """Base URL for OpenAI."""
        return f"{self.root_url}/v1"

    @property
    def path(self) -> str:
        """Of `root_url`, for a client that reaches the gateway at another address."""
        return "/" + self.root_url.split("/", 3)[3]

    @property
    def denied(self) -> bool:
        """A request of it was over budget."""
        return self.stop is not None


class Gateway:
    """One run's gateway. `upstreams` by provider: ``openai``, ``anthropic``, ``gemini``."""

    def __init__(
        self,
        run: str,
        upstreams: Mapping[str, Upstream],
        ledger: Ledger,
        budget: Budget,
        prices: PriceTable | None = None,
        *,
        answers: Answers | None = None,
        server_tools: bool = False,
        drain_s: float = DRAIN_S,
        max_body_bytes: int = MAX_BODY_BYTES,
    ) -> None:
        self.run = run
        self.port = 0
        self.budget = budget
        self._upstreams = upstreams
        self._ledger = ledger
        self._prices = prices or price_table()
        self._answers = answers
        self._server_tools = server_tools
        self._drain_s = drain_s
        self._max_body_bytes = max_body_bytes
        self._grants: dict[tuple[str, int], Grant] = {}
        self._asked: Counter[tuple[str, int, bytes]] = Counter()
        self._sitting = secrets.token_hex(6)
        self._requests = 0
        self._budget_freed = asyncio.Condition()
        self._flusher = ThreadPoolExecutor(1, "ledger")
        self._broken: OSError | None = None  #: nothing is forwarded that can't be recorded
        self._session: aiohttp.ClientSession

    @contextmanager
    def serve(self, socket: Path | None = None) -> Iterator[Gateway]:
        """Serves on a free loopback port, in a thread of its own, until the block ends.

        `socket`: serves on a Unix socket at this path too, for clients that have no network.
        """
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, name="gateway", daemon=True)
        thread.start()
        runner = asyncio.run_coroutine_threadsafe(self._start(socket), loop).result()
        try:
            yield self
        finally:
            asyncio.run_coroutine_threadsafe(self._end(runner), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    def grant(self, operator: str, attempt: int) -> Grant:
        """Leave for one attempt at one operator; the same again where it was given before."""
        key = (slug(operator), attempt)
        if key not in self._grants:
            url = f"http://127.0.0.1:{self.port}/r/{self.run}/{key[0]}/{attempt}"
            self._grants[key] = Grant(operator, attempt, url, secrets.token_urlsafe(24))
        return self._grants[key]

    async def _start(self, socket: Path | None) -> web.AppRunner:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=_TIMEOUT,
            auto_decompress=False,
        )
        app = web.Application(client_max_size=self._max_body_bytes)
        app.router.add_route("*", "/{path:.*}", self._handle)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=self._drain_s)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.port = runner.addresses[0][1]
        if socket is not None:
            await web.UnixSite(runner, str(socket)).start()
        return runner

    async def _end(self, runner: web.AppRunner) -> None:
        await runner.cleanup()  # cancels what is under way; its rows are still to come
        left = asyncio.all_tasks() - {asyncio.current_task()}
        if left:
            await asyncio.wait(left, timeout=_SETTLE_S)
        await self._session.close()
        await asyncio.to_thread(self._flusher.shutdown)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        """One request: check, reserve, forward, count, settle."""
        where, path = _split(request.rel_url.raw_path)
        provider = spoken(path, request.headers)
        grant = self._granted(request, where)
        if grant is None:
            return refuse(provider, 401, "the token is not that of this attempt", "invalid_token")
        dialect = find_dialect(request.method, path, request.headers)
        if dialect is None or ".." in unquote(path).split("/"):
            return refuse(provider, 404, _unknown(request.method, path), "unknown_path")
        upstream = self._upstreams.get(provider.name)
        if upstream is None:
            message = f"this run has no upstream for the dialect of {provider.name}"
            return refuse(provider, 404, message, "no_upstream")
        try:
            body = await request.read()
            data = _read_body(body)
            asked = dialect.read_request(unquote(path), data)
            self._check(asked)
        except web.HTTPRequestEntityTooLarge:
            message = f"a request may have {self._max_body_bytes} bytes"
            return refuse(provider, 413, message, "request_too_large")
        except ValueError as error:
            return refuse(provider, 400, str(error), "invalid_request")
        row = self._row(grant, dialect, asked, body, upstream, request)
        changed = dialect.with_usage(data)
        sent = body if changed is None else _encoded(changed)
        url = provider.upstream_url(upstream.base_url, path) + _query(request)
        forward = Forward(url, sent, upstream.key, changed is not None)
        return await self._metered(request, dialect, grant, row, asked, forward)

    async def _metered(
        self,
        request: web.Request,
        dialect: Dialect,
        grant: Grant,
        row: LedgerRow,
        asked: Asked,
        forward: Forward,
    ) -> web.StreamResponse:
        ask = request.headers.get(ASK_HEADER, "")
        ask = ask if ask.isdecimal() and ask.isascii() else ""
        if ask and self._answers is not None:
            kept = self._answers.find(row.operator, ask, forward.body)
            if kept is not None:
                body, kind = kept.content, kept.content_type
                return web.Response(body=body, status=kept.status, content_type=kind)
        if self._broken is not None:
            raise self._broken
        self._ledger.begin(row)
        reservation = None
        if not dialect.free:
            try:
                reservation = await self._reserved(row, asked, len(forward.body))
            except BudgetExhausted as error:
                grant.stop = error.stop
                return await self._denied(dialect.provider, row, error.stop)

        async def settle(row: LedgerRow, list_price: bool) -> None:
            row = self._priced(row, list_price)
            whole = exchange.whole
            if ask and self._answers is not None and whole is not None:
                kept = keep(row, forward.body, whole.status, whole.content_type, whole.body)
                await asyncio.to_thread(self._answers.add, ask, kept)
            await self._settle(row, reservation)

        exchange = Exchange(self._session, dialect, row, settle, self._drain_s)
        return await exchange.run(request, forward)

    def _granted(self, request: web.Request, where: tuple[str, str, str] | None) -> Grant | None:
        if where is None or where[0] != self.run or not where[2].isascii():
            return None
        operator, attempt = where[1:]
        grant = self._grants.get((operator, int(attempt))) if attempt.isdigit() else None
        if grant is None:
            return None
        wanted = grant.token.encode()
        sent = tokens_sent(request.headers, request.query)
        if not any(hmac.compare_digest(token.encode(), wanted) for token in sent):
            return None
        return grant

    def _check(self, asked: Asked) -> None:
        if asked.server_tools and not self._server_tools:
            names = ", ".join(asked.server_tools)
            raise ValueError(f"tools that run at the provider are not allowed here: {names}")

    async def _reserved(self, row: LedgerRow, asked: Asked, nbytes: int) -> Reservation:
        """Waits where requests under way hold what may be left over."""
        async with self._budget_freed:
            while True:
                try:
                    return self._reserve(row, asked, nbytes)
                except BudgetExhausted as error:
                    if not error.stop.for_now:
                        raise
                await self._budget_freed.wait()

    def _reserve(self, row: LedgerRow, asked: Asked, nbytes: int) -> Reservation:
        wanted = asked.max_output_tokens
        output = RESERVE_OUTPUT_TOKENS if wanted is None else min(wanted, RESERVE_OUTPUT_TOKENS)
        expected = Usage(in_uncached=estimated_tokens(nbytes), out_total=output)
        cost = self._prices.cost_usd(asked.model, expected)
        return self.budget.reserve(row.operator, row.attempt, expected, cost)

    def _row(
        self,
        grant: Grant,
        dialect: Dialect,
        asked: Asked,
        body: bytes,
        upstream: Upstream,
        request: web.Request,
    ) -> LedgerRow:
        key = (grant.operator, grant.attempt, hashlib.sha256(request.path.encode() + body).digest())
        self._asked[key] += 1
        self._requests += 1
        told = retry_count(request.headers)
        who = sender(request.headers)
        return LedgerRow(
            run=self.run,
            operator=grant.operator,
            attempt=grant.attempt,
            request=f"{self._sitting}.{self._requests}",
            api=dialect.api,
            model_requested=asked.model,
            stream=asked.stream,
            outcome="ok",
            usage_source="provider",
            upstream=upstream.base_url,
            retry_index=self._asked[key] - 1 if told is None else told,
            session=who.session,
            agent=who.agent,
            parent_agent=who.parent_agent,
            started_at=now(),
            price_table=self._prices.id,
        )

    async def _denied(self, provider: Provider, row: LedgerRow, stop: Stop) -> web.Response:
        row = replace(row, outcome="budget_denied", detail=str(stop), ended_at=now())
        await asyncio.to_thread(self._ledger.append, row)
        return refuse(provider, 400, str(stop), "budget_exhausted")

    def _flush(self) -> None:
        """A row need not be on disk before its answer goes on, but must get there."""
        try:
            self._ledger.flush()
        except OSError as error:
            self._broken = error

    def _priced(self, row: LedgerRow, list_price: bool) -> LedgerRow:
        if row.api in FREE_APIS:
            return replace(row, cost_usd=0.0)
        if not list_price or row.usage_source == "missing":
            return row
        cost = self._prices.cost_usd(row.model_served or row.model_requested, row.usage)
        return replace(row, cost_usd=cost)

    async def _settle(self, row: LedgerRow, reservation: Reservation | None) -> None:
        """Writes a row and settles what was reserved for it."""
        self._ledger.write(row)  # to the page cache: quicker than a hop to a thread
        self._flusher.submit(self._flush)
        if reservation is not None:
            self.budget.settle(reservation, row.usage, cost_of(row))
            async with self._budget_freed:
                self._budget_freed.notify_all()


@contextmanager
def open_gateway(
    run: str,
    upstreams: Mapping[str, Upstream],
    ledger_path: Path,
    limits: Mapping[Scope, Limits] | None = None,
    *,
    socket: Path | None = None,
    answers: Answers | None = None,
    server_tools: bool = False,
) -> Iterator[Gateway]:
    """A serving gateway that writes `ledger_path`; what that already holds counts against
    `limits`. `answers` are those that an earlier sitting has paid for."""
    for name, upstream in upstreams.items():
        _check_upstream(name, upstream)
    ledger = Ledger(ledger_path, answers.rows() if answers else None)
    try:
        budget = Budget(limits, read_ledger(ledger_path))
        gateway = Gateway(
            run, upstreams, ledger, budget, answers=answers, server_tools=server_tools
        )
        with gateway.serve(socket):
            yield gateway
    finally:
        ledger.close()


def _check_upstream(name: str, upstream: Upstream) -> None:
    url = urlsplit(upstream.base_url)
    if name not in PROVIDERS:
        raise UserError(f"no dialect of {name}; these are spoken: {', '.join(PROVIDERS)}")
    if url.scheme not in ("http", "https") or not url.hostname:
        raise UserError(f"{name}: {upstream.base_url} is not a URL; it begins with https://")
    if url.username or url.password or url.query or url.fragment:
        raise UserError(f"{name}: the base URL has more than a host and a path; keys go elsewhere")
    if not PROVIDERS[name].base_has_version and url.path.rstrip("/").endswith("/v1"):
        raise UserError(f"{name}: leave /v1 off the base URL, as its SDK takes it")


def _split(raw_path: str) -> tuple[tuple[str, str, str] | None, str]:
    """``/r/run/operator/attempt/rest``: the three, and the rest as it came."""
    parts = raw_path.split("/", _TOO_DEEP)
    if len(parts) <= _TOO_DEEP or parts[:2] != ["", "r"]:
        return None, raw_path.lstrip("/")
    return (unquote(parts[2]), unquote(parts[3]), parts[4]), parts[5]


def _read_body(body: bytes) -> dict[str, Any]:
    if not body:
        return {}
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        raise ValueError("the body is not JSON") from None
    if not isinstance(data, dict):
        raise ValueError("the body is not a JSON object")
    return data


def _encoded(data: dict[str, Any]) -> bytes:
    try:
        return json.dumps(data, ensure_ascii=False).encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which only an escape can say
        return json.dumps(data).encode()


def _query(request: web.Request) -> str:
    """The query as it came, without a key in it."""
    raw = request.rel_url.raw_query_string
    kept = [part for part in raw.split("&") if part and not part.startswith("key=")]
    return "?" + "&".join(kept) if kept else ""


def _unknown(method: str, path: str) -> str:
    served = sorted({f"{d.method} {d.path.pattern}" for d in all_dialects()})
    return f"{method} /{path[:200]} is not served; these are: {', '.join(served)}"
