"""Streams of JSON values, read while they pass: server-sent events, and one JSON array.

Works on bytes, so characters may be split anywhere. Where nothing is to be taken out, every chunk
goes on at once and unchanged; otherwise an event waits until it is whole.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Protocol

from kernelmark.evaluators.metering.dialects.base import Dialect, Reading

_EVENT_END = re.compile(rb"\n\r?\n|\r\r")  # lines of one stream may end in different ways
_LONGEST_END = 3
_STRUCTURE = re.compile(rb'["{}\[\]]')
_IN_STRING = re.compile(rb'["\\]')


class StreamReader(Protocol):
    """Reads a streamed answer while it passes."""

    reading: Reading

    def feed(self, chunk: bytes) -> bytes:
        """Takes what came from upstream; gives what goes to the client now."""
        ...

    def end(self) -> bytes:
        """What is left to go to the client when the upstream has ended."""
        ...


def stream_reader(dialect: Dialect, content_type: str, hide: bool) -> StreamReader:
    """A reader for one streamed answer. `hide`: takes out events that the client did not ask for;
    only for server-sent events."""
    if "text/event-stream" in content_type:
        return _Events(dialect, hide)
    return _Array(dialect)


def read_whole(dialect: Dialect, body: bytes) -> Reading:
    """What a whole, unstreamed answer tells; an error where it is one, or no JSON object."""
    reading = Reading()
    data = _object(body)
    if data is None:
        reading.error = "the answer is not a JSON object"
        return reading
    dialect.read_answer(data, reading)
    if data.get("error"):
        reading.error = json.dumps(data["error"])[:500]
    return reading


class _Events:
    """Server-sent events (WHATWG HTML, section 9.2)."""

    def __init__(self, dialect: Dialect, hide: bool) -> None:
        self.reading = Reading()
        self._dialect = dialect
        self._hide = hide
        self._held = b""

    def feed(self, chunk: bytes) -> bytes:
        searched = max(len(self._held) - _LONGEST_END, 0)
        self._held += chunk
        passed, start = [], 0
        while end := _EVENT_END.search(self._held, max(start, searched)):
            event = self._held[start : end.end()]
            start = end.end()
            if not (self._read(event) and self._hide):
                passed.append(event)
        self._held = self._held[start:]
        return b"".join(passed) if self._hide else chunk

    def end(self) -> bytes:
        held, self._held = self._held, b""
        extra = self._read(held)
        return held if self._hide and not extra else b""

    def _read(self, event: bytes) -> bool:
        """Reads one event; whether the client did not ask for it."""
        lines = (line for line in event.splitlines() if line.startswith(b"data:"))
        data = b"\n".join(line[5:].lstrip() for line in lines)
        if data == b"[DONE]":
            self.reading.finished = self.reading.ended = True
            return False
        value = _object(data)
        if value is None:
            return False
        self._dialect.read_event(value, self.reading)
        return self._dialect.extra(value)


class _Array:
    """One JSON array whose elements are what events are otherwise."""

    def __init__(self, dialect: Dialect) -> None:
        self.reading = Reading()
        self._dialect = dialect
        self._held = b""
        self._at = 0  #: scanned up to here
        self._depth = 0
        self._string = False
        self._start = 0  #: of the element that is open
        self._element = 2  #: depth of elements; 1 where there is one object and no array

    def feed(self, chunk: bytes) -> bytes:
        self._held += chunk
        while found := (_IN_STRING if self._string else _STRUCTURE).search(self._held, self._at):
            mark, self._at = found.group(), found.end()
            if mark == b"\\":
                if self._at == len(self._held):  # what it escapes is still to come
                    self._at -= 1
                    return chunk
                self._at += 1
            elif mark == b'"':
                self._string = not self._string
            else:
                self._nest(mark)
        self._at = len(self._held)
        if self._depth < self._element:
            self._held, self._at = b"", 0
        return chunk

    def end(self) -> bytes:
        return b""

    def _nest(self, mark: bytes) -> None:
        if mark in b"{[":
            self._depth += 1
            if self._depth == 1:
                self._element = 2 if mark == b"[" else 1
            if self._depth == self._element:
                self._start = self._at - 1
            return
        self._depth -= 1
        if self._depth == self._element - 1 and self._held[self._start : self._start + 1] == b"{":
            value = _object(self._held[self._start : self._at])
            if value is not None:
                self._dialect.read_event(value, self.reading)


def _object(data: bytes) -> Mapping[str, Any] | None:
    try:
        value = json.loads(data) if data.strip() else None
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
