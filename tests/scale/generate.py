"""Makes a home full of submissions: for tests of the app, and to measure the store at scale.

    python tests/scale/generate.py HOME                  # 14 entries on 3 chips, all details
    python tests/scale/generate.py HOME --scale large    # 1,000,000 verdicts, 10,000,000 samples
    python tests/scale/generate.py HOME --entries 40 --chips nvidia,amd --suite core

Everything goes the way that real submissions go: bundles are sealed into the inbox, ingested, and
a database is built (`--no-ingest` leaves it at the bundles; then `kernelmark ingest`). What is in
them is invented: each entry (a method with a model) has a skill, each operator a difficulty, each
chip a handicap, and from these come statuses, speedups, tokens. The same arguments give the same
bundles. Operators, suites, cases and kinds of records are the real ones.

The default also holds what a page must cope with: entries of every kind, partial runs, runs without
or with partial metering, an older run beside a newer one, flagged and withdrawn submissions, long
and hostile text.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import multiprocessing
import random
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from kernelmark.evaluators.campaigns.records import Attempt, MethodKind, Production, Run
from kernelmark.evaluators.grading.records import (
    GATES,
    Attestation,
    Candidate,
    Comparison,
    Finding,
    Gate,
    KernelBuild,
    Portability,
    Samples,
    Status,
    Timing,
    Verdict,
)
from kernelmark.evaluators.metering.ledger import LedgerRow, Usage
from kernelmark.submissions.bundle import (
    CandidatePortability,
    Disclosure,
    Payload,
    write_bundle,
)
from kernelmark.submissions.home import Home
from kernelmark.submissions.inbox import new_staging, place

_EPOCH = datetime(2026, 3, 1, tzinfo=UTC)

#: name: SKU, what it attests, how much harder it is, bytes and flops a second
CHIPS: dict[str, tuple[str, Attestation, float, float, float]] = {
    "nvidia": ("NVIDIA H200", "executed", 0.0, 4.8e12, 6.0e13),
    "amd": ("AMD Instinct MI300X", "executed", 0.5, 5.3e12, 8.0e13),
    "ascend": ("Ascend 910B", "executed", 1.1, 1.6e12, 2.0e13),
    "interpreter": ("CPU", "interpreted", -0.4, 1e11, 1e11),
}
TARGETS = ("sm_80", "sm_90", "sm_100", "gfx942", "gfx950", "gfx1100")

#: method, kind, models
METHODS: tuple[tuple[str, MethodKind, tuple[str, ...]], ...] = (
    ("one-shot", "model", ("atlas-4", "borealis-2-mini", "corvid-70b", "delta-coder")),
    ("refine", "agent", ("atlas-4", "borealis-2-mini", "delta-coder")),
    ("best-of", "model", ("atlas-4", "corvid-70b")),
    ("command", "agent", ("atlas-4", "echo-9")),
    ("torch-compile", "compiler", ("",)),
    ("liger", "library", ("",)),
    ("reference", "human", ("",)),
)

#: how candidates fail, by weight
FAILURES: tuple[tuple[Status, float], ...] = (
    ("wrong_values", 40),
    ("build_error", 16),
    ("runtime_error", 12),
    ("rejected", 9),
    ("timed_out", 5),
    ("wrong_shape", 4),
    ("wrong_dtype", 4),
    ("wrong_layout", 2),
    ("mutated_input", 2),
    ("nondeterministic", 2),
    ("out_of_memory", 2),
    ("tampered", 1),
    ("implausible", 1),
)
_STOPS_AT = {"rejected": 1, "build_error": 2, "tampered": 4, "implausible": 5}


@dataclass(frozen=True)
class OperatorFacts:
    """What is needed of an operator, without torch. `cases`: name, bytes, flops, of the full tier
    where there is one; only those are timed."""

    id: str
    digest: str
    baseline: str
    chips: tuple[str, ...]
    timed: bool
    cases: tuple[tuple[str, int, int], ...]


@dataclass(frozen=True)
class SuiteFacts:
    """What is needed of a suite, without torch."""

    name: str
    digest: str
    operators: tuple[OperatorFacts, ...]


@dataclass(frozen=True)
class Amount:
    """How much of everything. `attempts`, `cases`, `samples`, `comparisons`: at most so many."""

    entries: int = 14
    chips: tuple[str, ...] = ("nvidia", "amd", "interpreter")
    revisions: int = 1
    attempts: int = 3
    cases: int = 3
    samples: int = 60
    comparisons: int = 6
    targets: int = 6
    varied: bool = True  #: partial runs, missing metering, hostile text


SMALL = Amount()
#: 1,017,000 verdicts, of 102 entries on 3 chips in 4 revisions
LARGE = Amount(102, ("nvidia", "amd", "ascend"), 4, 4, 1, 9, 2, 2, varied=False)
SCALES = {"small": SMALL, "large": LARGE}


@dataclass(frozen=True)
class Entry:
    """One submission to be made."""

    number: int
    method: str
    kind: MethodKind
    model: str
    variant: int  #: of the same method and model, by another submitter
    chip: str
    revision: int


def entries(amount: Amount) -> list[Entry]:
    """Every submission, the oldest first."""
    pairs = [(m, kind, model) for m, kind, models in METHODS for model in models]
    made = []
    for revision in range(amount.revisions):
        for index in range(amount.entries):
            method, kind, model = pairs[index % len(pairs)]
            for chip in amount.chips:
                variant = index // len(pairs)
                made.append(Entry(len(made), method, kind, model, variant, chip, revision))
    if amount.varied:  # an older run of the first entry
        made.append(replace(made[0], number=len(made), revision=amount.revisions))
    return made


def suite_facts(name: str) -> SuiteFacts:
    """The suite `name` as defined now."""
    from kernelmark.benchmark.suites import get_suite, operator_digest

    suite = get_suite(name)
    facts = []
    for operator in suite.operators:
        full = operator.tier("full")
        costs = [(case.name, operator.cost(case)) for case in full or operator.tier("small")]
        facts.append(
            OperatorFacts(
                id=operator.id,
                digest=operator_digest(operator),
                baseline=operator.baseline_name,
                chips=operator.chips,
                timed=bool(full),
                cases=tuple((name, int(cost.nbytes), int(cost.flops)) for name, cost in costs),
            )
        )
    return SuiteFacts(suite.name, suite.digest, tuple(facts))


def generate(home: Home, suite: SuiteFacts, amount: Amount, seed: int, processes: int) -> list[str]:
    """Seals every entry into the inbox; the ids of the submissions."""
    made = entries(amount)
    if processes == 1:
        return [make_bundle(home, suite, amount, entry, seed) for entry in made]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, context) as pool:
        jobs = [pool.submit(make_bundle, home, suite, amount, entry, seed) for entry in made]
        return [job.result() for job in jobs]


def make_bundle(home: Home, suite: SuiteFacts, amount: Amount, entry: Entry, seed: int) -> str:
    """Seals one entry into the inbox; the submission's id."""
    made = _Run(suite, amount, entry, seed)
    payload = made.payload()
    staging = new_staging(home)
    try:
        sealed = write_bundle(staging, payload, made.disclosure(), payload.run.created_at)
        place(home, staging, sealed.id)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return sealed.id


