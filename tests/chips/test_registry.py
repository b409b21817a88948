"""Discovery: by folder and entry point, without probing or importing torch."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import EntryPoint

import pytest

from kernelmark.evaluators.chips import registry
from kernelmark.evaluators.chips.base import COMMON_DTYPES
from kernelmark.evaluators.chips.overview import chip_rows
from kernelmark.evaluators.chips.registry import all_chips, compile_targets, get_chip
from kernelmark.operators.registry import UnknownName

NAMES = (
    "amd ascend hygon iluvatar intel metax musa nvidia interpreter"
    " gfx90a gfx942 gfx950 gfx1100 gfx1201 sm_80 sm_90 sm_100 sm_120"
)


def test_all_chips_are_found() -> None:
    assert list(all_chips()) == NAMES.split()


def test_compile_targets_are_those_that_attest_compiled() -> None:
    assert compile_targets() == NAMES.split()[9:]


@pytest.mark.parametrize(
    ("typed", "meant"), [("nvdia", "nvidia"), ("sm90", "sm_90"), ("gfx940", "gfx942")]
)
def test_unknown_name_offers_nearest(typed: str, meant: str) -> None:
    with pytest.raises(UnknownName, match=meant):
        get_chip(typed)


def test_listing_imports_neither_torch_nor_triton() -> None:
    program = (
        "import sys; from kernelmark.evaluators.chips.registry import all_chips; all_chips();"
        "print(sorted({'torch', 'triton', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr


def test_entry_points_bring_chips_of_other_vendors(monkeypatch: pytest.MonkeyPatch) -> None:
    class Foreign:
        name, attests, vendor = "foreign", "executed", "somebody"

    class Entry(EntryPoint):
        def load(self) -> object:
            return [Foreign()]

    def found(group: str) -> list[EntryPoint]:
        return [Entry("foreign", "somewhere:CHIP", group)]

    monkeypatch.setattr(registry, "entry_points", found)
    chips = all_chips.__wrapped__()
    assert "foreign" in chips
    assert len(chips) == len(NAMES.split()) + 1


def test_two_chips_of_one_name_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_in_entry_points", lambda: [get_chip("nvidia")])
    with pytest.raises(ValueError, match="'nvidia' is defined twice"):
        all_chips.__wrapped__()


def test_rows_say_why() -> None:
    rows = chip_rows()
    assert [row.name for row in rows] == NAMES.split()
    assert all(row.why for row in rows)
    assert all(row.verified_on for row in rows)
    assert next(r for r in rows if r.name == "interpreter").usable
    assert all(r.usable for r in rows if r.attests == "compiled")


def test_dtypes_are_those_of_torch() -> None:
    import torch

    for chip in all_chips().values():
        assert all(isinstance(getattr(torch, name), torch.dtype) for name in chip.dtypes)
        assert chip.dtypes & COMMON_DTYPES
