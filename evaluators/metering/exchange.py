"""One forwarded request, from sending to settling.

Whatever happens, one row is written. It is in the ledger before the client gets the end of its
answer, so nothing that a client acts on goes uncounted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import aiohttp
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from kernelmark.evaluators.metering.answers import ASK_HEADER
from kernelmark.evaluators.metering.decoding import Unknown, decoder
from kernelmark.evaluators.metering.dialects.base import Dialect, Provider, Reading
from kernelmark.evaluators.metering.dialects.events import read_whole, stream_reader
from kernelmark.evaluators.metering.ledger import LedgerRow, Outcome, Usage, UsageSource

BYTES_PER_TOKEN = 3.5  #: for estimates and reservations only
MAX_DETAIL = 500

_NOT_FORWARDED = {
    "host", "authorization", "x-api-key", "x-goog-api-key", "content-length", "content-encoding",
    "connection", "transfer-encoding", "accept-encoding", "keep-alive", "te", "trailer", "upgrade",
    "cookie", "proxy-authorization", "proxy-connection", "expect", ASK_HEADER,
}  # fmt: skip
_NOT_RETURNED = {
    "content-length", "transfer-encoding", "connection", "keep-alive", "set-cookie",
}  # fmt: skip
_SENT_BY_CLIENT_ONLY = ("User-Agent", "Accept", "Content-Type")


@dataclass(frozen=True)
class Forward:
    """What to send upstream. `hide`: usage that the client did not ask for is taken out."""

    url: str
    body: bytes
    key: str
    hide: bool


@dataclass(frozen=True)
class Whole:
    """An answer that came in one piece, not compressed."""

    status: int
    content_type: str
    body: bytes


Settle = Callable[[LedgerRow, bool], Awaitable[None]]


class Exchange:
    """`settle` prices a row, writes it, and settles its reservation; its flag tells whether list
    prices hold. `drain_s`: how long an answer is read on after the client has hung up."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        dialect: Dialect,
        row: LedgerRow,
        settle: Settle,
        drain_s: float,
    ) -> None:
        self._session = session
        self._dialect = dialect
        self._row = row
        self._settle_row = settle
        self._drain_s = drain_s
        self._sent_bytes = 0
        self._settled = False
        self.whole: Whole | None = None  #: a good answer, once it has come

    async def run(self, request: web.Request, forward: Forward) -> web.StreamResponse:
        """Forwards the request and returns the answer."""
        self._sent_bytes = len(forward.body)
        if _gone(request):  # while it waited for its turn
            await self._settle("client_abort", Usage(), "provider", Reading())
            return web.Response(status=499)
        headers = CIMultiDict(
            (k, v) for k, v in request.headers.items() if k.lower() not in _NOT_FORWARDED
        )
        headers.update(self._dialect.provider.key_header(forward.key))
        headers["Accept-Encoding"] = "identity"
        try:
            async with self._session.request(
                request.method,
                URL(forward.url, encoded=True),
                data=forward.body or None,
                headers=headers,
                skip_auto_headers=_SENT_BY_CLIENT_ONLY,
                allow_redirects=False,
            ) as answer:
                self._row = replace(self._row, http_status=answer.status, first_byte_at=now())
                return await self._answer(request, answer, forward)
        except TimeoutError as error:
            return await self._failed("timeout", error)
        except (aiohttp.ClientError, OSError) as error:
            return await self._failed("error", error)
        except asyncio.CancelledError:
            if not self._settled:
                await self._settle("gateway_abort", Usage(), "missing", Reading())
            raise

    async def _answer(
        self, request: web.Request, answer: aiohttp.ClientResponse, forward: Forward
    ) -> web.StreamResponse:
        if 300 <= answer.status < 400:
            where = answer.headers.get("Location", "")
            return await self._failed("error", f"it redirects to {where[:200]}")
        events = "text/event-stream" in answer.content_type
        array = self._row.stream and self._dialect.streams_arrays and "json" in answer.content_type
        if answer.status < 300 and (events or array):
            return await self._stream(request, answer, forward.hide and events)
        if answer.status >= 400:
            return await self._refused(answer, forward.key)
        return await self._whole(request, answer)

    async def _whole(
        self, request: web.Request, answer: aiohttp.ClientResponse
    ) -> web.StreamResponse:
        try:
            body = await answer.read()
        except aiohttp.ClientPayloadError as error:
            return await self._failed("upstream_abort", error)
        decode = decoder(answer.headers.get("Content-Encoding", ""))
        plain = decode.feed(body)
        outcome: Outcome = "client_abort" if _gone(request) else "ok"
        unread = isinstance(decode, Unknown)
        reading = Reading() if unread else read_whole(self._dialect, plain)
        if not (unread or reading.error):
            self.whole = Whole(answer.status, answer.content_type, plain)
        await self._settle_reading(outcome, reading, unread)
        headers = _returned(answer.headers)
        return web.Response(body=body, status=answer.status, headers=headers)

    async def _refused(self, answer: aiohttp.ClientResponse, key: str) -> web.StreamResponse:
        """An error of the provider: as it came, but for our key, which some repeat."""
        try:
            body = await answer.read()
        except aiohttp.ClientPayloadError as error:
            return await self._failed("upstream_abort", error)
        headers = _returned(answer.headers)
        plain = decoder(answer.headers.get("Content-Encoding", "")).feed(body)
        if key and key.encode() in plain:
            plain = body = plain.replace(key.encode(), b"(key)")
            headers.popall("Content-Encoding", None)
        # A refused request (4xx) generates nothing; after a 5xx nobody knows.
        source: UsageSource = "provider" if answer.status < 500 else "missing"
        detail = plain[:MAX_DETAIL].decode(errors="replace")
        await self._settle("error", Usage(), source, Reading(), detail)
        return web.Response(body=body, status=answer.status, headers=headers)

    async def _stream(
        self, request: web.Request, answer: aiohttp.ClientResponse, hide: bool
    ) -> web.StreamResponse:
        decode = decoder(answer.headers.get("Content-Encoding", ""))
        reader = stream_reader(self._dialect, answer.content_type, hide)
        # To take an event out of a compressed answer, the client gets it uncompressed.
        changed = hide and not isinstance(decode, Unknown)
        response = web.StreamResponse(status=answer.status, headers=_returned(answer.headers))
        if changed:
            response.headers.popall("Content-Encoding", None)
        await response.prepare(request)
        outcome: Outcome = "ok"
        unread = isinstance(decode, Unknown)
        try:
            async with asyncio.timeout(None) as limit:
                async for chunk in answer.content.iter_any():
                    passed = reader.feed(decode.feed(chunk))
                    if not changed:
                        passed = chunk
                    if reader.reading.ended:
                        await self._settle_reading(outcome, reader.reading, unread)
                    if outcome == "ok" and not await _write(response, passed):
                        if self._settled:
                            return response
                        outcome = "client_abort"
                        limit.reschedule(asyncio.get_running_loop().time() + self._drain_s)
        except TimeoutError:
            outcome = "timeout" if outcome == "ok" else outcome
        except (aiohttp.ClientError, OSError):
            outcome = "upstream_abort" if outcome == "ok" else outcome
        cut = outcome != "ok"
        rest = reader.end()
        if outcome == "ok" and not (reader.reading.finished or reader.reading.error or unread):
            outcome = "upstream_abort"
        await self._settle_reading(outcome, reader.reading, unread)
        await _finish(request, response, rest if changed else b"", cut=cut)
        return response

    async def _failed(self, outcome: Outcome, error: Exception | str) -> web.StreamResponse:
        detail = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
        await self._settle(outcome, Usage(), "missing", Reading(), detail)
        status = 504 if outcome == "timeout" else 502
        return refuse(self._dialect.provider, status, f"upstream: {detail}", "upstream_unreachable")

    async def _settle_reading(
        self, outcome: Outcome, reading: Reading, unread: bool = False
    ) -> None:
        if reading.error and outcome == "ok":
            outcome = "error"
        usage, source = self._used(reading, unread)
        detail = "its content encoding can't be read" if unread else reading.error
        await self._settle(outcome, usage, source, reading, detail)

    def _used(self, reading: Reading, unread: bool) -> tuple[Usage, UsageSource]:
        if reading.usage is not None and reading.final:
            return reading.usage, "provider"
        if unread or (reading.error and reading.usage is None and not reading.text_bytes):
            return Usage(), "missing"
        output = estimated_tokens(reading.text_bytes)
        if reading.usage is not None:  # input is known; output was cut off
            output = max(output, reading.usage.out_total)
            return replace(reading.usage, out_total=output), "estimated"
        inputs = estimated_tokens(self._sent_bytes)
        return Usage(in_uncached=inputs, out_total=output), "estimated"

    async def _settle(
        self,
        outcome: Outcome,
        usage: Usage,
        source: UsageSource,
        reading: Reading,
        detail: str = "",
    ) -> None:
        if self._settled:
            return
        self._settled = True
        row = replace(
            self._row,
            outcome=outcome,
            usage=usage,
            usage_source=source,
            model_served=reading.model,
            upstream_id=reading.upstream_id,
            raw_usage=reading.raw_usage,
            detail=detail[:MAX_DETAIL],
            ended_at=now(),
        )
        await self._settle_row(row, reading.list_price)


