"""What a provider's dialect is: one file in this folder, one `DIALECT` in it.

The gateway passes bytes through; a dialect only reads them: what is asked for, what was used. It
changes a request where usage would not be reported otherwise, and then takes out of the answer what
the client did not ask for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from kernelmark.evaluators.metering.ledger import Usage


@dataclass(frozen=True)
class Asked:
    """A request, read."""

    model: str
    stream: bool
    max_output_tokens: int | None


@dataclass
class Reading:
    """What an answer has told so far. `text_bytes` counts generated text, for estimates."""

    usage: Usage | None = None
    raw_usage: str = ""
    model: str = ""
    upstream_id: str = ""
    text_bytes: int = 0
    finished: bool = False  #: the answer says itself that it is whole


class StreamReader(Protocol):
    """Reads a streamed answer while it passes."""

    reading: Reading

    def feed(self, chunk: bytes) -> bytes:
        """Takes what came from upstream; gives what goes to the client now."""
        ...

    def end(self) -> bytes:
        """What is left to go to the client when the upstream has ended."""
        ...


class Dialect(Protocol):
    """One provider's request path and formats."""

    api: str  #: the word in the ledger
    path: str  #: after the gateway's prefix, without a leading slash

    def read_request(self, body: Mapping[str, Any]) -> Asked:
        """What is asked for. Raises `ValueError` where the body is no request."""
        ...

    def forward(self, body: bytes, request: Mapping[str, Any]) -> tuple[bytes, bool]:
        """The body to send upstream, and whether the answer's usage must be hidden."""
        ...

    def upstream_url(self, base_url: str) -> str:
        """Where the request goes."""
        ...

    def authorization(self, key: str) -> dict[str, str]:
        """Headers that carry the provider's key."""
        ...

    def token(self, headers: Mapping[str, str]) -> str:
        """The token that a client sent in place of a key; empty where there is none."""
        ...

    def read_answer(self, body: bytes) -> Reading:
        """What a whole, unstreamed answer tells."""
        ...

    def stream_reader(self, hide_usage: bool) -> StreamReader:
        """A reader for one streamed answer."""
        ...

    def refusal(self, message: str, code: str) -> bytes:
        """An error in the provider's own format, such that clients stop rather than retry."""
        ...
