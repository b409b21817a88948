"""Undoes an answer's content encoding, chunk by chunk, to read it on the side."""

from __future__ import annotations

import zlib
from typing import Protocol

_GZIP_OR_ZLIB = zlib.MAX_WBITS | 32


class Decoder(Protocol):
    """One answer's. `feed` gives what can be told so far; nothing more after damaged data."""

    def feed(self, chunk: bytes) -> bytes: ...


class Identity:
    """Nothing to undo."""

    def feed(self, chunk: bytes) -> bytes:
        """The same."""
        return chunk


class Unknown:
    """An encoding that can't be read here."""

    def feed(self, chunk: bytes) -> bytes:
        """Nothing."""
        return b""


class Inflate:
    """gzip of any number of members, or deflate."""

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(_GZIP_OR_ZLIB)
        self._broken = False

    def feed(self, chunk: bytes) -> bytes:
        """What `chunk` adds."""
        plain = b""
        try:
            while chunk and not self._broken:
                plain += self._stream.decompress(chunk)
                chunk = self._stream.unused_data
                if self._stream.eof:
                    self._stream = zlib.decompressobj(_GZIP_OR_ZLIB)
        except zlib.error:
            self._broken = True
        return plain


def decoder(encoding: str) -> Decoder:
    """For a ``Content-Encoding``."""
    name = encoding.strip().lower()
    if name in ("", "identity"):
        return Identity()
    return Inflate() if name in ("gzip", "x-gzip", "deflate") else Unknown()