class _Run:
    """One run, invented: fills the lists of a payload operator by operator."""

    def __init__(self, suite: SuiteFacts, amount: Amount, entry: Entry, seed: int) -> None:
        self.suite, self.amount, self.entry = suite, amount, entry
        self.dice = random.Random(f"{seed} {entry}")
        who = random.Random(f"{seed} {entry.method} {entry.model} {entry.variant}")
        self.skill = who.gauss(0.9, 0.7) + 0.15 * entry.revision
        self.speed = who.gauss(0.0, 0.25)
        self.sku, self.attests, handicap, self.bytes_s, self.flops_s = CHIPS[entry.chip]
        self.skill -= handicap
        self.uses_model = entry.kind in ("model", "agent")
        started = _EPOCH + timedelta(days=3 * entry.revision, minutes=7 * entry.number)
        if amount.varied and entry.revision == amount.revisions:
            started -= timedelta(days=20)
        self.created_at = started.isoformat(timespec="seconds")
        self.partial = amount.varied and entry.number % 11 == 8
        self.metered = 0.0 if amount.varied and entry.number % 13 == 5 else 1.0
        if amount.varied and entry.number % 17 == 3:
            self.metered = 0.9
        self.productions: list[Any] = []
        self.candidates: dict[tuple[str, str], Any] = {}
        self.verdicts: list[Any] = []
        self.portability: list[Any] = []
        self.ledger: list[Any] = []
        self.n_attempts = 0

    def payload(self) -> Payload:
        """Everything of the run."""
        run = self.run()
        done = self.suite.operators
        if self.partial:
            done = done[: 2 * len(done) // 3]
        for operator in done:
            self._operator(run, operator)
        return Payload(
            run=run,
            attempts=self.productions,
            candidates=self.candidates.values(),
            verdicts=self.verdicts,
            portability=self.portability,
            ledger=self.ledger,
            graded=not self.partial,
            n_attempts=self.n_attempts,
            n_candidates=len(self.candidates),
        )

    def run(self) -> Run:
        """The run's own record."""
        entry, amount = self.entry, self.amount
        name = f"{entry.method}-{entry.chip}-{entry.number:05d}"
        return Run(
            id=f"{self.created_at[:10].replace('-', '')}-{name}",
            method=entry.method,
            kind=entry.kind,
            model=entry.model,
            language="library" if entry.kind in ("compiler", "library") else "triton",
            selection="best" if entry.method == "best-of" else "last",
            suite=self.suite.name,
            suite_digest=self.suite.digest,
            suite_size=len(self.suite.operators),
            operators={operator.id: operator.digest for operator in self.suite.operators},
            chip=entry.chip,
            tier="full" if self.attests == "executed" else "small",
            targets=TARGETS[: amount.targets],
            options={"rounds": str(amount.attempts)} if self.uses_model else {},
            budget_tokens=2_000_000 if self.uses_model else None,
            benchmark_version="0.1.0",
            environment={"python": "3.12.9", "torch": "2.9.1", "triton": "3.5.1"},
            created_at=self.created_at,
        )

    def disclosure(self) -> Disclosure:
        """What the submitter says."""
        entry = self.entry
        notes = "Made by a generator; nothing here was measured."
        if self.amount.varied and entry.number % 9 == 4:
            notes = "<b>bold</b> [link](javascript:alert(1)) {{7*7}} " + "long " * 300
        number = (entry.number * 7 + entry.variant) % 5
        return Disclosure(
            submitter=f"team-{entry.variant:02d}" if entry.variant else "kernelmark",
            organisation=("", "Example University", "Example Labs")[entry.variant % 3],
            url=f"https://example.org/{entry.method}",
            notes=notes,
            trained_on_benchmark=("no", "unknown", "no", "no", "yes")[number],  # type: ignore[arg-type]
            open_weights="yes" if entry.model.startswith(("corvid", "delta")) else "no",
            attempts_declared=entry.revision % max(self.amount.revisions, 1) + 1,
        )

    def _operator(self, run: Run, operator: OperatorFacts) -> None:
        difficulty = _difficulty(operator.id)
        wanted = 1 if self.entry.method in ("one-shot", "reference") else self.amount.attempts
        if not self.uses_model or not self.amount.varied:
            wanted = self.amount.attempts if not self.amount.varied else 1
        attempts = []
        for number in range(1, wanted + 1):
            chance = _sigmoid(1.6 * (self.skill - difficulty + 0.25 * (number - 1)))
            attempt = self._attempt(operator, number, self.dice.random() < chance)
            attempts.append(attempt)
            self._usage(run, operator, number, difficulty)
            if attempt.candidate and self.passed and self.amount.varied:
                break
        self.n_attempts += len(attempts)
        self.productions.append(_plain(Production, Production(operator.id, tuple(attempts), True)))

    def _attempt(self, operator: OperatorFacts, number: int, good: bool) -> Attempt:
        dice, at = self.dice, self.created_at
        seconds = round(dice.lognormvariate(3.0, 0.6), 3)
        self.passed = False
        if not good and dice.random() < 0.04:
            failure: Status = dice.choice(["no_candidate", "method_error", "budget_exhausted"])
            note = "the reply held no code"
            return Attempt(
                operator.id, number, failure=failure, note=note, seconds=seconds, created_at=at
            )
        language = "library" if self.entry.kind in ("compiler", "library") else "triton"
        candidate = Candidate(operator.id, self._source(operator, number), language)
        id = candidate.id
        self.candidates[operator.id, id] = vars(candidate)
        supported = not operator.chips or self.entry.chip in operator.chips
        status = self._status(good) if supported else "unsupported"
        self.passed = status == "passed"
        self.verdicts.append(_plain(Verdict, self._verdict(operator, id, status)))
        if language == "triton" and self.amount.targets:
            targets = tuple(
                self._target(target, status) for target in TARGETS[: self.amount.targets]
            )
            line = CandidatePortability(operator.id, id, targets)
            self.portability.append(_plain(CandidatePortability, line))
        return Attempt(operator.id, number, id, language, "", None, "", seconds, at)

    def _status(self, good: bool) -> Status:
        if good:
            return "passed"
        names, weights = zip(*FAILURES, strict=True)
        return self.dice.choices(names, weights)[0]

    def _source(self, operator: OperatorFacts, number: int) -> str:
        entry = self.entry
        name = operator.id.split("::")[1]
        block = 2 ** self.dice.randint(6, 12)
        return _SOURCE.format(name=name, block=block, tag=f"{entry.number}-{number}")

    def _verdict(self, operator: OperatorFacts, candidate: str, status: Status) -> Verdict:
        dice = self.dice
        good = status == "passed"
        stops = _STOPS_AT.get(status, 3)
        gates = tuple(
            Gate(gate, good or place < stops, round(dice.uniform(0.01, 4.0), 3))
            for place, gate in enumerate(GATES if good else GATES[:stops], 1)
        )
        timed = good and operator.timed and self.attests == "executed"
        findings = (Finding(dice.randint(3, 20), "calls torch.matmul"),)
        kernel = f"{operator.id.split('::')[1]}_kernel"
        build = KernelBuild(kernel, dice.randint(16, 128), 0, 1024 * dice.randint(0, 64), 4)
        return Verdict(
            operator=operator.id,
            candidate=candidate,
            chip=self.entry.chip,
            attests=self.attests,
            status=status,
            message="passed every gate" if good else _MESSAGES.get(status, status),
            sku=self.sku,
            gates=gates,
            findings=findings if status == "rejected" else (),
            builds=(build,) if status not in ("rejected", "build_error") else (),
            comparisons=tuple(self._comparisons(operator, status)),
            timings=tuple(self._timings(operator)) if timed else (),
            evidence={"kernels": 1, "replayed": good, "l2_bytes": 52428800},
            environment={"driver": "570.86", "sku": self.sku, "clock": "cupti"},
            baseline=operator.baseline,
            tier="full" if self.attests == "executed" else "small",
            seconds=round(dice.uniform(2, 30), 2),
            created_at=self.created_at,
        )

    def _comparisons(self, operator: OperatorFacts, status: Status) -> Iterator[Comparison]:
        wrong = status.startswith("wrong_") or status in ("mutated_input", "nondeterministic")
        if status != "passed" and not wrong:
            return
        for index in range(self.amount.comparisons):
            case = operator.cases[index % len(operator.cases)][0]
            bad = wrong and index == self.amount.comparisons - 1
            error = self.dice.uniform(20, 900) if bad else self.dice.uniform(0.1, 3.0)
            yield Comparison(
                case=case,
                draw=("base", "small", "large", "structured")[index % 4],
                result=0,
                status=status if bad else "passed",
                max_error=error,
                mean_error=error / 9,
                p999_error=error / 2,
                limit=8.0,
                bad=self.dice.randint(1, 4000) if bad else 0,
                total=4096,
                worst_index=(3, self.dice.randint(0, 1023)) if bad else (),
                got="0.0" if bad else "",
                expected="1.25" if bad else "",
            )

    def _timings(self, operator: OperatorFacts) -> Iterator[Timing]:
        dice = self.dice
        # Hard operators leave more to gain; some candidates are slower than what they replace.
        middle = self.speed + 0.25 * _difficulty(operator.id) + dice.gauss(0.0, 0.3)
        for name, nbytes, flops in operator.cases[: self.amount.cases]:
            floor = max(nbytes / self.bytes_s, flops / self.flops_s, 4e-7) * 1e6
            baseline = 2.0 + floor / (0.35 + 0.5 * random.Random(f"{operator.id} {name}").random())
            device = max(baseline / math.exp(middle + dice.gauss(0.0, 0.08)), floor * 1.05)
            ours, theirs = self._samples(device), self._samples(baseline)
            speedup = baseline / device
            spread = 1 + abs(dice.gauss(0.0, 0.015)) + 0.002
            yield Timing(
                case=name,
                device_us=device,
                baseline_us=baseline,
                speedup=speedup,
                speedup_low=speedup / spread,
                speedup_high=speedup * spread,
                floor_us=floor,
                clock="cupti" if self.entry.chip == "nvidia" else "events",
                latency_us=device + 9.0,
                baseline_latency_us=baseline + 9.0,
                warm_us=0.8 * device,
                baseline_warm_us=0.8 * baseline,
                sm_clock_mhz=(1980, 1980),
                candidate=ours,
                baseline=theirs,
            )

    def _samples(self, middle: float) -> Samples:
        gauss = self.dice.gauss
        samples = [
            round(middle * (1 + abs(gauss(0.0, 0.01))), 4) for _ in range(self.amount.samples)
        ]
        blocks = samples[:: max(self.amount.samples // 6, 1)]
        return Samples(tuple(samples), tuple(blocks), 0.8 * middle, middle + 9.0, 1)

    def _target(self, target: str, status: Status) -> Portability:
        if status == "build_error" or self.dice.random() < (0.1 if target[0] == "s" else 0.2):
            error = f"error: failed to legalize operation 'tt.dot' for {target}"
            return Portability(target, "build_error", error, seconds=0.1)
        build = KernelBuild("kernel", self.dice.randint(16, 255), 0, 8192, 4, occupancy=0.5)
        return Portability(target, "passed", "", (build,), 0.5, self.dice.choice([0, 16]), 0.12)

    def _usage(self, run: Run, operator: OperatorFacts, number: int, difficulty: float) -> None:
        if not self.uses_model or self.dice.random() >= self.metered:
            return
        dice = self.dice
        out = int(dice.lognormvariate(8.0 + 0.3 * difficulty, 0.6))
        fresh = int(dice.lognormvariate(8.3, 0.3))
        cached = 0 if number == 1 else int(fresh * 0.8)
        priced = self.entry.model != "echo-9"
        usage = Usage(fresh, cached, 0, 0, out, int(out * dice.uniform(0.2, 0.7)))
        missing = self.metered < 1 and dice.random() < 0.1
        row = LedgerRow(
            run=run.id,
            operator=operator.id,
            attempt=number,
            request=f"{operator.id}-{number}",
            api="messages" if self.entry.model.startswith("atlas") else "chat",
            model_requested=self.entry.model,
            outcome="upstream_abort" if missing else "ok",
            usage_source="missing" if missing else "provider",
            usage=Usage() if missing else usage,
            model_served=f"{self.entry.model}-2026-02",
            http_status=200,
            stream=True,
            raw_usage=json.dumps({"output_tokens": out}),
            started_at=self.created_at,
            ended_at=self.created_at,
            price_table="2026-03-01" if priced else "",
            cost_usd=round((fresh * 3 + cached * 0.3 + out * 15) * 1e-6, 6) if priced else None,
        )
        self.ledger.append(_plain(LedgerRow, row))


_MESSAGES = {
    "wrong_values": "case tail, draw large: 812 of 4096 elements are wrong, worst at [3, 17]",
    "build_error": "CompilationError at 12:8: cannot convert pointer<bf16> to pointer<fp16>",
    "runtime_error": "an illegal memory access was encountered",
    "rejected": "line 9: calls torch.matmul",
    "timed_out": "no answer within 60 s",
}

_SOURCE = '''"""Candidate {tag}."""

import torch
import triton
import triton.language as tl


@triton.jit
def {name}_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(y_ptr + offsets, x / (1 + tl.exp(-x)), mask=mask)


def {name}(x, *args, **kwargs):
    y = torch.empty_like(x)
    n = x.numel()
    {name}_kernel[(triton.cdiv(n, {block}),)](x, y, n, BLOCK={block})
    return y
'''


@cache
def _writer(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _plain(kind: Any, record: Any) -> Any:
    """Plain values of a record; several times as fast as `to_json`."""
    return _writer(kind).dump_python(record)


@cache
def _difficulty(operator: str) -> float:
    digest = hashlib.sha256(operator.encode()).digest()
    return random.Random(digest).gauss(0.0, 0.8)


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def add_decisions(home: Home, ids: Sequence[str]) -> None:
    """Decisions about trust, so that every level is there: flagged, withdrawn, verified."""
    from kernelmark.submissions.trust import decide

    decide(home, ids[3], "flagged", "times could not be reproduced", "maintainers")
    decide(home, ids[7], "withdrawn", "the submitter found a leak in the prompt", "kernelmark")
    for id in ids[12:15]:
        decide(home, id, "verified", "run and graded by us", "maintainers")


def fill(home: Home, suite: str, amount: Amount, seed: int = 7, processes: int = 1) -> list[str]:
    """Bundles, ingest, decisions, database: a home that is ready to be shown. The ids."""
    from kernelmark.submissions.board import build
    from kernelmark.submissions.catalogue import current_catalogue
    from kernelmark.submissions.ingest import ingest

    ids = generate(home, suite_facts(suite), amount, seed, processes)
    results = ingest(home, current_catalogue(), processes=processes)
    refused = [result for result in results if not result.accepted]
    if refused:
        raise SystemExit(f"refused: {refused[0]}")
    if amount.varied:
        add_decisions(home, ids)
    build(home)
    return ids


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("home", type=Path)
    parser.add_argument("--scale", choices=SCALES, default="small")
    parser.add_argument("--suite", default="")
    parser.add_argument("--entries", type=int, help="methods with a model, each on every chip")
    parser.add_argument("--chips", help="by comma: " + ", ".join(CHIPS))
    parser.add_argument("--revisions", type=int, help="submissions of each entry over time")
    parser.add_argument("--attempts", type=int)
    parser.add_argument("--cases", type=int, help="timed, an operator")
    parser.add_argument("--samples", type=int, help="a timed case and side")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--no-ingest", action="store_true", help="leave the bundles in the inbox")
    options = parser.parse_args()
    amount = SCALES[options.scale]
    names = ("entries", "revisions", "attempts", "cases", "samples")
    given = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
    if options.chips:
        given["chips"] = tuple(options.chips.split(","))
    amount = replace(amount, **given)
    suite = options.suite or ("all" if options.scale == "large" else "core")
    home, started = Home(options.home.absolute()), time.monotonic()
    if options.no_ingest:
        ids = generate(home, suite_facts(suite), amount, options.seed, options.processes)
    else:
        ids = fill(home, suite, amount, options.seed, options.processes)
    seconds = time.monotonic() - started
    sys.stdout.write(f"{len(ids)} submissions in {seconds:.1f} s; KERNELMARK_HOME={home.root}\n")


if __name__ == "__main__":
    main()
