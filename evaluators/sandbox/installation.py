"""Where a program is installed: what a sandbox must show for it to run.

Follows links, and the interpreter that a script names: Node packages show their ``node_modules``,
Python programs their environment and the Python below it, native programs themselves.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

_SYSTEM = ("/usr/", "/bin/", "/sbin/", "/lib")
_ENV = ("env", "-S")


@dataclass(frozen=True)
class Installation:
    """`program`: its real path. `visible`: what must be shown. `path`: folders for ``PATH``."""

    program: str
    visible: tuple[str, ...]
    path: tuple[str, ...]


def find_installation(name: str) -> Installation | None:
    """The installation of program `name` (on ``PATH``) or path; None where there is none."""
    found = shutil.which(os.path.expanduser(name))
    if found is None:
        return None
    program = os.path.realpath(found)
    visible = {_package(program)}
    path = [os.path.dirname(program)]
    interpreter = _interpreter(program)
    if interpreter:
        visible |= _python_folders(interpreter)
        below = find_installation(interpreter)
        if below is not None:
            visible |= set(below.visible)
            path += [os.path.dirname(interpreter), *below.path]
    shown = sorted(p for p in visible if not p.startswith(_SYSTEM))
    outer = [p for p in shown if not any(p != q and p.startswith(f"{q}/") for q in shown)]
    kept = [folder for folder in dict.fromkeys(path) if not f"{folder}/".startswith(_SYSTEM)]
    return Installation(program, tuple(outer), tuple(kept))


def _package(program: str) -> str:
    """The outermost ``node_modules`` around a program, or the program alone."""
    parts = Path(program).parts
    if "node_modules" in parts:
        return str(Path(*parts[: parts.index("node_modules") + 1]))
    return program


def _interpreter(program: str) -> str:
    """The absolute path of what runs a script; empty for what is none, or cannot be found."""
    with open(program, "rb") as file:
        first = file.readline(4096)
    if not first.startswith(b"#!"):
        return ""
    words = first[2:].decode(errors="replace").split()
    while words and os.path.basename(words[0]) in _ENV:
        words = words[1:]
    return (shutil.which(words[0]) or "") if words else ""


def _python_folders(interpreter: str) -> set[str]:
    """Folders of the Python that `interpreter` is; none where it is something else."""
    if not os.path.basename(interpreter).startswith("python"):
        return set()
    folders = {os.path.dirname(os.path.dirname(os.path.realpath(interpreter)))}
    environment = os.path.dirname(os.path.dirname(os.path.abspath(interpreter)))
    if os.path.isfile(f"{environment}/pyvenv.cfg"):
        folders.add(environment)
    return folders
