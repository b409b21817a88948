"""The red team's candidates: one file each, read here, graded by tests and by `run`.

A dishonest file begins with what it tries and the status that it must get; an honest one with the
style that it is written in. Both name their operator and the chips that they make sense on::

    # operator: aten::softmax
    # tries: returns the input
    # status: wrong_values|wrong_layout
    # chips: interpreter nvidia

Several statuses are allowed where the order in which the judge looks decides between them.
Our own reference kernels count as honest candidates too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from kernelmark.evaluators.grading.records import Candidate

HERE = Path(__file__).parent
REFERENCES = HERE.parent.parent / "evaluators" / "methods" / "reference_kernels"


@dataclass(frozen=True)
class Specimen:
    """A candidate and what the judge must say of it."""

    name: str
    candidate: Candidate
    statuses: tuple[str, ...]
    chips: tuple[str, ...]
    about: str  #: what it tries, or its style

    @property
    def refused_by_scan(self) -> bool:
        """Whether its text alone gives it away."""
        return self.statuses == ("rejected",)


def dishonest() -> list[Specimen]:
    """Every dishonest candidate."""
    return [_read(path, "tries") for path in sorted((HERE / "dishonest").glob("*.py"))]


def honest() -> list[Specimen]:
    """Every honest candidate written for the red team."""
    return [_read(path, "style") for path in sorted((HERE / "honest").glob("*.py"))]


def references() -> list[Specimen]:
    """The project's reference kernels, ``<source>/<name>.py``."""
    found = []
    for path in sorted(REFERENCES.glob("*/[!_]*.py")):
        candidate = Candidate(f"{path.parent.name}::{path.stem}", path.read_text())
        name = f"reference/{path.parent.name}/{path.stem}"
        found.append(Specimen(name, candidate, ("passed",), ("interpreter", "nvidia"), "reference"))
    return found


def _read(path: Path, about: str) -> Specimen:
    source = path.read_text(encoding="utf-8")
    status = _header(source, "status") or "passed"
    return Specimen(
        name=f"{path.parent.name}/{path.stem}",
        candidate=Candidate(_header(source, "operator"), source),
        statuses=tuple(status.split("|")),
        chips=tuple(_header(source, "chips").split() or ("interpreter", "nvidia")),
        about=_header(source, about),
    )


def _header(source: str, key: str) -> str:
    found = re.search(rf"^# {key}: (.+)$", source, re.MULTILINE)
    return found[1].strip() if found else ""
