"""What the documentation tells people to type is what the command line takes."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer

from kernelmark.benchmark import cli
from kernelmark.evaluators.chips.registry import all_chips
from kernelmark.evaluators.grading.__main__ import command_line

ROOT = Path(__file__).resolve().parents[1]
PAGES = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md"]
GRADING = ["python", "-m", "kernelmark.evaluators.grading"]


def commands(text: str) -> list[list[str]]:
    """Words of every command in the page's shell blocks, those inside ``bash -c`` too."""
    found = []
    for block in re.findall(r"```(?:bash|sh|console)\n(.*?)```", text, re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            found += _split(line.removeprefix("$ "))
    return found


def _split(line: str) -> list[list[str]]:
    words, parts = shlex.split(line, comments=True), []
    while words:
        end = next((i for i, word in enumerate(words) if word in ("&&", "|", ";")), len(words))
        part, words = words[:end], words[end + 1 :]
        parts.append(part)
        if "--" in part:  # what another program is to run
            parts.append(part[part.index("--") + 1 :])
        if "-c" in part:
            parts += _split(part[part.index("-c") + 1])
    return [part for part in parts if part]


def parse(words: list[str]) -> None:
    """Parses `words` as the command line does, and runs nothing. Raises where it would refuse."""
    command, parent, name = typer.main.get_command(cli.app), None, "kernelmark"
    arguments = words[1:]
    while True:
        context = command.make_context(name, list(arguments), parent=parent)
        if not hasattr(command, "resolve_command"):
            return
        rest = [*getattr(context, "_protected_args", []), *context.args]
        name, command, arguments = command.resolve_command(context, rest)
        parent = context


ALL = [
    pytest.param(words, id=f"{page.name}: {' '.join(words)[:60]}")
    for page in PAGES
    for words in commands(page.read_text())
    if words[0] == "kernelmark" or words[:3] == GRADING
]


@pytest.mark.parametrize("words", ALL)
def test_commands_are_those_of_the_command_line(words: list[str]) -> None:
    if words[0] == "kernelmark":
        parse(words)
    else:
        command_line().parse_args(words[3:])


@pytest.mark.parametrize(
    "line", ["kernelmark run --methd reference", "kernelmark rn", "kernelmark jobs export"]
)
def test_a_wrong_command_is_seen(line: str) -> None:
    with pytest.raises(Exception, match=r"(?i)no such|missing"):
        parse(line.split())


def test_every_vendor_has_its_example() -> None:
    page = (ROOT / "docs" / "vendors.md").read_text()
    graded = {words[3] for words in commands(page) if words[:3] == GRADING}
    vendors = {chip.name for chip in all_chips().values() if chip.attests == "executed"}
    assert graded == vendors
    for chip in vendors:
        runs = [w for w in commands(page) if w[:2] == ["kernelmark", "run"] and f"runs/{chip}" in w]
        ((*_, words),) = [runs]
        assert words[words.index("--chip") + 1].split(",")[0] == chip
        assert all_chips()[chip].visible_variable in page
