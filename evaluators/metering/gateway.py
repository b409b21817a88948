"""The loopback gateway that every model request of a run passes, and that counts its tokens.

It forwards each request in the provider's own dialect, byte for byte, and reads usage from the
answer as it passes. Which run, operator and attempt a request belongs to is in its path,
``/r/<run>/<operator>/<attempt>/v1/...``; a random token of that attempt stands in for the
provider's key, which exists here alone. A row is in the ledger before the client sees the end of
its answer, so nothing that a client acts on goes uncounted.

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
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import aiohttp
from aiohttp import web

from kernelmark.evaluators.campaigns.files import slug
from kernelmark.evaluators.metering.budget import Budget, BudgetExhausted, Reservation
from kernelmark.evaluators.metering.dialects.base import Dialect, Reading
from kernelmark.evaluators.metering.dialects.registry import all_dialects
from kernelmark.evaluators.metering.ledger import Ledger, LedgerRow, Outcome, Usage, UsageSource
from kernelmark.evaluators.metering.prices import PriceTable, price_table

#: output tokens set aside for a request that states no limit of its own
DEFAULT_RESERVE_TOKENS = 16_384
BYTES_PER_TOKEN = 3.5  #: for estimates and reservations only
MAX_BODY_BYTES = 64 << 20
#: how long an answer is read on for its usage after the client has hung up
DRAIN_S = 30.0
_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=30, sock_read=600)

_NOT_FORWARDED = {
    "host", "authorization", "x-api-key", "x-goog-api-key", "content-length", "connection",
    "transfer-encoding", "accept-encoding", "keep-alive", "te", "trailer", "upgrade", "cookie",
    "proxy-authorization",
}  # fmt: skip
_NOT_RETURNED = {"content-length", "transfer-encoding", "content-encoding", "connection"}


@dataclass(frozen=True)
class Upstream:
    """A provider's endpoint and key."""

    base_url: str
    key: str = ""


@dataclass
class Grant:
    """Leave for one attempt to use the gateway. `denied`: a request of it was over budget."""

    operator: str
    attempt: int
    base_url: str  #: ends with ``/v1``, as SDKs take it
    token: str
    denied: bool = False


