"""The reference kernels of `core` on one accelerator and on several of one machine.

    PYTHONPATH=.typing python tests/gpu/two_devices.py OUT one       # each once, on device 0
    PYTHONPATH=.typing python tests/gpu/two_devices.py OUT all       # three times, on all devices
    PYTHONPATH=.typing python tests/gpu/two_devices.py OUT compare

`compare` prints the table, and exits 1 unless every device was used, throughput is at least 0.9
times the number of devices, and device times agree within 2% for 20 operators at least. The first
two go on where they were stopped. Needs torch and triton only.
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
REPEATS = 3
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
    repeats = 1 if options.step == "one" else REPEATS
    job = make_job(options.out / f"job-{options.step}", options, repeats)
    devices = "0" if options.step == "one" else options.devices
    return grade(job, options.out / options.step, devices)


def make_job(folder: Path, options: argparse.Namespace, repeats: int) -> Path:
    """Every kernel `repeats` times; a comment at the end makes candidates of their own of them."""
    items = []
    for number in range(repeats):
        for operator in get_suite("core").operators[: options.operators]:
            source = (KERNELS / operator.id.replace("::", "/")).with_suffix(".py").read_text()
            candidate = Candidate(operator.id, f"{source}# {number}\n")
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
    ratio = many.grades_per_hour / one.grades_per_hour
    for name, found in (("one", one), ("all", many)):
        print(f"{name}: {found.grades} grades, {found.grades_per_hour:.0f} an hour")
        for label, count in sorted(found.by_accelerator.items()):
            print(f"  accelerator {label}: {count} grades")
    print(f"throughput: {ratio:.2f} times")
    agreeing, worst = 0, 0.0
    for operator in sorted(one.times.keys() & many.times.keys()):
        off = math.exp(_mean_log_ratio(one.times[operator], many.times[operator])) - 1
        agreeing += abs(off) <= AGREE
        worst = max(worst, abs(off))
        print(f"  {operator:40} {100 * off:+6.2f}% device time, all against one")
    print(f"{agreeing} of {len(one.times)} operators within 2%; worst {100 * worst:.2f}%")
    used = len(many.by_accelerator)
    return 0 if used > 1 and ratio >= 0.9 * used and agreeing >= ENOUGH else 1


class Sittings:
    """What one step has found, over all of its calls."""

    def __init__(self, folder: Path) -> None:
        lines = (folder / "summaries.jsonl").read_text().splitlines()
        summaries: list[dict[str, Any]] = [json.loads(line) for line in lines]
        self.grades = sum(summary["grades"] for summary in summaries)
        seconds = sum(summary["seconds"] for summary in summaries)
        self.grades_per_hour = 3600 * self.grades / seconds
        self.by_accelerator: dict[str, int] = defaultdict(int)
        #: operator -> case -> device times of its grades, microseconds
        self.times: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        for path in (folder / "verdicts").glob("*.json"):
            verdict = from_json(Verdict, json.loads(path.read_text()))
            self.by_accelerator[verdict.environment.get("accelerator", "none")] += 1
            if verdict.status != "passed":
                print(f"{verdict.operator}: {verdict.status}: {verdict.message}")
            for timing in verdict.timings:
                self.times[verdict.operator][timing.case].append(timing.device_us)


def _mean_log_ratio(one: dict[str, list[float]], many: dict[str, list[float]]) -> float:
    ratios = [
        math.log(statistics.median(many[case]) / statistics.median(one[case]))
        for case in one.keys() & many.keys()
    ]
    return statistics.mean(ratios) if ratios else 0.0


if __name__ == "__main__":
    sys.exit(main())
