"""Looks at every definition on a real device: oracles and baselines run, agree, and are timed.

`python -m kernelmark.evaluators.grading.survey --chip nvidia OUT.jsonl [names]` writes one line for
each full case. No candidate takes part, so everything runs in this process: the figures say what
the baselines do, and whether the definitions hold where they will be used. It goes by rounds:
several processes check a share of cases each at the same time; then one after another times its
share alone, with what it has compiled. Every row is written as soon as it is known, so an
interrupted survey goes on where it stopped: a case that is in OUT is not checked again, and timed
only if it has not been.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import sys
import time
import zlib
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from kernelmark.evaluators.chips.base import Chip, Peaks
from kernelmark.evaluators.chips.registry import get_chip
from kernelmark.evaluators.grading.lint import baseline_fault
from kernelmark.evaluators.grading.speed import floor_us
from kernelmark.evaluators.grading.timing import Block, Timer
from kernelmark.operators import calling
from kernelmark.operators.draws import Call, arguments_for_candidate, draw
from kernelmark.operators.records import Case, Operator
from kernelmark.operators.registry import SOURCES, get_operator, source_operators

#: calls timed for each case: blocks, calls a block
BLOCKS, CALLS = 3, 10
#: cases of a process in a round, timed in one recording of the device trace: opening one costs
#: more than timing a case
TOGETHER = 16

Key = tuple[str, str]  #: operator, case


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

    @property
    def key(self) -> Key:
        """What the row is about."""
        return self.operator, self.case


def check(operator_id: str, case_name: str, device: str) -> Row:
    """Draws the case's inputs, runs oracle and baseline, compares. Never raises."""
    operator, case = get_operator(operator_id), _case((operator_id, case_name))
    target = torch.device(device)
    cost = operator.cost(case)
    fault, prepare_s, oracle_s = "", 0.0, 0.0
    try:
        call, prepare_s = _timed(lambda: _draw(operator, case, target))
        expected, oracle_s = _timed(lambda: calling.expected_of(operator, call))
        fault = baseline_fault(operator, case, call, expected)
    except Exception as error:  # a definition that breaks is what this looks for
        fault = f"{type(error).__name__}: {error}"[:500]
    torch.cuda.empty_cache()
    name = calling.baseline_name(operator, target)
    return Row(
        operator.id, case.name, name, fault, prepare_s, oracle_s, cost.flops, cost.nbytes,
        date=time.strftime("%Y-%m-%d", time.gmtime()),
    )  # fmt: skip


def clock(rows: Sequence[Row], timer: Timer, chip: Chip, sku: str) -> list[Row]:
    """The same rows with the baselines timed, cold, over private inputs that rotate."""
    warm = timer.start
    try:
        for row in rows:
            calls = list(_calls(get_operator(row.operator), _case(row.key), chip))
            warm(calls)
            warm = timer.warm
            for _ in range(BLOCKS):
                timer.block([calls[i % len(calls)] for i in range(CALLS)])
    except Exception:
        with contextlib.suppress(Exception):  # the recording is void; what broke it is raised
            timer.stop()
        raise
    blocks = timer.stop()
    peaks = chip.peaks(sku)
    return [
        _timed_row(row, blocks[i * BLOCKS : (i + 1) * BLOCKS], peaks, sku)
        for i, row in enumerate(rows)
    ]


