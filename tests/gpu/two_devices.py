"""The reference kernels of `core` on one accelerator and on several of one machine.

    PYTHONPATH=.typing python tests/gpu/two_devices.py OUT one       # each once, on device 0
    PYTHONPATH=.typing python tests/gpu/two_devices.py OUT all       # some times, on all devices
    PYTHONPATH=.typing python tests/gpu/two_devices.py OUT compare

`compare` prints throughput, device times, and how well speedups repeat over all grades. It exits 1
unless every device was used, throughput is at least 0.9 times the number of devices, and device
times agree within 2% for 20 operators at least. The first two go on where they were stopped. Needs
torch and triton only.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from kernelmark.benchmark.suites import get_suite
from kernelmark.evaluators.grading.records import Candidate, Verdict, from_json

KERNELS = Path(__file__).parents[2] / "evaluators/methods/reference_kernels"
#: grades of an operator on all devices: of the first ones, of the others
REPEATS, OTHERS = (4, 24), 2
AGREE = 0.02
ENOUGH = 20  #: operators


def main() -> int:
    """One step; its exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("step", choices=["one", "all", "compare"])
    parser.add_argument("--chip", default="nvidia")
    parser.add_argument("--tier", default="full")
    parser.add_argument("--operators", type=int, default=40, help="so many of core, from the first")
    parser.add_argument("--devices", default="all", help="of the step `all`: all, or 0,1")
    options = parser.parse_args()
    if options.step == "compare":
        return compare(options.out)
    job = make_job(options.out / f"job-{options.step}", options)
    devices = "0" if options.step == "one" else options.devices
    return grade(job, options.out / options.step, devices)


def make_job(folder: Path, options: argparse.Namespace) -> Path:
    """Every kernel once or some times; a comment at the end makes candidates of their own of the
    later ones."""
    (repeats, first), others = REPEATS, OTHERS
    operators = get_suite("core").operators[: options.operators]
    items = []
    for number in range(1 if options.step == "one" else repeats):
        for operator in operators if number < others else operators[:first]:
            source = (KERNELS / operator.id.replace("::", "/")).with_suffix(".py").read_text()
            if options.step == "all":
                source += f"# {number}\n"
            candidate = Candidate(operator.id, source)
            file = folder / "candidates" / f"{candidate.id}.py"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(candidate.source)
            items.append({"operator": operator.id, "file": f"candidates/{candidate.id}.py"})
    job = {"chip": options.chip, "tier": options.tier, "candidates": items}
    (folder / "job.json").write_text(json.dumps(job))
    return folder


def grade(job: Path, out: Path, devices: str) -> int:
    """Runs the command as a person would, and keeps its last line."""
    command = [sys.executable, "-m", "kernelmark.evaluators.grading", str(job), str(out)]
    with subprocess.Popen([*command, "--devices", devices], stdout=subprocess.PIPE, text=True) as p:
        line = ""
        assert p.stdout is not None
        for line in p.stdout:
            print(line, end="", flush=True)
    if line.startswith("{"):
        with (out / "summaries.jsonl").open("a") as file:
            file.write(line)
    return p.returncode


def compare(out: Path) -> int:
    """The table; 0 where it is as it should be."""
    one, many = (Sittings(out / step) for step in ("one", "all"))
    ratio = one.seconds_for(many) / many.seconds
    for name, found in (("one", one), ("all", many)):
        typical_s = statistics.median(found.grade_s)
        print(f"{name}: {found.grades} grades in {found.seconds:.0f} s, median {typical_s:.2f} s")
        for label, count in sorted(found.by_accelerator.items()):
            print(f"  accelerator {label}: {count} grades")
    print(f"throughput: {ratio:.2f} times that of one device for the same operators")
    agreeing, worst = 0, 0.0
    for operator in sorted(one.times.keys() & many.times.keys()):
        off = math.exp(_mean_log_ratio(one.times[operator], many.times[operator])) - 1
        agreeing += abs(off) <= AGREE
        worst = max(worst, abs(off))
        print(f"  {operator:40} {100 * off:+6.2f}% device time, all against one")
    print(f"{agreeing} of {len(one.times)} operators within 2%; worst {100 * worst:.2f}%")
    repeat(one, many)
    used = len(many.by_accelerator)
    return 0 if used > 1 and ratio >= 0.9 * used and agreeing >= ENOUGH else 1


def repeat(one: Sittings, many: Sittings) -> None:
    """Coefficient of variation of speedups over the grades of each operator with five or more, of
    kernels from 10 us on and of those from 2 to 10 us."""
    spreads: dict[str, list[float]] = {"10 us or more": [], "2 to 10 us": []}
    for operator in sorted(one.speedups.keys() & many.speedups.keys()):
        words = []
        for case, first in one.speedups[operator].items():
            found = [*first, *many.speedups[operator].get(case, [])]
            least_us = min(one.times[operator][case])
            if len(found) >= 5 and least_us >= 2:
                spread = statistics.stdev(found) / statistics.mean(found)
                spreads["10 us or more" if least_us >= 10 else "2 to 10 us"].append(spread)
                words.append(f"{100 * spread:.2f}")
        print(f"  {operator:40} CV in %: {' '.join(words)}")
    for name, found in spreads.items():
        if found:
            cuts = [*statistics.quantiles(found, n=10)] if len(found) > 1 else found * 9
            text = f"median {100 * statistics.median(found):.2f}%, p90 {100 * cuts[8]:.2f}%"
            print(f"speedups of {len(found)} cases, {name}: CV {text}, max {100 * max(found):.2f}%")


class Sittings:
    """What one step has found, over all of its calls."""

    def __init__(self, folder: Path) -> None:
        lines = (folder / "summaries.jsonl").read_text().splitlines()
        summaries: list[dict[str, Any]] = [json.loads(line) for line in lines]
        self.grades = sum(summary["grades"] for summary in summaries)
        self.seconds: float = sum(summary["seconds"] for summary in summaries)
        self.grade_s: list[float] = []
        self.by_operator: dict[str, list[float]] = defaultdict(list)  #: seconds of its grades
        self.by_accelerator: dict[str, int] = defaultdict(int)
        #: operator -> case -> device times of its grades, microseconds
        self.times: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        self.speedups: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        for path in (folder / "verdicts").glob("*.json"):
            verdict = from_json(Verdict, json.loads(path.read_text()))
            self.by_accelerator[verdict.environment.get("accelerator", "none")] += 1
            self.grade_s.append(verdict.seconds)
            self.by_operator[verdict.operator].append(verdict.seconds)
            if verdict.status != "passed":
                print(f"{verdict.operator}: {verdict.status}: {verdict.message}")
            for timing in verdict.timings:
                self.times[verdict.operator][timing.case].append(timing.device_us)
                self.speedups[verdict.operator][timing.case].append(timing.speedup)

    def seconds_for(self, other: Sittings) -> float:
        """How long the grades of `other` would have taken here, by what each operator took."""
        mean_s = {id: statistics.mean(found) for id, found in self.by_operator.items()}
        grades_s = sum(mean_s[id] * len(found) for id, found in other.by_operator.items())
        return grades_s * self.seconds / sum(self.grade_s)


def _mean_log_ratio(one: dict[str, list[float]], many: dict[str, list[float]]) -> float:
    ratios = [
        math.log(statistics.median(many[case]) / statistics.median(one[case]))
        for case in one.keys() & many.keys()
    ]
    return statistics.mean(ratios) if ratios else 0.0


if __name__ == "__main__":
    sys.exit(main())
