"""What an agent printed, kept: secrets blotted out, and capped, first and last parts whole."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

#: bytes kept of each end of the output
HEAD_BYTES, TAIL_BYTES = 8 << 20, 1 << 20
#: shorter ones would blot out ordinary words
_MIN_SECRET = 8


def blot_out(data: bytes, secrets: Iterable[str]) -> bytes:
    """`data` with every secret replaced."""
    for secret in _worth(secrets):
        data = data.replace(secret, b"[redacted]")
    return data


def _worth(secrets: Iterable[str]) -> list[bytes]:
    """Longest first: one may be part of another."""
    found = {secret.encode() for secret in secrets if len(secret) >= _MIN_SECRET}
    return sorted(found, key=len, reverse=True)


class Transcript:
    """A file that takes output as it comes. The head is on disk at once, the tail at `close`."""

    def __init__(self, path: Path, secrets: Iterable[str] = ()) -> None:
        self.total_bytes = 0
        self._secrets = [secret for secret in secrets if len(secret) >= _MIN_SECRET]
        self._overlap = max((len(secret.encode()) for secret in self._secrets), default=1) - 1
        self._held = b""  # its end may be the beginning of a secret
        self._head_left = HEAD_BYTES
        self._tail = bytearray()
        self._recent = b""
        self._cut = 0
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("wb")

    def add(self, data: bytes) -> None:
        """Takes what has just been printed; nothing after `close`."""
        if self._file.closed:
            return  # an agent without a sandbox has left something running
        self.total_bytes += len(data)
        held = blot_out(self._held + data, self._secrets)
        keep = min(self._overlap, len(held))
        self._held = held[len(held) - keep :]
        self._put(held[: len(held) - keep])

    def close(self) -> None:
        """Writes what is held."""
        self._put(self._held)
        if self._cut:
            self._file.write(f"\n[{self._cut} bytes left out]\n".encode())
        self._file.write(self._tail)
        self._file.close()

    def last_line(self) -> str:
        """The last line printed that says anything; at most 300 characters."""
        end = (self._recent + self._held)[-4096:].decode(errors="replace")
        lines = [line.strip() for line in end.splitlines() if line.strip()]
        return lines[-1][-300:] if lines else ""

    def _put(self, data: bytes) -> None:
        self._recent = (self._recent + data)[-4096:]
        head = data[: self._head_left]
        self._head_left -= len(head)
        self._file.write(head)
        self._file.flush()
        self._tail += data[len(head) :]
        excess = len(self._tail) - TAIL_BYTES
        if excess > 0:
            del self._tail[:excess]
            self._cut += excess
