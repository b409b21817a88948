"""Which chip a grade or a run is on, and how much of an operator it covers. Imports no torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from kernelmark.benchmark.errors import UserError
from kernelmark.evaluators.chips.base import Chip
from kernelmark.evaluators.chips.registry import all_chips, compile_targets, get_chip
from kernelmark.operators.registry import UnknownName

if TYPE_CHECKING:
    from kernelmark.operators.records import Tier

#: stands for every compile target
ALL_TARGETS = "targets"


def usable_chip(name: str) -> Chip:
    """The chip `name`; ``auto`` is the first accelerator that works here, else the interpreter.

    `UnknownName`; `UserError` with the reason where it does not work here.
    """
    if name == "auto":
        chips = [chip for chip in all_chips().values() if chip.attests == "executed"]
        return next((c for c in chips if c.detect().usable), get_chip("interpreter"))
    chip = get_chip(name)
    found = chip.detect()
    if not found.usable:
        raise UserError(f"chip {name} cannot be used here: {found.why}")
    return chip


def tier_for(name: str, chip: Chip) -> Tier:
    """The tier `name`; ``auto`` is full where time counts, else small."""
    if name == "auto":
        return "full" if chip.attests == "executed" else "small"
    if name not in ("small", "full"):
        raise UnknownName("tier", name, ["auto", "small", "full"])
    return cast("Tier", name)


def split_chips(
    names: Sequence[str], *, here: bool = True
) -> tuple[tuple[Chip, ...], tuple[str, ...]]:
    """The chips to grade on, one at least, and the compile targets, of names from the command line.

    `here`: the chips must work on this machine.
    """
    known = compile_targets()
    targets: list[str] = []
    graded: list[str] = []
    for name in names:
        if name == ALL_TARGETS:
            targets += known
        elif name in known:
            targets.append(name)
        else:
            graded.append(name)
    if not graded:
        raise UserError("name a chip to grade on beside the compile targets, e.g. interpreter")
    chips = [usable_chip(name) if here else get_chip(name) for name in dict.fromkeys(graded)]
    return tuple({chip.name: chip for chip in chips}.values()), tuple(dict.fromkeys(targets))
