"""Takes the one source file out of a model's reply, or says why it cannot.

It never guesses in silence: what was taken, of what there was, is told in the note.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

_FENCE = re.compile(r"^(?P<indent>[ \t]*)(?P<mark>`{3,}|~{3,})[ \t]*(?P<info>[^`]*)$")
#: blocks whose problems are told
MOST_TOLD = 6
#: what local servers leave in the text of a model that thinks aloud
_THOUGHT = re.compile(r"\s*<(think|thinking|reasoning)>")
_THOUGHT_ENDS = re.compile(r"</(think|thinking|reasoning)>")


class ReplyError(ValueError):
    """No source could be taken; the message says why."""


@dataclass(frozen=True)
class Source:
    """A source taken out of a reply. `note` says which part of the reply it is, and why that."""

    text: str
    note: str


@dataclass(frozen=True)
class _Block:
    """A fenced block. `problem`: why it is no file with the entry point; empty where it is one."""

    number: int  #: from 1, in the order of the reply
    text: str
    label: str  #: what stands after the opening fence
    closed: bool
    problem: str

    def __str__(self) -> str:
        label = f" ({self.label})" if self.label else ""
        return f"block {self.number}{label}"


def extract_python(reply: str, entry: str, *, cut: bool = False) -> Source:
    """The Python file in `reply` that defines `entry`.

    Rule: what stands before a closing ``</think>`` is not the answer. Of the fenced blocks that
    parse and define `entry` the last one is taken; a block ends at the first closing fence that
    makes it such a file, so that fences in docstrings do no harm. Without any fence the reply
    itself is taken, if it parses and defines `entry`. Labels (```` ```cpp ````) are reported, not
    believed: the parser decides. `cut`: the reply was ended by a length limit, so that a block
    without its closing fence is a part of a file and is not taken. Raises `ReplyError`.
    """
    text = reply.replace("\r\n", "\n").removeprefix("\N{ZERO WIDTH NO-BREAK SPACE}")
    answer, thought = _answer(text, cut)
    blocks = list(_blocks(answer, entry, cut))
    if not blocks:
        return _bare(answer, entry, cut, thought)
    usable = [block for block in blocks if not block.problem]
    if not usable:
        listed = "; ".join(_told(blocks))
        raise ReplyError(f"no code block holds a whole file with `{entry}` ({listed})")
    return Source(usable[-1].text, "; ".join([_why(blocks, usable, entry), *thought]))


def _why(blocks: list[_Block], usable: list[_Block], entry: str) -> str:
    """Which block was taken, and what else there was."""
    chosen = usable[-1]
    if len(blocks) == 1:
        told = "the reply's one code block"
    elif len({block.text for block in usable}) > 1:
        told = f"{chosen} of {len(blocks)}: {len(usable)} define `{entry}`; the last was taken"
    else:
        told = f"{chosen} of {len(blocks)}: it defines `{entry}`"
    notes = [told, *_told([block for block in blocks if block.problem])]
    if not chosen.closed:
        notes.append("the block was not closed")
    return "; ".join(notes)


def _told(blocks: list[_Block]) -> list[str]:
    """What is the matter with each block; of very many the first few."""
    told = [f"{block}: {block.problem}" for block in blocks[:MOST_TOLD]]
    more = len(blocks) - len(told)
    return [*told, f"and {more} more blocks"] if more else told


def _answer(reply: str, cut: bool) -> tuple[str, list[str]]:
    """The reply without a model's thoughts, and a note where there were some."""
    closings = list(_THOUGHT_ENDS.finditer(reply))
    if closings:
        return reply[closings[-1].end() :], [f"what stands before {closings[-1][0]} was left out"]
    opening = _THOUGHT.match(reply)
    if opening and cut:
        raise ReplyError(f"the reply was cut inside its thoughts ({opening[0].strip()})")
    return reply, []


def _bare(reply: str, entry: str, cut: bool, thought: list[str]) -> Source:
    if not reply.strip():
        raise ReplyError("the reply is empty")
    if cut:
        raise ReplyError("the reply was cut, and holds no code block")
    problem = _problem(reply, entry)
    if problem:
        raise ReplyError(f"the reply holds no code block, and is no Python file itself: {problem}")
    return Source(reply, "; ".join(["the reply had no code block; it was taken whole", *thought]))


def _blocks(reply: str, entry: str, cut: bool) -> Iterator[_Block]:
    """Fenced blocks, in order. See `extract_python` for where one ends."""
    lines = reply.split("\n")
    at, number = 0, 0
    while at < len(lines):
        fence = _FENCE.match(lines[at])
        if fence is None:
            at += 1
            continue
        number += 1
        block, at = _block(lines, at, fence, number, entry, cut)
        yield block


def _block(
    lines: list[str], start: int, fence: re.Match[str], number: int, entry: str, cut: bool
) -> tuple[_Block, int]:
    """The block whose opening fence is line `start`, and the line to go on from."""
    label = fence["info"].strip()
    ends = [i for i in range(start + 1, len(lines)) if _closes(lines[i], fence["mark"])]
    first: _Block | None = None
    for end in ends:
        text = _text(lines[start + 1 : end], fence["indent"])
        block = _Block(number, text, label, True, _problem(text, entry))
        if not block.problem:
            return block, end + 1
        first = first or block
        if not _could_go_on(text):
            break
    if first is not None:
        return first, ends[0] + 1
    text = _text(lines[start + 1 :], fence["indent"])
    problem = "the reply was cut inside it" if cut else _problem(text, entry)
    return _Block(number, text, label, False, problem), len(lines)


def _closes(line: str, mark: str) -> bool:
    fence = _FENCE.match(line)
    return fence is not None and fence["mark"].startswith(mark) and not fence["info"].strip()


def _could_go_on(text: str) -> bool:
    """Whether `text` stops inside a string, as a file does at a fence in its docstring."""
    return any(text.count(quotes) % 2 for quotes in ('"""', "'''"))


def _text(lines: list[str], indent: str) -> str:
    """A block's text; that of an indented fence (in a list) loses the fence's indentation."""
    return "\n".join(line.removeprefix(indent) for line in lines).rstrip("\n") + "\n"


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
