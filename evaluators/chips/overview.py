"""What `kernelmark chips` shows: every chip, whether it works here, and if not, why."""

from __future__ import annotations

from dataclasses import dataclass

from kernelmark.evaluators.chips.base import Chip
from kernelmark.evaluators.chips.registry import all_chips, get_chip
from kernelmark.evaluators.grading.records import Attestation


@dataclass(frozen=True)
class ChipRow:
    """One line of `kernelmark chips`."""

    name: str
    vendor: str
    usable: bool
    why: str
    attests: Attestation
    verified_on: str
    sku: str
    count: int
    driver: str


def chip_rows(names: list[str] | None = None) -> list[ChipRow]:
    """A row for each chip (default: all), usable or not. Probes. Raises `UnknownName`."""
    chips = list(all_chips().values()) if names is None else [get_chip(name) for name in names]
    return [_row(chip) for chip in chips]


def _row(chip: Chip) -> ChipRow:
    found = chip.detect()
    return ChipRow(
        chip.name,
        chip.vendor,
        found.usable,
        found.why,
        chip.attests,
        chip.verified_on,
        found.sku,
        found.count,
        found.driver,
    )
