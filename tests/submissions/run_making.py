"""Run folders made by hand: real records, invented verdicts, for tests of what follows a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kernelmark.benchmark.suites import get_suite, operator_digest
from kernelmark.evaluators.campaigns.folder import RunFolder
from kernelmark.evaluators.campaigns.records import Attempt, MethodKind, Production, Run, Selection
from kernelmark.evaluators.grading.records import (
    Attestation,
    Candidate,
    Comparison,
    Portability,
    Samples,
    Status,
    Timing,
    Verdict,
)
from kernelmark.evaluators.metering.ledger import Ledger, LedgerRow, Usage
from kernelmark.submissions.bundle import Disclosure
from kernelmark.submissions.catalogue import Catalogue
from kernelmark.submissions.home import Home
from kernelmark.submissions.inbox import deliver

TIME = "2026-01-02T03:04:05+00:00"


@dataclass(frozen=True)
class Result:
    """What became of one attempt: a status, the speedups of timed cases, tokens used."""

    status: Status = "passed"
    speedups: tuple[float, ...] = ()
    tokens: int = 0


@dataclass(frozen=True)
class Entry:
    """A run to be made. `results` gives the attempts at each operator of the suite `demo`."""

    results: Mapping[str, tuple[Result, ...]]
    method: str = "folder"
    model: str = ""
    kind: MethodKind = "human"
    selection: Selection = "last"
    chip: str = "nvidia"
    attests: Attestation = "executed"
    suite: str = "demo"
    created_at: str = TIME


def make_run(root: Path, entry: Entry) -> RunFolder:
    """The run folder of `entry` at `root`, complete."""
    suite = get_suite(entry.suite)
    run = Run(
        id=f"run-{root.name}",
        method=entry.method,
        kind=entry.kind,
        model=entry.model,
        language="triton",
        selection=entry.selection,
        suite=suite.name,
        suite_digest=suite.digest,
        suite_size=len(suite.operators),
        operators={op.id: operator_digest(op) for op in suite.operators},
        chip=entry.chip,
        tier="full",
        targets=("sm_90",),
        created_at=entry.created_at,
    )
    folder = RunFolder.create(root, run)
    ledger = Ledger(folder.ledger_path)
    for operator in suite.ids:
        results = entry.results.get(operator, ())
        attempts = tuple(
            _attempt(folder, entry, operator, number, result, ledger)
            for number, result in enumerate(results, 1)
        )
        folder.record(Production(operator, attempts, complete=True))
    ledger.close()
    return folder


def demo_catalogue() -> Catalogue:
    """The suite `demo` alone: all that these runs need, and quick to write."""
    demo = get_suite("demo")
    return Catalogue(demo.operators, (demo,))


def submit_run(home: Home, root: Path, entry: Entry) -> str:
    """Makes a run and delivers it; the submission's id."""
    submission, _ = deliver(home, make_run(root, entry), Disclosure(submitter="tester"))
    return submission.id


def _attempt(
    folder: RunFolder, entry: Entry, operator: str, number: int, result: Result, ledger: Ledger
) -> Attempt:
    if result.tokens:
        usage = Usage(in_uncached=result.tokens - 10, out_total=10)
        row = LedgerRow(
            run=folder.run.id,
            operator=operator,
            attempt=number,
            request=f"{operator}-{number}",
            api="chat",
            model_requested=entry.model,
            outcome="ok",
            usage_source="provider",
            usage=usage,
            cost_usd=0.5,
        )
        ledger.append(row)
    if result.status in ("no_candidate", "method_error", "budget_exhausted"):
        return Attempt(operator, number, failure=result.status, created_at=TIME)
    source = f"# {entry.method} {number}\ndef {operator.split('::')[1]}(): ...\n"
    candidate = Candidate(operator, source)
    folder.add_candidate(candidate)
    folder.add_verdict(_verdict(candidate, entry, result))
    folder.add_portability(operator, candidate.id, (Portability("sm_90", "passed"),))
    return Attempt(operator, number, candidate.id, "triton", created_at=TIME)


def _verdict(candidate: Candidate, entry: Entry, result: Result) -> Verdict:
    return Verdict(
        operator=candidate.operator,
        candidate=candidate.id,
        chip=entry.chip,
        attests=entry.attests,
        status=result.status,
        message="made by hand",
        sku="Testing 9000" if entry.attests == "executed" else "CPU",
        comparisons=(Comparison("a", "base", 0, "passed", 0.5, 0.1, 0.4, 4.0, 0, 8, (1, 2)),),
        timings=tuple(_timing(i, s) for i, s in enumerate(result.speedups)),
        tier="full",
        created_at=TIME,
    )


def _timing(index: int, speedup: float) -> Timing:
    device = 10.0
    return Timing(
        case=f"case{index}",
        device_us=device,
        baseline_us=device * speedup,
        speedup=speedup,
        speedup_low=speedup,
        speedup_high=speedup,
        floor_us=5.0,
        clock="events",
        candidate=Samples(device_us=tuple(float(i) for i in range(101))),
        baseline=Samples(device_us=(device * speedup,) * 3),
    )