def _timed_row(row: Row, blocks: Sequence[Block], peaks: Peaks | None, sku: str) -> Row:
    medians = sorted(sorted(b.device_us)[len(b.device_us) // 2] for b in blocks)
    middle = medians[len(medians) // 2]
    floor = None if peaks is None else floor_us(get_operator(row.operator), _case(row.key), peaks)
    return replace(
        row,
        device_us=middle,
        noise=(medians[-1] - medians[0]) / middle if middle else None,
        activities=blocks[0].activities[-1] if blocks[0].activities else None,
        roofline=floor / middle if floor and middle else None,
        clock=blocks[0].clock,
        sku=sku,
    )


def _case(key: Key) -> Case:
    return next(c for c in get_operator(key[0]).cases() if c.name == key[1])


def _draw(operator: Operator, case: Case, device: torch.device) -> Call:
    seed = zlib.crc32(f"{operator.id} {case.name}".encode())
    call = draw(operator, case, "base", seed, device)
    if device.type == "cuda":
        torch.cuda.synchronize()
    return call


def _calls(operator: Operator, case: Case, chip: Chip) -> Iterator[Callable[[], object]]:
    """Two sets of private inputs: mutated arguments are mutated again, which costs the same."""
    drawn = _draw(operator, case, torch.device(chip.device))
    for private in (drawn, drawn.clone()):
        given = arguments_for_candidate(private)
        # The address tables point into `private`, which must live as long as the call.
        yield lambda given=given, keep=private: operator.baseline(*given.args, **given.kwargs)  # type: ignore[misc]


def _timed(work: Callable[[], Any]) -> tuple[Any, float]:
    begin = time.perf_counter()
    result = work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return result, time.perf_counter() - begin


def read_rows(path: Path) -> dict[Key, Row]:
    """The rows in a file; of several lines about a case the last. A line cut short is left out."""
    if not path.exists():
        return {}
    lines = path.read_text().split("\n")[:-1]
    return {row.key: row for row in (Row(**json.loads(line)) for line in lines)}


def write_rows(path: Path, rows: Iterable[Row]) -> None:
    """The file anew, one line a case."""
    whole = path.with_suffix(path.suffix + ".new")
    whole.write_text("".join(json.dumps(asdict(row)) + "\n" for row in rows))
    whole.replace(path)


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
    known = read_rows(options.out)
    write_rows(options.out, known.values())
    wanted = [
        (operator.id, case.name)
        for operator in _operators(options.names)
        for case in operator.tier(options.tier)
    ]
    with options.out.open("a", buffering=1) as out, contextlib.ExitStack() as stack:

        def note(row: Row) -> None:
            known[row.key] = row
            out.write(json.dumps(asdict(row)) + "\n")
            if row.fault or row.device_us is not None:
                print(f"{row.operator} {row.case}: {row.device_us} us {row.fault}", flush=True)

        timed = chip.timer() is not None and not options.no_clock
        todo = [key for key in wanted if _is_open(known.get(key), timed)]
        pools = [stack.enter_context(_process(chip)) for _ in range(options.workers)]
        for start in range(0, len(todo), TOGETHER * len(pools)):
            part = todo[start : start + TOGETHER * len(pools)]
            shares = [(pool, part[i :: len(pools)]) for i, pool in enumerate(pools)]
            _check_shares(shares, known, chip, note)
            for pool, share in shares:
                rows = [known[key] for key in share if _is_open(known[key], timed)]
                if rows:
                    for row in pool.submit(clock_all, rows, chip.name, found.sku).result():
                        note(row)
    write_rows(options.out, known.values())
    faults = sum(bool(known[key].fault) for key in wanted)
    print(f"{len(wanted)} cases, {faults} faults")
    return 1 if faults else 0


def _check_shares(
    shares: Sequence[tuple[Executor, Sequence[Key]]],
    known: Container[Key],
    chip: Chip,
    note: Callable[[Row], None],
) -> None:
    """All processes at once check those of their cases that are not known."""
    jobs = [
        pool.submit(check, *key, chip.device)
        for pool, share in shares
        for key in share
        if key not in known
    ]
    for job in as_completed(jobs):
        note(job.result())


def _is_open(row: Row | None, timed: bool) -> bool:
    """Whether a case is still to be checked or timed. One that makes views has nothing to time."""
    if row is None:
        return True
    untimed = not row.fault and row.device_us is None
    return timed and untimed and get_operator(row.operator).kind != "metadata"


def _process(chip: Chip) -> Executor:
    """One process that sees the first accelerator."""
    environment: dict[str, str] = {}
    chip.prepare(environment, 0)
    os.environ.update(environment)
    return ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))


def clock_all(rows: Sequence[Row], chip_name: str, sku: str) -> list[Row]:
    """`clock`; where one of the rows breaks it, each alone, to see which one does."""
    chip = get_chip(chip_name)
    timer = chip.timer()
    assert timer is not None
    try:
        return clock(rows, timer, chip, sku)
    except Exception:
        return [_clock_alone(row, timer, chip, sku) for row in rows]
    finally:
        torch.cuda.empty_cache()


def _clock_alone(row: Row, timer: Timer, chip: Chip, sku: str) -> Row:
    try:
        return clock([row], timer, chip, sku)[0]
    except Exception as error:
        return replace(row, fault=f"clock: {type(error).__name__}: {error}"[:300])


if __name__ == "__main__":
    sys.exit(main())
