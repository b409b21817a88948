"""Boards for tests of the app: databases of invented results.

The tables are the lake's and the scores those of `benchmark.scoring`; a column that is new there is
NULL here. What a submitter controls can be any text, refused by validation or not.
"""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb

from kernelmark.benchmark.scoring import add_scores, code_sha256
from kernelmark.benchmark.suites import get_suite, operator_digest
from kernelmark.evaluators.methods import reference
from kernelmark.operators.records import Operator
from kernelmark.submissions.catalogue import Catalogue, current_catalogue
from kernelmark.submissions.home import Home
from kernelmark.submissions.tables import SCHEMAS, to_table

TIME = "2026-01-01T00:00:00+00:00"

Rows = dict[str, list[dict[str, Any]]]

CHIPS = {
    "nvidia": ("NVIDIA H200", "executed"),
    "amd": ("AMD Instinct MI300X", "executed"),
    "interpreter": ("CPU", "interpreted"),
}
TARGETS = ("sm_80", "sm_90", "sm_100", "sm_120", "gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201")
FAILURES = {
    "wrong_values": "full-4096 [0] at (3, 7): got 0.25, expected 0.75 (error 41.2, limit 4)",
    "build_error": "CompilationError: at 14:8: unsupported ptr type in tl.load",
    "runtime_error": "AttributeError: module 'triton.language' has no attribute 'sort2'",
    "rejected": "line 7: torch.softmax computes outside the candidate's own kernels",
    "timed_out": "no answer within 120 s on case full-8192",
    "out_of_memory": "OutOfMemoryError: tried to allocate 96 GiB on case full-large",
}


@dataclass(frozen=True)
class Entry:
    """One run to be invented. `skill`: chance to solve an operator; `speed`: typical speedup.

    `fields` replaces columns of the table `submissions`, `source` every candidate's source,
    `message` every verdict's message, `extra` any other text that a submitter controls.
    """

    method: str
    model: str = ""
    kind: str = "agent"
    chip: str = "nvidia"
    skill: float = 0.8
    speed: float = 1.0
    tokens: int = 40_000
    metering: str = "complete"
    trust: str = "self_reported"
    suite: str = "core"
    attempts: int = 2
    created_at: str = "2026-03-01T10:00:00+00:00"
    fields: Mapping[str, Any] = field(default_factory=dict)
    source: str = ""
    message: str = ""
    note: str = ""
    seed: int = 0


def default_entries() -> list[Entry]:
    """15 entries on 3 chips: agents, models, compilers, libraries, people; metered in all ways."""
    agents = [
        Entry("refine", "atlas-large", skill=0.9, speed=1.15, tokens=310_000),
        Entry("refine", "atlas-small", skill=0.7, speed=0.9, tokens=140_000),
        Entry("command", "atlas-large", skill=0.92, speed=1.1, tokens=820_000, trust="regraded"),
        Entry("one-shot", "atlas-large", "model", skill=0.5, speed=0.8, tokens=9_000),
        Entry("one-shot", "birch-70b", "model", skill=0.35, speed=0.75, tokens=11_000,
              fields={"open_weights": "yes"}),
        Entry("best-of", "birch-70b", "model", skill=0.55, speed=0.85, tokens=60_000,
              metering="partial", fields={"open_weights": "yes"}),
        Entry("command", "cedar", skill=0.6, speed=0.95, metering="none"),
        Entry("reference", kind="human", skill=0.97, speed=1.05, trust="verified"),
        Entry("torch-compile", kind="compiler", skill=0.8, speed=1.2, trust="verified"),
        Entry("flag-gems", kind="library", skill=0.85, speed=1.02),
    ]  # fmt: skip
    elsewhere = [
        Entry("refine", "atlas-large", chip="amd", skill=0.7, speed=0.9, tokens=350_000),
        Entry("one-shot", "birch-70b", "model", chip="amd", skill=0.25, speed=0.7, tokens=12_000),
        Entry("reference", kind="human", chip="amd", skill=0.9, speed=0.95),
        Entry("refine", "atlas-large", chip="interpreter", skill=0.93, tokens=290_000),
        Entry("reference", kind="human", chip="interpreter", skill=1.0),
    ]
    old = Entry("one-shot", "atlas-large", "model", skill=0.3, tokens=8_000,
                created_at="2026-01-05T10:00:00+00:00", trust="flagged")  # fmt: skip
    return [*agents, *elsewhere, old]


def make_store(root: Path, entries: Iterable[Entry], catalogue: Catalogue | None = None) -> Home:
    """A home whose current database holds `entries`."""
    home = Home(root)
    catalogue = catalogue or current_catalogue()
    rows: Rows = {
        "operators": catalogue.operator_rows(TIME),
        "cases": catalogue.case_rows(TIME),
        "suites": catalogue.suite_rows(TIME),
    }
    for number, entry in enumerate(entries):
        for table, lines in entry_rows(entry, number).items():
            rows.setdefault(table, []).extend(lines)
    home.boards.mkdir(parents=True, exist_ok=True)
    path = home.boards / f"{uuid.uuid4().hex}.duckdb"
    write_database(path, rows)
    link = root / ".current"
    link.symlink_to(path.relative_to(root))
    link.replace(home.current)
    return home


