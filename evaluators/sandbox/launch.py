"""The first program inside a sandbox: a way out to the gateway, limits, then the agent.

It runs with whatever Python the system has, so it uses the standard library alone and imports
nothing of the project: the project is not in the sandbox. What to do is in a JSON file::

    {"command": [...], "environment": {...}, "files": {path: text}, "folder": "/workspace",
     "limits": {"file_bytes": n, "processes": n, "files": n, "core_bytes": 0},
     "port": 18080, "gateway": "/run/gateway.sock"}
"""

import asyncio
import contextlib
import json
import os
import resource
import signal
import socket
import sys
from collections.abc import Awaitable, Callable

_CHUNK_BYTES = 1 << 16
_PR_SET_PDEATHSIG = 1

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def relay(path: str) -> Handler:
    """A handler of connections that passes bytes to and from the Unix socket at `path`."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            far_reader, far_writer = await asyncio.open_unix_connection(path)
            sending = asyncio.ensure_future(_pump(reader, far_writer))
            await _pump(far_reader, writer)
            sending.cancel()
            far_writer.close()
        writer.close()

    return handle


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while True:
            data = await reader.read(_CHUNK_BYTES)
            if not data:
                break
            writer.write(data)
            await writer.drain()
        writer.write_eof()  # one direction may end before the other


def serve_gateway(listener: socket.socket, path: str) -> None:
    """Passes connections of `listener` to the Unix socket at `path`, for ever."""

    async def serve() -> None:
        server = await asyncio.start_server(relay(path), sock=listener)
        await server.serve_forever()

    asyncio.run(serve())


def _start_relay(port: int, path: str) -> None:
    """Listens before the agent starts, serves in a process of its own."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(64)
    if os.fork() == 0:
        null = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):  # else the agent's output would seem to go on
            os.dup2(null, standard)
        serve_gateway(listener, path)
        os._exit(0)
    listener.close()


def _limit(wanted: dict[str, int]) -> None:
    kinds = {
        "file_bytes": resource.RLIMIT_FSIZE,
        "processes": resource.RLIMIT_NPROC,
        "files": resource.RLIMIT_NOFILE,
        "core_bytes": resource.RLIMIT_CORE,
    }
    for name, value in wanted.items():
        _, hard = resource.getrlimit(kinds[name])
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kinds[name], (value, value))


def _die_with_parent() -> None:
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def main() -> None:
    """Prepares, and becomes the agent."""
    with open(sys.argv[1], encoding="utf-8") as file:
        plan = json.load(file)
    _die_with_parent()
    for path, text in plan["files"].items():
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    if plan["gateway"]:
        _start_relay(plan["port"], plan["gateway"])
    _limit(plan["limits"])
    os.nice(5)  # the judge goes first
    os.chdir(plan["folder"])
    try:
        os.execvpe(plan["command"][0], plan["command"], plan["environment"])
    except OSError as error:
        sys.exit(f"{plan['command'][0]}: {error.strerror}")


if __name__ == "__main__":
    main()
