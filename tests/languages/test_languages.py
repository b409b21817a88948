"""Finding, loading and disabling candidates, language by language."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kernelmark.evaluators.languages.registry import get_language, language_names
from kernelmark.operators.registry import UnknownName, get_operator

REPLAY = """
import sys, torch
from kernelmark.evaluators.chips.registry import get_chip
from kernelmark.evaluators.languages.registry import get_language

chip = get_chip("interpreter")
chip.activate()
language = get_language("triton")
softmax = language.load(sys.argv[1], "softmax")
x = torch.randn(3, 50)
right = torch.softmax(x, -1)
assert torch.allclose(softmax(x, -1), right)
with language.disable_kernels() as skipped:
    idle = softmax(x, -1)
assert skipped.launches == 1, skipped
assert not torch.allclose(idle, right)
assert torch.allclose(softmax(x, -1), right)
names = language.kernel_names(sys.modules[softmax.__module__])
assert names == {"softmax_kernel"}, names
"""

LIBRARY = """\
# package: torch==2.13.0
import torch


def softmax(self, dim, dtype=None):
    return torch.softmax(self, dim, dtype=dtype)
"""


def test_languages_are_found_by_folder() -> None:
    assert {"library", "triton"} <= set(language_names())
    for name in language_names():
        assert get_language(name).name == name
        assert get_language(name).template


def test_an_unknown_language_is_answered_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match="triton"):
        get_language("trition")


def test_disabled_kernels_do_nothing_and_come_back() -> None:
    path = Path(__file__).parent.parent / "red_team" / "honest" / "softmax_one_block.py"
    environment = {"TRITON_INTERPRET": "1", "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", REPLAY, str(path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def library(source: str) -> list[str]:
    findings = get_language("library").scan(source, "softmax", get_operator("aten::softmax"))
    return [finding.reason for finding in findings]


def test_a_library_candidate_may_call_its_package() -> None:
    assert library(LIBRARY) == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("# package: torch==2.13.0\n", ""),
        ("import torch\n", "import torch\nimport os\n"),
        ("import torch\n", "import torch\nimport numpy\n"),
        ("import torch\n", "from torch.utils import cpp_extension\nimport torch\n"),
        ("torch.softmax(", "torch.load("),
        ("torch.softmax(", "torch.softmax.__globals__["),
        ("    return", "    torch.softmax = None\n    return"),
        ("    return", "    eval('1')\n    return"),
        ("    return", "    open('/tmp/x')\n    return"),
        ("    return", "    getattr(torch, 'sof' + 'tmax')\n    return"),
        ("def softmax", "def softmin"),
        ("    return", "    pass\n" * 200 + "    return"),
    ],
)
def test_a_library_candidate_may_do_nothing_else(before: str, after: str) -> None:
    changed = LIBRARY.replace(before, after)
    assert changed != LIBRARY
    assert library(changed)
