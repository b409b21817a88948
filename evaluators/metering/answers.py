"""Answers that have been paid for, kept until whoever asked has them.

A question that may be asked again after a kill carries a number of its own in the header
`ASK_HEADER`. Its answer is written here before its row is in the ledger, and the row with it. The
same question, asked again with the same body, is answered from here: no provider sees it twice, and
nothing is counted twice. An answer whose row did not reach the ledger brings it along (`rows`).
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
from dataclasses import dataclass
from pathlib import Path

from kernelmark.benchmark.errors import UserError
from kernelmark.evaluators.campaigns.files import read_json, slug, write_json
from kernelmark.evaluators.grading.records import from_json
from kernelmark.evaluators.metering.ledger import LedgerRow

ASK_HEADER = "x-kernelmark-ask"


@dataclass(frozen=True)
class Kept:
    """One whole answer. `digest` is of the question's body, `body` in base64."""

    row: LedgerRow
    digest: str
    status: int
    content_type: str
    body: str

    @property
    def content(self) -> bytes:
        """The answer as the provider sent it."""
        return base64.b64decode(self.body)


def keep(row: LedgerRow, question: bytes, status: int, content_type: str, answer: bytes) -> Kept:
    """The record of an answer."""
    text = base64.b64encode(answer).decode()
    return Kept(row, _digest(question), status, content_type, text)


class Answers:
    """Kept answers, one file each: ``<root>/<operator>/answers/<number>.json``."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def add(self, ask: str, kept: Kept) -> None:
        """Keeps an answer; on disk when this returns."""
        write_json(self._path(kept.row.operator, ask), dataclasses.asdict(kept))

    def find(self, operator: str, ask: str, question: bytes) -> Kept | None:
        """The answer to question `ask`, if it was the same question."""
        path = self._path(operator, ask)
        if not path.exists():
            return None
        kept = _read(path)
        return kept if kept.digest == _digest(question) else None

    def rows(self) -> dict[str, LedgerRow]:
        """The rows of all kept answers, by request."""
        kept = (_read(path) for path in sorted(self._root.glob("*/answers/*.json")))
        return {answer.row.request: answer.row for answer in kept}

    def _path(self, operator: str, ask: str) -> Path:
        if not ask.isdigit():
            raise ValueError(f"{ASK_HEADER}: {ask!r} is not a number")
        return self._root / slug(operator) / "answers" / f"{int(ask):04d}.json"


def _read(path: Path) -> Kept:
    try:
        return from_json(Kept, read_json(path))
    except (TypeError, ValueError) as error:
        raise UserError(f"{path}: not a kept answer ({error})") from None


def _digest(question: bytes) -> str:
    return hashlib.sha256(question).hexdigest()
