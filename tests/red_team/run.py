"""Grades the whole red team on a chip and prints the table: one command, no packages but torch.

    python -m tests.red_team.run --chip nvidia --out red_team.json

With several accelerators, each can grade a share: `--share 1/2` on one, `--share 2/2` on the other.
The exit status is 1 if any candidate got a status that it must not get.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kernelmark.evaluators.chips.base import Chip
from kernelmark.evaluators.chips.registry import get_chip
from kernelmark.evaluators.grading.judge import Settings, grade
from kernelmark.evaluators.grading.records import Verdict, to_json
from kernelmark.operators.registry import get_operator
from tests.red_team.corpus import Specimen, dishonest, honest, references

#: a candidate that hangs is waited for this long, others as long as compiling may take
HANG_TIMEOUT_S = 8.0
TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Row:
    """One candidate and what became of it."""

    specimen: Specimen
    verdict: Verdict
    seconds: float

    @property
    def right(self) -> bool:
        """Whether the judge said what it must say."""
        return self.verdict.status in self.specimen.statuses


def settings_for(
    specimen: Specimen, *, tier: str = "small", timing: bool = False, draws: int | None = None
) -> Settings:
    """How a specimen is graded: by the rules of the board, but with less patience for hangs."""
    hangs = specimen.statuses == ("timed_out",)
    return Settings(
        tier="full" if tier == "full" else "small",
        timing=timing,
        draws=draws,
        timeout_s=HANG_TIMEOUT_S if hangs else TIMEOUT_S,
    )


def judge(specimen: Specimen, chip: Chip, settings: Settings | None = None) -> Row:
    """Grades one specimen."""
    began = time.monotonic()
    operator = get_operator(specimen.candidate.operator)
    verdict = grade(specimen.candidate, operator, chip, settings or settings_for(specimen))
    return Row(specimen, verdict, time.monotonic() - began)


def main(arguments: Sequence[str] | None = None) -> int:
    """Grades everything that makes sense on the chip; 1 if anything got the wrong status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--chip", default="interpreter")
    parser.add_argument("--tier", default="small", choices=("small", "full"))
    parser.add_argument("--timing", action="store_true", help="time honest candidates too")
    parser.add_argument("--match", default="", help="only names that contain this")
    parser.add_argument("--out", type=Path, help="where to write all verdicts, as JSON")
    parser.add_argument("--no-references", action="store_true", help="specimens alone")
    parser.add_argument("--share", default="1/1", help="which part of how many: 1/2")
    options = parser.parse_args(arguments)
    chip = get_chip(options.chip)
    part, parts = map(int, options.share.split("/"))
    specimens = [*dishonest(), *honest(), *([] if options.no_references else references())]
    wanted = [s for s in specimens if options.chip in s.chips and options.match in s.name]
    rows = []
    for specimen in wanted[part - 1 :: parts]:
        timing = options.timing and specimen.statuses == ("passed",)
        settings = settings_for(specimen, tier=options.tier, timing=timing)
        rows.append(row := judge(specimen, chip, settings))
        print(_line(row), flush=True)
    wrong = [row for row in rows if not row.right]
    print(f"{len(rows) - len(wrong)} of {len(rows)} right on {options.chip}")
    if options.out:
        options.out.write_text(json.dumps([_record(row) for row in rows], indent=1))
    return 1 if wrong else 0


def _line(row: Row) -> str:
    mark = "ok   " if row.right else "WRONG"
    expected = "" if row.right else f" (must be {'|'.join(row.specimen.statuses)})"
    text = f"{mark} {row.seconds:6.1f} s  {row.specimen.name:44} {row.verdict.status}{expected}"
    return text if row.right else f"{text}\n      {row.verdict.message}"


def _record(row: Row) -> dict[str, object]:
    return {
        "name": row.specimen.name,
        "about": row.specimen.about,
        "right": row.right,
        "expected": row.specimen.statuses,
        "seconds": row.seconds,
        "verdict": to_json(row.verdict),
    }


if __name__ == "__main__":
    sys.exit(main())
