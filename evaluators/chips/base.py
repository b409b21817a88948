"""What a chip adapter is: one file in this folder, one `CHIP` in it.

Adapters are found by folder and, for out-of-tree vendors, by the entry point group
``kernelmark.chips``. Importing one probes nothing; `detect` does. Device layer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from kernelmark.evaluators.grading.records import Attestation


@dataclass(frozen=True)
class Peaks:
    """Spec-sheet ceilings of one SKU, dense, with their source and date.

    `flops_per_s` by dtype name (``float16``, ``tf32``, ...).
    """

    bytes_per_s: float
    flops_per_s: dict[str, float]
    last_level_cache_bytes: int
    source: str


@dataclass(frozen=True)
class Detection:
    """Whether a chip can be used here. `why` says why not, or what was found."""

    usable: bool
    why: str
    sku: str = ""
    count: int = 0


class Chip(Protocol):
    """A back end. `name` is the word on the command line; `device` torch's device type."""

    name: str
    vendor: str
    device: str
    attests: Attestation
    verified_on: str  #: last hardware it was verified on, or "never run on hardware"
    notes: str  #: toolchain notes that go into prompts
    dtypes: frozenset[str]

    def detect(self) -> Detection:
        """Looks for the hardware and the software it needs; never raises."""
        ...

    def prepare(self, environment: dict[str, str], index: int) -> None:
        """Sets the variables that a runner process needs (visible device, interpreter)."""
        ...

    def activate(self) -> None:
        """Called once in the runner before the candidate is imported (plug-ins, Triton driver)."""
        ...

    def synchronize(self) -> None:
        """Waits for all work on the device."""
        ...

    def peaks(self, sku: str) -> Peaks | None:
        """Ceilings of a SKU; None where they are not known."""
        ...

    def timer(self) -> Any | None:
        """A timer (`evaluators.grading.timing`), or None where speed is never measured."""
        ...
