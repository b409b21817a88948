"""Looks at every definition on a real device: oracles and baselines run, agree, and are timed.

`python -m kernelmark.evaluators.grading.survey --chip nvidia OUT.jsonl [names]` writes one line for
each full case. No candidate takes part, so everything runs in this process: the figures say what
the baselines do, and whether the definitions hold where they will be used. First the checks, in
several processes at once; then the clock, alone. Rows already in OUT are not made again.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from kernelmark.evaluators.chips.base import Chip, Peaks
from kernelmark.evaluators.chips.registry import get_chip
from kernelmark.evaluators.grading.lint import judge_results
from kernelmark.evaluators.grading.timing import timer_for
from kernelmark.operators import calling
from kernelmark.operators.draws import Call, arguments_for_candidate, draw
from kernelmark.operators.records import Case, Operator
from kernelmark.operators.registry import SOURCES, get_operator, source_operators

#: calls timed for each case: blocks, calls a block
BLOCKS, CALLS = 3, 10


@dataclass(frozen=True)
class Row:
    """What was seen of one case. Times in microseconds; None: not measured."""

    operator: str
    case: str
    baseline: str
    fault: str  #: why the baseline does not pass, or what raised; empty where all is well
    prepare_s: float  #: drawing the inputs
    oracle_s: float
    flops: int
    nbytes: int
    device_us: float | None = None  #: median of block medians, cold cache
    noise: float | None = None  #: largest difference between block medians, over the median
    activities: int | None = None  #: kernels, copies and fills a call
    roofline: float | None = None  #: floor over device time
    clock: str = ""
    sku: str = ""
    torch: str = torch.__version__
    date: str = ""


def check(operator_id: str, case_name: str, device: str) -> Row:
    """Draws the case's inputs, runs oracle and baseline, compares. Never raises."""
    operator = get_operator(operator_id)
    case = next(c for c in operator.cases() if c.name == case_name)
    target = torch.device(device)
    cost = operator.cost(case)
    fault, prepare_s, oracle_s = "", 0.0, 0.0
    try:
        call, prepare_s = _timed(lambda: _draw(operator, case, target))
        expected, oracle_s = _timed(lambda: calling.expected_of(operator, call))
        results = calling.results_of(operator.baseline, operator, case, call)
        if operator.tolerance.kind != "distribution":
            fault = judge_results(operator, case, expected, results)
        elif operator.accepts is not None:
            fault = operator.accepts(case, call, results)
    except Exception as error:  # a definition that breaks is what this looks for
        fault = f"{type(error).__name__}: {error}"[:500]
    torch.cuda.empty_cache()
    name = calling.baseline_name(operator, target)
    return Row(
        operator.id, case.name, name, fault, prepare_s, oracle_s, cost.flops, cost.nbytes,
        date=time.strftime("%Y-%m-%d", time.gmtime()),
    )  # fmt: skip


