"""A machine with eight accelerators, simulated: a chip by entry point, and grades that sleep.

`install` makes a folder that, on `sys.path`, holds the chip ``simulated`` as a vendor's package
would. Its accelerators are the CPU under Triton's interpreter, told apart by a variable.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path

from kernelmark.evaluators.chips.base import Chip, Detection, Health
from kernelmark.evaluators.chips.interpreter import Interpreter
from kernelmark.evaluators.grading.records import Candidate, Verdict
from kernelmark.evaluators.grading.settings import Settings

VARIABLE = "CUDA_SIMULATED_DEVICES"  # helpers inherit what begins with CUDA_
SLEEP = "simulated_chip:sleep"


@dataclass(eq=False)
class Simulated(Interpreter):
    """The chip ``simulated``. An accelerator whose number ends in ``sick`` does not compute."""

    name: str = "simulated"
    vendor: str = "nobody"
    attests: str = "executed"
    visible_variable: str = VARIABLE

    def detect(self) -> Detection:
        """All that the variable shows."""
        count = len(_visible(dict(os.environ)))
        return Detection(True, f"{count} simulated", sku="simulated", count=count)

    def prepare(self, environment: dict[str, str], index: int) -> None:
        """Shows a process one of those visible."""
        environment[VARIABLE] = _visible(environment)[index]
        environment["TRITON_INTERPRET"] = "1"

    def health(self, index: int = 0) -> Health:
        """By its number."""
        return Health(not _visible(dict(os.environ))[index].endswith("sick"), "as its number says")


CHIP = Simulated()


def sleep(candidate: Candidate, chip: Chip, settings: Settings) -> Verdict:
    """A grade of known length: does what the candidate's comments say, and writes down when.

    ``# sleep S``, ``# log FILE``, ``# die FILE`` (kills its process, once: where FILE is not there
    yet), ``# status S``.
    """
    orders = dict(line[2:].split(maxsplit=1) for line in candidate.source.splitlines() if line)
    begin = time.time()
    if (once := orders.get("die")) and not Path(once).exists():
        Path(once).write_text("died")
        os.kill(os.getpid(), 9)
    time.sleep(float(orders.get("sleep", 0)))
    if log := orders.get("log"):
        entry = {"device": os.environ[VARIABLE], "begin": begin, "end": time.time()}
        with open(log, "a") as file:
            file.write(json.dumps(entry) + "\n")
    status = orders.get("status", "passed")
    named = (candidate.operator, candidate.id, chip.name, chip.attests)
    return Verdict(*named, status, "slept")  # type: ignore[arg-type]


def install(folder: Path) -> str:
    """Makes the package's metadata in `folder`; what is to stand on `sys.path`."""
    about = folder / "simulated_chip-1.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: simulated-chip\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[kernelmark.chips]\nsimulated = simulated_chip:CHIP\n")
    return os.pathsep.join([str(folder), str(Path(__file__).parent)])


def _visible(environment: dict[str, str]) -> list[str]:
    shown = environment.get(VARIABLE, "")
    return shown.split(",") if shown else [str(number) for number in range(8)]
