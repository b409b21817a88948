"""Gemini's generateContent and streamGenerateContent, as events or as one JSON array.

Usage: ``promptTokenCount`` includes cached ones; results of tools run by the provider come on top
of it, thoughts on top of ``candidatesTokenCount``. Each chunk of a stream tells the totals so far;
each count is the largest told. Source: Gemini API reference, ``UsageMetadata``; google-genai 3.6,
``GenerateContentResponseUsageMetadata``.
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
)
from kernelmark.evaluators.metering.dialects.providers import GEMINI
from kernelmark.evaluators.metering.ledger import Usage

_PATH = re.compile(
    r"v1(?:alpha|beta)?/(?:models|tunedModels)/(?P<model>[^/:]+)"
    r":(?P<method>generateContent|streamGenerateContent)"
)
#: in either spelling that the API takes
_CLIENT_TOOLS = {"functiondeclarations", "computeruse"}


def _read_request(path: str, body: Mapping[str, Any]) -> Asked:
    match = _PATH.fullmatch(path)
    assert match is not None  # `path` chose this dialect
    config = body.get("generationConfig", body.get("generation_config")) or {}
    if not isinstance(config, Mapping):
        raise ValueError("generationConfig: must be an object")
    names = [name for tool in objects(body.get("tools")) for name in tool]
    served = [n for n in names if n.replace("_", "").lower() not in _CLIENT_TOOLS]
    limit = limit_of(config, "maxOutputTokens", "max_output_tokens")
    answers = count(config, "candidateCount") or 1
    return Asked(
        match["model"],
        match["method"] == "streamGenerateContent",
        limit if limit is None else limit * answers,
        tuple(served),
    )


def _read_answer(data: Mapping[str, Any], reading: Reading) -> None:
    _read_event(data, reading)
    reading.finished = True
    reading.final = reading.usage is not None


def _read_event(data: Mapping[str, Any], reading: Reading) -> None:
    reading.model = str(data.get("modelVersion") or reading.model)
    reading.upstream_id = str(data.get("responseId") or reading.upstream_id)
    stopped = bool(isinstance(feedback := data.get("promptFeedback"), Mapping) and feedback)
    for candidate in objects(data.get("candidates")):
        stopped |= bool(candidate.get("finishReason"))
        content = candidate.get("content")
        for part in objects(content.get("parts")) if isinstance(content, Mapping) else ():
            reading.text_bytes += nbytes(part.get("text")) + nbytes(part.get("functionCall"))
    if data.get("error"):
        reading.error = json.dumps(data["error"])[:500]
        reading.ended = True
    reading.finished |= stopped
    told = count(data, "usageMetadata", "promptTokenCount") is not None
    if told:
        _read_usage(data["usageMetadata"], reading)
    reading.final |= reading.finished and told


def _read_usage(raw: Mapping[str, Any], reading: Reading) -> None:
    before = json.loads(reading.raw_usage or "{}")
    merged = {**before, **raw}
    for name in raw.keys() & before.keys():
        if (new := count(raw, name)) is not None and (old := count(before, name)) is not None:
            merged[name] = max(new, old)
    keep_raw(reading, merged)
    cached = count(merged, "cachedContentTokenCount") or 0
    tools = count(merged, "toolUsePromptTokenCount") or 0
    thoughts = count(merged, "thoughtsTokenCount") or 0
    inputs = (count(merged, "promptTokenCount") or 0) + tools
    reading.usage = Usage(
        in_uncached=max(inputs - cached, 0),
        in_cache_read=cached,
        out_total=(count(merged, "candidatesTokenCount") or 0) + thoughts,
        out_reasoning=thoughts,
    )
    if tools:
        reading.list_price = False


DIALECTS = (
    Dialect(
        api="gemini",
        provider=GEMINI,
        method="POST",
        path=_PATH,
        read_request=_read_request,
        read_answer=_read_answer,
        read_event=_read_event,
        streams_arrays=True,
    ),
)
