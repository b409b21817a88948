"""A submission graded again here: every candidate that counts, compared with what was claimed.

Verdicts are kept as they come, so a re-grade that was killed goes on where it stood, in this
process or another's. The end is one part of the lake: our verdicts beside the claimed ones, the
agreement of each candidate, the conclusion, and the decision about trust that follows from it.
Nothing that was claimed is changed.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import duckdb

from kernelmark.benchmark.errors import UserError
from kernelmark.benchmark.suites import operator_digest
from kernelmark.evaluators.campaigns.campaign import now
from kernelmark.evaluators.campaigns.files import read_json, slug, write_json
from kernelmark.evaluators.campaigns.plan import host_environment
from kernelmark.evaluators.grading.records import Candidate, Verdict, from_json, to_json
from kernelmark.operators.registry import UnknownName, get_operator
from kernelmark.submissions.agreement import (
    Agreement,
    Conclusion,
    Outcome,
    Pair,
    Speed,
    agree,
    conclude,
    speed,
)
from kernelmark.submissions.board import open_board
from kernelmark.submissions.bundle import Trust
from kernelmark.submissions.home import Home
from kernelmark.submissions.lake import add_part, events, exclusive, part_name, sweep
from kernelmark.submissions.tables import Row, regrade_tables, to_table
from kernelmark.submissions.trust import WAIT_S, trust_row

#: for every candidate that counts: of a run whose last attempts count, those; of one whose best
#: ones do, all that are claimed to have passed
_CLAIMED = """
SELECT a.operator, a.candidate, c.language, c.entry, c.source, o.operator_digest,
    v.status, v.sku, v.attests, s.tier
FROM attempts AS a
JOIN submissions AS s USING (submission)
JOIN candidates AS c USING (submission, operator, candidate)
JOIN verdicts AS v USING (submission, operator, candidate)
JOIN run_operators AS o USING (submission, operator)
WHERE a.submission = $submission AND v.status = 'passed'
QUALIFY s.selection = 'best'
    OR a.attempt = max(a.attempt) OVER (PARTITION BY a.submission, a.operator)
