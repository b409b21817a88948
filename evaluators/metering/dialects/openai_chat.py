"""OpenAI's chat completions, which most servers speak.

Usage: ``prompt_tokens`` includes cached ones, ``completion_tokens`` includes reasoning. A stream
reports usage only where ``stream_options.include_usage`` asks for it, in an extra chunk without
choices before ``[DONE]``; some servers put it on the last chunk with choices. Source: OpenAI API
reference, chat completions, "stream_options".
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from kernelmark.evaluators.metering.dialects.base import Asked, Reading, StreamReader
from kernelmark.evaluators.metering.ledger import Usage

_EVENT_END = re.compile(rb"\r\n\r\n|\n\n|\r\r")


class OpenAIChat:
    """`Dialect` of ``/v1/chat/completions``."""

    api = "chat"
    path = "v1/chat/completions"

    def read_request(self, body: Mapping[str, Any]) -> Asked:
        """Model, streaming, output limit."""
        model = body.get("model")
        if not isinstance(model, str):
            raise ValueError("model: must be a text")
        limit = body.get("max_completion_tokens", body.get("max_tokens"))
        if limit is not None and (not isinstance(limit, int) or limit < 0):
            raise ValueError("max_completion_tokens: must be a count")
        return Asked(model, bool(body.get("stream")), limit)

    def forward(self, body: bytes, request: Mapping[str, Any]) -> tuple[bytes, bool]:
        """Asks for usage where a stream does not; all else goes as it came."""
        options = request.get("stream_options") or {}
        if not request.get("stream") or options.get("include_usage"):
            return body, False
        changed = {**request, "stream_options": {**options, "include_usage": True}}
        return json.dumps(changed, ensure_ascii=False).encode(), True

    def upstream_url(self, base_url: str) -> str:
        """`base_url` ends with the version, as SDKs take it."""
        return f"{base_url.rstrip('/')}/chat/completions"

    def authorization(self, key: str) -> dict[str, str]:
        """Bearer."""
        return {"Authorization": f"Bearer {key}"} if key else {}

    def token(self, headers: Mapping[str, str]) -> str:
        """Bearer."""
        return headers.get("Authorization", "").removeprefix("Bearer ").strip()

    def read_answer(self, body: bytes) -> Reading:
        """One JSON object."""
        reading = Reading()
        try:
            data = json.loads(body)
        except ValueError:
            return reading
        if isinstance(data, dict):
            _read(data, reading, "message")
            reading.finished = True
        return reading

    def stream_reader(self, hide_usage: bool) -> StreamReader:
        """Server-sent events."""
        return _Stream(hide_usage)

    def refusal(self, message: str, code: str) -> bytes:
        """An invalid request: clients do not try it again."""
        error = {"message": message, "type": "invalid_request_error", "param": None, "code": code}
        return json.dumps({"error": error}).encode()


class _Stream:
    """Passes events through whole; drops the usage chunk that the client did not ask for."""

    def __init__(self, hide_usage: bool) -> None:
        self.reading = Reading()
        self._hide = hide_usage
        self._held = b""

    def feed(self, chunk: bytes) -> bytes:
        """Bytes of complete events; where nothing is hidden, every byte at once."""
        self._held += chunk
        passed = b""
        while end := _EVENT_END.search(self._held):
            event, self._held = self._held[: end.end()], self._held[end.end() :]
            if not (self._event(event) and self._hide):
                passed += event
        return passed if self._hide else chunk

    def end(self) -> bytes:
        """An unfinished event, as it came."""
        held, self._held = self._held, b""
        return held if self._hide else b""

    def _event(self, event: bytes) -> bool:
        """Reads one event; whether it is the extra usage chunk."""
        lines = (line for line in event.splitlines() if line.startswith(b"data:"))
        data = b"\n".join(line[5:].lstrip() for line in lines)
        if data == b"[DONE]":
            self.reading.finished = True
            return False
        try:
            chunk = json.loads(data) if data else None
        except ValueError:
            return False
        if not isinstance(chunk, dict):
            return False
        _read(chunk, self.reading, "delta")
        return not chunk.get("choices") and bool(chunk.get("usage"))


def _read(data: dict[str, Any], reading: Reading, part: str) -> None:
    reading.model = str(data.get("model") or reading.model)
    reading.upstream_id = str(data.get("id") or reading.upstream_id)
    for choice in data.get("choices") or ():
        said = choice.get(part) if isinstance(choice, dict) else None
        if isinstance(choice, dict) and choice.get("finish_reason"):
            reading.finished = True
        if isinstance(said, dict):
            texts = (said.get("content"), said.get("reasoning_content"), said.get("tool_calls"))
            reading.text_bytes += sum(len(_text(text).encode()) for text in texts if text)
    if isinstance(data.get("usage"), dict):
        reading.usage = _usage(data["usage"])
        reading.raw_usage = json.dumps(data["usage"], sort_keys=True)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _usage(raw: dict[str, Any]) -> Usage:
    inputs = raw.get("prompt_tokens_details") or {}
    outputs = raw.get("completion_tokens_details") or {}
    cached = _count(inputs, "cached_tokens")
    written = _count(inputs, "cache_write_tokens")
    return Usage(
        in_uncached=max(_count(raw, "prompt_tokens") - cached - written, 0),
        in_cache_read=cached,
        in_cache_write_5m=written,
        out_total=_count(raw, "completion_tokens"),
        out_reasoning=_count(outputs, "reasoning_tokens"),
    )


def _count(data: Mapping[str, Any], name: str) -> int:
    value = data.get(name)
    return value if isinstance(value, int) and value > 0 else 0


DIALECT = OpenAIChat()