def write_database(path: Path, rows: Rows) -> None:
    """A new database at `path`, replacing what is there by one rename."""
    temporary = path.with_suffix(".new")
    with duckdb.connect(str(temporary)) as connection:
        for table in SCHEMAS:
            connection.register("given", to_table(table, _filled(table, rows.get(table, []))))
            connection.execute(f"CREATE TABLE {table} AS SELECT * FROM given")
            connection.unregister("given")
        add_scores(connection)
        connection.execute(
            "CREATE TABLE build AS SELECT ? AS built_at, 1 AS parts, ? AS code_sha256",
            [TIME, code_sha256()],
        )
    temporary.replace(path)


def submission_id(number: int) -> str:
    """The id of entry `number`."""
    return f"{number:02x}" * 32


def _filled(table: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**dict.fromkeys(SCHEMAS[table].names), **row} for row in rows]


def entry_rows(entry: Entry, number: int) -> Rows:
    """All rows of one entry."""
    id = submission_id(number)
    suite = get_suite(entry.suite)
    chance = random.Random(f"{entry.method}{entry.model}{entry.chip}{entry.seed}")
    rows: Rows = {name: [] for name in SCHEMAS if name not in ("operators", "cases", "suites")}
    rows["submissions"] = [
        {
            "submission": id,
            "run": f"run-{number:02d}",
            "method": entry.method,
            "kind": entry.kind,
            "model": entry.model,
            "language": "triton",
            "selection": "last",
            "suite": suite.name,
            "suite_digest": suite.digest,
            "suite_size": len(suite.operators),
            "chip": entry.chip,
            "tier": "full" if CHIPS[entry.chip][1] == "executed" else "small",
            "targets": json.dumps(TARGETS),
            "options": "{}",
            "benchmark_version": "0.1.0",
            "cases_from": "",
            "dataset": "",
            "environment": json.dumps({"torch": "2.13.0", "triton": "3.7.1", "python": "3.12.4"}),
            "complete": True,
            "submitter": "tester",
            "organisation": "",
            "contact": "",
            "url": "",
            "notes": entry.note,
            "licence": "Apache-2.0",
            "trained_on_benchmark": "unknown",
            "open_weights": "unknown",
            "attempts_declared": 1,
            "created_at": entry.created_at,
            "sealed_at": entry.created_at,
            "ingested_at": entry.created_at,
            **entry.fields,
        }
    ]
    rows["trust"] = [
        {
            "submission": id,
            "trust": entry.trust,
            "reason": "as submitted" if entry.trust == "self_reported" else "looked at",
            "decided_by": "ingest",
            "decided_at": entry.created_at,
            "regrade": None,
        }
    ]
    for place, operator in enumerate(suite.operators):
        rows["run_operators"].append(
            {
                "submission": id,
                "operator": operator.id,
                "operator_digest": operator_digest(operator),
            }
        )
        _operator_rows(entry, id, operator, place, chance, rows)
    return rows


def _operator_rows(
    entry: Entry, id: str, operator: Operator, place: int, chance: random.Random, rows: Rows
) -> None:
    # Every method finds the same operators hard, which is what pairing is for.
    hardness = random.Random(operator.id).uniform(-0.25, 0.25)
    solved = chance.random() < entry.skill - hardness
    failure = chance.choice(sorted(FAILURES))
    for attempt in range(1, entry.attempts + 1):
        last = attempt == entry.attempts
        status = "passed" if solved and last else failure
        candidate = f"{hash_text(f'{operator.id}{id}{attempt}')}"
        judged = {"submission": id, "operator": operator.id, "candidate": candidate}
        rows["attempts"].append(
            {
                **judged,
                "attempt": attempt,
                "language": "triton",
                "entry": "",
                "note": entry.note,
                "seconds": chance.uniform(5, 90),
                "created_at": entry.created_at,
            }
        )
        rows["candidates"].append(
            {
                **judged,
                "language": "triton",
                "entry": "",
                "source": entry.source or _source(operator),
            }
        )
        _usage_rows(entry, id, operator, attempt, place, chance, rows)
        _verdict_rows(entry, judged, operator, status, chance, rows)
        if last:
            rows["portability"] += [_portability(judged, t, chance) for t in TARGETS]


