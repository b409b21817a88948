"""The token ledger of a run: one line a request, appended, flushed to disk, never rewritten.

Tokens are the truth; costs are computed from them and a dated price table and may be computed
again. Input classes are disjoint (uncached, read from cache, written to cache) and reasoning is
part of output, so ``total = uncached + read + write + output`` for every provider.
"""

from __future__ import annotations

import dataclasses
import json
import os
import threading
from dataclasses import dataclass
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
]

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
    """Appends to one ledger file. Safe for threads; one process writes a ledger."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o644)

    def append(self, row: LedgerRow) -> None:
        """Writes a row in one system call and flushes it to disk."""
        line = json.dumps(dataclasses.asdict(row), sort_keys=True).encode() + b"\n"
        with self._lock:
            written = os.write(self._file, line)
            if written != len(line):
                raise OSError(f"{self.path}: wrote {written} of {len(line)} bytes")
            os.fsync(self._file)

    def close(self) -> None:
        """Closes the file."""
        os.close(self._file)


def read_ledger(path: Path) -> list[LedgerRow]:
    """Rows of a ledger; none where there is no file. `UserError` names a line that is not one."""
    if not path.exists():
        return []
    rows = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        try:
            rows.append(from_json(LedgerRow, json.loads(line)))
        except (TypeError, ValueError) as error:
            raise UserError(f"{path}:{number}: not a ledger row ({error})") from None
    return rows


def total_tokens(rows: list[LedgerRow]) -> int:
    """Tokens of all rows, every class."""
    return sum(row.usage.total for row in rows)
