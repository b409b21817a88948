"""Requests that no provider charges for: lists of models, counts of tokens. Passed, recorded,
left out of every budget."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from kernelmark.evaluators.metering.dialects.base import Asked, Dialect, Provider, Reading
from kernelmark.evaluators.metering.dialects.providers import ANTHROPIC, GEMINI, OPENAI
from kernelmark.evaluators.metering.ledger import FREE_APIS, Usage


def _read_request(path: str, body: Mapping[str, Any]) -> Asked:
    found = re.search(r"/models/([^/:]+)", path)
    model = body.get("model") or (found[1] if found else "")
    return Asked(str(model), max_output_tokens=0)


def _read_answer(data: Mapping[str, Any], reading: Reading) -> None:
    reading.usage, reading.final, reading.finished = Usage(), True, True


def _free(api: str, provider: Provider, method: str, path: str) -> Dialect:
    return Dialect(
        api=api,
        provider=provider,
        method=method,
        path=re.compile(path),
        read_request=_read_request,
        read_answer=_read_answer,
        read_event=_read_answer,
        free=True,
    )


_MODELS, _COUNT_TOKENS = FREE_APIS

DIALECTS = (
    _free(_MODELS, OPENAI, "GET", r"v1/models(/.+)?"),
    _free(_MODELS, ANTHROPIC, "GET", r"v1/models(/.+)?"),
    _free(_MODELS, GEMINI, "GET", r"v1(alpha|beta)?/models(/[^:]+)?"),
    _free(_COUNT_TOKENS, OPENAI, "POST", r"v1/responses/input_tokens"),
    _free(_COUNT_TOKENS, ANTHROPIC, "POST", r"v1/messages/count_tokens"),
    _free(_COUNT_TOKENS, GEMINI, "POST", r"v1(alpha|beta)?/models/[^/:]+:countTokens"),
)
