"""OpenAI's responses, and the compaction of a conversation that belongs to it.

Usage is on the response object of the last event (``response.completed``, ``.incomplete`` or
``.failed``); ``input_tokens`` includes cached and cache-written ones, ``output_tokens`` includes
reasoning. OpenAI keeps what it writes to its cache for 30 minutes or 12 hours at one price; both
are counted as the shorter class. Source: OpenAI API reference, responses, "streaming events";
openai 3.57, ``ResponseUsage``.

A response in the background ends after the connection that began it, so it is refused.
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
from kernelmark.evaluators.metering.dialects.openai_chat import LIST_TIERS, input_usage
from kernelmark.evaluators.metering.dialects.providers import OPENAI

#: tools that the client runs itself; all others run at the provider
_CLIENT_TOOLS = {
    "function", "custom", "local_shell", "apply_patch", "namespace", "tool_search", "computer",
    "computer_use_preview",
}  # fmt: skip
_ENDS = ("response.completed", "response.incomplete", "response.failed")


def _read_request(path: str, body: Mapping[str, Any]) -> Asked:
    if body.get("background"):
        raise ValueError("background: a response that outlives its request can't be metered")
    tools = [tool for tool in objects(body.get("tools")) if not _run_by_client(tool)]
    return Asked(
        text_of(body, "model"),
        bool(body.get("stream")),
        limit_of(body, "max_output_tokens"),
        tuple(str(tool.get("type")) for tool in tools),
    )


def _run_by_client(tool: Mapping[str, Any]) -> bool:
    if tool.get("type") == "shell":
        environment = tool.get("environment")
        return isinstance(environment, Mapping) and environment.get("type") == "local"
    if tool.get("type") == "tool_search":
        return tool.get("execution") == "client"
    return tool.get("type") in _CLIENT_TOOLS


def _read_answer(data: Mapping[str, Any], reading: Reading) -> None:
    reading.model = str(data.get("model") or reading.model)
    reading.upstream_id = str(data.get("id") or reading.upstream_id)
    for item in objects(data.get("output")):
        reading.text_bytes += sum(nbytes(item.get(name)) for name in ("arguments", "input"))
        reading.text_bytes += sum(nbytes(p.get("text")) for p in objects(item.get("content")))
    _read_response(data, reading)
    reading.finished = True


def _read_event(data: Mapping[str, Any], reading: Reading) -> None:
    kind = str(data.get("type"))
    response = data.get("response")
    if kind.endswith(".delta"):
        reading.text_bytes += nbytes(data.get("delta"))
    if isinstance(response, Mapping):
        reading.model = str(response.get("model") or reading.model)
        reading.upstream_id = str(response.get("id") or reading.upstream_id)
    if kind in _ENDS and isinstance(response, Mapping):
        _read_response(response, reading)
        reading.finished = reading.ended = True
    elif kind == "error":
        reading.error = str(data.get("message") or data.get("error"))[:500]
        reading.ended = True


def _read_response(response: Mapping[str, Any], reading: Reading) -> None:
    if response.get("error"):
        reading.error = str(response["error"])[:500]
    if response.get("service_tier") not in LIST_TIERS:
        reading.list_price = False
    raw = response.get("usage")
    inputs, out = count(raw, "input_tokens"), count(raw, "output_tokens")
    if inputs is None or out is None:
        return
    reasoning = count(raw, "output_tokens_details", "reasoning_tokens") or 0
    reading.usage = input_usage(raw, inputs, "input_tokens_details", out, reasoning)
    reading.final = True
    keep_raw(reading, response["usage"])


DIALECTS = (
    Dialect(
        api="responses",
        provider=OPENAI,
        method="POST",
        path=re.compile(r"v1/responses(/compact)?"),
        read_request=_read_request,
        read_answer=_read_answer,
        read_event=_read_event,
    ),
)
