"""OpenAI's embeddings: input tokens only, one whole answer. Source: OpenAI API reference."""

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
    text_of,
)
from kernelmark.evaluators.metering.dialects.providers import OPENAI
from kernelmark.evaluators.metering.ledger import Usage


def _read_request(path: str, body: Mapping[str, Any]) -> Asked:
    return Asked(text_of(body, "model"), max_output_tokens=0)


def _read_answer(data: Mapping[str, Any], reading: Reading) -> None:
    reading.model = str(data.get("model") or "")
    reading.finished = True
    inputs = count(data, "usage", "prompt_tokens")
    if inputs is not None:
        reading.usage, reading.final = Usage(in_uncached=inputs), True
        keep_raw(reading, data["usage"])


DIALECTS = (
    Dialect(
        api="embeddings",
        provider=OPENAI,
        method="POST",
        path=re.compile(r"v1/embeddings"),
        read_request=_read_request,
        read_answer=_read_answer,
        read_event=_read_answer,
    ),
)
