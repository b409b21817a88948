"""What a preset is: one file in this folder, one `PRESET` in it, that declares how a command-line
agent is started: its program, its arguments, how it is told where its model is.

A preset starts nothing and reads nothing; `evaluators/methods/command.py` does the work.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Seat:
    """What one agent is given for one attempt.

    `url` is the gateway's for this attempt, without the API's version; `token` is the key it takes
    there, worth nothing anywhere else. Paths are those that the agent sees.
    """

    url: str
    token: str
    model: str
    prompt: str
    home: str
    workspace: str
    candidate: str  #: file name in the workspace


@dataclass(frozen=True)
class Start:
    """How an agent is started: words after its program, variables, and files of its home."""

    arguments: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Preset:
    """A command-line agent. `provider`: whose words it speaks, ``openai``, ``anthropic`` or
    ``gemini``. `tested`: the version that the project's own tests run. `install`: where it comes
    from."""

    program: str
    provider: str
    tested: str
    install: str
    start: Callable[[Seat], Start]
    version: tuple[str, ...] = ("--version",)
