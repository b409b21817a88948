"""The program `verify` that an agent finds in its sandbox: asks the judge about a candidate.

Runs with whatever Python the system has: the standard library alone, nothing of the project.
Exit status: 0 passed, 1 the candidate failed, 2 wrong usage, 3 no answer.
"""

import json
import os
import socket
import sys
from typing import NoReturn

#: the longest candidate that the judge reads
MAX_BYTES = 1 << 20

USAGE = """usage: verify [--json] [FILE]

Has the judge grade FILE (default: {file}) on the calls that the task names, with fresh inputs, and
prints what it says: status, gate, which call, how far off, what the compiler said, how fast.
The candidate that counts in the end is what lies in {file} when you are done.
Exit status: 0 passed, 1 failed, 2 wrong usage, 3 no answer."""


def main() -> None:
    """Reads a file, asks, prints."""
    words = [word for word in sys.argv[1:] if word != "--json"]
    file = os.environ.get("KERNELMARK_CANDIDATE", "candidate.py")
    if "-h" in words or "--help" in words:
        print(USAGE.format(file=file))
        return
    if len(words) > 1 or any(word.startswith("-") for word in words):
        _end(2, USAGE.format(file=file))
    answer = ask(os.environ["KERNELMARK_JUDGE"], _source(words[0] if words else file))
    if "error" in answer:
        _end(3, "verify: " + answer["error"])
    print(json.dumps(answer) if "--json" in sys.argv[1:] else answer["text"])
    sys.exit(0 if answer["status"] == "passed" else 1)


def ask(path: str, source: str) -> dict[str, str]:
    """The judge's answer about `source`, by the Unix socket at `path`."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.connect(path)
            connection.sendall(json.dumps({"source": source}).encode())
            connection.shutdown(socket.SHUT_WR)
            with connection.makefile("rb") as reader:
                answer = json.loads(reader.read())
        return dict(answer)
    except (OSError, ValueError) as error:
        return {"error": f"the judge does not answer ({error})"}


def _source(path: str) -> str:
    try:
        with open(path, "rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            _end(2, f"verify: {path}: longer than {MAX_BYTES} bytes")
        return content.decode("utf-8")
    except OSError as error:
        _end(2, f"verify: {path}: {error.strerror}")
    except UnicodeDecodeError as error:
        _end(2, f"verify: {path}: not UTF-8 ({error.reason} at byte {error.start})")


def _end(status: int, text: str) -> NoReturn:
    sys.stderr.write(text + "\n")
    sys.exit(status)


if __name__ == "__main__":
    main()
