"""A provider on loopback whose answers are recorded: the whole loop runs without key or network.

It speaks OpenAI's chat dialect, reports usage like a real one, and is reached through the gateway
like a real one. Which answer a request gets depends on the request alone: its ``user`` says the
operator and the number of the question (`tag`), so that a run that is killed and resumed is
answered as if nothing had happened. A question beyond the last recorded answer is refused.

Recorded answers (`load_script`) are a folder with ``<operator>/<number>.md``, a ``.jsonl`` file
(`ScriptedReply` a line, with its ``operator``), or the folder of an earlier run.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from kernelmark.benchmark.errors import UserError
from kernelmark.evaluators.campaigns.files import read_json, slug
from kernelmark.operators.registry import UnknownName, all_operators

#: the model's name on the command line
MODEL = "scripted"
#: recorded answers that ship with the project
SCRIPTS = Path(__file__).parent.parent / "methods" / "scripts"

_BYTES_PER_TOKEN = 4  #: for usage that no recording tells


@dataclass(frozen=True)
class ScriptedReply:
    """One recorded answer. Tokens are computed from the texts where they are not recorded."""

    text: str
    finish_reason: str = "stop"
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


@dataclass(frozen=True)
class _Line:
    operator: str
    text: str
    finish_reason: str = "stop"
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


Script = Mapping[str, tuple[ScriptedReply, ...]]


def load_script(name: str) -> Script:
    """The recorded answers called `name` (of those that ship), or at that path, by operator."""
    root = SCRIPTS / name if (SCRIPTS / name).is_dir() else Path(name)
    if root.is_file():
        return _from_lines(root)
    if (root / "run.json").is_file():
        return _from_run(root)
    if root.is_dir():
        return _from_folder(root)
    shipped = sorted(path.name for path in SCRIPTS.iterdir() if path.is_dir())
    raise UnknownName("recorded replies (a name, a folder, or a .jsonl file)", name, shipped)


def tag(operator: str, question: int) -> str:
    """What a request's ``user`` says. `question` counts from 1 within an operator."""
    return f"{operator}#{question}"


@dataclass
class Provider:
    """A running provider. It counts what it bills itself. `delay_s`: before each answer."""

    script: Script
    delay_s: float = 0.0
    url: str = ""  #: ends with ``/v1``
    requests: list[str] = field(default_factory=list)  #: ``user`` of each, in the order answered
    billed_tokens: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, request: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
        """Status and body for one request."""
        operator, _, number = str(request.get("user", "")).partition("#")
        replies = self.script.get(operator, ())
        if not number.isdigit() or not 0 < int(number) <= len(replies):
            text = f"{len(replies)} replies are recorded for {operator}; this is question {number}"
            return 400, {"error": {"message": text, "type": "invalid_request_error"}}
        reply = replies[int(number) - 1]
        usage = _usage(reply, json.dumps(request.get("messages")))
        time.sleep(self.delay_s)
        with self.lock:
            self.requests.append(f"{operator}#{number}")
            self.billed_tokens += usage["total_tokens"]
        message = {"role": "assistant", "content": reply.text}
        choice = {"index": 0, "message": message, "finish_reason": reply.finish_reason}
        return 200, {
            "id": f"scripted-{slug(operator)}-{number}",
            "object": "chat.completion",
            "created": 0,
            "model": MODEL,
            "choices": [choice],
            "usage": usage,
        }


@contextmanager
def serve_script(script: Script, delay_s: float = 0.0) -> Iterator[Provider]:
    """Serves on a free loopback port until the block ends."""
    provider = Provider(script, delay_s)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(provider))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), name="scripted provider")
    thread.start()
    provider.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    try:
        yield provider
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _handler(provider: Provider) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if self.path != "/v1/chat/completions":
                self._send(404, {"error": {"message": f"no such path: {self.path}"}})
                return
            self._send(*provider.answer(json.loads(body)))

        def _send(self, status: int, value: dict[str, Any]) -> None:
            data = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing is logged."""

    return Handler


def _usage(reply: ScriptedReply, asked: str) -> dict[str, int]:
    prompt = _counted(reply.prompt_tokens, asked)
    completion = _counted(reply.completion_tokens, reply.text)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }


def _counted(recorded: int | None, text: str) -> int:
    return -(-len(text.encode()) // _BYTES_PER_TOKEN) if recorded is None else recorded


def _from_folder(root: Path) -> Script:
    """``<operator>/<number>.md``, numbered from 1 without a gap."""
    script: dict[str, tuple[ScriptedReply, ...]] = {}
    for id in all_operators():
        files = sorted((root / slug(id)).glob("*.md"), key=lambda path: path.stem.zfill(4))
        if [path.stem for path in files] != [str(n) for n in range(1, len(files) + 1)]:
            names = ", ".join(path.name for path in files)
            raise UserError(f"{root / slug(id)}: replies are 1.md, 2.md, ...; there are {names}")
        if files:
            script[id] = tuple(ScriptedReply(path.read_text(encoding="utf-8")) for path in files)
    if not script:
        raise UserError(f"{root} holds no <operator>/1.md (aten.softmax/1.md)")
    return script


def _from_lines(path: Path) -> Script:
    script: dict[str, tuple[ScriptedReply, ...]] = {}
    kind = TypeAdapter(_Line)
    for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            line = kind.validate_json(text, extra="forbid")
        except ValidationError as error:
            what = error.errors()[0]
            where = ".".join(map(str, what["loc"]))
            raise UserError(f"{path}:{number}: {where}: {what['msg']}") from None
        reply = ScriptedReply(
            line.text, line.finish_reason, line.prompt_tokens, line.completion_tokens
        )
        script[line.operator] = (*script.get(line.operator, ()), reply)
    return script


def _from_run(root: Path) -> Script:
    """The replies that a run got, in the order that it asked for them."""
    script: dict[str, tuple[ScriptedReply, ...]] = {}
    for id in read_json(root / "run.json")["operators"]:
        files = sorted((root / "workspaces" / slug(id) / "replies").glob("*.json"))
        replies = [read_json(path)["reply"] for path in files]
        script[id] = tuple(ScriptedReply(r["text"], r["finish_reason"]) for r in replies)
    return script
