"""Decisions about how far a submission is trusted: new rows, each with who and why, never edits."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime

from kernelmark.benchmark.errors import UserError
from kernelmark.submissions.bundle import Trust
from kernelmark.submissions.home import Home
from kernelmark.submissions.lake import add_part, events, exclusive, part_name
from kernelmark.submissions.tables import Row, to_table

#: a decision waits so long for an ingest to end
WAIT_S = 300.0


def decide(home: Home, submission: str, trust: Trust, reason: str, decided_by: str) -> None:
    """Records a decision. `UserError` where the lake has no such submission; a reason is needed."""
    if not reason.strip():
        raise UserError("a decision about trust needs a reason")
    with exclusive(home, WAIT_S):
        if submission not in events(home):
            raise UserError(f"{submission} is not in the lake (kernelmark submissions lists them)")
        add_decision(home, trust_row(submission, trust, reason, decided_by))


def trust_row(
    submission: str, trust: Trust, reason: str, decided_by: str, regrade: str | None = None
) -> Row:
    """A row of the table `trust`, dated now; to the microsecond, as the latest decision counts.

    `regrade`: the re-grade that it follows from; it never outweighs somebody's own decision to
    withdraw or flag (`v_trust`).
    """
    return {
        "submission": submission,
        "trust": trust,
        "reason": reason,
        "decided_by": decided_by,
        "decided_at": datetime.now(UTC).isoformat(timespec="microseconds"),
        "regrade": regrade,
    }


def add_decision(home: Home, row: Row) -> None:
    """Puts a decision into the lake. The caller holds the lock."""
    event = uuid.uuid4().hex
    add_part(
        home, part_name("trust", [event]), "trust", [event], {"trust": to_table("trust", [row])}
    )
