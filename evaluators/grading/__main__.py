"""``python -m kernelmark.evaluators.grading JOB OUT``: grades a folder of candidates.

Runs where nothing but torch, triton and numpy is installed. JOB holds ``job.json`` and the source
files that it names::

    {"chip": "nvidia", "tier": "full", "settings": {"timeout_s": 60},
     "candidates": [{"operator": "aten::softmax", "candidate": "<id>", "language": "triton",
                     "entry": "", "file": "candidates/<id>.py"}]}

OUT gets ``verdicts/<operator>.<first 16 digits of the id>.json``, each written whole as soon as it
is there. What is there already is not graded again, save `infrastructure_error`; so the same
command resumes. Exit status: 0 all candidates have verdicts, 2 the job cannot be read, 3 some are
`infrastructure_error`, 130 interrupted. Device layer.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kernelmark.evaluators.chips.registry import get_chip
from kernelmark.evaluators.grading.judge import Settings, grade
from kernelmark.evaluators.grading.records import Candidate, Verdict, from_json, to_json
from kernelmark.evaluators.grading.workers import close_servers, shared_server
from kernelmark.operators.registry import UnknownName, get_operator

_KEYS = {"run", "chip", "tier", "candidates", "settings", "schema_version"}


class JobError(ValueError):
    """The job folder is not as it should be; one line for whoever made it."""


@dataclass(frozen=True)
class Job:
    """What is to be graded, on which chip, how."""

    chip: str
    settings: Settings
    candidates: tuple[Candidate, ...]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its exit status."""
    parser = argparse.ArgumentParser(prog="python -m kernelmark.evaluators.grading")
    parser.add_argument("job", type=Path, metavar="JOB", help="folder with job.json")
    parser.add_argument("out", type=Path, metavar="OUT", help="folder that gets verdicts/")
    parser.add_argument("--no-timing", action="store_true", help="correctness only")
    parser.add_argument("--index", type=int, default=0, help="which accelerator")
    options = parser.parse_args(arguments)
    try:
        job = read_job(options.job)
        settings = replace(job.settings, index=options.index)
        if options.no_timing:
            settings = replace(settings, timing=False)
        return run(replace(job, settings=settings), options.out)
    except (JobError, UnknownName) as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; the same command goes on where this one stopped", file=sys.stderr)
        return 130
    finally:
        close_servers()


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
    except (TypeError, ValueError, KeyError) as error:
        raise JobError(f"{path}: {error}") from error
    return Job(data["chip"], settings, candidates)


def run(job: Job, out: Path) -> int:
    """Grades what has no verdict in `out` yet, a line each on standard output."""
    chip = get_chip(job.chip)
    # The server gets ready while the operators are imported.
    shared_server(chip, job.settings.index, job.settings.baseline_cache)
    for candidate in job.candidates:
        get_operator(candidate.operator)  # a wrong name is reported before any work is done
    (out / "verdicts").mkdir(parents=True, exist_ok=True)
    failures = 0
    for number, candidate in enumerate(job.candidates, 1):
        path = verdict_path(out, candidate)
        where = f"[{number}/{len(job.candidates)}] {candidate.operator} {candidate.id[:12]}"
        if _is_graded(path):
            print(f"{where} has a verdict", flush=True)
            continue
        begin = time.monotonic()
        verdict = grade(candidate, get_operator(candidate.operator), chip, job.settings)
        write_atomically(path, json.dumps(to_json(verdict)))
        failures += verdict.status == "infrastructure_error"
        seconds = time.monotonic() - begin
        print(f"{where} {verdict.status} ({seconds:.1f} s): {verdict.message}", flush=True)
    return 3 if failures else 0


def verdict_path(out: Path, candidate: Candidate) -> Path:
    """Where a candidate's verdict is stored in a run folder."""
    name = candidate.operator.replace("::", ".", 1)
    return out / "verdicts" / f"{name}.{candidate.id[:16]}.json"


def write_atomically(path: Path, text: str) -> None:
    """Writes a file that is seen whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text)
    os.replace(temporary, path)


def _is_graded(path: Path) -> bool:
    try:
        verdict = from_json(Verdict, json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        return False
    return verdict.status != "infrastructure_error"


def _candidate(folder: Path, item: dict[str, Any]) -> Candidate:
    path = (folder / item["file"]).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise JobError(f"{item['file']} lies outside the job folder")
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
