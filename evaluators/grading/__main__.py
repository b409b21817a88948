"""``python -m kernelmark.evaluators.grading JOB OUT``: grades a folder of candidates.

Runs where nothing but torch, triton and numpy is installed. JOB holds ``job.json`` and the source
files that it names::

    {"chip": "nvidia", "tier": "full", "settings": {"timeout_s": 60},
     "candidates": [{"operator": "aten::softmax", "candidate": "<id>", "language": "triton",
                     "entry": "", "file": "candidates/<id>.py"}]}

Where the cases are those of a published data set, ``dataset`` is its content hash and ``cases``
names a file for each operator, as `published` writes them.

OUT gets ``verdicts/<operator>.<first 16 digits of the id>.json``, each written whole as soon as it
is there. What is there already is not graded again, save `infrastructure_error`; so the same
command resumes. All accelerators of the machine are used, one candidate at a time on each
(``--devices`` names some). The last line is JSON: how many grades, how long, on which accelerators.
Exit status: 0 all candidates have verdicts, 2 the job cannot be read, 3 some are
`infrastructure_error` or an accelerator that was asked for could not be used, 130 interrupted.
Device layer.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kernelmark.evaluators.chips.registry import get_chip
from kernelmark.evaluators.grading.devices import DeviceError, accelerators
from kernelmark.evaluators.grading.pinned import JUDGE, Graded, NoDevices, Pool
from kernelmark.evaluators.grading.records import Candidate, Verdict, from_json, to_json
from kernelmark.evaluators.grading.settings import Settings
from kernelmark.operators.registry import UnknownName, get_operator

_KEYS = {"run", "chip", "tier", "candidates", "settings", "dataset", "cases", "schema_version"}


class JobError(ValueError):
    """The job folder is not as it should be; one line for whoever made it."""


@dataclass(frozen=True)
class Job:
    """What is to be graded, on which chip, how."""

    chip: str
    settings: Settings
    candidates: tuple[Candidate, ...]
    dataset: str = ""  #: content hash of the published data set that the cases are of
    cases: dict[str, str] = field(default_factory=dict)  #: published cases by operator, JSON

    def settings_of(self, candidate: Candidate) -> Settings:
        """How a candidate is graded."""
        if not self.dataset:
            return self.settings
        cases = self.cases[candidate.operator]
        return replace(self.settings, dataset=self.dataset, published_cases=cases)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its exit status."""
    options = command_line().parse_args(arguments)
    try:
        job = read_job(options.job)
        if options.no_timing:
            job = replace(job, settings=replace(job.settings, timing=False))
        return run(job, options.out, options.devices)
    except (JobError, UnknownName, DeviceError) as error:
        print(error, file=sys.stderr)
        return 2
    except NoDevices as error:
        print(error, file=sys.stderr)
        return 3
    except KeyboardInterrupt:
        print("interrupted; the same command goes on where this one stopped", file=sys.stderr)
        return 130


def command_line() -> argparse.ArgumentParser:
    """What the command takes."""
    parser = argparse.ArgumentParser(prog="python -m kernelmark.evaluators.grading")
    parser.add_argument("job", type=Path, metavar="JOB", help="folder with job.json")
    parser.add_argument("out", type=Path, metavar="OUT", help="folder that gets verdicts/")
    parser.add_argument("--no-timing", action="store_true", help="correctness only")
    parser.add_argument(
        "--devices", default="all", help="accelerators to grade on: all (default), or 0,1"
    )
    return parser


def read_job(folder: Path) -> Job:
    """The job in `folder`. Raises `JobError`."""
    path = folder / "job.json"
    try:
        data = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise JobError(f"{path}: {error}") from error
    if not isinstance(data, dict) or set(data) - _KEYS or not {"chip", "candidates"} <= set(data):
        raise JobError(
            f"{path}: must hold chip and candidates; may hold {', '.join(sorted(_KEYS))}"
        )
    try:
        settings = from_json(
            Settings, {"tier": data.get("tier", "full")} | data.get("settings", {})
        )
        candidates = tuple(_candidate(folder, item) for item in data["candidates"])
        cases = {
            id: _inside(folder, file).read_text() for id, file in data.get("cases", {}).items()
        }
        dataset = str(data.get("dataset", ""))
    except (TypeError, ValueError, KeyError, AttributeError, OSError) as error:
        raise JobError(f"{path}: {error}") from error
    if dataset and (missing := {c.operator for c in candidates} - set(cases)):
        raise JobError(f"{path}: no cases of {', '.join(sorted(missing))}")
    return Job(data["chip"], settings, candidates, dataset, cases)


def run(job: Job, out: Path, devices: str = "all", work: str = JUDGE) -> int:
    """Grades what has no verdict in `out` yet, a line each on standard output, then a summary.

    `devices` as `accelerators` takes them; `work` is what grades (`pinned`). Raises `DeviceError`,
    and `NoDevices` where no accelerator is left.
    """
    chip = get_chip(job.chip)
    pool = Pool(chip, accelerators(chip, devices), job.settings, work)
    try:
        for candidate in job.candidates:
            get_operator(candidate.operator)  # a wrong name is reported before any work is done
        (out / "verdicts").mkdir(parents=True, exist_ok=True)
        if devices != "all":
            pool.wait_ready()
        sitting = _Sitting(job, out, pool)
        sitting.grade_all()
    finally:
        pool.close()
    for index, why in sorted(pool.retired.items()):
        print(f"accelerator {index} is not used: {why}", file=sys.stderr)
    print(json.dumps(sitting.summary()), flush=True)
    return 3 if sitting.failures or (pool.retired and devices != "all") else 0


