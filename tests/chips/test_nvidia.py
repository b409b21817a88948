"""The driver's version, in the words of both of NVIDIA's kernel modules."""

from __future__ import annotations

import re

import pytest

from kernelmark.evaluators.chips.nvidia import CHIP, DRIVER_LINE


@pytest.mark.parametrize(
    ("line", "version"),
    [
        (
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19 18:56:32 UTC",
            "535.129.03",
        ),
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build",
            "580.95.05",
        ),
    ],
)
def test_the_version_is_found_in_either_line(line: str, version: str) -> None:
    found = re.search(DRIVER_LINE, line + "\nGCC version:  gcc version 12.2.0\n")
    assert found is not None
    assert found[1] == version


def test_where_nothing_tells_it_there_is_none() -> None:
    told = CHIP.driver_version()
    assert told == "" or re.fullmatch(r"[\d.]+", told)
