"""Scripted replies that make each real agent solve an operator with its own tools.

Two drafts: the first is wrong, `verify` says so, the second is right. Which step comes next is read
from the conversation itself, so background requests of an agent do not disturb it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from agent_runs import GOOD
from fakes.scripted_upstream import Asked, Reply, ToolCall

FIRST = "# draft one\n" + GOOD.replace("alpha * x + y", "alpha * x - y")
SECOND = "# draft two\n" + GOOD
#: what the conversation holds after each step
_MARKS = ("# draft one", "checked-one", "# draft two", "checked-two")
_MOST_REQUESTS = 40
_FILE = "/workspace/candidate.py"


@dataclass(frozen=True)
class Tools:
    """An agent's tools: names and arguments. `write` None: it writes by the shell."""

    shell: str
    shell_arguments: Callable[[str], dict[str, Any]]
    write: str | None = None
    write_arguments: Callable[[str], dict[str, Any]] = lambda text: {}


TOOLS = {
    "claude-code": Tools(
        "Bash",
        lambda command: {"command": command, "description": "run"},
        "Write",
        lambda text: {"file_path": _FILE, "content": text},
    ),
    "codex": Tools("exec_command", lambda command: {"cmd": command}),
    "gemini-cli": Tools(
        "run_shell_command",
        lambda command: {"command": command},
        "write_file",
        lambda text: {"file_path": _FILE, "content": text},
    ),
    "mini-swe-agent": Tools("bash", lambda command: {"command": command}),
    "opencode": Tools(
        "bash",
        lambda command: {"command": command, "description": "run"},
        "write",
        lambda text: {"filePath": _FILE, "content": text},
    ),
}


def script_for(preset: str) -> Callable[[Asked], Reply]:
    """The replies to an agent."""
    return _aider if preset == "aider" else lambda asked: _by_tools(preset, asked)


def is_background(asked: Asked, preset: str) -> bool:
    """A request beside the conversation: a title, a summary."""
    return preset != "aider" and not asked.tools


def _by_tools(preset: str, asked: Asked) -> Reply:
    if asked.number > _MOST_REQUESTS:
        return Reply(status=400)
    if is_background(asked, preset):
        return Reply(text="A kernel")
    tools = TOOLS[preset]

    def call(name: str, arguments: dict[str, Any]) -> Reply:
        made = ToolCall(name, arguments, id=f"call_{asked.number}")
        return Reply(text="Next.", tool_calls=[made])

    def run(command: str) -> Reply:
        return call(tools.shell, tools.shell_arguments(command))

    def write(text: str) -> Reply:
        if tools.write is not None:
            return call(tools.write, tools.write_arguments(text))
        return run(f"cat > {_FILE} <<'END'\n{text}\nEND")

    steps = sum(mark in asked.text for mark in _MARKS)
    if steps == len(_MARKS):
        end = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
        return run(end) if preset == "mini-swe-agent" else Reply(text="Done.")
    return (
        lambda: write(FIRST),
        lambda: run("verify; echo checked-one"),
        lambda: write(SECOND),
        lambda: run("verify; echo checked-two"),
    )[steps]()


def _aider(asked: Asked) -> Reply:
    """Aider has no tools: a reply holds the whole file, and it runs `verify` itself."""
    if asked.number > _MOST_REQUESTS:
        return Reply(status=400)
    text = SECOND if "# draft one" in asked.text else FIRST
    return Reply(text=f"candidate.py\n```\n{text}```\n")
