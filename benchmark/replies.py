"""Takes the one source file out of a model's reply, or says why it cannot.

It never guesses: a choice between several blocks follows the rule below and is told in the note.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

_FENCE = re.compile(r"^[ \t]*(?P<mark>`{3,}|~{3,})[ \t]*(?P<info>[^`\n]*)$")


class ReplyError(ValueError):
    """No source could be taken; the message says why."""


@dataclass(frozen=True)
class Source:
    """A source taken out of a reply. `note` tells of anything that had to be decided."""

    text: str
    note: str = ""


@dataclass(frozen=True)
class _Block:
    text: str
    closed: bool


def extract_python(reply: str, entry: str, *, cut: bool = False) -> Source:
    """The Python file in `reply` that defines `entry`.

    Rule: of the fenced blocks that parse and define `entry` the last one is taken. Without any
    fence the reply itself is, if it parses and defines `entry`. `cut`: the reply was ended by a
    length limit, so that a block without its closing fence is a part of a file and is not taken.
    Raises `ReplyError`.
    """
    blocks = _blocks(reply)
    if not blocks:
        return _bare(reply, entry, cut)
    problems: list[str] = []
    usable: list[_Block] = []
    for block in blocks:
        problem = "the reply was cut inside it" if cut and not block.closed else ""
        problem = problem or _problem(block.text, entry)
        if problem:
            problems.append(problem)
        else:
            usable.append(block)
    if not usable:
        listed = "; ".join(f"block {i}: {text}" for i, text in enumerate(problems, 1))
        raise ReplyError(f"no code block holds a whole file with `{entry}` ({listed})")
    chosen = usable[-1]
    notes = []
    if len({block.text for block in usable}) > 1:
        notes.append(f"{len(usable)} blocks define `{entry}`; the last was taken")
    if not chosen.closed:
        notes.append("the block was not closed")
    return Source(chosen.text, "; ".join(notes))


def _bare(reply: str, entry: str, cut: bool) -> Source:
    if not reply.strip():
        raise ReplyError("the reply is empty")
    if cut:
        raise ReplyError("the reply was cut, and holds no code block")
    problem = _problem(reply, entry)
    if problem:
        raise ReplyError(f"the reply holds no code block, and is no Python file itself: {problem}")
    return Source(reply, "the reply had no code block; it was taken whole")


def _blocks(reply: str) -> list[_Block]:
    """Fenced blocks, in order. A fence ends with a bare one of its own mark, as long or longer."""
    blocks: list[_Block] = []
    lines: list[str] | None = None
    mark = ""
    for line in reply.splitlines():
        fence = _FENCE.match(line)
        if lines is None:
            if fence:
                lines, mark = [], fence["mark"]
        elif fence and fence["mark"].startswith(mark) and not fence["info"].strip():
            blocks.append(_Block("\n".join(lines) + "\n", closed=True))
            lines = None
        else:
            lines.append(line)
    if lines is not None:
        blocks.append(_Block("\n".join(lines) + "\n", closed=False))
    return blocks


def _problem(source: str, entry: str) -> str:
    """Why `source` is no file with `entry`; empty where it is one."""
    try:
        source.encode()
        tree = ast.parse(source)
    except SyntaxError as error:
        return f"line {error.lineno}: {error.msg}"
    except (ValueError, RecursionError, MemoryError) as error:
        return f"cannot be parsed: {error}"
    functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    if entry in functions:
        return ""
    return f"defines {', '.join(functions) or 'no function'}"