ORDER BY a.operator, a.candidate
"""
_SPEEDS = """
SELECT operator, candidate, speedup, speedup_low, speedup_high FROM timings
WHERE submission = $submission
"""

Grade = Callable[[Candidate, str], Verdict]


@dataclass(frozen=True)
class Claimed:
    """One candidate with what its submitter says of it. `unfit`: why it cannot be graded here."""

    candidate: Candidate
    status: str
    sku: str
    attests: str
    speed: Speed | None
    unfit: str = ""


@dataclass(frozen=True)
class Regrade:
    """A re-grade to be carried out. `tier` is the one that the run was graded at."""

    id: str
    submission: str
    chip: str
    tier: str
    claimed: tuple[Claimed, ...]
    trust: Trust  #: in force when it began
    claimed_chip: str
    graded_by: str


@dataclass(frozen=True)
class Regraded:
    """What came of it."""

    regrade: str
    submission: str
    chip: str
    conclusion: Conclusion
    agreements: tuple[Agreement, ...]
    trust: Trust  #: afterwards


def find(connection: duckdb.DuckDBPyConnection, text: str) -> str:
    """The one submission on the board whose id begins with `text`."""
    query = "SELECT submission FROM submissions WHERE starts_with(submission, ?) LIMIT 3"
    found = [row[0] for row in connection.execute(query, [text]).fetchall()]
    if len(found) == 1 and len(text) >= 6:
        return str(found[0])
    if not found:
        raise UserError(f"no submission {text} on the board; kernelmark submissions lists them")
    raise UserError(f"{text} may be several submissions; give more of the id")


def plan(home: Home, submission: str, chip: str, graded_by: str, once: bool = False) -> Regrade:
    """What a re-grade of `submission` has to do; `chip` "" is the one that it was claimed on.

    `once`: always the same id for a submission and chip, so that it is never done twice.
    """
    with open_board(home) as connection:
        id = find(connection, submission)
        head = "SELECT s.chip, s.tier, t.trust FROM submissions AS s JOIN v_trust AS t "
        row = connection.execute(f"{head} USING (submission) WHERE s.submission = ?", [id])
        claimed_chip, tier, trust = cast("tuple[str, str, Trust]", row.fetchone())
        claimed = tuple(_claimed(connection, id))
    chip = chip or claimed_chip
    text = f"{id} {chip}" if once else uuid.uuid4().hex
    name = hashlib.sha256(text.encode()).hexdigest()[:32]
    return Regrade(name, id, chip, tier, claimed, trust, claimed_chip, graded_by)


def carry_out(
    home: Home,
    regrade: Regrade,
    grade: Grade,
    check: Callable[[], None] = lambda: None,
    notify: Callable[[Verdict], None] = lambda _: None,
) -> Regraded:
    """Grades what has not been graded yet, concludes, and commits.

    `check` is called before each step that counts and may raise (a claim that was lost).
    """
    folder = home.regrades / regrade.id
    started = _begin(folder, regrade)
    pairs, verdicts = [], []
    for claimed in regrade.claimed:
        verdict = None
        if not claimed.unfit:
            check()
            verdict = _verdict(folder, claimed.candidate, regrade.tier, grade)
            verdicts.append(verdict)
            notify(verdict)
        pairs.append(_pair(claimed, verdict))
    agreements = tuple(agree(pair) for pair in pairs)
    conclusion = conclude(agreements, _same_hardware(regrade, verdicts))
    trust = trust_after(regrade.trust, conclusion.outcome)
    row = _row(regrade, conclusion, agreements, verdicts, started)
    rows = [_agreement_row(regrade, agreement) for agreement in agreements]
    tables = regrade_tables(row, rows, verdicts)
    if trust != regrade.trust:
        by = regrade.graded_by
        decision = trust_row(regrade.submission, trust, conclusion.reason, by, regrade.id)
        tables["trust"] = to_table("trust", [decision])
    with exclusive(home, WAIT_S):
        check()
        sweep(home)
        add_part(home, part_name("regrade", [regrade.id]), "regrade", [regrade.id], tables)
    shutil.rmtree(folder)
    return Regraded(regrade.id, regrade.submission, regrade.chip, conclusion, agreements, trust)


def is_done(home: Home, regrade: Regrade) -> bool:
    """Whether the lake has it; clears what a kill after the commit left behind."""
    if regrade.id not in events(home):
        return False
    shutil.rmtree(home.regrades / regrade.id, ignore_errors=True)
    return True


def trust_after(trust: Trust, outcome: Outcome) -> Trust:
    """The level that follows. What is withdrawn or was flagged by a person stays so, and what we
    ran ourselves needs no confirmation."""
    if trust in ("withdrawn", "flagged") or outcome in ("incomplete", "elsewhere"):
        return trust
    if outcome == "contradicts":
        return "flagged"
    return "regraded" if trust == "self_reported" else trust


def _claimed(connection: duckdb.DuckDBPyConnection, submission: str) -> Iterable[Claimed]:
    asked = {"submission": submission}
    speeds: dict[tuple[str, str], list[tuple[float, float, float]]] = {}
    for operator, candidate, *values in connection.execute(_SPEEDS, asked).fetchall():
        speeds.setdefault((operator, candidate), []).append(cast(Any, tuple(values)))
    seen = set()
    for row in connection.execute(_CLAIMED, asked).fetchall():
        operator, id, language, entry, source, digest, status, sku, attests, _ = row
        if (operator, id) in seen:
            continue  # handed in twice
        seen.add((operator, id))
        candidate = Candidate(operator, source, language, entry)
        claimed = speed(speeds.get((operator, id), ()))
        yield Claimed(candidate, status, sku, attests, claimed, unfit(operator, digest))


def recorded(verdicts: Mapping[tuple[str, str], Verdict], regrade: Regrade) -> Grade:
    """Verdicts that another machine made of this re-grade's candidates.

    `UserError` where one is missing, or is of another chip or tier.
    """
    fit = [claimed.candidate for claimed in regrade.claimed if not claimed.unfit]
    missing = [c.operator for c in fit if (c.operator, c.id) not in verdicts]
    if missing:
        raise UserError(f"{len(missing)} of {len(fit)} candidates have no verdict: {missing[0]}")
    for candidate in fit:
        verdict = verdicts[candidate.operator, candidate.id]
        if (verdict.chip, verdict.tier, verdict.dataset) != (regrade.chip, regrade.tier, ""):
            raise UserError(
                f"{candidate.operator}: graded on {verdict.chip} at tier {verdict.tier}; this "
                f"re-grade is for {regrade.chip} at tier {regrade.tier}, over installed cases"
            )
    return lambda candidate, _: verdicts[candidate.operator, candidate.id]


def unfit(operator: str, digest: str) -> str:
    """Why this version cannot grade candidates for an operator of that definition; "": it can."""
    try:
        same = operator_digest(get_operator(operator)) == digest
    except UnknownName:
        return "this version has no such operator"
    return "" if same else "this version defines the operator differently"


def _begin(folder: Path, regrade: Regrade) -> str:
    """When it began; what has been graded since then is kept."""
    path = folder / "regrade.json"
    if not path.exists():
        write_json(path, {"submission": regrade.submission, "started_at": now()})
    return str(read_json(path)["started_at"])


def _verdict(folder: Path, candidate: Candidate, tier: str, grade: Grade) -> Verdict:
    path = folder / f"{slug(candidate.operator)}.{candidate.id[:16]}.json"
    if path.exists():
        return from_json(Verdict, read_json(path))
    verdict = grade(candidate, tier)
    if verdict.status != "infrastructure_error":
        write_json(path, to_json(verdict))
    return verdict


def _pair(claimed: Claimed, verdict: Verdict | None) -> Pair:
    found = None
    if verdict is not None:
        cases = [(t.speedup, t.speedup_low, t.speedup_high) for t in verdict.timings]
        found = speed(cases)
    return Pair(
        operator=claimed.candidate.operator,
        candidate=claimed.candidate.id,
        claimed_status=claimed.status,
        status=verdict.status if verdict is not None else "",
        claimed=claimed.speed,
        found=found,
        unfit=claimed.unfit,
    )


def _same_hardware(regrade: Regrade, verdicts: Sequence[Verdict]) -> bool:
    """The same chip, and where times count, the same SKU."""
    if regrade.chip != regrade.claimed_chip:
        return False
    timed = {claimed.sku for claimed in regrade.claimed if claimed.attests == "executed"}
    return not timed or {verdict.sku for verdict in verdicts if verdict.sku} <= timed


def _row(
    regrade: Regrade,
    conclusion: Conclusion,
    agreements: Sequence[Agreement],
    verdicts: Sequence[Verdict],
    started_at: str,
) -> Row:
    ratio = conclusion.ratio
    environment = host_environment()
    return {
        "regrade": regrade.id,
        "submission": regrade.submission,
        "chip": regrade.chip,
        "sku": next((verdict.sku for verdict in verdicts if verdict.sku), ""),
        "same_hardware": _same_hardware(regrade, verdicts),
        "tier": regrade.tier,
        "outcome": conclusion.outcome,
        "reason": conclusion.reason,
        "candidates": len(agreements),
        "agreeing": sum(a.agrees is True for a in agreements),
        "contradicting": sum(a.agrees is False for a in agreements),
        "speed_ratio": ratio.value if ratio else None,
        "speed_ratio_low": ratio.low if ratio else None,
        "speed_ratio_high": ratio.high if ratio else None,
        "graded_by": regrade.graded_by,
        "benchmark_version": environment.get("kernelmark", ""),
        "environment": json.dumps(environment),
        "started_at": started_at,
        "ended_at": now(),
    }


def _agreement_row(regrade: Regrade, agreement: Agreement) -> Row:
    pair, ratio = agreement.pair, agreement.ratio
    return {
        "regrade": regrade.id,
        "submission": regrade.submission,
        "operator": pair.operator,
        "candidate": pair.candidate,
        "claimed_status": pair.claimed_status,
        "status": pair.status or None,
        "claimed_speedup": pair.claimed.value if pair.claimed else None,
        "speedup": pair.found.value if pair.found else None,
        "ratio": ratio.value if ratio else None,
        "ratio_low": ratio.low if ratio else None,
        "ratio_high": ratio.high if ratio else None,
        "agrees": agreement.agrees,
        "reason": agreement.reason,
    }