def clock(row: Row, chip: Chip, sku: str) -> Row:
    """The same row with the baseline timed, cold, over private inputs that rotate."""
    operator = get_operator(row.operator)
    case = next(c for c in operator.cases() if c.name == row.case)
    device = torch.device(chip.device)
    peaks = chip.peaks(sku)
    timer = timer_for(chip.device, peaks.last_level_cache_bytes if peaks else 1 << 26)
    calls = list(_calls(operator, case, device))
    timer.start(calls)
    for _ in range(BLOCKS):
        timer.block([calls[i % len(calls)] for i in range(CALLS)])
    blocks = timer.stop()
    medians = sorted(sorted(b.device_us)[len(b.device_us) // 2] for b in blocks)
    middle = medians[len(medians) // 2]
    floor = floor_us(operator, case, peaks)
    return replace(
        row,
        device_us=middle,
        noise=(medians[-1] - medians[0]) / middle if middle else None,
        activities=blocks[0].activities[-1] if blocks[0].activities else None,
        roofline=floor / middle if floor and middle else None,
        clock=blocks[0].clock,
        sku=sku,
    )


def floor_us(operator: Operator, case: Case, peaks: Peaks | None) -> float | None:
    """max(bytes / bandwidth, flops / peak) in microseconds; None where the peak is not known."""
    if peaks is None:
        return None
    cost = operator.cost(case)
    names = [str(d).removeprefix("torch.") for d in case.dtypes]
    rates = [peaks.flops_per_s[n] for n in names if n in peaks.flops_per_s]
    compute = cost.flops / max(rates) if rates else 0.0
    return 1e6 * max(cost.nbytes / peaks.bytes_per_s, compute)


def _draw(operator: Operator, case: Case, device: torch.device) -> Call:
    seed = zlib.crc32(f"{operator.id} {case.name}".encode())
    call = draw(operator, case, "base", seed, device)
    if device.type == "cuda":
        torch.cuda.synchronize()
    return call


def _calls(operator: Operator, case: Case, device: torch.device) -> Iterator[Callable[[], object]]:
    """Two sets of private inputs: mutated arguments are mutated again, which costs the same."""
    for _ in range(2):
        private = _draw(operator, case, device)
        given = arguments_for_candidate(private)
        # The address tables point into `private`, which must live as long as the call.
        yield lambda given=given, keep=private: operator.baseline(*given.args, **given.kwargs)  # type: ignore[misc]


def _timed(work: Callable[[], Any]) -> tuple[Any, float]:
    begin = time.perf_counter()
    result = work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return result, time.perf_counter() - begin


def _known(path: Path) -> set[tuple[str, str]]:
    if not path.exists():
        return set()
    rows = (json.loads(line) for line in path.read_text().splitlines())
    return {(row["operator"], row["case"]) for row in rows}


def _operators(names: Sequence[str]) -> list[Operator]:
    found: list[Operator] = []
    for name in names or SOURCES:
        found += source_operators(name).values() if name in SOURCES else [get_operator(name)]
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Checks and times the baselines of the named operators (ids or sources; default: all)."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--chip", default="nvidia")
    parser.add_argument("--tier", default="full", choices=("small", "full"))
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--no-clock", action="store_true", help="check only")
    options = parser.parse_args(argv)
    chip = get_chip(options.chip)
    found = chip.detect()
    if not found.usable:
        print(f"{chip.name}: {found.why}", file=sys.stderr)
        return 3
    known = _known(options.out)
    todo = [
        (operator.id, case.name)
        for operator in _operators(options.names)
        for case in operator.tier(options.tier)
        if (operator.id, case.name) not in known
    ]
    rows = _check_all(todo, chip, options.workers)
    faults = sum(bool(row.fault) for row in rows)
    timed = chip.timer() is not None and not options.no_clock
    with options.out.open("a") as out:
        for row in rows:
            if timed and not row.fault:
                try:
                    row = clock(row, chip, found.sku)
                except Exception as error:
                    row = replace(row, fault=f"clock: {type(error).__name__}: {error}"[:300])
                print(f"{row.operator} {row.case}: {row.device_us} us {row.fault}", flush=True)
            out.write(json.dumps(asdict(row)) + "\n")
            out.flush()
    print(f"{len(rows)} cases, {faults} faults")
    return 1 if faults else 0


def _check_all(todo: Sequence[tuple[str, str]], chip: Chip, workers: int) -> list[Row]:
    environment: dict[str, str] = {}
    chip.prepare(environment, 0)
    os.environ.update(environment)
    rows: list[Row] = []
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        jobs = [pool.submit(check, op, case, chip.device) for op, case in todo]
        for job in as_completed(jobs):
            row = job.result()
            rows.append(row)
            if row.fault:
                print(f"{row.operator} {row.case}: {row.fault}", flush=True)
    order = {key: i for i, key in enumerate(todo)}
    return sorted(rows, key=lambda row: order[row.operator, row.case])


if __name__ == "__main__":
    sys.exit(main())
