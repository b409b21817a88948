"""The token ledger of a run: one line a request, appended, flushed to disk, never rewritten.

Tokens are the truth; costs are computed from them and a dated price table and may be computed
again. Input classes are disjoint (uncached, read from cache, written to cache) and reasoning is
part of output, so ``total = uncached + read + write + output`` for every provider.
"""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from kernelmark.benchmark.errors import UserError
from kernelmark.evaluators.grading.records import from_json

Outcome = Literal[
    "ok",  #: a whole answer
    "error",  #: the upstream answered with an error, or could not be reached
    "client_abort",  #: the client hung up
    "upstream_abort",  #: the upstream hung up in mid-answer
    "timeout",  #: the upstream did not answer in time
    "budget_denied",  #: not forwarded
    "gateway_abort",  #: our own gateway ended in mid-request
]

#: requests that nobody charges for and no budget counts
FREE_APIS = ("models", "count_tokens")

#: provider: reported on the wire; estimated: from bytes; missing: nobody knows
UsageSource = Literal["provider", "estimated", "missing"]


@dataclass(frozen=True)
class Usage:
    """Tokens of one request by class."""

    in_uncached: int = 0
    in_cache_read: int = 0
    in_cache_write_5m: int = 0
    in_cache_write_1h: int = 0
    out_total: int = 0
    out_reasoning: int = 0  #: part of `out_total`

    @property
    def total(self) -> int:
        """All tokens; the classes are disjoint."""
        written = self.in_cache_write_5m + self.in_cache_write_1h
        return self.in_uncached + self.in_cache_read + written + self.out_total

    def __add__(self, other: Usage) -> Usage:
        """Class by class."""
        names = [field.name for field in dataclasses.fields(self)]
        return Usage(**{name: getattr(self, name) + getattr(other, name) for name in names})


@dataclass(frozen=True)
class LedgerRow:
    """One request. Times are UTC, ISO 8601, with milliseconds. Empty texts: not told.

    `retry_index` counts requests with the same body before this one in the same attempt.
    `raw_usage` is the provider's own object, verbatim, as JSON.
    """

    run: str
    operator: str
    attempt: int
    request: str
    api: str
    model_requested: str
    outcome: Outcome
    usage_source: UsageSource
    usage: Usage = Usage()
    model_served: str = ""
    upstream_id: str = ""
    upstream: str = ""
    http_status: int | None = None
    stream: bool = False
    retry_index: int = 0
    session: str = ""
    agent: str = ""
    parent_agent: str = ""
    raw_usage: str = ""
    detail: str = ""
    started_at: str = ""
    first_byte_at: str = ""
    ended_at: str = ""
    price_table: str = ""
    cost_usd: float | None = None


class Ledger:
    """Appends to one ledger file. Safe for threads; one `Ledger` at a time holds a file.

    A request is noted in a file beside it before it is forwarded. Opening the ledger again after a
    kill finds those that were never settled and gives them a row: that of `answered` (by request)
    where the answer had come, else `gateway_abort`, usage missing.
    """

    def __init__(self, path: Path, answered: Mapping[str, LedgerRow] | None = None) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._flushing = threading.Lock()
        self._written = self._flushed = 0  #: rows
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_CREAT | os.O_APPEND | os.O_RDWR, 0o644)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._file)
            raise UserError(f"{path}: another run is writing this ledger") from None
        self._open: set[str] = set()
        begun = self._begun_path.read_bytes() if self._begun_path.exists() else b""
        self._begun = os.open(self._begun_path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o644)
        self._recover(begun, answered or {})

    @property
    def _begun_path(self) -> Path:
        return self.path.with_name(f"{self.path.name}.begun")

    def begin(self, row: LedgerRow) -> None:
        """Notes a request that is about to be forwarded; outlives the process, not the machine."""
        with self._lock:
            self._open.add(row.request)
            _write(self._begun, row, self._begun_path)

    def append(self, row: LedgerRow) -> None:
        """Writes a row and returns when it is on disk."""
        self.write(row)
        self.flush()

    def write(self, row: LedgerRow) -> None:
        """Writes a row in one system call: outlives the process, not yet the machine."""
        with self._lock:
            _write(self._file, row, self.path)
            self._written += 1
            self._open.discard(row.request)

    def flush(self) -> None:
        """Returns when every row written before is on disk. Threads share a flush."""
        wanted = self._written
        with self._flushing:
            if self._flushed < wanted:
                written = self._written
                os.fsync(self._file)
                self._flushed = written

    def close(self) -> None:
        """Flushes and closes. The note of begun requests goes where all are settled."""
        self.flush()
        os.close(self._begun)
        if not self._open:
            self._begun_path.unlink(missing_ok=True)
        os.close(self._file)

    def _recover(self, begun: bytes, answered: Mapping[str, LedgerRow]) -> None:
        whole = self.path.read_bytes()
        kept = whole.rfind(b"\n") + 1
        if kept < len(whole):  # a row that was being written when the machine stopped
            os.ftruncate(self._file, kept)
        if not begun:
            return
        settled = {row.request for row in read_ledger(self.path)}
        for line in begun.splitlines(keepends=True):
            row = _row(line, self._begun_path) if line.endswith(b"\n") else None
            if row is not None and row.request not in settled:
                self.append(answered.get(row.request) or _aborted(row))
        os.ftruncate(self._begun, 0)


def _aborted(row: LedgerRow) -> LedgerRow:
    detail = "the gateway ended before the answer did"
    return replace(row, outcome="gateway_abort", usage_source="missing", detail=detail)


def _write(file: int, row: LedgerRow, path: Path) -> None:
    text = json.dumps(dataclasses.asdict(row), sort_keys=True, ensure_ascii=False)
    line = text.encode(errors="replace") + b"\n"  # clients and providers chose what it holds
    written = os.write(file, line)
    if written != len(line):
        raise OSError(f"{path}: wrote {written} of {len(line)} bytes")


def _row(line: bytes, where: object) -> LedgerRow:
    try:
        return from_json(LedgerRow, json.loads(line))
    except (TypeError, ValueError) as error:
        raise UserError(f"{where}: not a ledger row ({error})") from None


def read_ledger(path: Path) -> list[LedgerRow]:
    """Rows of a ledger; none where there is no file. `UserError` names a line that is not one.

    A last line without its end is a row that is being written, and left out.
    """
    if not path.exists():
        return []
    lines = path.read_bytes().splitlines(keepends=True)
    if lines and not lines[-1].endswith(b"\n"):
        lines.pop()
    return [_row(line, f"{path}:{number}") for number, line in enumerate(lines, 1)]


def charged(rows: Iterable[LedgerRow]) -> list[LedgerRow]:
    """Rows of requests that were forwarded and may cost."""
    return [r for r in rows if r.outcome != "budget_denied" and r.api not in FREE_APIS]


def total_tokens(rows: list[LedgerRow]) -> int:
    """Tokens of all rows, every class."""
    return sum(row.usage.total for row in rows)
