"""Intake: takes submissions from the inbox (and a results repository), one after another.

Each round: fetch what was proposed, ingest, build, then re-grade on this machine's chip whatever is
only self-reported and waits for it, publish, build again. Any number of intakes, of different chips
or the same, work on one home: the lake has one writer at a time, and a re-grade belongs to whoever
holds its claim (`submissions.claims`). Killed at any moment, an intake leaves nothing half done:
its claim runs out, and what it had graded already is there for the next.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from kernelmark.benchmark.errors import InfrastructureError
from kernelmark.evaluators.grading.records import Verdict
from kernelmark.submissions.board import build, open_board
from kernelmark.submissions.catalogue import Catalogue
from kernelmark.submissions.claims import HEARTBEAT_S, STALE_S, Claim, ClaimLost, claim
from kernelmark.submissions.home import Home
from kernelmark.submissions.ingest import Ingested, ingest
from kernelmark.submissions.regrading import Grade, Regraded, carry_out, is_done, plan

#: an intake waits so long for another process's ingest or build
WAIT_S = 600.0

_QUEUE = """
SELECT s.submission FROM submissions AS s JOIN v_trust AS t USING (submission)
WHERE t.trust = 'self_reported' AND s.chip = $chip
    AND NOT EXISTS (SELECT 1 FROM regrades AS r WHERE r.submission = s.submission
        AND r.chip = $chip)
ORDER BY s.ingested_at, s.submission
"""


class Exchange(Protocol):
    """A results repository: what comes from it and what goes there."""

    def fetch(self) -> list[str]:
        """Brings proposed bundles into the inbox; their names."""

    def publish(self) -> object:
        """Answers what was proposed and makes the lake's new parts public; anything already said or
        public stays as it is."""


@dataclass(frozen=True)
class Tools:
    """What an intake works with. `grade` grades on `chip`, one candidate at a time on a machine
    (`submissions.taking_turns`). `stale_s`: a claim without a heartbeat for so long is free."""

    catalogue: Catalogue
    chip: str
    grade: Grade
    graded_by: str
    exchange: Exchange | None = None
    notify: Callable[[str], None] = lambda text: None
    stale_s: float = STALE_S
    heartbeat_s: float = HEARTBEAT_S


def watch(home: Home, tools: Tools, pause_s: float, rounds: int | None = None) -> None:
    """Rounds until interrupted; `rounds` of them, if given. Trouble that passes is told and waited
    out, as an intake runs unattended."""
    done = 0
    while rounds is None or done < rounds:
        try:
            work(home, tools)
        except InfrastructureError as error:
            if rounds is not None:
                raise
            tools.notify(f"{error}; again in {pause_s:.0f} s")
        done += 1
        if rounds is None or done < rounds:
            time.sleep(pause_s)


def work(home: Home, tools: Tools) -> list[Regraded]:
    """One round; what was graded again here."""
    if tools.exchange is not None:
        for name in tools.exchange.fetch():
            tools.notify(f"{name[:16]} fetched")
    results = ingest(home, tools.catalogue, processes=1, wait_s=WAIT_S)
    for result in results:
        tools.notify(_told(result))
    build(home, WAIT_S)
    _publish(tools)
    regraded = list(_regrade_all(home, tools))
    return regraded


def _publish(tools: Tools) -> None:
    if tools.exchange is not None:
        tools.exchange.publish()


def _told(result: Ingested) -> str:
    if result.accepted:
        return f"{result.name[:16]} accepted"
    first = result.problems[0]
    more = f" (and {len(result.problems) - 1} more)" if len(result.problems) > 1 else ""
    return f"{result.name[:16]} refused: {first.where}: {first.what}{more}"


def _regrade_all(home: Home, tools: Tools) -> Iterator[Regraded]:
    for submission in _queue(home, tools.chip):
        with claim(
            home.claims, f"{submission}.{tools.chip}", tools.stale_s, tools.heartbeat_s
        ) as mine:
            if mine is None:
                continue  # another intake is at it
            try:
                regraded = _regrade(home, tools, submission, mine)
            except ClaimLost:
                tools.notify(f"{submission[:16]}: another intake has taken over")
                continue
        if regraded is None:
            continue
        build(home, WAIT_S)
        tools.notify(f"{submission[:16]} {regraded.conclusion.outcome}: {regraded.trust}")
        _publish(tools)
        yield regraded


def _queue(home: Home, chip: str) -> list[str]:
    with open_board(home) as connection:
        rows = connection.execute(_QUEUE, {"chip": chip}).fetchall()
    return [str(row[0]) for row in rows]


def _regrade(home: Home, tools: Tools, submission: str, mine: Claim) -> Regraded | None:
    regrade = plan(home, submission, tools.chip, tools.graded_by, once=True)
    if is_done(home, regrade):
        return None  # by another intake, since the queue was looked at

    def shown(verdict: Verdict) -> None:
        tools.notify(f"{submission[:16]} {verdict.operator}: {verdict.status}")

    return carry_out(home, regrade, tools.grade, mine.check, shown)
