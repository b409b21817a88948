"""Candidates of sealed runs graded again on another machine, beside what was claimed of them.

A re-grade (`submissions.regrading`) decides about trust and looks at every candidate. This decides
nothing: it takes a sample out of some submissions as one job folder, for whatever machine has the
chip, and says how far the verdicts that come back lie within the stated intervals.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kernelmark.benchmark.errors import UserError
from kernelmark.evaluators.campaigns.jobs import read_results, write_job
from kernelmark.evaluators.grading.records import Candidate, Timing, Verdict
from kernelmark.submissions.agreement import Agreement, Pair, Speed, agree, speed
from kernelmark.submissions.archive import unpack
from kernelmark.submissions.bundle import Submission
from kernelmark.submissions.home import Home
from kernelmark.submissions.regrading import unfit
from kernelmark.submissions.shipped import FOLDER
from kernelmark.submissions.validation import Contents, read_bundle

Key = tuple[str, str]  #: operator and candidate
Found = Mapping[Key, Verdict]


@dataclass(frozen=True)
class Claim:
    """A submission with its candidates that count and passed, and what was said of them.

    `unfit` says of some why they cannot be graded by this version.
    """

    submission: Submission
    candidates: dict[Key, Candidate]
    verdicts: dict[Key, Verdict]
    unfit: dict[Key, str]

    @property
    def name(self) -> str:
        """Method and model."""
        run = self.submission.run
        return " ".join(filter(None, (run.method, run.model)))


@dataclass(frozen=True)
class Repeat:
    """One submission's candidates that were graded again.

    Shares are of what was timed both times: operators by geometric mean over cases, and cases.
    `within`: the new speedup lies in the stated 95% interval; `meeting`: the two intervals meet.
    """

    submission: str
    name: str
    agreements: tuple[Agreement, ...]
    timed: int
    within: int
    meeting: int
    close: int  #: operators whose new speedup is within 5% of the stated one
    cases: int
    cases_within: int
    cases_meeting: int

    @property
    def same_status(self) -> int:
        """How many passed again."""
        return sum(a.pair.status == a.pair.claimed_status for a in self.agreements)

    @property
    def agreeing(self) -> int:
        """How many agree as re-grades count it: same status, and not certainly slower by 10%."""
        return sum(a.agrees is True for a in self.agreements)


def read_claim(path: Path) -> Claim:
    """The claim of a sealed bundle, a folder or a zip file. `UserError` where it is none."""
    with _unpacked(path) as folder:
        contents = read_bundle(folder)
    if contents.problems or contents.submission is None:
        first = contents.problems[0]
        raise UserError(f"{path}: {first.where}: {first.what}")
    digests = contents.submission.run.operators
    counting = _counting(contents, contents.submission)
    verdicts = {
        (v.operator, v.candidate): v
        for v in contents.verdicts
        if v.status == "passed" and (v.operator, v.candidate) in counting
    }
    reasons = {key: unfit(key[0], digests[key[0]]) for key in verdicts}
    return Claim(
        submission=contents.submission,
        candidates={key: contents.candidates[key] for key in verdicts},
        verdicts=verdicts,
        unfit={key: reason for key, reason in reasons.items() if reason},
    )


def find_bundle(home: Home, text: str) -> Path:
    """The bundle that `text` names: a path, or the beginning of the id of one that ships or that
    `home` has ingested."""
    path = Path(text)
    if path.exists():
        return path
    places = [*FOLDER.glob(f"{text}*.zip"), *home.bundles.glob(f"{text}*")]
    found = {place.name.removesuffix(".zip"): place for place in reversed(places)}
    if len(text) < 6 or not found:
        raise UserError(f"{text}: no bundle, and no submission that ships or was ingested here")
    if len(found) > 1:
        raise UserError(f"{text} may be several submissions; give more of the id")
    return next(iter(found.values()))


def export_sample(
    claims: Sequence[Claim], root: Path, operators: int | None, tell: Callable[[str], None]
) -> int:
    """Writes the job of `operators` of each claim (None: all), the same ones each time.

    What this version defines differently is left out, and told. `UserError` where nothing is left
    or the claims are of several chips or tiers.
    """
    kinds = {(c.submission.run.chip, c.submission.run.tier) for c in claims}
    if len(kinds) != 1:
        raise UserError("a job is of one chip and tier; export these submissions one by one")
    if any(c.submission.run.dataset for c in claims):
        raise UserError("graded over cases of a published data set; a sample is of installed ones")
    chosen: dict[Key, Candidate] = {}
    for claim in claims:
        if claim.unfit:
            tell(f"{claim.name}: {len(claim.unfit)} left out, which this version defines otherwise")
        chosen |= {key: claim.candidates[key] for key in _sample(claim, operators)}
    if not chosen:
        raise UserError("nothing to grade: no candidate that passed")
    ((chip, tier),) = kinds
    ids = " ".join(claim.submission.id[:16] for claim in claims)
    write_job(root, ids, chip, tier, chosen.values())
    return len(chosen)


def results(folders: Iterable[Path]) -> dict[Key, Verdict]:
    """Verdicts of job results or run folders, a later folder first; what failed on our side
    counts only where nothing else is known."""
    found: dict[Key, Verdict] = {}
    for folder in folders:
        for verdict in read_results(folder):
            key = verdict.operator, verdict.candidate
            if verdict.status != "infrastructure_error" or key not in found:
                found[key] = verdict
    return found


def repeat(claim: Claim, found: Found) -> Repeat | None:
    """The claim beside what was found; None where none of its candidates was graded again."""
    keys = sorted(key for key in claim.verdicts if key in found)
    if not keys:
        return None
    agreements = tuple(agree(_pair(claim, key, found[key])) for key in keys)
    speeds = [(a.pair.claimed, a.pair.found) for a in agreements]
    both = [(claimed, again) for claimed, again in speeds if claimed and again]
    timings = [pair for key in keys for pair in _cases(claim.verdicts[key], found[key])]
    return Repeat(
        submission=claim.submission.id,
        name=claim.name,
        agreements=agreements,
        timed=len(both),
        within=sum(_within(*pair) for pair in both),
        meeting=sum(_meet(*pair) for pair in both),
        close=sum(1 / 1.05 <= again.value / claimed.value <= 1.05 for claimed, again in both),
        cases=len(timings),
        cases_within=sum(_within(*pair) for pair in timings),
        cases_meeting=sum(_meet(*pair) for pair in timings),
    )


def _sample(claim: Claim, operators: int | None) -> list[Key]:
    fit = sorted(key for key in claim.candidates if key not in claim.unfit)
    names = sorted({operator for operator, _ in fit})
    if operators is not None and operators < len(names):
        names = random.Random(claim.submission.id).sample(names, operators)
    return [key for key in fit if key[0] in names]


def _counting(contents: Contents, submission: Submission) -> set[Key]:
    """Candidates that count: of the last attempts, or of all where the best one counts."""
    best = submission.run.selection == "best"
    return {
        (attempt.operator, attempt.candidate)
        for production in contents.productions
        for attempt in (production.attempts if best else production.attempts[-1:])
        if attempt.candidate
    }


def _pair(claim: Claim, key: Key, again: Verdict) -> Pair:
    before = claim.verdicts[key]
    return Pair(
        operator=key[0],
        candidate=key[1],
        claimed_status=before.status,
        status=again.status,
        claimed=speed(map(_numbers, before.timings)),
        found=speed(map(_numbers, again.timings)),
        unfit=claim.unfit.get(key, ""),
    )


def _numbers(timing: Timing) -> tuple[float, float, float]:
    return timing.speedup, timing.speedup_low, timing.speedup_high


def _cases(before: Verdict, again: Verdict) -> Iterator[tuple[Speed, Speed]]:
    later = {timing.case: Speed(*_numbers(timing)) for timing in again.timings}
    for timing in before.timings:
        if timing.case in later:
            yield Speed(*_numbers(timing)), later[timing.case]


def _within(claimed: Speed, again: Speed) -> bool:
    return claimed.low <= again.value <= claimed.high


def _meet(claimed: Speed, again: Speed) -> bool:
    return again.low <= claimed.high and claimed.low <= again.high


@contextmanager
def _unpacked(path: Path) -> Iterator[Path]:
    if path.is_dir():
        yield path
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "bundle"
        problems = unpack(path, folder)
        if problems:
            raise UserError(f"{path}: {problems[0].what}")
        yield folder
