"""How much time the gateway adds to a request and to a chunk of a stream.

``python tests/metering/bench_gateway.py [--requests 300] [--folder DIR]``

Provider, gateway and client are processes of their own on loopback, as in a run. Requests with and
without the gateway alternate, so that both meet the same load of the machine. A chunk carries the
time at which the provider sent it (the monotonic clock is one for all processes of a machine). The
ledger is in `--folder`: what a flush to disk takes there is part of every request, and is shown.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from kernelmark.evaluators.metering.gateway import Upstream, open_gateway

CHUNKS = 40
PAUSE_S = 0.002
USAGE = {"prompt_tokens": 9, "completion_tokens": 9, "total_tokens": 18}


async def answer(request: web.Request) -> web.StreamResponse:
    """A whole answer, or a stream whose chunks say when they were sent."""
    data = await request.json()
    base = {"id": "x", "model": "m", "object": "chat.completion"}
    if not data.get("stream"):
        message = {"role": "assistant", "content": "word " * 400}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return web.json_response({**base, "choices": [choice], "usage": USAGE})
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for _ in range(CHUNKS):
        await asyncio.sleep(PAUSE_S)
        choice = {"index": 0, "delta": {"content": str(time.monotonic_ns())}}
        await response.write(_event({**base, "choices": [choice]}))
    await response.write(_event({**base, "choices": [], "usage": USAGE}))
    await response.write(b"data: [DONE]\n\n")
    return response


def _event(value: Any) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def serve_provider() -> None:
    """Prints its port and serves."""

    async def main() -> None:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", answer)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        print(runner.addresses[0][1], flush=True)
        await asyncio.Event().wait()

    asyncio.run(main())


def serve_gateway(upstream: str, ledger: Path) -> None:
    """Prints its URL and token and serves."""
    with open_gateway("bench", {"openai": Upstream(upstream, "k")}, ledger) as gateway:
        grant = gateway.grant("aten::add", 1)
        print(grant.base_url, grant.token, flush=True)
        time.sleep(3600)


async def measure(targets: dict[str, tuple[str, str]], count: int) -> dict[str, dict[str, float]]:
    """Median milliseconds of a request, of a stream's first byte, and of a chunk, by target."""
    taken: dict[str, dict[str, list[float]]] = {
        name: {"request": [], "first_chunk": [], "chunk": []} for name in targets
    }
    async with aiohttp.ClientSession() as session:
        for number in range(count + 20):
            for name, (url, token) in targets.items():
                into = taken[name] if number >= 20 else {}
                headers = {"Authorization": f"Bearer {token}"}
                body = {"model": "m", "messages": [{"role": "user", "content": "x" * 8000}]}
                begun = time.monotonic_ns()
                async with session.post(url, json=body, headers=headers) as reply:
                    await reply.read()
                if into:
                    into["request"].append((time.monotonic_ns() - begun) / 1e6)
                if number % 10 == 0:
                    await _stream(session, url, headers, {**body, "stream": True}, into)
    return {
        name: {kind: statistics.median(values) for kind, values in kinds.items()}
        for name, kinds in taken.items()
    }


async def _stream(
    session: aiohttp.ClientSession,
    url: str,
    headers: dict[str, str],
    body: Any,
    into: dict[str, list[float]],
) -> None:
    begun, first = time.monotonic_ns(), True
    async with session.post(url, json=body, headers=headers) as reply:
        async for line in reply.content:
            now = time.monotonic_ns()
            if not line.startswith(b"data: {"):
                continue
            choices = json.loads(line[6:])["choices"]
            if choices and into:
                sent = int(choices[0]["delta"]["content"])
                into["chunk"].append((now - sent) / 1e6)
                if first:
                    into["first_chunk"].append((now - begun) / 1e6)
                first = False


def flush_ms(folder: Path) -> float:
    """Median time of one small append and flush in `folder`."""
    file = os.open(folder / "flush", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    taken = []
    for _ in range(50):
        begun = time.monotonic_ns()
        os.write(file, b"x" * 700)
        os.fsync(file)
        taken.append((time.monotonic_ns() - begun) / 1e6)
    os.close(file)
    return statistics.median(taken)


def bench(count: int, folder: Path) -> dict[str, Any]:
    """Runs everything once."""
    processes = []
    try:
        provider = _child("provider")
        processes.append(provider[0])
        url = f"http://127.0.0.1:{provider[1]}/v1"
        gateway = _child("gateway", url, str(folder / "ledger.jsonl"))
        processes.append(gateway[0])
        base, token = gateway[1].split()
        path = "/chat/completions"
        targets = {"without": (url + path, "k"), "with": (base + path, token)}
        medians = asyncio.run(measure(targets, count))
    finally:
        for process in processes:
            process.kill()
            process.wait()
    added = {kind: medians["with"][kind] - medians["without"][kind] for kind in medians["with"]}
    return {"unit": "ms", **medians, "added": added, "flush": flush_ms(folder)}


def _child(*arguments: str) -> tuple[subprocess.Popen[str], str]:
    command = [sys.executable, __file__, "--as", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def main() -> None:
    """The command."""
    if sys.argv[1:3] == ["--as", "provider"]:
        serve_provider()
    elif sys.argv[1:3] == ["--as", "gateway"]:
        serve_gateway(sys.argv[3], Path(sys.argv[4]))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        print(json.dumps(bench(options.requests, options.folder or Path(temporary)), indent=1))


if __name__ == "__main__":
    main()