class Gateway:
    """One run's gateway. `upstreams` by dialect (`Dialect.api`)."""

    def __init__(
        self,
        run: str,
        upstreams: Mapping[str, Upstream],
        ledger: Ledger,
        budget: Budget,
        prices: PriceTable | None = None,
    ) -> None:
        self.run = run
        self.port = 0
        self._upstreams = upstreams
        self._ledger = ledger
        self._budget = budget
        self._prices = prices or price_table()
        self._grants: dict[tuple[str, int], Grant] = {}
        self._asked: Counter[tuple[str, int, bytes]] = Counter()
        self._session: aiohttp.ClientSession

    @contextmanager
    def serve(self) -> Iterator[Gateway]:
        """Serves on a free loopback port, in a thread of its own, until the block ends."""
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, name="gateway", daemon=True)
        thread.start()
        runner = asyncio.run_coroutine_threadsafe(self._start(), loop).result()
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
            url = f"http://127.0.0.1:{self.port}/r/{self.run}/{key[0]}/{attempt}/v1"
            self._grants[key] = Grant(operator, attempt, url, secrets.token_urlsafe(24))
        return self._grants[key]

    async def _start(self) -> web.AppRunner:
        connector = aiohttp.TCPConnector(limit=0)
        self._session = aiohttp.ClientSession(
            connector=connector, timeout=_TIMEOUT, auto_decompress=True
        )
        app = web.Application(client_max_size=MAX_BODY_BYTES)
        for dialect in all_dialects():
            path = f"/r/{self.run}/{{operator}}/{{attempt:[0-9]+}}/{dialect.path}"
            app.router.add_post(path, _bound(self, dialect))
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=DRAIN_S)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.port = runner.addresses[0][1]
        return runner

    async def _end(self, runner: web.AppRunner) -> None:
        await runner.cleanup()
        await self._session.close()

    async def handle(self, request: web.Request, dialect: Dialect) -> web.StreamResponse:
        """One request: check, reserve, forward, count, settle."""
        grant = self._granted(request, dialect)
        if grant is None:
            return _refuse(dialect, 401, "the token is not that of this attempt", "invalid_token")
        upstream = self._upstreams.get(dialect.api)
        if upstream is None:
            return _refuse(dialect, 404, f"no upstream for {dialect.api}", "no_upstream")
        body = await request.read()
        try:
            data = json.loads(body)
            if not isinstance(data, dict):
                raise ValueError("the body is not an object")
            asked = dialect.read_request(data)
        except ValueError as error:
            return _refuse(dialect, 400, str(error), "invalid_request")
        row = self._row(grant, dialect, body, upstream, request)
        row = replace(row, model_requested=asked.model, stream=asked.stream)
        wanted = asked.max_output_tokens
        output = DEFAULT_RESERVE_TOKENS if wanted is None else wanted
        try:
            reservation = self._budget.reserve(_tokens(len(body)) + output)
        except BudgetExhausted as error:
            grant.denied = True
            await self._write(replace(row, outcome="budget_denied", detail=str(error)))
            return _refuse(dialect, 400, str(error), "budget_exhausted")
        exchange = _Exchange(self, dialect, upstream, row, reservation, len(body))
        return await exchange.run(request, *dialect.forward(body, data))

    def _granted(self, request: web.Request, dialect: Dialect) -> Grant | None:
        key = (request.match_info["operator"], int(request.match_info["attempt"]))
        grant = self._grants.get(key)
        token = dialect.token(request.headers)
        if grant is None or not hmac.compare_digest(token.encode(), grant.token.encode()):
            return None
        return grant

    def _row(
        self,
        grant: Grant,
        dialect: Dialect,
        body: bytes,
        upstream: Upstream,
        request: web.Request,
    ) -> LedgerRow:
        key = (grant.operator, grant.attempt, hashlib.sha256(body).digest())
        self._asked[key] += 1
        return LedgerRow(
            run=self.run,
            operator=grant.operator,
            attempt=grant.attempt,
            request=secrets.token_hex(8),
            api=dialect.api,
            model_requested="",
            outcome="ok",
            usage_source="provider",
            upstream=upstream.base_url,
            retry_index=self._asked[key] - 1,
            session=request.headers.get("x-claude-code-session-id", ""),
            agent=request.headers.get("x-claude-code-agent-id", ""),
            parent_agent=request.headers.get("x-claude-code-parent-agent-id", ""),
            started_at=_now(),
            price_table=self._prices.id,
        )

    async def _write(self, row: LedgerRow) -> None:
        row = replace(row, ended_at=_now())
        await asyncio.to_thread(self._ledger.append, row)

    async def settle(self, row: LedgerRow, reservation: Reservation) -> None:
        """Prices a row, writes it, and settles what was reserved for it."""
        model = row.model_served or row.model_requested
        cost = self._prices.cost_usd(model, row.usage)
        if row.usage_source == "missing":
            cost = None
        await self._write(replace(row, cost_usd=cost))
        self._budget.settle(reservation, row.usage.total)

    @property
    def session(self) -> aiohttp.ClientSession:
        """The connection pool to upstreams."""
        return self._session