def _verdict_rows(
    entry: Entry,
    judged: dict[str, Any],
    operator: Operator,
    status: str,
    chance: random.Random,
    rows: Rows,
) -> None:
    sku, attests = CHIPS[entry.chip]
    stopped = {"rejected": 0, "build_error": 1, "passed": 5}.get(status, 2)
    gates = [
        {"name": name, "passed": i < stopped, "seconds": 0.1 * (i + 1), "detail": ""}
        for i, name in enumerate(("scan", "build", "correctness", "integrity", "timing"))
        if i <= stopped
    ]
    findings = [{"line": 7, "reason": FAILURES["rejected"]}] if status == "rejected" else []
    rows["verdicts"].append(
        {
            **judged,
            "chip": entry.chip,
            "sku": sku,
            "attests": attests,
            "status": status,
            "message": entry.message or FAILURES.get(status, "all cases within the limit"),
            "baseline": operator.baseline_name,
            "tier": "full",
            "gates": json.dumps(gates),
            "findings": json.dumps(findings),
            "builds": "[]",
            "evidence": json.dumps({"kernels": 1, "clock_agreement": 0.998}),
            "environment": json.dumps({"driver": "570.1", "torch": "2.13.0"}),
            "seconds": 3.0,
            "created_at": entry.created_at,
        }
    )
    for number, case in enumerate(operator.cases()[:4]):
        bad = 3 if status == "wrong_values" and number == 0 else 0
        rows["comparisons"].append(
            {
                **judged,
                "case": case.name,
                "draw": "base",
                "result": 0,
                "status": "wrong_values" if bad else "passed",
                "max_error": 41.2 if bad else chance.uniform(0, 3),
                "mean_error": 0.3,
                "p999_error": 1.2,
                "error_limit": 4.0,
                "bad": bad,
                "total": 4096,
                "worst_index": "[3, 7]",
                "got": "0.25",
                "expected": "0.75",
                "detail": "",
            }
        )
    if status == "passed" and attests == "executed":
        for case in operator.tier("full")[:6]:
            _timing_rows(entry, judged, case.name, chance, rows)


def _timing_rows(
    entry: Entry, judged: dict[str, Any], case: str, chance: random.Random, rows: Rows
) -> None:
    base = chance.uniform(8, 400)
    speedup = entry.speed * chance.lognormvariate(0, 0.3)
    device = base / speedup
    rows["timings"].append(
        {
            **judged,
            "case": case,
            "device_us": device,
            "baseline_us": base,
            "speedup": speedup,
            "speedup_low": speedup * 0.97,
            "speedup_high": speedup * 1.03,
            "floor_us": device * 0.6,
            "roofline": 0.6,
            "clock": "cupti",
            "latency_us": device + 6,
            "baseline_latency_us": base + 5,
            "device_p05_us": device * 0.98,
            "device_p50_us": device,
            "device_p95_us": device * 1.05,
            "sm_clock_mhz": "[1980]",
            "throttle_reasons": "[]",
        }
    )
    for side, centre in (("candidate", device), ("baseline", base)):
        samples = [centre * chance.gauss(1, 0.02) for _ in range(40)]
        rows["samples"].append(
            {**judged, "case": case, "side": side, "kernels": 1, "device_us": samples,
             "block_us": samples[::10]}
        )  # fmt: skip


def _portability(judged: dict[str, Any], target: str, chance: random.Random) -> dict[str, Any]:
    passed = chance.random() < (0.95 if target.startswith("sm_") else 0.8)
    error = "" if passed else "OutOfResources: shared memory, required 98304, limit 65536"
    return {
        **judged,
        "target": target,
        "status": "passed" if passed else "build_error",
        "error": error,
        "kernels": json.dumps([{"kernel": "kernel", "registers": 40, "shared_bytes": 8192}]),
        "occupancy": 0.75 if passed else None,
        "matrix_instructions": 0,
        "seconds": 0.1,
    }


def _usage_rows(
    entry: Entry,
    id: str,
    operator: Operator,
    attempt: int,
    place: int,
    chance: random.Random,
    rows: Rows,
) -> None:
    if entry.kind not in ("agent", "model") or entry.metering == "none":
        return
    unmetered = entry.metering == "partial" and place % 4 == 0
    total = 0 if unmetered else int(entry.tokens / entry.attempts * chance.uniform(0.5, 1.5))
    out = total // 5
    rows["usage"].append(
        {
            "submission": id,
            "operator": operator.id,
            "attempt": attempt,
            "request": f"{operator.id}-{attempt}",
            "api": "chat",
            "model_requested": entry.model,
            "model_served": entry.model,
            "outcome": "ok",
            "usage_source": "missing" if unmetered else "provider",
            "in_uncached": total - out,
            "in_cache_read": 0,
            "in_cache_write_5m": 0,
            "in_cache_write_1h": 0,
            "out_total": out,
            "out_reasoning": out // 2,
            "total": total,
            "retry_index": 0,
            "http_status": 200,
            "stream": True,
            "raw_usage": "{}",
            "started_at": entry.created_at,
            "ended_at": entry.created_at,
            "price_table": "2026-01",
            "cost_usd": None if unmetered else total * 4e-6,
        }
    )


def _source(operator: Operator) -> str:
    root = Path(reference.__file__).with_name("reference_kernels")
    path = root / operator.source / f"{operator.id.split('::')[1]}.py"
    if path.is_file():
        return path.read_text()
    name = operator.id.split("::")[1]
    return f"import triton\n\n\ndef {name}(*args):\n    raise NotImplementedError\n"


def hash_text(text: str) -> str:
    """64 hex digits."""
    import hashlib

    return hashlib.sha256(text.encode()).hexdigest()
