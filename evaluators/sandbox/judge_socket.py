"""The judge's end of `verify`: a Unix socket that takes a candidate's source and tells how it did.

Whoever is on the other side is not trusted. One connection is served at a time; a message that is
too long, too slow or not what `verify` sends gets one line of error, and nothing else happens.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from kernelmark.evaluators.campaigns.sources import MAX_BYTES

#: a source of `MAX_BYTES` in JSON: at worst each byte as ``\\u0000``
MAX_MESSAGE_BYTES = 6 * MAX_BYTES + 64
READ_S = 10.0  #: how long a message may take to come
_BACKLOG = 8
_TICK_S = 0.2

Answer = dict[str, Any]
#: gets a source, and an event that is set when nobody waits any more; gives what `verify` prints
Answerer = Callable[[str, threading.Event], Answer]


class _Refused(Exception):
    """A message that is not answered, and why."""


@contextlib.contextmanager
def judge_socket(path: Path, answer: Answerer) -> Iterator[None]:
    """Serves `path` until the block ends. An answer that is being made is waited for."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(os.fspath(path))
    path.chmod(0o666)  # the folder that it lies in is private
    listener.listen(_BACKLOG)
    listener.settimeout(_TICK_S)
    closing = threading.Event()
    thread = threading.Thread(target=_serve, args=(listener, answer, closing), name="judge socket")
    thread.start()
    try:
        yield
    finally:
        closing.set()
        thread.join()
        listener.close()


def _serve(listener: socket.socket, answer: Answerer, closing: threading.Event) -> None:
    while not closing.is_set():
        try:
            connection, _ = listener.accept()
        except TimeoutError:
            continue
        with connection, contextlib.suppress(OSError):  # whoever hangs up gets no answer
            try:
                reply = answer(_source(_read(connection, closing)), closing)
            except _Refused as refusal:
                reply = {"error": str(refusal)}
            connection.settimeout(READ_S)
            connection.sendall(json.dumps(reply).encode())


def _read(connection: socket.socket, closing: threading.Event) -> bytes:
    """Everything up to the end of what is sent."""
    data = bytearray()
    deadline = time.monotonic() + READ_S
    connection.settimeout(_TICK_S)
    while not closing.is_set():
        if time.monotonic() > deadline:
            raise _Refused(f"the message did not end within {READ_S:g} s")
        try:
            chunk = connection.recv(1 << 16)
        except TimeoutError:
            continue
        if not chunk:
            return bytes(data)
        data += chunk
        if len(data) > MAX_MESSAGE_BYTES:
            raise _Refused(f"longer than {MAX_BYTES} bytes")
    raise _Refused("the attempt is over")


def _source(message: bytes) -> str:
    try:
        data = json.loads(message)
    except (ValueError, RecursionError):
        raise _Refused("the message is not JSON") from None
    if not isinstance(data, dict) or set(data) != {"source"} or not isinstance(data["source"], str):
        raise _Refused('the message is not {"source": TEXT}')
    source: str = data["source"]
    try:
        length = len(source.encode())
    except UnicodeEncodeError:
        raise _Refused("the source is not UTF-8") from None
    if length > MAX_BYTES:
        raise _Refused(f"longer than {MAX_BYTES} bytes")
    return source