class _Exchange:
    """One forwarded request, from sending to settling."""

    def __init__(
        self,
        gateway: Gateway,
        dialect: Dialect,
        upstream: Upstream,
        row: LedgerRow,
        reservation: Reservation,
        sent_bytes: int,
    ) -> None:
        self._gateway = gateway
        self._dialect = dialect
        self._upstream = upstream
        self._row = row
        self._reservation = reservation
        self._sent_bytes = sent_bytes

    async def run(self, request: web.Request, body: bytes, hide: bool) -> web.StreamResponse:
        """Forwards and returns the answer; whatever happens, one row is written."""
        url = self._dialect.upstream_url(self._upstream.base_url)
        kept = {k: v for k, v in request.headers.items() if k.lower() not in _NOT_FORWARDED}
        headers = {
            **kept,
            **self._dialect.authorization(self._upstream.key),
            "Accept-Encoding": "identity",
        }
        try:
            async with self._gateway.session.post(url, data=body, headers=headers) as answer:
                self._row = replace(self._row, http_status=answer.status, first_byte_at=_now())
                if answer.status == 200 and "text/event-stream" in answer.headers.get(
                    "Content-Type", ""
                ):
                    return await self._stream(request, answer, hide)
                return await self._whole(answer)
        except TimeoutError as error:
            return await self._failed("timeout", error)
        except aiohttp.ClientError as error:
            return await self._failed("error", error)

    async def _whole(self, answer: aiohttp.ClientResponse) -> web.StreamResponse:
        try:
            body = await answer.read()
        except aiohttp.ClientPayloadError as error:
            return await self._failed("upstream_abort", error)
        if answer.status >= 400:
            # A refused request (4xx) generates nothing; after a 5xx nobody knows.
            source: UsageSource = "provider" if answer.status < 500 else "missing"
            detail = body[:500].decode(errors="replace")
            await self._settle("error", Usage(), source, Reading(), detail)
        else:
            reading = self._dialect.read_answer(body)
            await self._settle_reading("ok", reading)
        return web.Response(body=body, status=answer.status, headers=_returned(answer.headers))

    async def _stream(
        self, request: web.Request, answer: aiohttp.ClientResponse, hide: bool
    ) -> web.StreamResponse:
        reader = self._dialect.stream_reader(hide)
        response = web.StreamResponse(status=200, headers=_returned(answer.headers))
        await response.prepare(request)
        outcome: Outcome = "ok"
        try:
            async for chunk in answer.content.iter_any():
                passed = reader.feed(chunk)
                if passed and outcome == "ok" and not await _write(response, passed):
                    outcome = "client_abort"
        except (aiohttp.ClientError, TimeoutError):
            outcome = "upstream_abort"
        if outcome == "ok" and not reader.reading.finished:
            outcome = "upstream_abort"
        await self._settle_reading(outcome, reader.reading)
        if outcome == "upstream_abort" and request.transport is not None:
            await _write(response, reader.end())
            request.transport.close()  # the client must see the cut too
        elif outcome == "ok":
            await _write(response, reader.end())
            await response.write_eof()
        return response

    async def _failed(self, outcome: Outcome, error: Exception) -> web.StreamResponse:
        detail = f"{type(error).__name__}: {error}"
        await self._settle(outcome, Usage(), "missing", Reading(), detail)
        return web.Response(
            body=self._dialect.refusal(f"upstream: {detail}", "upstream_unreachable"),
            status=502,
            content_type="application/json",
        )

    async def _settle_reading(self, outcome: Outcome, reading: Reading) -> None:
        if reading.usage is not None:
            await self._settle(outcome, reading.usage, "provider", reading)
            return
        guess = Usage(in_uncached=_tokens(self._sent_bytes), out_total=_tokens(reading.text_bytes))
        await self._settle(outcome, guess, "estimated", reading)

    async def _settle(
        self,
        outcome: Outcome,
        usage: Usage,
        source: UsageSource,
        reading: Reading,
        detail: str = "",
    ) -> None:
        row = replace(
            self._row,
            outcome=outcome,
            usage=usage,
            usage_source=source,
            model_served=reading.model,
            upstream_id=reading.upstream_id,
            raw_usage=reading.raw_usage,
            detail=detail,
        )
        await self._gateway.settle(row, self._reservation)


async def _write(response: web.StreamResponse, data: bytes) -> bool:
    """False where the client has hung up."""
    try:
        if data:
            await response.write(data)
    except ConnectionError:
        return False
    return True


def _bound(gateway: Gateway, dialect: Dialect) -> Any:
    async def handler(request: web.Request) -> web.StreamResponse:
        return await gateway.handle(request, dialect)

    return handler


def _refuse(dialect: Dialect, status: int, message: str, code: str) -> web.Response:
    body = dialect.refusal(message, code)
    return web.Response(body=body, status=status, content_type="application/json")


def _returned(headers: Mapping[str, str]) -> dict[str, str]:
    return {k: v for k, v in headers.items() if k.lower() not in _NOT_RETURNED}


def _tokens(nbytes: int) -> int:
    return int(nbytes / BYTES_PER_TOKEN + 0.999)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
