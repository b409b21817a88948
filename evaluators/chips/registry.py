"""Finds chips: every file of this folder that defines `CHIP` or `CHIPS`, and entry points.

An out-of-tree vendor names its chip in the entry point group ``kernelmark.chips``; the entry
loads as a `Chip` or a sequence of them. Listing probes no hardware.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable
from functools import cache
from importlib.metadata import entry_points
from typing import Any

import kernelmark.evaluators.chips as package
from kernelmark.evaluators.chips.base import Chip

ENTRY_POINT_GROUP = "kernelmark.chips"
#: files of this folder that are no chips; parts of chips begin with an underscore
_NOT_CHIPS = {"base", "accelerator", "registry", "portability", "overview", "here"}


@cache
def all_chips() -> dict[str, Chip]:
    """Every chip by name: accelerators, the interpreter, then compile targets, each sorted.

    Raises `ValueError` where two define the same name.
    """
    found: dict[str, Chip] = {}
    for chip in [*_in_folder(), *_in_entry_points()]:
        if chip.name in found:
            raise ValueError(f"chip {chip.name!r} is defined twice")
        found[chip.name] = chip
    rank = {"executed": 0, "interpreted": 1, "compiled": 2}
    return {c.name: c for c in sorted(found.values(), key=lambda c: (rank[c.attests], _order(c)))}


def get_chip(name: str) -> Chip:
    """The chip named `name`. Raises `UnknownName`, which offers the nearest names."""
    chips = all_chips()
    if name not in chips:
        from kernelmark.operators.registry import UnknownName  # imports torch; listing must not

        raise UnknownName("chip", name, list(chips))
    return chips[name]


def compile_targets() -> list[str]:
    """Names of the chips that need no hardware and attest `compiled`."""
    return [name for name, chip in all_chips().items() if chip.attests == "compiled"]


def _order(chip: Chip) -> tuple[str, int, str]:
    """By name; compile targets by vendor, ``sm_90`` before ``sm_100``."""
    if chip.attests == "compiled":
        return chip.vendor, len(chip.name), chip.name
    return "", 0, chip.name


def _in_folder() -> Iterable[Chip]:
    for info in pkgutil.iter_modules(package.__path__):
        if not info.name.startswith("_") and info.name not in _NOT_CHIPS:
            module = importlib.import_module(f"{package.__name__}.{info.name}")
            yield from _chips_of(getattr(module, "CHIPS", None) or module.CHIP)


def _in_entry_points() -> Iterable[Chip]:
    for entry in entry_points(group=ENTRY_POINT_GROUP):
        yield from _chips_of(entry.load())


def _chips_of(value: Any) -> Iterable[Chip]:
    return value if isinstance(value, list | tuple) else (value,)
