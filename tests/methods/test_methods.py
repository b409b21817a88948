"""Methods: found by folder, made from options, each yields what it should."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kernelmark.benchmark.errors import UserError
from kernelmark.evaluators.campaigns.records import METHOD_KINDS
from kernelmark.evaluators.chips.registry import get_chip
from kernelmark.evaluators.grading.judge import grade
from kernelmark.evaluators.grading.records import Candidate, Verdict
from kernelmark.evaluators.grading.settings import Settings
from kernelmark.evaluators.languages.registry import get_language
from kernelmark.evaluators.methods.base import Message, Proposal, Reply, Task
from kernelmark.evaluators.methods.reference import KERNELS
from kernelmark.evaluators.methods.registry import make_method, method_class, method_names
from kernelmark.operators.registry import UnknownName, all_operators, get_operator

KERNEL = "def softmax(self, dim, dtype=None):\n    return self\n"


class Desk:
    """A workspace whose model gives one scripted reply and whose judge is out."""

    def __init__(self, root: Path, reply: Reply | None = None) -> None:
        self.root = root
        self.reply = reply
        self.asked: list[tuple[Sequence[Message], dict[str, Any]]] = []

    def complete(self, messages: Sequence[Message], **parameters: Any) -> Reply:
        assert self.reply is not None
        self.asked.append((messages, parameters))
        return self.reply

    def verify(self, candidate: Candidate) -> Verdict:
        raise AssertionError("no feedback was due")


def propose(name: str, options: dict[str, str], desk: Desk, op: str = "aten::softmax") -> Proposal:
    method = make_method(name, options)
    task = Task(get_operator(op), "interpreter", method.language, "the prompt")
    (proposal,) = method.propose(task, desk)
    return proposal


@pytest.mark.parametrize("name", method_names())
def test_every_method_says_what_it_is(name: str) -> None:
    method = method_class(name)
    assert method.kind in METHOD_KINDS
    assert method.summary
    kinds = get_language(method.language).kinds
    assert kinds is None or method.kind in kinds


def test_unknown_names_are_answered_with_near_ones(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="did you mean one-shot"):
        make_method("oneshot", {})
    with pytest.raises(UnknownName, match="did you mean path"):
        make_method("folder", {"pth": str(tmp_path)})


def test_options_are_converted_and_checked(tmp_path: Path) -> None:
    assert make_method("one-shot", {"temperature": "0.5"}).temperature == 0.5  # type: ignore[attr-defined]
    with pytest.raises(UserError, match="temperature: Input should be a valid number"):
        make_method("one-shot", {"temperature": "hot"})
    with pytest.raises(UserError, match="at least 1"):
        make_method("one-shot", {"max_output_tokens": "0"})
    with pytest.raises(UserError, match=r"needs -o path="):
        make_method("folder", {})
    with pytest.raises(UserError, match="no such folder"):
        make_method("folder", {"path": str(tmp_path / "none")})
    with pytest.raises(UserError, match=r"holds no \.py file"):
        make_method("folder", {"path": str(tmp_path)})


@pytest.mark.parametrize("name", ["aten/softmax.py", "aten.softmax.py", "softmax.py"])
def test_folder_finds_the_operators_file(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(KERNEL)
    desk = Desk(tmp_path)
    proposal = propose("folder", {"path": str(tmp_path)}, desk)
    assert proposal.candidate == Candidate("aten::softmax", KERNEL, "triton")
    missing = propose("folder", {"path": str(tmp_path)}, desk, "aten::sum")
    assert missing.failure == "no_candidate"


def test_folder_does_not_choose_between_two_files(tmp_path: Path) -> None:
    for name in ("softmax.py", "aten.softmax.py"):
        (tmp_path / name).write_text(KERNEL)
    with pytest.raises(UserError, match="more than one file for aten::softmax"):
        propose("folder", {"path": str(tmp_path)}, Desk(tmp_path))


@pytest.fixture(scope="module")
def kernels() -> list[Path]:
    return sorted(KERNELS.rglob("*.py"))


def test_every_reference_kernel_is_one_of_an_operator(kernels: list[Path]) -> None:
    assert kernels
    known = all_operators()
    for path in kernels:
        if path.name.startswith("_"):
            continue
        assert f"{path.parent.name}::{path.stem}" in known, path.name


def test_reference_hands_in_its_kernel(tmp_path: Path) -> None:
    proposal = propose("reference", {}, Desk(tmp_path))
    assert proposal.candidate is not None
    source = (KERNELS / "aten" / "softmax.py").read_text()
    assert proposal.candidate.source == source


@pytest.mark.parametrize("op", ["aten::softmax", "vllm::rms_norm"])
def test_torch_eager_is_accepted_as_a_library(tmp_path: Path, op: str) -> None:
    proposal = propose("torch-eager", {}, Desk(tmp_path), op)
    candidate = proposal.candidate
    assert candidate is not None
    assert candidate.language == "library"
    scan = get_language("library").scan
    assert scan(candidate.source, candidate.entry_point, get_operator(op)) == []


def test_torch_eager_passes_the_judge(tmp_path: Path) -> None:
    """It runs where the benchmark's operators are out of reach."""
    candidate = propose("torch-eager", {}, Desk(tmp_path)).candidate
    assert candidate is not None
    chip, operator = get_chip("interpreter"), get_operator("aten::softmax")
    verdict = grade(candidate, operator, chip, Settings(tier="small"))
    assert verdict.status == "passed", verdict.message


def test_a_package_that_is_not_here_is_named(tmp_path: Path) -> None:
    source = "# package: no-such-package==1.0\n# module: torch\nfrom torch import softmax\n"
    candidate = Candidate("aten::softmax", source, "library")
    chip, operator = get_chip("interpreter"), get_operator("aten::softmax")
    verdict = grade(candidate, operator, chip, Settings(tier="small"))
    assert verdict.status == "build_error"
    assert "no-such-package 1.0 is declared, and not installed here" in verdict.message
    other = replace(candidate, source=source.replace("no-such-package==1.0", "torch==1.0"))
    verdict = grade(other, operator, chip, Settings(tier="small"))
    assert "torch 1.0 is declared, " in verdict.message


def test_one_shot_asks_once_with_the_prompt(tmp_path: Path) -> None:
    desk = Desk(tmp_path, Reply(f"```python\n{KERNEL}```", "stop", "m"))
    proposal = propose("one-shot", {"max_output_tokens": "99"}, desk)
    assert proposal.candidate == Candidate("aten::softmax", KERNEL, "triton")
    ((messages, parameters),) = desk.asked
    assert messages == [{"role": "user", "content": "the prompt"}]
    assert parameters == {"temperature": 0.0, "max_tokens": 99}


@pytest.mark.parametrize(
    ("text", "finish", "why"),
    [("Sorry.", "stop", "no code block"), (f"```\n{KERNEL}", "length", "cut inside")],
)
def test_one_shot_without_code_says_why(tmp_path: Path, text: str, finish: str, why: str) -> None:
    proposal = propose("one-shot", {}, Desk(tmp_path, Reply(text, finish, "m")))
    assert proposal.failure == "no_candidate"
    assert why in proposal.note