@dataclass
class _Sitting:
    """One call of the command: what it grades, and what it has graded so far."""

    job: Job
    out: Path
    pool: Pool
    failures: int = 0
    began: float = 0.0  #: when the first accelerator was ready and had a candidate
    ended: float = 0.0
    grades: Counter[int] = field(default_factory=Counter)  #: by accelerator
    busy_s: defaultdict[int, float] = field(default_factory=lambda: defaultdict(float))
    labels: dict[int, str] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    left: Iterator[tuple[int, Candidate]] = field(init=False)

    def __post_init__(self) -> None:
        self.left = enumerate(dict.fromkeys(self.job.candidates), 1)

    def grade_all(self) -> None:
        """In as many threads as there are accelerators. Ctrl-C ends the grades in progress."""
        with ThreadPoolExecutor(len(self.pool)) as threads:
            try:
                futures = [threads.submit(self._grade_some) for _ in range(len(self.pool))]
                wait(futures, return_when=FIRST_EXCEPTION)
                for future in futures:
                    if future.done():
                        future.result()
            finally:
                threads.shutdown(wait=False, cancel_futures=True)
                self.pool.close()

    def summary(self) -> dict[str, Any]:
        """What the last line says; times in seconds, without the start of the processes."""
        seconds = self.ended - self.began
        total = sum(self.grades.values())
        return {
            "grades": total,
            "infrastructure_errors": self.failures,
            "seconds": round(seconds, 3),
            "grades_per_hour": round(3600 * total / seconds, 1) if seconds > 0 else None,
            "devices": [
                {
                    "device": index,
                    "accelerator": self.labels[index],
                    "grades": count,
                    "busy_s": round(self.busy_s[index], 3),
                }
                for index, count in sorted(self.grades.items())
            ],
        }

    def _grade_some(self) -> None:
        """One after another, until none is left; each told what follows it."""
        following = self._next()
        while following is not None:
            (number, candidate), following = following, self._next()
            self._grade(number, candidate, None if following is None else following[1])

    def _next(self) -> tuple[int, Candidate] | None:
        """The next one without a verdict, and its number."""
        with self.lock:
            for number, candidate in self.left:
                if not _is_graded(verdict_path(self.out, candidate)):
                    return number, candidate
                print(f"{self._where(number, candidate)} has a verdict", flush=True)
        return None

    def _where(self, number: int, candidate: Candidate) -> str:
        return f"[{number}/{len(self.job.candidates)}] {candidate.operator} {candidate.id[:12]}"

    def _grade(self, number: int, candidate: Candidate, following: Candidate | None) -> None:
        path, where = verdict_path(self.out, candidate), self._where(number, candidate)
        settings = self.job.settings_of
        then = None if following is None else (following, settings(following))
        graded = self.pool.grade(candidate, settings(candidate), then)
        verdict = graded.verdict
        if not _is_graded(path):  # by another command on the same folder, meanwhile
            write_atomically(path, json.dumps(to_json(verdict)))
        with self.lock:
            self._count(graded)
        seconds = f"{graded.seconds:.1f} s on device {graded.device}"
        print(f"{where} {verdict.status} ({seconds}): {verdict.message}", flush=True)

    def _count(self, graded: Graded) -> None:
        now = time.monotonic()
        self.began = min(self.began or now, now - graded.seconds)
        self.ended = now
        self.failures += graded.verdict.status == "infrastructure_error"
        self.grades[graded.device] += 1
        self.busy_s[graded.device] += graded.seconds
        self.labels[graded.device] = graded.label


def verdict_path(out: Path, candidate: Candidate) -> Path:
    """Where a candidate's verdict is stored in a run folder."""
    name = candidate.operator.replace("::", ".", 1)
    return out / "verdicts" / f"{name}.{candidate.id[:16]}.json"


def write_atomically(path: Path, text: str) -> None:
    """Writes a file that is seen whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    temporary.write_text(text)
    os.replace(temporary, path)


def _is_graded(path: Path) -> bool:
    try:
        verdict = from_json(Verdict, json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        return False
    return verdict.status != "infrastructure_error"


def _inside(folder: Path, file: str) -> Path:
    path = (folder / file).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise JobError(f"{file} lies outside the job folder")
    return path


def _candidate(folder: Path, item: dict[str, Any]) -> Candidate:
    path = _inside(folder, item["file"])
    try:
        source = path.read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        raise JobError(f"{path}: {error}") from error
    language, entry = item.get("language", "triton"), item.get("entry", "")
    candidate = Candidate(item["operator"], source, language, entry)
    if item.get("candidate", candidate.id) != candidate.id:
        raise JobError(f"{item['file']} is not candidate {item['candidate'][:12]}")
    return candidate


if __name__ == "__main__":
    sys.exit(main())
