"""Presets: each tells its agent where its model is, and nothing that is not needed."""

from __future__ import annotations

from pathlib import Path

import agent_scripts
import install
import pytest

import kernelmark.operators
from kernelmark.evaluators.methods.agents.base import Seat
from kernelmark.evaluators.methods.agents.registry import get_preset, preset_names
from kernelmark.evaluators.methods.registry import make_method

SEAT = Seat(
    url="http://127.0.0.1:18080/r/run/op/1",
    token="token-of-this-attempt",
    model='odd "model" \\ name',
    prompt='Write {it} $HOME "now"\nand `verify`.',
    home="/home/agent",
    workspace="/workspace",
    candidate="candidate.py",
)
NAMES = preset_names()


@pytest.mark.parametrize("name", NAMES)
def test_it_is_told_its_task_and_its_model(name: str) -> None:
    start = get_preset(name).start(SEAT)
    assert SEAT.prompt in start.arguments  # one word, as it is
    told = "\n".join([*start.arguments, *start.environment.values(), *start.files.values()])
    assert SEAT.url in told
    assert SEAT.token in told
    assert "odd" in told


@pytest.mark.parametrize("name", NAMES)
def test_its_token_is_in_no_argument(name: str) -> None:
    assert not any(SEAT.token in word for word in get_preset(name).start(SEAT).arguments)


@pytest.mark.parametrize("name", NAMES)
def test_its_files_stay_in_its_home(name: str) -> None:
    for path in get_preset(name).start(SEAT).files:
        assert not Path(path).is_absolute()
        assert ".." not in Path(path).parts


@pytest.mark.parametrize("name", NAMES)
def test_it_makes_a_method_that_needs_a_model(name: str) -> None:
    method = make_method("command", {"preset": name, "sandbox": "none"})
    assert method.uses_model
    assert method.provider == get_preset(name).provider  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", NAMES)
def test_it_is_documented_and_tested(name: str) -> None:
    preset = get_preset(name)
    readme = (Path(kernelmark.operators.__file__).parents[1] / "README.md").read_text()
    assert f"| `{name}` | `{preset.program}` {preset.tested} |" in readme
    assert name in install.NPM_PACKAGES or name in install.PYTHON_PACKAGES
    assert name == "aider" or name in agent_scripts.TOOLS
