"""Messages between the judge and its helper processes: length, then JSON; never pickle.

A stream socket, so that a message may be of any size up to `LIMIT`. File descriptors travel beside
a message (SCM_RIGHTS), whose head tells how many, as one read may bring several messages. What
arrives from a runner is hostile: a wrong length, text that is not JSON or not an object raises
`Garbled`; whoever reads a field checks it (`field`). Device layer.
"""

from __future__ import annotations

import array
import json
import os
import select
import socket
import struct
import time
from collections.abc import Sequence
from typing import Any, TypeVar

#: largest message, bytes; raw samples of a timing block take about 100 kB
LIMIT = 8 << 20
_HEADER = struct.Struct("<IB")  #: bytes of the message, descriptors beside it
_MAX_FDS = 4
_MAX_TEXT = 4000


class Garbled(ValueError):
    """The other side wrote what is no message of the protocol."""


class Closed(EOFError):
    """The other side is gone."""


class Late(TimeoutError):
    """No whole message came within the time given."""


class Channel:
    """One end of a connection. Not for use by several threads at once."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.socket = sock
        self._buffer = bytearray()
        self._fds: list[int] = []

    def send(
        self, message: dict[str, Any], fds: Sequence[int] = (), timeout_s: float = 30.0
    ) -> None:
        """Sends one message. Raises `Closed` or `Late`."""
        body = json.dumps(message).encode()
        data = memoryview(_HEADER.pack(len(body), len(fds)) + body)
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        deadline = time.monotonic() + timeout_s
        while data:
            try:
                sent = self.socket.sendmsg([data], rights)
            except BlockingIOError:
                _poll([(self.socket.fileno(), select.POLLOUT)], deadline)
                continue
            except OSError as error:
                raise Closed(f"the other side is gone: {error}") from error
            data, rights = data[sent:], []

    def receive(
        self, timeout_s: float | None = None, watch: int | None = None
    ) -> tuple[dict[str, Any], list[int]]:
        """The next message and the descriptors that came with it.

        `watch`: a descriptor (a pidfd) whose readiness means that the sender has died; what it sent
        before is still delivered. Raises `Closed`, `Late` or `Garbled`.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            taken = self._take()
            if taken is not None:
                return taken
            if not self._fill():
                wanted = [(self.socket.fileno(), select.POLLIN)]
                if watch is not None:
                    wanted.append((watch, select.POLLIN))
                ready = _poll(wanted, deadline)
                # A last look: the message may have been written just before the death.
                if self.socket.fileno() not in ready and not self._fill():
                    raise Closed("the other side has died")

    def holds(self) -> bool:
        """Whether bytes of a further message have been read already: waiting on the socket alone
        could then wait forever."""
        return bool(self._buffer)

    def close(self) -> None:
        """Closes this end, and descriptors that nobody took."""
        for fd in self._fds:
            os.close(fd)
        self._fds = []
        self.socket.close()

    def _fill(self) -> bool:
        """Reads what is there; False if nothing is."""
        try:
            size = socket.CMSG_SPACE(_MAX_FDS * array.array("i").itemsize)
            data, ancillary, _, _ = self.socket.recvmsg(1 << 16, size)
        except BlockingIOError:
            return False
        except OSError as error:
            raise Closed(f"the other side is gone: {error}") from error
        for level, kind, raw in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                fds = array.array("i")
                fds.frombytes(raw[: len(raw) - len(raw) % fds.itemsize])
                self._fds.extend(fds)
        if not data:
            raise Closed("the other side has closed the channel")
        self._buffer += data
        return True

    def _take(self) -> tuple[dict[str, Any], list[int]] | None:
        """The first whole message in the buffer and its descriptors, if there is one."""
        if len(self._buffer) < _HEADER.size:
            return None
        length, count = _HEADER.unpack_from(self._buffer)
        if length > LIMIT:
            raise Garbled(f"a message of {length} bytes; the limit is {LIMIT}")
        end = _HEADER.size + length
        if len(self._buffer) < end:
            return None
        body = bytes(self._buffer[_HEADER.size : end])
        del self._buffer[:end]
        try:
            message = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise Garbled("a message that is not JSON") from error
        if not isinstance(message, dict):
            raise Garbled("a message that is not an object")
        fds, self._fds = self._fds[:count], self._fds[count:]
        if len(fds) < count or (self._fds and not self._buffer):
            self._fds = [*fds, *self._fds]  # closed with the channel
            raise Garbled("other descriptors than the message tells of")
        return message, fds


T = TypeVar("T")


def field(message: dict[str, Any], name: str, kind: type[T]) -> T:
    """`message[name]`, which must be exactly of type `kind`. Raises `Garbled`."""
    value = message.get(name)
    if type(value) is not kind:
        raise Garbled(f"field {name!r} is no {kind.__name__}")
    return value


def naturals(message: dict[str, Any], name: str, length: int | None = None) -> tuple[int, ...]:
    """A list of integers from 0 to 2**62 in `message[name]`. Raises `Garbled`."""
    values = field(message, name, list)
    if any(type(v) is not int or not 0 <= v < 1 << 62 for v in values):
        raise Garbled(f"field {name!r} is no list of sizes")
    if length is not None and len(values) != length:
        raise Garbled(f"field {name!r} has {len(values)} entries, not {length}")
    return tuple(values)


def printable(text: str, limit: int = _MAX_TEXT) -> str:
    """Foreign text made safe to show: no control characters but line ends, cut at `limit`."""
    clean = "".join(c if c.isprintable() or c == "\n" else "?" for c in text[: limit + 1])
    return clean if len(clean) <= limit else clean[:limit] + "…"


def _poll(wanted: Sequence[tuple[int, int]], deadline: float | None) -> set[int]:
    poller = select.poll()
    for fd, events in wanted:
        poller.register(fd, events)
    left = None if deadline is None else max(0.0, deadline - time.monotonic()) * 1e3
    ready = {fd for fd, _ in poller.poll(left)}
    if not ready:
        raise Late("no answer in time")
    return ready
