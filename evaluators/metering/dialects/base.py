"""What a dialect is: one kind of request of one provider. Its file in this folder lists it in
`DIALECTS`.

The gateway passes bytes through; a dialect only reads them: what is asked for, what was used. It
changes a request where usage would not be reported otherwise, and then names what the client did
not ask for, so that it can be taken out of the answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kernelmark.evaluators.metering.ledger import Usage


@dataclass(frozen=True)
class Provider:
    """What the dialects of one provider share.

    `base_has_version`: base URLs end with the API's version, as the provider's SDK takes them.
    `refusal` makes the provider's error object from HTTP status, message and code.
    """

    name: str
    base_has_version: bool
    key_header: Callable[[str], dict[str, str]]
    refusal: Callable[[int, str, str], dict[str, Any]]

    def upstream_url(self, base_url: str, path: str) -> str:
        """Where a request for `path` (``v1/messages``) goes."""
        tail = path.partition("/")[2] if self.base_has_version else path
        return f"{base_url.rstrip('/')}/{tail}"


@dataclass(frozen=True)
class Asked:
    """A request, read. `server_tools`: what it wants the provider to run on its side."""

    model: str
    stream: bool = False
    max_output_tokens: int | None = None
    server_tools: tuple[str, ...] = ()


@dataclass
class Reading:
    """What an answer has told so far."""

    usage: Usage | None = None
    final: bool = False  #: `usage` covers the whole answer
    raw_usage: str = ""
    model: str = ""
    upstream_id: str = ""
    text_bytes: int = 0  #: generated text, for estimates
    finished: bool = False  #: the answer says itself that it is whole
    ended: bool = False  #: the last event, on which clients act before the connection ends
    error: str = ""  #: the provider gave up in mid-answer
    list_price: bool = True  #: False: charged otherwise than the price table knows


def _as_it_came(request: Mapping[str, Any]) -> dict[str, Any] | None:
    return None


def _never(event: Mapping[str, Any]) -> bool:
    return False


@dataclass(frozen=True)
class Dialect:
    """One kind of request: how it is recognised, and what its parts mean.

    `path` matches all that follows the gateway's prefix, without a leading slash. `read_request`
    takes that path and the body and raises `ValueError` where the body is no request.
    `read_answer` and `read_event` take one JSON value of the answer and add it to a reading.
    `with_usage` gives a changed request where usage would not be reported otherwise, and `extra`
    tells the events that only the change has brought. `streams_arrays`: a stream may be one JSON
    array. `free`: never charged, and not metered.
    """

    api: str  #: the word in the ledger
    provider: Provider
    method: str  #: of HTTP
    path: re.Pattern[str]
    read_request: Callable[[str, Mapping[str, Any]], Asked]
    read_answer: Callable[[Mapping[str, Any], Reading], None]
    read_event: Callable[[Mapping[str, Any], Reading], None]
    with_usage: Callable[[Mapping[str, Any]], dict[str, Any] | None] = _as_it_came
    extra: Callable[[Mapping[str, Any]], bool] = _never
    streams_arrays: bool = False
    free: bool = False


def count(raw: Any, *names: str) -> int | None:
    """A count at a path of names in nested objects; None where there is none."""
    for name in names:
        raw = raw.get(name) if isinstance(raw, Mapping) else None
    return raw if isinstance(raw, int) and not isinstance(raw, bool) and raw >= 0 else None


def text_of(body: Mapping[str, Any], name: str) -> str:
    """A text that a request must have."""
    value = body.get(name)
    if not isinstance(value, str) or not value:
        raise ValueError(f"{name}: must be a text")
    return value


def limit_of(body: Mapping[str, Any], *names: str) -> int | None:
    """The first of `names` that is there: a count of output tokens."""
    for name in names:
        if body.get(name) is not None:
            limit = count(body, name)
            if limit is None:
                raise ValueError(f"{name}: must be a count")
            return limit
    return None


def objects(value: Any) -> list[Mapping[str, Any]]:
    """The objects in a list; none where it is no list."""
    return [v for v in value if isinstance(v, Mapping)] if isinstance(value, list) else []


def nbytes(value: Any) -> int:
    """Size of generated content: a text, or what a tool is called with."""
    if not value:
        return 0
    return len((value if isinstance(value, str) else json.dumps(value)).encode(errors="replace"))


def keep_raw(reading: Reading, usage: Mapping[str, Any]) -> None:
    """Keeps a provider's usage object as it was told last."""
    reading.raw_usage = json.dumps(usage, sort_keys=True, ensure_ascii=False)
