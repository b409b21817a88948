"""OpenAI's chat completions, which most servers speak.

Usage: ``prompt_tokens`` includes cached ones, ``completion_tokens`` includes reasoning; servers
that leave reasoning out of it show that in ``total_tokens``. A stream reports usage only where
``stream_options.include_usage`` asks for it, in an extra chunk without choices before ``[DONE]``;
some servers put it on the last chunk with choices, or on every one, as far as they have come.
Source: OpenAI API reference, chat completions, "stream_options"; openai 3.57, ``CompletionUsage``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from kernelmark.evaluators.metering.dialects.base import (
    Asked,
    Dialect,
    Reading,
    count,
    keep_raw,
    limit_of,
    nbytes,
    objects,
    text_of,
)
from kernelmark.evaluators.metering.dialects.providers import OPENAI
from kernelmark.evaluators.metering.ledger import Usage

#: tiers that are charged as the list says
LIST_TIERS = (None, "", "auto", "default", "standard")


def _read_request(path: str, body: Mapping[str, Any]) -> Asked:
    limit = limit_of(body, "max_completion_tokens", "max_tokens")
    answers = count(body, "n") or 1
    tools = [t.get("type") for t in objects(body.get("tools"))]
    served = [str(kind) for kind in tools if kind not in ("function", "custom")]
    if body.get("web_search_options") is not None:
        served.append("web_search")
    return Asked(
        text_of(body, "model"),
        bool(body.get("stream")),
        limit if limit is None else limit * answers,
        tuple(served),
    )


def _with_usage(request: Mapping[str, Any]) -> dict[str, Any] | None:
    options = request.get("stream_options") or {}
    if not request.get("stream") or not isinstance(options, dict) or options.get("include_usage"):
        return None
    return {**request, "stream_options": {**options, "include_usage": True}}


def _extra(event: Mapping[str, Any]) -> bool:
    return not event.get("choices") and bool(event.get("usage"))


def _read_answer(data: Mapping[str, Any], reading: Reading) -> None:
    reading.finished = True
    if not isinstance(data.get("choices"), list):
        reading.error = "the answer has no choices"
    _read(data, reading, "message")


def _read_event(data: Mapping[str, Any], reading: Reading) -> None:
    _read(data, reading, "delta")
    if data.get("error"):
        reading.error = str(data["error"])[:500]
        reading.ended = True


def _read(data: Mapping[str, Any], reading: Reading, part: str) -> None:
    reading.model = str(data.get("model") or reading.model)
    reading.upstream_id = str(data.get("id") or reading.upstream_id)
    for choice in objects(data.get("choices")):
        reading.finished |= bool(choice.get("finish_reason"))
        said = choice.get(part)
        if isinstance(said, Mapping):
            names = ("content", "reasoning_content", "reasoning", "tool_calls")
            reading.text_bytes += sum(nbytes(said.get(name)) for name in names)
    if data.get("service_tier") not in LIST_TIERS:
        reading.list_price = False
    usage = _usage(data.get("usage"))
    if usage is not None:
        reading.usage = usage
        reading.final = reading.finished or not data.get("choices")
        keep_raw(reading, data["usage"])


def _usage(raw: Any) -> Usage | None:
    prompt, out = count(raw, "prompt_tokens"), count(raw, "completion_tokens")
    if prompt is None or out is None:
        return None
    reasoning = count(raw, "completion_tokens_details", "reasoning_tokens") or 0
    if reasoning and count(raw, "total_tokens") == prompt + out + reasoning:
        out += reasoning
    return input_usage(raw, prompt, "prompt_tokens_details", out, reasoning)


def input_usage(raw: Any, inputs: int, details: str, out: int, reasoning: int) -> Usage:
    """Disjoint classes from an input count that includes what was read from or written to cache."""
    cached = count(raw, details, "cached_tokens") or 0
    written = count(raw, details, "cache_write_tokens") or 0
    return Usage(
        in_uncached=max(inputs - cached - written, 0),
        in_cache_read=cached,
        in_cache_write_5m=written,
        out_total=out,
        out_reasoning=min(reasoning, out),
    )


DIALECTS = (
    Dialect(
        api="chat",
        provider=OPENAI,
        method="POST",
        path=re.compile(r"v1/chat/completions"),
        read_request=_read_request,
        read_answer=_read_answer,
        read_event=_read_event,
        with_usage=_with_usage,
        extra=_extra,
    ),
)
