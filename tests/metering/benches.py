"""A gateway before a scripted provider, and raw requests to it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
from fakes.scripted_upstream import Upstream, serving

from kernelmark.evaluators.metering.budget import Budget, Limits, Scope
from kernelmark.evaluators.metering.gateway import Gateway
from kernelmark.evaluators.metering.gateway import Upstream as Endpoint
from kernelmark.evaluators.metering.ledger import Ledger, LedgerRow, Usage, read_ledger

PROVIDERS = ("openai", "anthropic", "gemini")
OPERATOR = "aten::softmax"

#: what a script charges; each dialect has classes that others have not
CHARGED = {
    "chat": Usage(11, 20, 5, 0, 30, 7),
    "responses": Usage(11, 20, 5, 0, 30, 7),
    "messages": Usage(11, 20, 3, 2, 30, 7),
    "gemini": Usage(11, 20, 0, 0, 30, 7),
    "embeddings": Usage(11),
}

#: path and body of a streamed request
STREAMS: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": ("v1/chat/completions", {"model": "m", "stream": True, "messages": []}),
    "responses": ("v1/responses", {"model": "m", "stream": True, "input": "hi"}),
    "messages": ("v1/messages", {"model": "m", "stream": True, "max_tokens": 9, "messages": []}),
    "gemini": ("v1beta/models/m:streamGenerateContent?alt=sse", {"contents": []}),
    "gemini array": ("v1beta/models/m:streamGenerateContent", {"contents": []}),
}

#: the same, whole
REQUESTS: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": ("v1/chat/completions", {"model": "m", "messages": []}),
    "responses": ("v1/responses", {"model": "m", "input": "hi"}),
    "messages": ("v1/messages", {"model": "m", "max_tokens": 9, "messages": []}),
    "gemini": ("v1beta/models/m:generateContent", {"contents": []}),
    "embeddings": ("v1/embeddings", {"model": "m", "input": "hi"}),
}


@dataclass(frozen=True)
class Answer:
    """What a raw client got."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def message(self) -> str:
        """Of an error in any dialect."""
        return self.json["error"]["message"]


@dataclass
class Bench:
    """A gateway before a scripted provider."""

    upstream: Upstream
    gateway: Gateway
    budget: Budget
    path: Path

    def rows(self, count: int = 1) -> list[LedgerRow]:
        """Waits for so many, as a client may act before the answer ends."""
        deadline = time.monotonic() + 15
        while len(rows := read_ledger(self.path)) < count:
            assert time.monotonic() < deadline, rows
            time.sleep(0.02)
        return rows

    def ask(self, path: str, body: Any = None, **more: Any) -> Answer:
        """One raw request."""
        return asyncio.run(self.ask_async(path, body, **more))

    async def ask_async(
        self,
        path: str,
        body: Any = None,
        *,
        method: str = "POST",
        attempt: int = 1,
        headers: Mapping[str, str] | None = None,
        root: str | None = None,
    ) -> Answer:
        """`body`: JSON, or bytes as they are. `headers` None: the token as a bearer."""
        grant = self.gateway.grant(OPERATOR, attempt)
        if headers is None:
            headers = {"Authorization": f"Bearer {grant.token}"}
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        url = f"{root or grant.root_url}/{path}"
        async with (
            aiohttp.ClientSession(auto_decompress=False) as session,
            session.request(method, url, data=data, headers=headers) as answer,
        ):
            return Answer(answer.status, answer.headers, await answer.read())

    async def hang_up(self, path: str, body: Any, after_bytes: int = 1) -> None:
        """Asks, reads a little, and closes the connection."""
        grant = self.gateway.grant(OPERATOR, 1)
        async with aiohttp.ClientSession() as session:
            answer = await session.post(
                f"{grant.root_url}/{path}",
                json=body,
                headers={"Authorization": f"Bearer {grant.token}"},
            )
            await answer.content.readexactly(after_bytes)
            answer.close()


def endpoints(upstream: Upstream) -> dict[str, Endpoint]:
    """All three providers at a scripted one."""
    return {name: Endpoint(upstream.url(name), upstream.key) for name in PROVIDERS}


@contextmanager
def bench(
    folder: Path, limits: Mapping[Scope, Limits] | None = None, **options: Any
) -> Iterator[Bench]:
    """`options` as `Gateway` takes them."""
    with serving() as upstream:
        ledger, budget = Ledger(folder / "ledger.jsonl"), Budget(limits)
        try:
            gateway = Gateway("run1", endpoints(upstream), ledger, budget, **options)
            with gateway.serve():
                yield Bench(upstream, gateway, budget, ledger.path)
        finally:
            ledger.close()