def _gone(request: web.Request) -> bool:
    return request.transport is None or request.transport.is_closing()


async def _write(response: web.StreamResponse, data: bytes) -> bool:
    """False where the client has hung up."""
    try:
        if data:
            await response.write(data)
    except ConnectionError:
        return False
    return True


async def _finish(
    request: web.Request, response: web.StreamResponse, rest: bytes, *, cut: bool
) -> None:
    """Ends a stream; where the upstream cut it, the client must see the cut too."""
    await _write(response, rest)
    if cut:
        if request.transport is not None:
            request.transport.close()
        return
    try:
        await response.write_eof()
    except ConnectionError:
        return


def refuse(provider: Provider, status: int, message: str, code: str) -> web.Response:
    """An error of our own in the client's dialect, which clients take as final."""
    headers = {"x-should-retry": "false"}
    return web.json_response(
        provider.refusal(status, message, code), status=status, headers=headers
    )


def estimated_tokens(nbytes: int) -> int:
    """A guess from a size in bytes."""
    return int(nbytes / BYTES_PER_TOKEN + 0.999)


def now() -> str:
    """UTC, ISO 8601, with milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _returned(headers: Mapping[str, str]) -> CIMultiDict[str]:
    return CIMultiDict((k, v) for k, v in headers.items() if k.lower() not in _NOT_RETURNED)
