"""A provider on loopback that speaks OpenAI's chat dialect, with scripted behaviour.

The model's name chooses what happens: ``plain``, ``no-usage``, ``cached``, ``late-usage`` (on the
last chunk with choices), ``cut`` (hangs up in mid-stream), ``slow`` (a chunk every 20 ms),
``status-429`` and the like, ``garbage``. It counts what it bills itself.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

KEY = "the-real-key"
TEXT = "Grüße, 世界! " * 3


@dataclass
class Upstream:
    """What the provider saw and billed. `reply` is the text of the next answers."""

    url: str = ""
    reply: str = TEXT
    requests: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    billed_tokens: int = 0
    prompt_tokens: int = 120
    completion_tokens: int = 30

    def usage(self, model: str) -> dict[str, Any]:
        """The usage object of one answer, billed."""
        self.billed_tokens += self.prompt_tokens + self.completion_tokens
        raw: dict[str, Any] = {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
        }
        if model == "cached":
            raw["prompt_tokens_details"] = {"cached_tokens": 100}
            raw["completion_tokens_details"] = {"reasoning_tokens": 25}
        return raw

    def frames(self, request: dict[str, Any]) -> list[bytes]:
        """The stream's events as they go over the wire, split in the middle of characters."""
        model = request["model"]
        asked = (request.get("stream_options") or {}).get("include_usage")
        base = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": f"{model}-served"}
        half = len(self.reply) // 2
        deltas = [
            {"role": "assistant", "content": self.reply[:half]},
            {"content": self.reply[half:]},
        ]
        chunks = [{**base, "choices": [{"index": 0, "delta": d}]} for d in deltas]
        chunks.append({**base, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        if model == "late-usage":
            chunks[-1]["usage"] = self.usage(model)
        elif asked and model != "no-usage":
            chunks.append({**base, "choices": [], "usage": self.usage(model)})
        events = [b"data: " + json.dumps(c, ensure_ascii=False).encode() + b"\n\n" for c in chunks]
        whole = b": hello\n\n" + b"".join(events) + b"data: [DONE]\n\n"
        return [whole[i : i + 37] for i in range(0, len(whole), 37)]

    async def chat(self, request: web.Request) -> web.StreamResponse:
        """``POST /v1/chat/completions``."""
        self.keys.append(request.headers.get("Authorization", ""))
        if self.keys[-1] != f"Bearer {KEY}":
            return web.json_response({"error": {"message": "bad key"}}, status=401)
        data = await request.json()
        self.requests.append(data)
        model = data["model"]
        if model.startswith("status-"):
            error = {"message": "scripted", "type": "scripted", "code": None}
            return web.json_response({"error": error}, status=int(model[7:]))
        if model == "garbage":
            return web.Response(text="<html>busy</html>", content_type="text/html")
        if data.get("stream"):
            return await self._stream(request, data)
        answer: dict[str, Any] = {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": f"{model}-served",
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": self.reply},
                    "finish_reason": "length" if model == "cut-short" else "stop",
                }
            ],
        }
        if model != "no-usage":
            answer["usage"] = self.usage(model)
        return web.json_response(answer)

    async def _stream(self, request: web.Request, data: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        frames = self.frames(data)
        for number, frame in enumerate(frames):
            if data["model"] == "cut" and number == len(frames) // 2:
                assert request.transport is not None
                request.transport.abort()
                return response
            await response.write(frame)
            if data["model"] == "slow":
                await asyncio.sleep(0.02)
        await response.write_eof()
        return response


@contextmanager
def serving() -> Iterator[Upstream]:
    """A running provider; `Upstream.url` ends with ``/v1``."""
    upstream = Upstream()
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def start() -> web.AppRunner:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", upstream.chat)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        upstream.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        return runner

    runner = asyncio.run_coroutine_threadsafe(start(), loop).result()
    try:
        yield upstream
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
