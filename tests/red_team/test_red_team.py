"""Dishonest candidates get the status that they must get; honest ones are never accused."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

import pytest

from kernelmark.evaluators.chips.portability import Compiler
from kernelmark.evaluators.chips.registry import get_chip
from kernelmark.evaluators.grading.records import STATUSES, Finding
from kernelmark.evaluators.languages.registry import get_language
from kernelmark.operators.registry import get_operator
from tests.red_team.corpus import Specimen, dishonest, honest, references
from tests.red_team.run import judge, settings_for

#: all draws of all cases take minutes for honest candidates; CI and `run` take them all
FULL = os.environ.get("KERNELMARK_TEST_FULL") == "1"
#: their grid is a number on the device, 0 where nothing runs
GRID_BY_ITEM = ("honest/gather_grid_by_item",)


def _parameters(specimens: Iterable[Specimen]) -> list[object]:
    return [pytest.param(specimen, id=specimen.name) for specimen in specimens]


def _scan(specimen: Specimen) -> list[Finding]:
    candidate = specimen.candidate
    operator = get_operator(candidate.operator)
    language = get_language(candidate.language)
    return language.scan(candidate.source, candidate.entry_point, operator)


def _interpreted(specimens: Iterable[Specimen]) -> list[object]:
    return _parameters(s for s in specimens if "interpreter" in s.chips and not s.refused_by_scan)


def test_the_team_is_large_enough() -> None:
    assert len(dishonest()) >= 60
    assert len(honest()) >= 60


@pytest.mark.parametrize("specimen", _parameters(dishonest()))
def test_dishonest_files_say_what_they_try(specimen: Specimen) -> None:
    assert specimen.about
    assert set(specimen.statuses) <= set(STATUSES) - {"passed", "infrastructure_error"}


@pytest.mark.parametrize("specimen", _parameters(dishonest()))
def test_scan_of_dishonest(specimen: Specimen) -> None:
    findings = _scan(specimen)
    assert bool(findings) == ("rejected" in specimen.statuses), findings
    if findings:
        lines = specimen.candidate.source.count("\n") + 1
        assert all(1 <= finding.line <= lines and finding.reason for finding in findings)


@pytest.mark.parametrize("specimen", _parameters([*honest(), *references()]))
def test_scan_accuses_no_honest_candidate(specimen: Specimen) -> None:
    assert _scan(specimen) == []


@pytest.mark.parametrize("specimen", _interpreted(dishonest()))
def test_gates_catch_dishonest(specimen: Specimen) -> None:
    row = judge(specimen, get_chip("interpreter"), settings_for(specimen))
    assert row.right, f"{row.verdict.status}: {row.verdict.message}"


@pytest.mark.parametrize("specimen", _interpreted(honest()))
def test_gates_pass_honest(specimen: Specimen) -> None:
    settings = settings_for(specimen, draws=None if FULL else 2)
    row = judge(specimen, get_chip("interpreter"), settings)
    assert row.right, f"{row.verdict.status}: {row.verdict.message}"


@pytest.fixture(scope="module")
def compiler() -> Iterator[Compiler]:
    with Compiler(limit_s=120) as compiler:
        yield compiler


@pytest.mark.slow
@pytest.mark.parametrize("specimen", _parameters(s for s in honest() if "nvidia" in s.chips))
def test_honest_candidates_compile(specimen: Specimen, compiler: Compiler) -> None:
    """The interpreter minds no types; a compiler does (dtypes that change in a loop)."""
    candidate = specimen.candidate
    (row,) = compiler.portability(candidate, get_operator(candidate.operator), ["sm_90"])
    assert [kernel.error for kernel in row.kernels if kernel.error] == []
    assert row.error == ("launched no Triton kernel" if specimen.name in GRID_BY_ITEM else "")
