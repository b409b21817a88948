"""Anthropic's messages.

Usage: ``input_tokens`` excludes what was read from or written to cache; ``output_tokens`` includes
thinking. A stream tells input in ``message_start`` and the running totals in ``message_delta``;
each count is the largest told. Iterations of compaction and of an advisor are charged but are not
in the totals. Source: Anthropic API reference, messages and "streaming messages"; anthropic 2.14,
``BetaUsage``.
"""

from __future__ import annotations

import json
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
from kernelmark.evaluators.metering.dialects.providers import ANTHROPIC
from kernelmark.evaluators.metering.ledger import Usage

#: tools with a type that the client runs; those without one are the client's own
_CLIENT_TOOLS = (
    "custom", "bash_", "text_editor_", "computer_", "memory_", "browser_",
)  # fmt: skip
_CHARGED_APART = ("compaction", "advisor_message")
_LIST = {
    "service_tier": (None, "standard"),
    "speed": (None, "standard"),
    "inference_geo": (None, "", "global", "not_available"),
}


def _read_request(path: str, body: Mapping[str, Any]) -> Asked:
    kinds = [str(tool.get("type") or "custom") for tool in objects(body.get("tools"))]
    served = [kind for kind in kinds if not kind.startswith(_CLIENT_TOOLS)]
    if body.get("mcp_servers"):
        served.append("mcp_servers")
    return Asked(
        text_of(body, "model"),
        bool(body.get("stream")),
        limit_of(body, "max_tokens"),
        tuple(served),
    )


def _read_answer(data: Mapping[str, Any], reading: Reading) -> None:
    _read_message(data, reading)
    reading.finished = reading.final = True


def _read_message(message: Mapping[str, Any], reading: Reading) -> None:
    reading.model = str(message.get("model") or reading.model)
    reading.upstream_id = str(message.get("id") or reading.upstream_id)
    for block in objects(message.get("content")):
        reading.text_bytes += sum(nbytes(block.get(n)) for n in ("text", "thinking", "input"))
    _read_usage(message.get("usage"), reading)


def _read_event(data: Mapping[str, Any], reading: Reading) -> None:
    kind = data.get("type")
    message, delta = data.get("message"), data.get("delta")
    if kind == "message_start" and isinstance(message, Mapping):
        _read_message(message, reading)
    elif kind == "content_block_delta" and isinstance(delta, Mapping):
        reading.text_bytes += sum(
            nbytes(delta.get(name)) for name in ("text", "thinking", "partial_json")
        )
    elif kind == "message_delta":
        _read_usage(data.get("usage"), reading)
        stopped = isinstance(delta, Mapping) and bool(delta.get("stop_reason"))
        reading.finished |= stopped
        reading.final |= stopped and count(data, "usage", "output_tokens") is not None
        reading.ended |= reading.final  # some clients don't wait for message_stop
    elif kind == "message_stop":
        reading.finished = reading.ended = True
    elif kind == "error":
        reading.error = json.dumps(data.get("error"))[:500]
        reading.ended = True


def _read_usage(raw: Any, reading: Reading) -> None:
    if not isinstance(raw, Mapping):
        return
    merged = _larger(json.loads(reading.raw_usage or "{}"), raw)
    keep_raw(reading, merged)
    if any(merged.get(name) not in listed for name, listed in _LIST.items()):
        reading.list_price = False
    if any(count(merged, "server_tool_use", name) for name in merged.get("server_tool_use") or ()):
        reading.list_price = False
    if count(merged, "input_tokens") is None or count(merged, "output_tokens") is None:
        return
    apart = [i for i in objects(merged.get("iterations")) if i.get("type") in _CHARGED_APART]
    reading.list_price &= not any(i.get("type") == "advisor_message" for i in apart)
    reading.usage = sum(map(_usage, apart), _usage(merged))


def _larger(told: Mapping[str, Any], raw: Mapping[str, Any]) -> dict[str, Any]:
    """Both usage objects in one: of two counts the larger, of all else what is told last."""
    merged = dict(told)
    for name, value in raw.items():
        before = merged.get(name)
        if isinstance(value, Mapping):
            merged[name] = _larger(before if isinstance(before, Mapping) else {}, value)
        elif count(raw, name) is not None and count(merged, name) is not None:
            merged[name] = max(value, merged[name])
        elif value is not None:
            merged[name] = value
    return merged


def _usage(raw: Mapping[str, Any]) -> Usage:
    written = count(raw, "cache_creation_input_tokens") or 0
    hour = min(count(raw, "cache_creation", "ephemeral_1h_input_tokens") or 0, written)
    out = count(raw, "output_tokens") or 0
    return Usage(
        in_uncached=count(raw, "input_tokens") or 0,
        in_cache_read=count(raw, "cache_read_input_tokens") or 0,
        in_cache_write_5m=written - hour,
        in_cache_write_1h=hour,
        out_total=out,
        out_reasoning=min(count(raw, "output_tokens_details", "thinking_tokens") or 0, out),
    )


DIALECTS = (
    Dialect(
        api="messages",
        provider=ANTHROPIC,
        method="POST",
        path=re.compile(r"v1/messages"),
        read_request=_read_request,
        read_answer=_read_answer,
        read_event=_read_event,
    ),
)
